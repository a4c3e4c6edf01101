"""Arguments of `build_indexed_text_dataset` in, checked options out.

They are the keys of the configuration's `dataset.data_config`, its data paths
and its seed, and the schema's own checks are run on them: whoever calls from
Python gets the errors that whoever writes a configuration gets.
"""

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from hpgrain.arguments import integer
from hpgrain.config_key import PATHS, Key
from hpgrain.config_schema import BY_NAME, FOREIGN
from hpgrain.config_uses import USES
from hpgrain.config_values import check_value
from hpgrain.nearest import did_you_mean
from hpgrain.splits import SPLIT_NAMES
from hpgrain.tokenizer import TokenizerInfo

_SECTIONS = (
  "dataset.data_config",
  "dataset",
  "training",
  "dataloader",
  "get_batch",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DatasetOptions:
  """What `build_indexed_text_dataset` describes, one attribute an argument.

  Defaults are those of the configuration; `seed` and `seq_length` have none.
  """

  seed: int
  seq_length: int
  data_path: Any = None
  train_data_path: Any = None
  valid_data_path: Any = None
  test_data_path: Any = None
  split: str = "969, 30, 1"
  order: str = "stable"
  num_samples: Any = None
  data_sharding: int | None = None
  mock_data: bool = False
  is_dataset_from_mr: bool = False
  simple_blend: str | bool = "no"
  data_lazy_load: bool = False
  skip_data_check: bool = False
  add_extra_token_to_sequence: bool = True
  drop_last_partial_validation_sequence: bool = True
  create_ltor_fields_in_dataloader: bool = False
  data_cache_path: str | None = None
  data_index_cache: bool | None = None
  contiguous: bool = True
  mmap: bool = True
  max_open_files: int = 512
  vocab_size: int | None = None
  eod_id: int | None = None
  pad_id: int | None = None
  reset_position_ids: bool = False
  reset_attention_mask: bool = True
  eod_mask_loss: bool = False
  tokenizer: TokenizerInfo | None = None

  @property
  def split_paths(self) -> tuple[Any, Any, Any]:
    """The paths of train, valid and test alone."""
    return self.train_data_path, self.valid_data_path, self.test_data_path


def split_samples(options: DatasetOptions) -> tuple[int | None, ...]:
  """Returns the rows asked for of train, valid and test; None is an epoch."""
  asked = options.num_samples
  if asked is None or isinstance(asked, (int, np.integer)):
    return asked, None, None
  return tuple(asked)


def schema_keys() -> dict[str, Key]:
  """Returns the schema's line of each option, by the option's name.

  A default that depends on other keys is what it is for these data.
  """
  lines = {
    field: BY_NAME[full]
    for field in dataclasses.fields(DatasetOptions)
    for section in _SECTIONS
    if (full := f"{section}.{field.name}") in BY_NAME
  }
  missing = dataclasses.MISSING
  return {
    field.name: dataclasses.replace(
      key,
      name=field.name,
      default=key.default if field.default is missing else field.default,
    )
    for field, key in lines.items()
  }


def signature(returns: Any) -> inspect.Signature:
  """Returns the signature of a function that takes the options by keyword."""
  options = inspect.signature(DatasetOptions)
  return options.replace(return_annotation=returns)


def read_options(arguments: Mapping[str, Any]) -> DatasetOptions:
  """Returns the arguments, checked and completed.

  Raises:
    ValueError: for an argument there is none of, a missing or an illegal one,
      or some that contradict each other.
  """
  names = [field.name for field in dataclasses.fields(DatasetOptions)]
  arguments = {
    name: value
    for name, value in arguments.items()
    if name in names or not _is_unset(name, value)
  }
  for name in arguments:
    if name not in names and (key := _key_of_data(name)) is not None:
      raise ValueError(
        f"There is no argument {name!r} here: it has a meaning only for"
        f" {USES[key.only].words}, got {arguments[name]!r}. Leave it out."
      )
    if name in FOREIGN and name not in names:
      raise ValueError(f"There is no argument {name!r}: {FOREIGN[name]}.")
    if name not in names:
      raise ValueError(
        f"There is no argument {name!r}.{did_you_mean(name, names)} There are:"
        f" {', '.join(names)}."
      )
  keys = schema_keys()
  for name in ("seed", "seq_length"):
    if name not in arguments:
      raise ValueError(
        f"The argument {name!r} is missing. {keys[name].meaning}"
      )
  checked = {
    name: check_value(keys[name], value)
    if name in keys and keys[name].kind != PATHS
    else value
    for name, value in arguments.items()
  }
  options = DatasetOptions(**checked)
  _check_together(options)
  return options


def _key_of_data(name: str) -> Key | None:
  """The line of a key of `dataset.data_config`, of whatever data."""
  return BY_NAME.get(f"dataset.data_config.{name}")


def _is_unset(name: str, value: Any) -> bool:
  """Whether it is a key of other data that says nothing."""
  key = _key_of_data(name)
  return key is not None and value == key.default


def _check_together(options: DatasetOptions) -> None:
  """Raises ValueError for arguments that contradict each other."""
  _check_order(options)
  tokenizer = options.tokenizer
  if tokenizer is not None and not isinstance(tokenizer, TokenizerInfo):
    raise ValueError(
      "tokenizer must be an hpgrain.tokenizer.TokenizerInfo, got"
      f" {tokenizer!r}. Make it with"
      " tokenizer_info(load_tokenizer(path_or_name))."
    )
  shared = options.data_path is not None
  own = any(path is not None for path in options.split_paths)
  if shared and own:
    paths = ", ".join(f"{name}_data_path" for name in SPLIT_NAMES)
    raise ValueError(
      "data_path is shared out by `split`, and each of"
      f" {paths} is one split whole. Give one or the other."
    )
  if options.mock_data:
    if shared or own:
      raise ValueError(
        "mock_data=True reads no file, and a data path is given too. Leave one"
        " of them out."
      )
    return
  if not (shared or own):
    raise ValueError(
      "There is no data: set dataset.data_path to the prefix of an .idx/.bin"
      " pair, or dataset.train_data_path (and valid, test), or"
      " dataset.data_config.mock_data=True."
    )
  if options.simple_blend != "no" and not options.is_dataset_from_mr:
    raise ValueError(
      f"simple_blend={options.simple_blend!r} takes pre-cut records only: set"
      ' is_dataset_from_mr=True, or simple_blend="no".'
    )


def _check_order(options: DatasetOptions) -> None:
  """Raises ValueError for what the order of rows does not go with."""
  order = options.order
  if order != "stable":
    for name in ("mock_data", "is_dataset_from_mr"):
      if getattr(options, name):
        raise ValueError(
          f"order={order!r} is of documents, and {name}=True has none. Leave"
          ' order at "stable".'
        )
  if options.create_ltor_fields_in_dataloader and options.mock_data:
    raise ValueError(
      "create_ltor_fields_in_dataloader=True looks for end-of-document ids,"
      " and mock_data=True has no documents. Unset one of them."
    )
  if options.mock_data and options.data_sharding is not None:
    raise ValueError(
      f"data_sharding={options.data_sharding} orders rows that are read, and"
      " mock_data=True makes them up. Unset one of them."
    )
  asked = options.num_samples
  if asked is None:
    return
  if order != "megatron":
    raise ValueError(
      f'num_samples={asked!r} goes with order="megatron" alone, got'
      f" order={order!r}: its rows do not depend on how many are asked for."
      " Leave it out."
    )
  numbers = [asked] if isinstance(asked, (int, np.integer)) else asked
  try:
    numbers = [n if n is None else integer("num_samples", n) for n in numbers]
    legal = len(numbers) in (1, 3) and not isinstance(asked, (str, bool))
    legal = legal and all(n is None or n >= 0 for n in numbers)
  except (TypeError, ValueError):
    legal = False
  if not legal:
    raise ValueError(
      "num_samples is a number of train rows, or three (train, valid, test)"
      f" with None for one epoch; none is negative. Got {asked!r}."
    )
