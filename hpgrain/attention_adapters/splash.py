r"""A batch in, the segment ids of Pallas' TPU splash attention out.

  packed_seq_params   SegmentIds(q=int32[rows, S], kv=int32[rows, S])
  mask(S, layout)     the kernel's static part: causality, and the window

`q` is in slot order, split over cp as the queries are; `kv` is in the order of
the row and whole on every device, as the keys are that `gather_keys` gathered:

  queries of rank 0 (zigzag)   0 1 6 7     x    keys  0 1 2 3 4 5 6 7
  queries of rank 1            2 3 4 5     x    keys  0 1 2 3 4 5 6 7

A mask is made once, from numbers alone, and so it serves every row: only
layouts whose order is that of every row can have one. "document_zigzag" is
refused: causality would need a mask for each row, which this kernel takes
only as an S x S array, and segment ids alone would let a query see what comes
after it.

`jax.experimental.pallas.ops.tpu.splash_attention`:
https://github.com/jax-ml/jax/tree/main/jax/experimental/pallas/ops/tpu/splash_attention
"""

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from hpgrain import attention, context_parallel
from hpgrain.attention_inputs import AttentionInputs
from hpgrain.context_layout import ROW_ORDER, ContextLayout

if TYPE_CHECKING:
  from jax.experimental.pallas.ops.tpu import splash_attention


def adapt(inputs: AttentionInputs) -> "splash_attention.SegmentIds":
  """Returns the ids of queries and keys; padding is a segment.

  The window is the mask's, see `mask`.

  Returns:
    `q`, int32[rows, S] in slot order, and `kv`, int32[rows, S] in the order of
    the row.

  Raises:
    ValueError: each row has an order of its own, or a rank's positions are no
      multiple of 128.
  """
  # Pallas takes most of a second to import.
  from jax.experimental.pallas.ops.tpu import splash_attention

  _check(inputs.layout)
  inputs.require_multiple(
    "splash",
    128,
    "takes blocks of multiples of 128 keys and, for the gradient, queries",
  )
  keys = inputs.segment_ids
  if not inputs.layout.is_identity:
    keys = context_parallel.in_row_order(keys, inputs.row_positions)
  return splash_attention.SegmentIds(q=inputs.segment_ids, kv=keys)


def mask(
  num_positions: int,
  layout: ContextLayout = ROW_ORDER,
  *,
  sliding_window: int | None = None,
  window_keys: str = "inclusive",
) -> "splash_attention.Mask":
  """Returns what one head's queries may see, segments left out.

  The kernel computes it from positions where it needs it; nothing S x S is
  made. Give `MultiHeadMask([mask] * heads)` to `make_splash_mha`, with
  q_seq_shards=cp.

  Args:
    num_positions: of a row, S: a multiple of the kernel's blocks, which are
      multiples of 128.
    layout: of the queries. Keys are in the order of the row.
    sliding_window: see `attention.sliding_window_mask`; None: all before it.
    window_keys: see there.

  Raises:
    ValueError: each row has an order of its own, positions do not divide over
      the layout's ranks, or a window below 1.
  """
  from jax.experimental.pallas.ops.tpu import splash_attention

  _check(layout)
  shape = (num_positions, num_positions)
  if sliding_window is None:
    made = splash_attention.CausalMask(shape)
  else:
    # So many keys before the query's own, none after it.
    reach = attention.window_reach(sliding_window, window_keys)
    made = splash_attention.LocalMask(shape, (reach, 0), offset=0)
  # The position of each query: the kernel compares it to the key's number.
  made.q_sequence = layout.order(num_positions)
  return made


def gather_keys(
  x: jax.Array, layout: ContextLayout, *, axis_name: str = "cp"
) -> jax.Array:
  """Returns whole rows of keys, values or ids, in the order of the row.

  Call it inside `shard_map`; its transpose gives each rank its own gradient.

  Args:
    x: [rows, S / cp, ...], the slots of this rank.
    layout: of the batch.
    axis_name: the mesh axis that rows are split over.

  Returns:
    [rows, S, ...], position after position.

  Raises:
    ValueError: each row has an order of its own.
  """
  _check(layout)
  x = jax.lax.all_gather(x, axis_name, axis=1, tiled=True)
  if layout.is_identity:
    return x
  positions = jnp.asarray(layout.order(x.shape[1]))[None]
  return context_parallel.in_row_order(x, positions)


def _check(layout: ContextLayout) -> None:
  if layout.depends_on_rows:
    raise ValueError(
      f"attention_adapter='splash' takes one mask for all rows, and in layout"
      f" {layout.name!r} over cp={layout.num_ranks} each row has an order of"
      " its own. Set context_parallel_layout to 'contiguous', 'zigzag' or"
      " 'striped', or take attention_adapter='context_parallel'."
    )
