"""The whole way on one page: a configuration and a mesh in, loaders out.

paths -> readers -> splits -> samples -> blend        (indexed_dataset)
      -> sampler                                      (rearranged)
      -> plan -> read -> fields -> place -> prefetch  (loader)

Records that are tokenized while training, and packed rows, come by way of
`online_pipeline` to the same loader.
"""

import dataclasses
import logging
from typing import Any

import grain
import ml_collections as mlc
from jax.sharding import Mesh, NamedSharding

from hpgrain import config as config_lib
from hpgrain import (
  config_rules_mesh,
  config_uses,
  indexed_dataset,
  log,
  online_pipeline,
  reshard,
  shard,
)
from hpgrain.batches import BatchSpec, find_end
from hpgrain.blend_samples import BlendSamples
from hpgrain.config_attention import attention_options
from hpgrain.config_fields import field_options
from hpgrain.fields import FieldOptions
from hpgrain.loader import Loader
from hpgrain.rearrange_map import load_rearrange_map
from hpgrain.rearranged import RearrangedSamples
from hpgrain.splits import SPLIT_NAMES
from hpgrain.tokenizer import load_tokenizer, tokenizer_info

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Loaders:
  """A loader for each split; None where it has no weight, path or row."""

  train: Loader | None
  valid: Loader | None
  test: Loader | None


def build(config: mlc.ConfigDict, mesh: Mesh) -> Loaders:
  """Builds the loaders of a run; the config decides the rows, not the mesh.

  Args:
    config: see `hpgrain.config`; keys left out have their defaults.
    mesh: axes named in config.mesh.data_axes split rows, `cp` (with
      sequence_parallel `tp` too) positions, others hold replicas. Its axes and
      sizes are what they are: config.mesh need not say them again.

  Raises:
    ValueError: for an unknown key, an illegal or contradicting value, data
      that is not sound, or a batch that does not divide over the mesh.
  """
  config = config_lib.check(config, mesh_axes=mesh.axis_names)
  if config.debug.check_dataset is not None:
    log.enable_dataset_logging(config.debug.check_dataset)
  sharding = shard.batch_sharding(
    mesh,
    data_axes=config.mesh.data_axes,
    sequence_parallel=config.mesh.sequence_parallel,
  )
  config_rules_mesh.check_sizes(config.mesh, mesh.shape)
  context = shard.context_layout(
    mesh,
    config.get_batch.context_parallel_layout,
    segment_multiple=config.dataloader.segment_multiple,
  )
  config_rules_mesh.check_fits(
    config,
    mesh.shape,
    parts=shard.num_parts(sharding),
    context=context,
  )
  attention = attention_options(
    config, context, multiple=shard.positions_multiple(sharding, context)
  )
  if config_uses.is_online(config) or config_uses.is_packed(config):
    arguments = {}
    if not config_uses.is_online(config):
      arguments = dataset_arguments(config)
    specs = online_pipeline.make_specs(config, sharding, arguments)
  else:
    specs = _indexed_specs(config, sharding)
  loaders = []
  for name, spec in zip(SPLIT_NAMES, specs):
    if spec is None:
      loaders.append(None)
      continue
    loaders.append(
      Loader(
        spec,
        prefetch=config.dataloader.prefetch,
        attention=attention,
        asked_rows=_open_rows(config) if name == "train" else None,
        num_workers=config.dataloader.num_workers,
        sharding=sharding,
      )
    )
    shape = spec.layout.shape
    _log.info("%s: batches of %d rows of %d positions", name, *shape)
  return Loaders(*loaders)


def _indexed_specs(
  config: mlc.ConfigDict, sharding: NamedSharding
) -> list[BatchSpec | None]:
  """Returns the batches of each split of rows cut from tokenized corpora."""
  # The layout first: a mesh that does not fit is cheaper to find than data.
  layout = reshard.batch_layout(
    sharding,
    replica_read=config.dataloader.replica_read,
    num_rows=config.training.global_batch_size,
    num_positions=config.dataset.data_config.seq_length,
    context=shard.context_layout(
      sharding.mesh, config.get_batch.context_parallel_layout
    ),
  )
  splits, ids = indexed_dataset.build_splits(**dataset_arguments(config))
  options = field_options(config, ids.eod_id)
  specs: list[BatchSpec | None] = []
  for name, split in zip(SPLIT_NAMES, splits):
    samples = _with_rows(split, name, config.training.eval_iters)
    if samples is None:
      specs.append(None)
      continue
    if name == "train":
      samples = _sampler(config, samples)
    specs.append(_batch_spec(config, samples, name, layout, options))
  return specs


def dataset_arguments(config: mlc.ConfigDict) -> dict[str, Any]:
  """Maps a checked configuration to `indexed_dataset.build_splits`."""
  dataset = config.dataset
  tokenizer = config.model_assets.tokenizer
  name = tokenizer.pretrained_model_name_or_path
  info = None
  if name is not None:
    info = tokenizer_info(
      load_tokenizer(
        name,
        use_fast=tokenizer.use_fast,
        trust_remote_code=tokenizer.trust_remote_code,
      ),
    )
  return {
    **dataset.data_config.to_dict(),
    "data_path": dataset.data_path,
    "train_data_path": dataset.train_data_path,
    "valid_data_path": dataset.valid_data_path,
    "test_data_path": dataset.test_data_path,
    "seed": config.training.seed,
    "num_samples": _num_samples(config),
    "data_sharding": config.dataloader.data_sharding,
    "reset_position_ids": config.get_batch.reset_position_ids,
    "reset_attention_mask": config.get_batch.reset_attention_mask,
    "eod_mask_loss": config.get_batch.eod_mask_loss,
    "tokenizer": info,
  }


