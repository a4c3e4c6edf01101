"""Rules of records that are tokenized while training.

Each takes the completed configuration and raises a ValueError that names the
keys, their values and the way out.
"""

from typing import Any

import ml_collections as mlc

from hpgrain.config_schema import KEYS
from hpgrain.config_uses import SPLIT_PATHS, USES, is_streamed
from hpgrain.online_paths import OnlineSource, read_sources
from hpgrain.splits import parse_split


def check_online(config: mlc.ConfigDict) -> None:
  """Raises ValueError at the first contradiction of dataset.kind='online'."""
  _check_lengths(config.dataset.data_config)
  sources = _check_paths(config)
  _check_splits(config.dataset)
  if is_streamed(config):
    _check_stream_weights(sources)
  _check_transform(config)


def transform_arguments(config: mlc.ConfigDict) -> dict[str, Any]:
  """Returns what `transforms.make.make_transform` gets, but the tokenizer.

  Args:
    config: what `config.check` returned, of online data.
  """
  data_type = config.data_transform.data_type
  arguments: dict[str, Any] = {
    "data_type": data_type,
    "max_seq_len": config.data_transform.max_seq_len,
    "labels_are_shifted": config.get_batch.labels_are_shifted,
  }
  for key in KEYS:
    head, _, name = key.name.rpartition(".")
    if head == "data_transform" and name not in arguments:
      value = config.data_transform[name]
      if USES[key.only].holds(config) and value is not None:
        arguments[name] = _plain(value)
  if data_type == "conversation":
    arguments["chat_template"] = config.model_assets.chat_template
  if data_type == "pretokenized":
    arguments["vocab_size"] = config.dataset.data_config.vocab_size
  return arguments


def _plain(value: Any) -> Any:
  is_config = isinstance(value, mlc.ConfigDict)
  return value.to_dict() if is_config else value


def _check_lengths(data: mlc.ConfigDict) -> None:
  if data.dataset_type == "iterable" and data.lengths == "table":
    raise ValueError(
      "dataset.data_config.lengths='table' needs records that can be read by"
      " number, and dataset_type is 'iterable'. Set dataset_type='mapping', or"
      " leave lengths unset."
    )


def _check_paths(config: mlc.ConfigDict) -> dict[str, list[OnlineSource]]:
  """Returns the sources of files, by key; none where a hub name wins."""
  dataset, data = config.dataset, config.dataset.data_config
  given = {
    f"dataset.{name}": read_sources(dataset[name], key=f"dataset.{name}")
    for name in ("data_path", *SPLIT_PATHS)
    if dataset[name] is not None
  }
  own = [name for name in given if name != "dataset.data_path"]
  if config.data_transform.data_type == "pretokenized":
    if not given or data.hf_dataset_name is not None:
      raise ValueError(
        "data_transform.data_type='pretokenized' reads token ids from files:"
        " dataset.data_path must name them, and"
        " dataset.data_config.hf_dataset_name stay unset, got"
        f" {dataset.data_path!r} and {data.hf_dataset_name!r}."
      )
  if data.hf_dataset_name is not None:
    if own:
      raise ValueError(
        f"dataset.data_config.hf_dataset_name and {own[0]} exclude each other."
        " Name the dataset's split in dataset.data_config.hf_train_split,"
        " hf_valid_split or hf_test_split, or unset one of the two."
      )
    return {}
  if not given:
    raise ValueError(
      "dataset.data_path is missing. Give it files, a folder or a pattern, or"
      " set train_data_path, valid_data_path and test_data_path, or"
      " dataset.data_config.hf_dataset_name."
    )
  if own and len(own) < len(given):
    raise ValueError(
      f"dataset.data_path and {own[0]} exclude each other: the first is cut by"
      " dataset.data_config.split, the second is one split whole. Unset one of"
      " them."
    )
  return given


def _check_splits(dataset: mlc.ConfigDict) -> None:
  data = dataset.data_config
  _, *others = parse_split(data.split)
  if not any(others):
    return
  own = any(dataset[name] is not None for name in SPLIT_PATHS)
  if data.dataset_type == "iterable" and not own:
    raise ValueError(
      f"dataset.data_config.split={data.split!r} cuts records by number, and"
      " dataset_type='iterable' does not know how many there are. Name valid"
      " and test by themselves (dataset.valid_data_path, or"
      " dataset.data_config.hf_valid_split), or set dataset_type='mapping'."
    )
  for name in ("hf_valid_split", "hf_test_split"):
    if data[name] is not None:
      raise ValueError(
        f"dataset.data_config.split={data.split!r} and {name}={data[name]!r}"
        " exclude each other: the first cuts hf_train_split, the second is one"
        " split whole. Unset one of them."
      )


def _check_stream_weights(sources: dict[str, list[OnlineSource]]) -> None:
  for key, entries in sources.items():
    if len(entries) > 1 and entries[0].weight is None:
      raise ValueError(
        f"{key} has {len(entries)} sources without weights. By their sizes"
        " they could only take turns if those were known, and streams do not"
        " look ahead (dataset.data_config.lengths='stream'). Give each a"
        ' weight, such as (0.7, "a.jsonl", 0.3, "b.jsonl").'
      )


def _check_transform(config: mlc.ConfigDict) -> None:
  # What tokenizes is loaded by the transforms' modules: only where it is used.
  from hpgrain.transforms.make import make_transform

  name = config.model_assets.tokenizer.pretrained_model_name_or_path
  # Nothing is opened, and what it has to say names the keys.
  make_transform(tokenizer=name, **transform_arguments(config))
