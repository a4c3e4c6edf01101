"""A configuration in, what a batch tells attention out.

  get_batch.attention_mode, attention_adapter, sliding_window, window_keys
  dataloader.max_segments, and what else limits the segments of a row

An adapter is called once on shapes alone, before any data is read: what it
cannot serve on this mesh is said there.
"""

import jax
import ml_collections as mlc
import numpy as np

from hpgrain import attention_adapters, batch, config_uses
from hpgrain.batch import AttentionOptions
from hpgrain.context_layout import ContextLayout
from hpgrain.records import INPUT_IDS, LABELS, POSITION_IDS, SEGMENT_IDS


def attention_options(
  config: mlc.ConfigDict, layout: ContextLayout
) -> AttentionOptions:
  """Returns how a batch becomes what a model takes.

  Args:
    config: what `config.check` returned.
    layout: of the batch on the mesh.

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
    layout=layout,
    max_segments=max_segments(config),
    adapter=(
      attention_adapters.resolve(get_batch.attention_adapter)
      if mode == "compressed"
      else None
    ),
  )
  if mode == "compressed":
    _check_rooms(config)
    _try(config, options)
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


def _try(config: mlc.ConfigDict, options: AttentionOptions) -> None:
  """Runs the adapter on the shape of a batch."""
  length, multiple = config_uses.token_budget(config), options.layout.multiple
  field = jax.ShapeDtypeStruct(
    (config_uses.batch_rows(config), -(-length // multiple) * multiple),
    np.int32,
  )
  names = (INPUT_IDS, LABELS, POSITION_IDS, SEGMENT_IDS)

  def run(fields: dict[str, jax.Array]) -> None:
    # What it returns need not be arrays, and nobody wants it here.
    batch.model_inputs(fields, **vars(options))

  jax.eval_shape(run, dict.fromkeys(names, field))
