"""Files, or a dataset of the hub, in; train, valid and test records out.

  hf_dataset_name          the hub's splits, each whole, or one cut by `split`
  data_path + split        each source is cut into three
  train_data_path, ...     each split has sources of its own, read whole

mapping    records by number     MappingDataset     len(ds), ds[i]
iterable   records in turn       IterableDataset    for record in ds

Records are what the source has, untouched; what becomes of them is a
transform's business, and when they are read is the loader's.
"""

import logging
from typing import Any

from hpgrain.index_cache import IndexCache
from hpgrain.log import log_once
from hpgrain.online_options import (
  OnlineOptions,
  file_sources,
  read_options,
  signature,
)
from hpgrain.online_paths import OnlineSource, name_sources
from hpgrain.online_records import IterableDataset, MappingDataset
from hpgrain.sources.by_index.formats import open_records
from hpgrain.sources.by_index.hugging_face import open_hugging_face
from hpgrain.sources.in_turn.formats import open_in_turn
from hpgrain.sources.in_turn.hugging_face import open_hugging_face_in_turn
from hpgrain.sources.in_turn.source import InTurn
from hpgrain.sources.records import Records, split_records
from hpgrain.splits import SPLIT_NAMES, parse_split

_log = logging.getLogger(__name__)

OnlineDataset = MappingDataset | IterableDataset
Splits = tuple[OnlineDataset | None, OnlineDataset | None, OnlineDataset | None]


def build_online_text_dataset(**arguments: Any) -> Splits:
  """Builds the records that are tokenized while training.

  Args:
    data_path: sources shared by the splits: a file, folder or pattern, a list
      of them, or several sources with weights or names (`online_paths`).
    train_data_path: sources of train alone; excludes data_path and split.
    valid_data_path: the same for valid.
    test_data_path: the same for test.
    dataset_type: "mapping", records by number, or "iterable", in turn.
    hf_dataset_name: a Hugging Face dataset, which wins over data_path.
    hf_config_name: its subset.
    revision: its branch, tag or commit.
    hf_train_split: its split for train, or a part such as "train[:98%]".
    hf_valid_split: the same for valid.
    hf_test_split: the same for test.
    cache_dir: where `datasets` keeps it; None for its own place.
    format: of the files; None goes by their names.
    split: weights of train, valid and test over each source's records.
    shuffle: whether train is mixed: by number this is the loader's business;
      in turn, within a buffer.
    shuffle_buffer_size: records that are mixed among each other.
    split_by_data_parallel: True; every process reads what its rows need.
    data_cache_path: a folder for what is found once, such as the places of
      records in text files.
    seed: of the shuffle.

  Returns:
    (train, valid, test): a `MappingDataset` or an `IterableDataset` each, None
    where a split has no weight or no path. By number, valid and test have no
    weights: they give each record once.

  Raises:
    FileNotFoundError: a path names nothing.
    ValueError: for an argument there is none of, one that is not right, data
      that cannot be opened, or two sources of one name.
  """
  options = read_options(arguments)
  if options.hf_dataset_name is not None and options.data_path is not None:
    log_once(
      _log,
      logging.WARNING,
      "hf_dataset_name=%r wins over data_path=%r, which is not read.",
      options.hf_dataset_name,
      options.data_path,
    )
  opened = _in_turn(options) if options.is_in_turn else _by_number(options)
  train, valid, test = opened
  for name, split in zip(SPLIT_NAMES, opened):
    if split is not None:
      names = ", ".join(source.name for source in split.sources)
      _log.info("%s: %s of %s", name, options.dataset_type, names)
  return train, valid, test


build_online_text_dataset.__signature__ = signature(Splits)


def _by_number(options: OnlineOptions) -> list[MappingDataset | None]:
  if options.hf_dataset_name is not None:
    opened = [
      None if split is None else [_hub_records(options, split)]
      for split in options.hub_splits
    ]
    if opened[1:] == [None, None]:
      return _cut(opened[0], None, options.split)
    return [None if found is None else _mapping(found) for found in opened]
  cache = IndexCache(options.data_cache_path)
  given = _named_sources(options)

  def records(source: OnlineSource) -> Records:
    return open_records(
      source.data_path, format=options.format, name=source.name, cache=cache
    )

  if "data_path" in given:
    sources = given["data_path"]
    found = [records(source) for source in sources]
    return _cut(found, _weights(sources), options.split)
  found = [
    [records(source) for source in given.get(f"{name}_data_path", ())]
    for name in SPLIT_NAMES
  ]
  train_weights = _weights(given.get("train_data_path", []))
  return [
    _mapping(some, train_weights if name == "train" else None) if some else None
    for name, some in zip(SPLIT_NAMES, found)
  ]


def _cut(
  sources: list[Records], weights: tuple[float, ...] | None, split: str
) -> list[MappingDataset | None]:
  """Cuts each source into train, valid and test."""
  if parse_split(split) == (1.0, 0.0, 0.0):
    # All of it is what it is without a cut, for caches and for checkpoints.
    return [_mapping(sources, weights), None, None]
  parts = zip(*(split_records(source, split) for source in sources))
  return [
    None
    if part[0] is None
    else _mapping(list(part), weights if name == "train" else None)
    for name, part in zip(SPLIT_NAMES, parts)
  ]


def _mapping(
  sources: list[Any], weights: tuple[float, ...] | None = None
) -> MappingDataset:
  return MappingDataset(tuple(sources), weights)


def _in_turn(options: OnlineOptions) -> list[IterableDataset | None]:
  if options.hf_dataset_name is not None:
    return [
      None
      if split is None
      else _iterable([_hub_stream(options, split)], None, name, options)
      for name, split in zip(SPLIT_NAMES, options.hub_splits)
    ]
  given = _named_sources(options)
  # What is shared is all train: it cannot be cut.
  keys = {name: f"{name}_data_path" for name in SPLIT_NAMES}
  if "data_path" in given:
    keys["train"] = "data_path"
  opened: list[IterableDataset | None] = []
  for name, key in keys.items():
    sources = given.get(key, [])
    found = [_stream(source, options) for source in sources]
    opened.append(
      _iterable(found, _weights(sources), name, options) if found else None
    )
  return opened


def _iterable(
  sources: list[InTurn],
  weights: tuple[float, ...] | None,
  name: str,
  options: OnlineOptions,
) -> IterableDataset:
  mixed = options.shuffle and name == "train"
  return IterableDataset(
    tuple(sources),
    weights,
    seed=options.seed,
    shuffle_buffer_size=options.shuffle_buffer_size if mixed else None,
  )


def _named_sources(options: OnlineOptions) -> dict[str, list[OnlineSource]]:
  return {
    key: name_sources(sources, key=f"dataset.{key}")
    for key, sources in file_sources(options).items()
  }


def _weights(sources: list[OnlineSource]) -> tuple[float, ...] | None:
  weights = tuple(
    source.weight for source in sources if source.weight is not None
  )
  return weights or None


def _hub_records(options: OnlineOptions, split: str) -> Records:
  return open_hugging_face(
    str(options.hf_dataset_name),
    subset=options.hf_config_name,
    split=split,
    revision=options.revision,
    cache_dir=options.cache_dir,
  )


def _stream(source: OnlineSource, options: OnlineOptions) -> InTurn:
  return open_in_turn(source.data_path, format=options.format, name=source.name)


def _hub_stream(options: OnlineOptions, split: str) -> InTurn:
  return open_hugging_face_in_turn(
    str(options.hf_dataset_name),
    subset=options.hf_config_name,
    split=split,
    revision=options.revision,
    cache_dir=options.cache_dir,
  )
