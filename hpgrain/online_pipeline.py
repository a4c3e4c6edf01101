"""Configurations of packed rows in, what makes each split's batches out.

  online, lengths="table"    records by number -> OnlineSamples -> plans
  online, lengths="stream"   records in turn   -> StreamRows    -> streams
  indexed, packed            documents         -> PackedSamples -> plans

Nothing is tokenized or measured here: that begins with the first batch.
"""

import logging
from collections.abc import Sequence
from typing import Any

import ml_collections as mlc
from jax.sharding import NamedSharding

from hpgrain import config_uses, reshard, shard, token_ids
from hpgrain.balance import BalancedSamples
from hpgrain.batches import BatchSpec
from hpgrain.config_fields import field_options
from hpgrain.config_rules_online import dataset_options, transform_arguments
from hpgrain.fields import FieldOptions
from hpgrain.index_cache import IndexCache
from hpgrain.loader_iterator import Spec
from hpgrain.log import log_once
from hpgrain.measured import MeasuredRecords
from hpgrain.online_dataset import OnlineDataset, build_online_text_dataset
from hpgrain.online_records import MappingDataset
from hpgrain.online_samples import OnlineSamples
from hpgrain.packed_dataset import build_packed_splits
from hpgrain.packed_samples import PackedSamples
from hpgrain.packing import PackingOptions
from hpgrain.sources.in_turn.numbered import NumberedInTurn
from hpgrain.splits import SPLIT_NAMES
from hpgrain.stream_batches import StreamSpec
from hpgrain.streams import StreamRows
from hpgrain.token_ids import TokenIds
from hpgrain.transforms.lazy_tokenizer import LazyTokenizer
from hpgrain.transforms.make import make_transform

_log = logging.getLogger(__name__)


def make_specs(
  config: mlc.ConfigDict,
  sharding: NamedSharding,
  indexed_arguments: dict[str, Any],
) -> list[Spec | None]:
  """Returns the batches of train, valid and test; None where there are none.

  Args:
    config: what `config.check` returned.
    sharding: of [rows, positions].
    indexed_arguments: of `indexed_dataset.build_splits`, used for tokenized
      corpora.

  Raises:
    ValueError: data that is not sound, or a batch that does not divide over
      the mesh.
  """
  # The layout first: a mesh that does not fit is cheaper to find than data.
  _layout(config, sharding, config_uses.token_budget(config))
  samples: Sequence[Any]
  if config_uses.is_online(config):
    ids = _token_ids(config)
    samples = [
      None if data is None else _online_samples(config, data, name, ids)
      for name, data in zip(SPLIT_NAMES, _online_splits(config))
    ]
  else:
    samples, ids = build_packed_splits(
      packing=packing_options(config),
      epochs=_epochs(config, "train"),
      labels_are_shifted=config.get_batch.labels_are_shifted,
      length_buckets=tuple(config.dataloader.length_buckets),
      needed=_needed(config),
      **indexed_arguments,
    )
  options = field_options(config, ids.eod_id)
  return [
    None if rows is None else _spec(config, name, rows, sharding, options)
    for name, rows in zip(SPLIT_NAMES, samples)
  ]


def _spec(
  config: mlc.ConfigDict,
  name: str,
  rows: OnlineSamples | PackedSamples | StreamRows,
  sharding: NamedSharding,
  options: FieldOptions,
) -> Spec:
  """Says where a split's rows begin and end, and what becomes of the rest."""
  dataloader, train = config.dataloader, name == "train"
  first_row = dataloader.consumed_samples if train else 0
  epochs = _epochs(config, name)
  if isinstance(rows, StreamRows):
    # One bucket at most, which holds every row.
    positions = max((rows.seq_length, *dataloader.length_buckets))
    layout = _layout(config, sharding, positions)
    spec = StreamSpec(rows, layout, options, first_row, epochs)
    spec.say_what_is_made_in_vain()
    return spec
  layout = _layout(config, sharding, rows.seq_length)
  samples: Any = rows
  if train and dataloader.balance_shares is not None:
    samples = BalancedSamples(
      rows, shares=dataloader.balance_shares, rows=dataloader.balance_rows
    )
  end = dataloader.end_of_data or ("drop" if train else "pad")
  return BatchSpec(
    samples,
    layout,
    options,
    first_row=first_row,
    epochs=epochs,
    end_is_known=epochs is None,
    pad_last=end == "pad",
    buckets=tuple(
      _layout(config, sharding, positions) for positions in rows.length_buckets
    ),
  )


def _epochs(config: mlc.ConfigDict, name: str) -> int | None:
  """Returns after how many epochs a split ends; None = never."""
  if name != "train" or config.dataloader.sampler_type == "single":
    return 1
  return config.dataloader.epochs


def _needed(config: mlc.ConfigDict) -> tuple[str, ...]:
  """Returns the splits that must have a row."""
  return ("train", "valid") if config.training.eval_iters else ("train",)