def _is_megatron(config: mlc.ConfigDict) -> bool:
  return config.dataset.data_config.order == "megatron"


def _asked_rows(config: mlc.ConfigDict) -> int:
  """Returns how many rows of train the run asks for."""
  training = config.training
  return training.train_iters * training.global_batch_size


def _num_samples(config: mlc.ConfigDict) -> tuple[int, int, int] | None:
  """Returns the rows asked for of each split, as Megatron-LM counts them.

  Every evaluation, and one at the end, is counted in for valid. None for
  orders that do not depend on it.
  """
  if not _is_megatron(config):
    return None
  training = config.training
  train = training.train_samples or _asked_rows(config)
  evaluations = 1
  if training.eval_interval:
    steps = train // training.global_batch_size
    evaluations += steps // training.eval_interval
  batches = training.eval_iters * training.global_batch_size
  return train, evaluations * batches, batches


def _with_rows(
  samples: Any, name: str, eval_iters: int
) -> grain.MapDataset | None:
  """Returns samples that have rows; None, said once, where none are needed.

  Raises:
    ValueError: if a split that is needed has no row.
  """
  if samples is None or len(samples):
    return samples
  if getattr(samples, "num_samples", None) == 0:
    # No evaluation, so no row was asked for.
    return None
  if name == "train" or (name == "valid" and eval_iters):
    # Planning a row says what is missing.
    samples.plan(0)
  _log.warning(
    "Split %s has a weight but too little data for one row; there is no"
    " loader for it. Give it a larger share in dataset.data_config.split, or"
    " none.",
    name,
  )
  return None


def _sampler(config: mlc.ConfigDict, samples: Any) -> Any:
  """Returns train's rows in the order the sampler reads them."""
  dataloader = config.dataloader
  megatron = _is_megatron(config)
  order_map = None
  if dataloader.data_rearrange_map is not None:
    order_map = load_rearrange_map(dataloader.data_rearrange_map)
  # Other orders are permuted each epoch by themselves, and so are buckets.
  sharded = dataloader.data_sharding is not None
  permuted = megatron and dataloader.sampler_type == "cyclic" and not sharded
  if order_map is None and not permuted:
    return samples
  return RearrangedSamples(
    samples,
    order_map=order_map,
    permute_seed=config.training.seed if permuted else None,
    wraps=megatron and not sharded,
  )


def _open_rows(config: mlc.ConfigDict) -> int | None:
  """Returns the rows asked for, where no key says what an index is made for.

  The first start then decides, and its state says so to those that follow.
  """
  if not _is_megatron(config):
    return None
  if config.training.train_samples is not None:
    return None
  # Cycles of an index never end, so no number of rows is too many.
  cyclic = config.dataloader.sampler_type == "cyclic"
  return 0 if cyclic else _asked_rows(config)


def _batch_spec(
  config: mlc.ConfigDict,
  samples: Any,
  name: str,
  layout: shard.BatchLayout,
  options: FieldOptions,
) -> BatchSpec:
  """Says where a split's rows begin and end, and what becomes of the rest."""
  dataloader = config.dataloader
  train = name == "train"
  epochs = dataloader.epochs if train else 1
  if train and dataloader.sampler_type == "single":
    epochs = 1
  if epochs is not None:
    _report_end(samples, name, epochs)
  end_of_data = dataloader.end_of_data or ("drop" if train else "pad")
  # An index may have more rows than were asked for; a map names any of them.
  asked_only = (
    train
    and _is_megatron(config)
    and dataloader.sampler_type == "single"
    and dataloader.data_rearrange_map is None
  )
  end_row = find_end(samples, epochs=epochs, asked_only=asked_only)
  if asked_only:
    _say_where_rows_end(config, end_row)
  return BatchSpec(
    samples=samples,
    layout=layout,
    options=options,
    first_row=dataloader.consumed_samples if train else 0,
    end_row=end_row,
    epochs=epochs,
    asked_only=asked_only,
    pad_last=end_of_data == "pad",
  )


def _say_where_rows_end(config: mlc.ConfigDict, end_row: int | None) -> None:
  wanted = config.dataloader.consumed_samples + _asked_rows(config)
  if end_row is not None and wanted > end_row:
    _log.warning(
      "train: train_iters x global_batch_size asks for rows up to %d, but"
      " order='megatron' has %d (training.train_samples=%s): the data ends"
      " there.",
      wanted,
      end_row,
      config.training.train_samples,
    )


def _report_end(samples: Any, name: str, epochs: int) -> None:
  """Logs which source of a blend ends it, and what the others have left."""
  if not isinstance(samples, BlendSamples):
    return
  rows, ending = samples.end(epochs)
  if ending is None:
    return
  names = [source.name for source in samples.sources]
  counts = samples.rows_per_source(rows)
  left = {
    other: epochs * member.rows_per_epoch - int(count)
    for other, member, count in zip(names, samples.members, counts)
    if other != names[ending]
  }
  _log.info(
    "%s: %d epochs end after row %d, when source %r is used up; rows left of"
    " the others: %s",
    name,
    epochs,
    rows - 1,
    names[ending],
    left,
  )
