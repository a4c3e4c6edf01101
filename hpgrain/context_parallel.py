r"""A batch whose positions a layout permuted in; row order and back, in `jit`.

  segment_ids [rows, slots] -> row_positions   which position each slot holds
  x [rows, slots, ...]      -> in_row_order    the row as it was, of outputs
  x [rows, positions, ...]  -> in_slot_order   the layout again

Nothing is needed for it but the batch: the order of most layouts is fixed, and
that of "document_zigzag" follows from how many positions each segment has,
which no permutation changes.
"""

import jax
import jax.numpy as jnp

from hpgrain.context_layout import ContextLayout


def row_positions(segment_ids: jax.Array, layout: ContextLayout) -> jax.Array:
  """Returns which position of its row each slot of a batch holds.

  Args:
    segment_ids: int32[rows, S], in slot order; whole rows, not the slice of a
      device.
    layout: of the batch.

  Returns:
    int32[1, S], or int32[rows, S] where the layout depends on rows.

  Raises:
    ValueError: S positions do not divide over the layout's ranks.
  """
  length = segment_ids.shape[1]
  if not layout.depends_on_rows:
    return jnp.asarray(layout.order(length))[None]
  layout.check(length)
  ends = room_ends(segment_ids, layout.segment_multiple)
  ranks, multiple = layout.num_ranks, layout.multiple
  rank, at = jnp.divmod(jnp.arange(length), length // ranks)

  def of_row(ends: jax.Array) -> jax.Array:
    room = jnp.searchsorted(ends // ranks, at, side="right") - 1
    begin = ends[room]
    half = (ends[room + 1] - begin) // multiple
    offset = at - begin // ranks
    is_first = offset < half
    chunk = jnp.where(is_first, rank, multiple - 1 - rank)
    return begin + chunk * half + jnp.where(is_first, offset, offset - half)

  return jax.vmap(of_row)(ends).astype(jnp.int32)


def room_ends(segment_ids: jax.Array, segment_multiple: int) -> jax.Array:
  """Returns where the rooms of packed rows end, in row order.

  Args:
    segment_ids: int32[rows, S], 1, 2, ... within a row in order of position,
      0 = padding; the slots may be in any order.
    segment_multiple: what rooms are rounded up to.

  Returns:
    int32[rows, S // segment_multiple + 2]: 0, the end of each room, that of
    the last one again and again, and S.
  """
  rows, length = segment_ids.shape
  most = length // segment_multiple
  counts = jnp.zeros((rows, most + 1), jnp.int32)
  counts = counts.at[jnp.arange(rows)[:, None], segment_ids].add(1)
  rooms = -(-counts[:, 1:] // segment_multiple) * segment_multiple
  ends = jnp.cumsum(rooms, axis=1)
  first = jnp.zeros((rows, 1), jnp.int32)
  return jnp.concatenate([first, ends, jnp.full_like(first, length)], axis=1)


def in_row_order(x: jax.Array, positions: jax.Array) -> jax.Array:
  """Puts what a model makes of a batch into the order of the row.

  Args:
    x: [rows, S, ...], in slot order.
    positions: what `row_positions` returned.

  Returns:
    [rows, S, ...], position after position.
  """
  return in_slot_order(x, jnp.argsort(positions, axis=1))


def in_slot_order(x: jax.Array, positions: jax.Array) -> jax.Array:
  """Puts rows into the order of a layout: the inverse of `in_row_order`.

  Args:
    x: [rows, S, ...], position after position.
    positions: what `row_positions` returned.
  """
  if positions.shape[0] == 1:
    return jnp.take(x, positions[0], axis=1)
  positions = positions.reshape(positions.shape + (1,) * (x.ndim - 2))
  return jnp.take_along_axis(x, positions, axis=1)
