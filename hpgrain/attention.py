"""Segment ids in, attention masks out, made on the device inside `jit`.

A position attends to those at or before it in its own segment. Padding is
segment 0, one of its own, so that no softmax runs over nothing. Masks are
S x S, for models that take one; kernels take the segment ids, or where each
segment begins. Where a context-parallel layout permuted the positions, masks
are permuted with them.
"""

import jax
import jax.numpy as jnp


def attention_mask(
  segment_ids: jax.Array, row_positions: jax.Array | None = None
) -> jax.Array:
  """Returns the causal mask of packed rows.

  Args:
    segment_ids: int32[rows, S], 0 = padding, whole rows.
    row_positions: int32[1 or rows, S], which position of its row each slot
      holds, as `context_parallel.row_positions` says; None: rows are in order.

  Returns:
    bool[rows, 1, S, S], indexed [row, head, query, key]; True = may attend.
  """
  same = segment_ids[:, :, None] == segment_ids[:, None, :]
  return (same & (_distance(segment_ids, row_positions) >= 0))[:, None]


def _distance(
  segment_ids: jax.Array, row_positions: jax.Array | None
) -> jax.Array:
  """Returns int32[1 or rows, S, S]: how far each key is before each query."""
  if row_positions is None:
    row_positions = jnp.arange(segment_ids.shape[-1], dtype=jnp.int32)[None]
  return row_positions[:, :, None] - row_positions[:, None, :]


def ltor_attention_mask(
  segment_ids: jax.Array, row_positions: jax.Array | None = None
) -> jax.Array:
  """Returns Megatron's mask of packed rows: True where `attention_mask` hides.

  Megatron knows no padding of its own: a short row's padding goes on with the
  row's last document and sees it, and so it does here. (Where that document's
  end-of-document id is the row's last token, Megatron lets the padding see
  itself alone, which segment ids cannot tell. No loss and no token depends on
  it.) A row that is padding throughout gets the causal mask.

  Args:
    segment_ids: int32[rows, S], 0 = padding at a row's end, whole rows. One
      segment a row gives the mask of reset_attention_mask=False.
    row_positions: see `attention_mask`.

  Returns:
    bool[rows, 1, S, S], indexed [row, head, query, key]; True = masked.
  """
  # Segments count up within a row, so its last document is the greatest.
  last = segment_ids.max(axis=-1, keepdims=True)
  filled = jnp.where(segment_ids == 0, last, segment_ids)
  return ~attention_mask(filled, row_positions)


def sliding_window_mask(
  segment_ids: jax.Array,
  *,
  window: int,
  window_keys: str = "inclusive",
  row_positions: jax.Array | None = None,
) -> jax.Array:
  """Returns the causal mask of packed rows within a window of keys.

  Args:
    segment_ids: int32[rows, S], 0 = padding, whole rows.
    window: how many keys a query sees, W.
    window_keys: "inclusive": W keys with its own; "reference": its own and W
      before it, as the reference design has it.
    row_positions: see `attention_mask`.

  Returns:
    bool[rows, 1, S, S], indexed [row, head, query, key]; True = may attend.

  Raises:
    ValueError: for a window below 1 or an unknown window_keys.
  """
  reach = window_reach(window, window_keys)
  near = _distance(segment_ids, row_positions) <= reach
  return attention_mask(segment_ids, row_positions) & near[:, None]


def window_reach(window: int, window_keys: str = "inclusive") -> int:
  """Returns how far before a query the farthest key is that it sees.

  Args:
    window: see `sliding_window_mask`.
    window_keys: see there.

  Raises:
    ValueError: for a window below 1 or an unknown window_keys.
  """
  if window < 1:
    raise ValueError(f"A sliding window has at least 1 key, got {window}.")
  if window_keys not in ("inclusive", "reference"):
    raise ValueError(
      f'window_keys must be "inclusive" or "reference", got {window_keys!r}.'
    )
  return window if window_keys == "reference" else window - 1


def cu_seq_lens(segment_ids: jax.Array, *, max_segments: int) -> jax.Array:
  """Returns where the segments of packed rows begin and end.

  Row [1, 1, 2, 0, 3, 0, 0] has the segments 0..2, 2..4, 4..5 and its padding
  5..7: 0, 2, 4, 5, 7, and 7 again up to the last column. Room that a segment
  leaves before the next one begins is its own; padding at the end is a segment
  by itself.

  Args:
    segment_ids: int32[rows, S], 1, 2, ... within a row, 0 = padding, whole
      rows in order.
    max_segments: segments that a row has at most, its padding counted:
      `dataloader.max_segments`. Of a row that had more, the last would be
      missing.

  Returns:
    int32[rows, max_segments + 1]: 0, the end of each segment, and S from the
    last one on.

  Raises:
    ValueError: max_segments is below 1.
  """
  if max_segments < 1:
    raise ValueError(f"A row has at least 1 segment, got {max_segments}.")
  # Gaps go on with the segment before them, the padding is one more.
  going_on = jax.lax.cummax(segment_ids, axis=1)
  is_padding = jax.lax.cummax(segment_ids, axis=1, reverse=True) == 0
  numbers = going_on + is_padding.astype(segment_ids.dtype)
  ends = jnp.arange(max_segments + 1, dtype=segment_ids.dtype)
  count = jax.vmap(lambda row: jnp.searchsorted(row, ends, side="right"))
  return count(numbers).astype(jnp.int32)