def _online_splits(config: mlc.ConfigDict) -> Sequence[OnlineDataset | None]:
  """Returns each split's records.

  Raises:
    ValueError: a split that is needed has none.
  """
  section = config.dataset.data_config
  if section.data_cache_path is not None and section.dataset_type == "iterable":
    log_once(
      _log,
      logging.WARNING,
      "dataset.data_config.data_cache_path has no effect with"
      " dataset_type='iterable', which looks for nothing beforehand.",
    )
  splits = build_online_text_dataset(**vars(dataset_options(config)))
  found: list[OnlineDataset | None] = []
  total = sum(len(s) for s in splits if isinstance(s, MappingDataset))
  for name, data in zip(SPLIT_NAMES, splits):
    empty = isinstance(data, MappingDataset) and total and not len(data)
    if empty:
      said = (
        f"dataset.data_config.split={section.split!r} leaves {name} none of the"
        f" {total} records. Give it a larger share, or 0."
      )
      if name in _needed(config):
        raise ValueError(said)
      _log.warning("%s There is no loader for it.", said)
    found.append(None if empty else data)
  return found


def _tokenizer(config: mlc.ConfigDict) -> LazyTokenizer | None:
  tokenizer = config.model_assets.tokenizer
  if tokenizer.pretrained_model_name_or_path is None:
    return None
  return LazyTokenizer(
    tokenizer.pretrained_model_name_or_path,
    use_fast=tokenizer.use_fast,
    trust_remote_code=tokenizer.trust_remote_code,
  )


def _token_ids(config: mlc.ConfigDict) -> TokenIds:
  """Returns what is known of token ids: what is said, or the tokenizer's."""
  data, tokenizer = config.dataset.data_config, _tokenizer(config)
  info = None if tokenizer is None else tokenizer.info()
  return token_ids.resolve(
    tokenizer=info,
    manifests={},
    vocab_size=data.vocab_size,
    eod_id=data.eod_id,
    pad_id=data.pad_id,
  )


def _online_samples(
  config: mlc.ConfigDict, data: OnlineDataset, name: str, ids: TokenIds
) -> OnlineSamples | StreamRows:
  """Returns the rows of one split of records."""
  train = name == "train"
  section, dataloader = config.dataset.data_config, config.dataloader
  tokenizer = _tokenizer(config)
  transforms = [
    make_transform(tokenizer=tokenizer, **transform_arguments(config))
    for _ in data.sources
  ]
  common = {
    "options": packing_options(config),
    "weights": data.weights if train else None,
    "seed": config.training.seed,
    "epochs": _epochs(config, name),
    "vocab_size": ids.vocab_size,
  }
  shuffle = train and section.shuffle
  if section.lengths == "table":
    cache = IndexCache(section.data_cache_path)
    return OnlineSamples(
      [
        MeasuredRecords(
          source,
          transform,
          cache=cache,
          keep_tokens=section.keep_tokens,
          one_example_each=dataloader.type == "fixed",
        )
        for source, transform in zip(data.sources, transforms)
      ],
      shuffle=shuffle,
      length_buckets=tuple(dataloader.length_buckets),
      **common,
    )
  return StreamRows(
    [
      NumberedInTurn(source) if section.dataset_type == "mapping" else source
      for source in data.sources
    ],
    transforms,
    num_streams=dataloader.num_streams,
    shuffle_buffer_size=section.shuffle_buffer_size if shuffle else None,
    pack_window=dataloader.pack_window,
    handover_bytes=dataloader.handover_bytes,
    spill_folder=dataloader.spill_folder,
    **common,
  )


def packing_options(config: mlc.ConfigDict) -> PackingOptions:
  """Returns how examples fill rows."""
  dataloader = config.dataloader
  budget = config_uses.token_budget(config)
  buckets = dataloader.length_buckets
  alone = dataloader.type == "dynamic" and dataloader.packer == "pad"
  if alone and buckets and dataloader.overlong != "own_row":
    # No example is longer than the last bucket, and none shares its row.
    budget = min(budget, buckets[-1])
  common = {
    "budget": budget,
    "plan_window": dataloader.plan_window,
    "segment_multiple": dataloader.segment_multiple,
  }
  if dataloader.type == "fixed":
    return PackingOptions(
      packer="fixed",
      examples_per_row=config.training.micro_batch_size,
      **common,
    )
  # The last segment of a row is its padding's.
  most = dataloader.max_segments
  return PackingOptions(
    packer=dataloader.packer,
    overlong=dataloader.overlong,
    max_items=0 if most is None else most - 1,
    min_buffered=dataloader.min_buffered_samples,
    **common,
  )


def _layout(
  config: mlc.ConfigDict, sharding: NamedSharding, positions: int
) -> shard.BatchLayout:
  """Returns how a batch of rows of so many positions lies on the mesh.

  They are rounded up to what the mesh splits them into.
  """
  context = shard.context_layout(
    sharding.mesh,
    config.get_batch.context_parallel_layout,
    segment_multiple=config.dataloader.segment_multiple,
  )
  multiple = shard.positions_multiple(sharding, context)
  return reshard.batch_layout(
    sharding,
    replica_read=config.dataloader.replica_read,
    num_rows=config_uses.batch_rows(config),
    num_positions=-(-positions // multiple) * multiple,
    context=context,
  )
