"""Rules of records that are tokenized while training.

Each takes the completed configuration and raises a ValueError that names the
keys, their values and the way out.
"""

import dataclasses
from typing import Any

import ml_collections as mlc

from hpgrain.config_schema import KEYS
from hpgrain.config_uses import SPLIT_PATHS, USES, is_streamed
from hpgrain.online_options import (
  OnlineOptions,
  check_together,
  file_sources,
)
from hpgrain.splits import parse_split


def check_online(config: mlc.ConfigDict) -> None:
  """Raises ValueError at the first contradiction of dataset.kind='online'."""
  _check_lengths(config.dataset.data_config)
  _check_tokens_are_files(config)
  options = dataset_options(config)
  check_together(options)
  if is_streamed(config) and options.hf_dataset_name is None:
    _check_stream_sources(options)
  _check_transform(config)


def dataset_options(config: mlc.ConfigDict) -> OnlineOptions:
  """Returns what `build_online_text_dataset` gets.

  Args:
    config: what `config.check` returned, of online data.
  """
  dataset, data = config.dataset, config.dataset.data_config
  values = {"seed": config.training.seed}
  for field in dataclasses.fields(OnlineOptions):
    if field.name not in values:
      section = data if field.name in data else dataset
      values[field.name] = section[field.name]
  return OnlineOptions(**values)


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
  if data.keep_tokens and data.data_cache_path is None:
    raise ValueError(
      "dataset.data_config.keep_tokens=True keeps what was tokenized in the"
      " folder of data_cache_path, and there is none. Set data_cache_path, or"
      " keep_tokens=False."
    )


def _check_tokens_are_files(config: mlc.ConfigDict) -> None:
  dataset, data = config.dataset, config.dataset.data_config
  if config.data_transform.data_type != "pretokenized":
    return
  paths = [dataset.data_path, *(dataset[name] for name in SPLIT_PATHS)]
  if data.hf_dataset_name is not None or paths == [None] * len(paths):
    raise ValueError(
      "data_transform.data_type='pretokenized' reads token ids from files:"
      " dataset.data_path must name them, and"
      " dataset.data_config.hf_dataset_name stay unset, got"
      f" {dataset.data_path!r} and {data.hf_dataset_name!r}."
    )


def _check_stream_sources(options: OnlineOptions) -> None:
  """Checks how several sources take turns where no size is known."""
  for key, sources in file_sources(options).items():
    if len(sources) == 1:
      continue
    if key in ("valid_data_path", "test_data_path"):
      raise ValueError(
        f"dataset.{key} has {len(sources)} sources. Each of its records is read"
        " once, which no weight can promise in streams"
        " (dataset.data_config.lengths='stream'). List the paths without"
        ' weights and names, such as ("a.jsonl", "b.jsonl"): that is one'
        " source."
      )
    if sources[0].weight is None:
      raise ValueError(
        f"dataset.{key} has {len(sources)} sources without weights. They would"
        " take turns by their sizes, which streams do not know"
        " (dataset.data_config.lengths='stream'). Give each a"
        ' weight, such as (0.7, "a.jsonl", 0.3, "b.jsonl").'
      )
    if key == "data_path" and any(parse_split(options.split)[1:]):
      raise ValueError(
        f"dataset.data_config.split={options.split!r} cuts {len(sources)}"
        " sources, and in streams (dataset.data_config.lengths='stream') no"
        " weight can promise that each record of valid and test is read once."
        " Name them by themselves (dataset.valid_data_path), or set"
        " lengths='table'."
      )


def _check_transform(config: mlc.ConfigDict) -> None:
  # What tokenizes is loaded by the transforms' modules: only where it is used.
  from hpgrain.transforms.make import make_transform

  name = config.model_assets.tokenizer.pretrained_model_name_or_path
  # Nothing is opened, and what it has to say names the keys.
  make_transform(tokenizer=name, **transform_arguments(config))
