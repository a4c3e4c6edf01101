"""The order of a batch's slots inside `jit`, there and back."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_layouts as reference
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import NamedSharding, PartitionSpec

from hpgrain import context_parallel, shard
from hpgrain.context_layout import LAYOUTS, ContextLayout


def orders(layout, rows, length):
  """The order of each row of segments of such lengths, by definition."""
  return [
    reference.order(
      layout.name,
      layout.num_ranks,
      length,
      reference.rooms(lengths, layout.segment_multiple, length),
    )
    for lengths in rows
  ]


def batch_of(layout, rows, length):
  """Their segment_ids int32[rows, slots]."""
  ids = [
    reference.segment_ids(lengths, layout.segment_multiple, length)
    for lengths in rows
  ]
  return np.array(
    [
      [row[position] for position in order]
      for row, order in zip(ids, orders(layout, rows, length), strict=True)
    ],
    np.int32,
  )


positions_of = jax.jit(context_parallel.row_positions, static_argnums=1)


def test_rooms_of_rows_written_out():
  segment_ids = jnp.array(
    [
      [1, 1, 1, 0, 2, 0, 0, 0],
      # The slots may be in any order.
      [0, 2, 1, 0, 1, 0, 0, 1],
      [0, 0, 0, 0, 0, 0, 0, 0],
      [1, 1, 1, 1, 2, 2, 2, 2],
    ]
  )
  ends = jax.jit(context_parallel.room_ends, static_argnums=1)(segment_ids, 4)
  assert ends.tolist() == [
    [0, 4, 8, 8],
    [0, 4, 8, 8],
    [0, 0, 0, 8],
    [0, 4, 8, 8],
  ]


def test_positions_written_out():
  segment_ids = jnp.array([[1, 0, 2, 0, 1, 1, 2, 2], [0] * 8])
  layout = ContextLayout("document_zigzag", 2, 4)
  positions = positions_of(segment_ids, layout)
  assert positions.dtype == jnp.int32
  assert positions.tolist() == [
    [0, 3, 4, 7, 1, 2, 5, 6],
    [0, 1, 6, 7, 2, 3, 4, 5],
  ]
  # A row and its order, wherever rows have none of their own.
  zigzag = positions_of(segment_ids, ContextLayout("zigzag", 2))
  assert zigzag.dtype == jnp.int32
  assert zigzag.tolist() == [[0, 1, 6, 7, 2, 3, 4, 5]]
  alone = positions_of(segment_ids, ContextLayout("document_zigzag"))
  assert alone.tolist() == [list(range(8))]


@pytest.mark.parametrize("name", LAYOUTS)
def test_positions_that_do_not_divide_are_refused(name):
  layout = ContextLayout(name, 4, 8)
  with pytest.raises(ValueError, match=r"6 positions .* 4 ranks"):
    context_parallel.row_positions(jnp.ones((1, 6), jnp.int32), layout)


# (ranks, multiple of rooms, positions of a row): where rooms fill the row, and
# where mesh and layout ask for more positions than they do.
SIZES = (
  (1, 3, 12),
  (2, 4, 16),
  (2, 8, 36),
  (3, 6, 30),
  (4, 8, 24),
  (8, 16, 80),
)


@st.composite
def rows_of(draw, multiple, length):
  """The lengths of the segments of three rows."""
  rows = []
  for _ in range(3):
    left, lengths = draw(st.integers(0, length // multiple)), []
    while left:
      size = draw(st.integers(1, left))
      least = multiple * (size - 1) + 1
      lengths.append(draw(st.integers(least, multiple * size)))
      left -= size
    rows.append(lengths)
  return rows


@functools.partial(jax.jit, static_argnames=("layout",))
def there_and_back(ids, xs, *, layout):
  """The positions of a batch, arrays in the order of slots, and of rows."""
  positions = context_parallel.row_positions(ids, layout)
  slots = [context_parallel.in_slot_order(x, positions) for x in xs]
  rows = [context_parallel.in_row_order(x, positions) for x in slots]
  return positions, slots, rows


@pytest.mark.parametrize(("ranks", "multiple", "length"), SIZES)
@given(data=st.data())
def test_positions_follow_the_definition_and_lead_back(
  ranks, multiple, length, data
):
  layout = ContextLayout("document_zigzag", ranks, multiple)
  rows = data.draw(rows_of(multiple, length))
  expected = orders(layout, rows, length)
  xs = []
  for rest in ((), (3,), (2, 2)):
    shape = (len(rows), length, *rest)
    xs.append(np.arange(np.prod(shape)).reshape(shape))
  ids = batch_of(layout, rows, length)
  positions, slots, again = there_and_back(ids, xs, layout=layout)
  assert positions.dtype == np.int32
  assert len(positions) == (len(rows) if layout.depends_on_rows else 1)
  positions = np.broadcast_to(positions, (len(rows), length))
  assert positions.tolist() == expected
  for x, of_slots, of_rows in zip(xs, slots, again, strict=True):
    assert np.array_equal(of_rows, x)
    for row, order in enumerate(expected):
      assert np.array_equal(of_slots[row], x[row][order])


# Two rows of a document and a gap, a full one, one of padding alone.
ROWS = [[3, 9], [16, 16], [], [30]]


@pytest.mark.parametrize("sequence_parallel", [False, True])
@pytest.mark.parametrize("name", LAYOUTS)
def test_over_sharded_arrays(name, sequence_parallel):
  mesh = shard.make_mesh(("data", "cp", "tp"), {"data": 2, "cp": 2, "tp": 2})
  sharding = shard.batch_sharding(mesh, sequence_parallel=sequence_parallel)
  layout = shard.context_layout(mesh, name, segment_multiple=8)
  ids = batch_of(layout, ROWS, 32)
  order = np.array(orders(layout, ROWS, 32))
  x = np.arange(4 * 32 * 5, dtype=np.float32).reshape(4, 32, 5)
  outputs = np.take_along_axis(x, order[:, :, None], axis=1)
  spec = PartitionSpec(*sharding.spec)

  @functools.partial(
    jax.jit,
    out_shardings=(NamedSharding(mesh, spec), NamedSharding(mesh, spec)),
  )
  def rows_and_slots(ids, outputs):
    positions = context_parallel.row_positions(ids, layout)
    rows = context_parallel.in_row_order(outputs, positions)
    return rows, context_parallel.in_slot_order(rows, positions)

  placed = jax.device_put((ids, outputs), NamedSharding(mesh, spec))
  rows, slots = rows_and_slots(*placed)
  np.testing.assert_array_equal(rows, x)
  np.testing.assert_array_equal(slots, outputs)
  assert rows.sharding.spec == slots.sharding.spec == spec
  # Where the layout permutes at all, the outputs were not in the row's order.
  assert np.array_equal(outputs, x) == layout.is_identity
