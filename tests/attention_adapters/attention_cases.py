"""Packed rows, and an attention over them that is as slow as it is plain.

Two rows of 256 positions with padding between and behind their segments, in
any layout: what an adapter makes of them is compared with `hpgrain.attention`.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType

from hpgrain import attention
from hpgrain.attention_inputs import AttentionInputs
from hpgrain.context_layout import ROW_ORDER, ContextLayout, Rooms

LENGTH = 256
HEADS, WIDTH = 2, 32
WINDOW = 40
# Rooms are multiples of 4, as two ranks of "document_zigzag" want them.
MULTIPLE = 4
PACKED = ((101, 61, 66), (117, 130))
ONE_EACH = ((201,), (256,))
# Of PACKED's rows, that of the padding counted.
MAX_SEGMENTS = 5


def layout_of(name, num_ranks):
  """A layout whose rooms are those of the rows here."""
  return ContextLayout(name, num_ranks, MULTIPLE)


def rows_of(lengths=PACKED, length=LENGTH):
  """segment_ids int32[rows, length] in the order of the row."""
  ids = np.zeros((len(lengths), length), np.int32)
  for row, segments in zip(ids, lengths):
    begin = 0
    for number, count in enumerate(segments, 1):
      row[begin : begin + count] = number
      begin += -(-count // MULTIPLE) * MULTIPLE
  return ids


def orders_of(layout, lengths=PACKED, length=LENGTH):
  """int32[rows, length], the position that each slot holds."""
  splits, rooms = [0], []
  for segments in lengths:
    rooms += [-(-count // MULTIPLE) * MULTIPLE for count in segments]
    left = length - sum(rooms[splits[-1] :])
    rooms += [left] * (left > 0)
    splits.append(len(rooms))
  return layout.order_of_rows(Rooms(np.array(splits), np.array(rooms)), length)


def inputs_of(
  layout=ROW_ORDER,
  *,
  lengths=PACKED,
  window=None,
  max_segments=MAX_SEGMENTS,
  length=LENGTH,
):
  """What an adapter is given of the rows."""
  ids = np.take_along_axis(
    rows_of(lengths, length), orders_of(layout, lengths, length), axis=1
  )
  return AttentionInputs(
    segment_ids=jnp.asarray(ids),
    position_ids=jnp.asarray(orders_of(layout, lengths, length)),
    layout=layout,
    max_segments=max_segments,
    sliding_window=window,
  )


def mask_of(inputs):
  """bool[rows, S, S], what each slot's query may see: the dense mask."""
  if inputs.sliding_window is None:
    made = attention.attention_mask(inputs.segment_ids, inputs.row_positions)
  else:
    made = attention.sliding_window_mask(
      inputs.segment_ids,
      window=inputs.sliding_window,
      row_positions=inputs.row_positions,
    )
  return np.asarray(made[:, 0])


@functools.cache
def query_key_value():
  """float32[rows, S, heads, width], in row order, and weights of outputs."""
  keys = jax.random.split(jax.random.key(0), 4)
  shape = (len(PACKED), LENGTH, HEADS, WIDTH)
  return tuple(np.asarray(jax.random.normal(key, shape)) for key in keys)


def attend(query, key, value, mask):
  """Attention through a dense mask bool[rows, S, S]."""
  scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) * WIDTH**-0.5
  scores = jnp.where(mask[:, None], scores, -1e30)
  return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), value)


@functools.partial(jax.jit, static_argnums=0)
def _with_gradients(kernel, query, key, value, weights, *others):
  def loss(query, key, value):
    made = kernel(query, key, value, *others)
    return jnp.sum(made * weights), made

  grad = jax.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True)
  (_, made), grads = grad(query, key, value)
  return made, *grads


@functools.cache
def _reference(lengths, window):
  """Outputs and gradients through the dense mask, in row order."""
  inputs = inputs_of(lengths=lengths, window=window)
  query, key, value, weights = query_key_value()
  weights = weights * (rows_of(lengths) > 0)[..., None, None]
  made = _with_gradients(
    attend, query, key, value, weights, jnp.asarray(mask_of(inputs))
  )
  return tuple(map(np.asarray, made))


def error(kernel, inputs, *others, lengths=PACKED, gradient=True):
  """The largest difference of a kernel from attention by the dense mask.

  Of outputs where there is no padding, and of the gradients of all.

  Args:
    kernel: of query, key and value, in slot order, and the others.
    inputs: of the rows of `lengths`.
    *others: what the kernel gets besides.
    lengths: see `inputs_of`.
    gradient: whether to compare gradients.
  """
  order = orders_of(inputs.layout, lengths)[..., None, None]
  back = np.argsort(order, axis=1)
  real = rows_of(lengths) > 0
  *qkv, weights = query_key_value()
  weights = weights * real[..., None, None]
  query, key, value, weights = (
    np.take_along_axis(x, order, axis=1) for x in (*qkv, weights)
  )
  if gradient:
    made = _with_gradients(kernel, query, key, value, weights, *others)
  else:
    made = (jax.jit(kernel)(query, key, value, *others),)
  made = [np.take_along_axis(np.asarray(x), back, axis=1) for x in made]
  # What stands at padding may be anything that is finite.
  assert all(np.isfinite(x).all() for x in made)
  said = _reference(lengths, inputs.sliding_window)[: len(made)]
  differences = [np.abs(x - y) for x, y in zip(made, said)]
  differences[0] = differences[0][real]
  return float(max(x.max() for x in differences))


def cp_mesh(num_ranks):
  """A mesh of so many simulated devices along cp."""
  return jax.make_mesh(
    (num_ranks,),
    ("cp",),
    axis_types=(AxisType.Auto,),
    devices=jax.devices()[:num_ranks],
  )
