"""A configuration in, what a batch tells attention out.

  get_batch.attention_mode, attention_adapter, sliding_window, window_keys
  dataloader.max_segments, and what else limits the segments of a row

An adapter is called on shapes alone, before any data is read, for every length
that a batch may have: what it cannot serve on this mesh is said there.
"""

import dataclasses

import jax
import ml_collections as mlc
import numpy as np

from hpgrain import attention_adapters, batch, config_uses, online_pipeline
from hpgrain.batch import AttentionOptions
from hpgrain.context_layout import ContextLayout
from hpgrain.length_buckets import length_buckets
from hpgrain.records import INPUT_IDS, LABELS, POSITION_IDS, SEGMENT_IDS


def attention_options(
  config: mlc.ConfigDict, layout: ContextLayout, *, multiple: int
) -> AttentionOptions:
  """Returns how a batch becomes what a model takes.

  Without the layout: the loader adds that of its batches.

  Args:
    config: what `config.check` returned.
    layout: of the batch on the mesh.
    multiple: of positions, to which rows of examples are padded there.

  Raises:
    ValueError: there is no such adapter, or it cannot serve such batches.
  """
  get_batch = config.get_batch
  mode = get_batch.attention_mode
  if config.dataset.data_config.create_ltor_fields_in_dataloader:
    mode = "ltor"
  options = AttentionOptions(
    attention_mode=mode,
    sliding_window=get_batch.sliding_window,
    window_keys=get_batch.window_keys,
    max_segments=max_segments(config),
    adapter=(
      attention_adapters.resolve(get_batch.attention_adapter)
      if mode == "compressed"
      else None
    ),
  )
  if mode == "compressed":
    _check_rooms(config)
    tried = dataclasses.replace(options, layout=layout)
    for length in _row_lengths(config):
      rows = config_uses.batch_rows(config)
      _try(tried, rows, -(-length // multiple) * multiple)
  return options


def max_segments(config: mlc.ConfigDict) -> int | None:
  """Returns the segments of a row at most, that of its padding counted.

  None where nothing limits them.

  Args:
    config: what `config.check` returned.
  """
  dataloader = config.dataloader
  if not config.get_batch.reset_attention_mask:
    return 2
  if dataloader.max_segments is not None:
    return dataloader.max_segments
  if config_uses.is_packed(config):
    return 2 if dataloader.packer == "pad" else None
  # So many examples a row. Of rows cut from corpora it is not known.
  if config_uses.is_online(config):
    return config.training.micro_batch_size + 1
  return None


def _check_rooms(config: mlc.ConfigDict) -> None:
  multiple = config.dataloader.segment_multiple
  if not config.get_batch.reset_attention_mask and multiple > 1:
    raise ValueError(
      "get_batch.reset_attention_mask=False makes one segment of a row, and"
      f" dataloader.segment_multiple={multiple} leaves padding inside it, which"
      " kernels that take lengths would attend to. Set segment_multiple=1."
    )


def _row_lengths(config: mlc.ConfigDict) -> tuple[int, ...]:
  """Returns every length that rows of a batch may have, before rounding."""
  if not config_uses.is_online(config) and not config_uses.is_packed(config):
    return (config_uses.token_budget(config),)
  options = online_pipeline.packing_options(config)
  asked = tuple(config.dataloader.length_buckets)
  if config_uses.is_streamed(config):
    # One shape, which holds every row.
    return (max((options.budget, *asked)),)
  return length_buckets(asked, options).positions


def _try(options: AttentionOptions, rows: int, positions: int) -> None:
  """Runs the adapter on the shape of a batch."""
  field = jax.ShapeDtypeStruct((rows, positions), np.int32)
  names = (INPUT_IDS, LABELS, POSITION_IDS, SEGMENT_IDS)

  def run(fields: dict[str, jax.Array]) -> None:
    # What it returns need not be arrays, and nobody wants it here.
    batch.model_inputs(fields, **vars(options))

  jax.eval_shape(run, dict.fromkeys(names, field))
