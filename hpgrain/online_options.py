"""Arguments of `build_online_text_dataset` in, checked options out.

They are keys of the configuration's `dataset` section and its seed. What they
must agree on is checked here for whoever writes a configuration, too.
"""

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any

from hpgrain.config_key import PATHS, Key
from hpgrain.config_schema import BY_NAME, FOREIGN
from hpgrain.config_values import check_value
from hpgrain.nearest import did_you_mean
from hpgrain.online_paths import OnlineSource, read_sources
from hpgrain.splits import SPLIT_NAMES, parse_split

_SECTIONS = ("dataset.data_config", "dataset", "training")


@dataclasses.dataclass(frozen=True, kw_only=True)
class OnlineOptions:
  """What `build_online_text_dataset` describes, one attribute an argument."""

  data_path: Any = None
  train_data_path: Any = None
  valid_data_path: Any = None
  test_data_path: Any = None
  dataset_type: str = "mapping"
  hf_dataset_name: str | None = None
  hf_config_name: str | None = None
  revision: str | None = None
  hf_train_split: str = "train"
  hf_valid_split: str | None = None
  hf_test_split: str | None = None
  cache_dir: str | None = None
  format: str | None = None
  split: str = "1, 0, 0"
  shuffle: bool = True
  shuffle_buffer_size: int = 10000
  split_by_data_parallel: bool = True
  data_cache_path: str | None = None
  seed: int = 0

  @property
  def hub_splits(self) -> tuple[str | None, str | None, str | None]:
    """The hub dataset's splits for train, valid and test."""
    return self.hf_train_split, self.hf_valid_split, self.hf_test_split

  @property
  def is_in_turn(self) -> bool:
    """Whether records have no numbers."""
    return self.dataset_type == "iterable"


def schema_keys() -> dict[str, Key]:
  """Returns the schema's line of each option, by the option's name."""
  return {
    field.name: dataclasses.replace(
      BY_NAME[full], name=field.name, default=field.default
    )
    for field in dataclasses.fields(OnlineOptions)
    for section in _SECTIONS
    if (full := f"{section}.{field.name}") in BY_NAME
  }


def signature(returns: Any) -> inspect.Signature:
  """Returns the signature of a function that takes the options by keyword."""
  options = inspect.signature(OnlineOptions)
  return options.replace(return_annotation=returns)


def read_options(arguments: Mapping[str, Any]) -> OnlineOptions:
  """Returns the arguments, checked.

  Raises:
    ValueError: for an argument there is none of, an illegal one, or some that
      contradict each other.
  """
  keys = schema_keys()
  for name in arguments:
    if name in FOREIGN and name not in keys:
      raise ValueError(f"There is no argument {name!r}: {FOREIGN[name]}.")
    if name not in keys:
      raise ValueError(
        f"There is no argument {name!r}.{did_you_mean(name, keys)} There are:"
        f" {', '.join(keys)}."
      )
  options = OnlineOptions(
    **{
      name: value
      if keys[name].kind == PATHS
      else check_value(keys[name], value)
      for name, value in arguments.items()
    }
  )
  check_together(options)
  return options


def file_sources(options: OnlineOptions) -> dict[str, list[OnlineSource]]:
  """Returns the sources that are files, by the key that names them.

  Raises:
    ValueError: a path is of an unknown form.
  """
  names = ("data_path", *(f"{split}_data_path" for split in SPLIT_NAMES))
  return {
    name: read_sources(getattr(options, name), key=f"dataset.{name}")
    for name in names
    if getattr(options, name) is not None
  }


def check_together(options: OnlineOptions) -> None:
  """Raises ValueError for options that contradict each other."""
  given = file_sources(options)
  own = [name for name in given if name != "data_path"]
  if options.hf_dataset_name is not None:
    if own:
      raise ValueError(
        f"dataset.data_config.hf_dataset_name and dataset.{own[0]} exclude each"
        " other. Name the dataset's split in"
        " dataset.data_config.hf_train_split, hf_valid_split or hf_test_split,"
        " or unset one of the two."
      )
  elif not given:
    raise ValueError(
      "dataset.data_path is missing. Give it files, a folder or a pattern, or"
      " set train_data_path, valid_data_path and test_data_path, or"
      " dataset.data_config.hf_dataset_name."
    )
  elif own and len(own) < len(given):
    raise ValueError(
      f"dataset.data_path and dataset.{own[0]} exclude each other: the first is"
      " cut by dataset.data_config.split, the second is one split whole. Unset"
      " one of them."
    )
  if not own:
    _check_split(options)


def _check_split(options: OnlineOptions) -> None:
  """Checks the shares of what the splits have in common."""
  _, *others = parse_split(options.split)
  if not any(others):
    return
  if options.is_in_turn:
    raise ValueError(
      f"dataset.data_config.split={options.split!r} cuts records by number, and"
      " dataset_type='iterable' does not know how many there are. Name valid"
      " and test by themselves (dataset.train_data_path and valid_data_path, or"
      " dataset.data_config.hf_valid_split), or set dataset_type='mapping'."
    )
  for name in ("hf_valid_split", "hf_test_split"):
    value = getattr(options, name)
    if value is not None:
      raise ValueError(
        f"dataset.data_config.split={options.split!r} and {name}={value!r}"
        " exclude each other: the first cuts hf_train_split, the second is one"
        " split whole. Unset one of them."
      )
