r"""Attention of rows whose positions lie on several devices, in plain JAX.

Queries stay where they are, and keys and values come to them. `ring` sends
them on to the next device as often as there are devices, `all_gather` sends
all of them to all:

               keys at hand, by the rank they are of
    ring       step 0   1   2   3         all_gather
      rank 0        0   3   2   1             0 1 2 3
      rank 1        1   0   3   2             0 1 2 3
      rank 2        2   1   0   3             0 1 2 3
      rank 3        3   2   1   0             0 1 2 3

`ring` holds two parts of the keys at a time, so a row may be as long as all
devices together can hold, and sending hides behind computing. `all_gather`
holds a row's keys at once, which is simpler to overlap where they are few. Both
are what is known as Ring Attention (Liu et al., 2023,
https://arxiv.org/abs/2310.01889) and as the context parallelism of Llama 3
(section 3.3.2 of https://arxiv.org/abs/2407.21783), without a kernel: they are
here to be read, and to check that a batch says all that attention needs.

What a query sees is decided by the segment ids and row positions that travel
with the keys: the same segment, not after the query, within the window. So no
layout of positions is known here, nothing is S x S, and padding, which is
segment 0, sees padding. The backward pass is autodiff's: a `ppermute` is
transposed into one the other way around.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


class _Keys(NamedTuple):
  """What travels: a part of the rows' positions, as keys.

  Attributes:
    key: [rows, n, heads, channels].
    value: the same shape.
    segment_ids: int32[rows, n].
    positions: int32[1 or rows, n], of their rows.
  """

  key: jax.Array
  value: jax.Array
  segment_ids: jax.Array
  positions: jax.Array


class _Sums(NamedTuple):
  """A softmax over the keys seen so far; float32.

  Attributes:
    highest: [rows, n, heads], the highest score; -inf before the first key.
    total: [rows, n, heads], the sum of exp(score - highest).
    mixed: [rows, n, heads, channels], the values, weighted by the same.
  """

  highest: jax.Array
  total: jax.Array
  mixed: jax.Array


def ring_attention(
  query: jax.Array,
  key: jax.Array,
  value: jax.Array,
  segment_ids: jax.Array,
  row_positions: jax.Array,
  *,
  axis: str | None,
  window: int | None = None,
) -> jax.Array:
  """Attends to the keys of whole rows; call it inside `jax.shard_map`.

  Args:
    query: [rows, n, heads, channels], this device's positions of its rows.
    key: the same shape.
    value: the same shape.
    segment_ids: int32[rows, n], 0 = padding.
    row_positions: int32[1 or rows, n], which position of its row each is.
    axis: the mesh axis that shares out positions; None: whole rows are here.
    window: keys that a query sees, its own included; None: all before it.

  Returns:
    [rows, n, heads, channels], of query's dtype; the softmax is in float32.
  """
  size = 1 if axis is None else jax.lax.axis_size(axis)
  to_next = [(rank, (rank + 1) % size) for rank in range(size)]
  keys = here = _Keys(key, value, segment_ids, row_positions)
  sums = _no_keys(query)
  for step in range(size):
    at_hand = keys
    if step + 1 < size:
      # Before the work on those at hand, so that it need not wait for it.
      keys = jax.lax.ppermute(keys, axis, to_next)
    sums = _add_keys(sums, query, here, at_hand, window)
  return _mixed(sums, query)


def all_gather_attention(
  query: jax.Array,
  key: jax.Array,
  value: jax.Array,
  segment_ids: jax.Array,
  row_positions: jax.Array,
  *,
  axis: str | None,
  window: int | None = None,
) -> jax.Array:
  """Does what `ring_attention` does, with all keys on every device at once."""
  keys = here = _Keys(key, value, segment_ids, row_positions)
  if axis is not None:
    keys = jax.lax.all_gather(keys, axis, axis=1, tiled=True)
  sums = _add_keys(_no_keys(query), query, here, keys, window)
  return _mixed(sums, query)


_METHODS: dict[str, Callable[..., jax.Array]] = {
  "ring": ring_attention,
  "all_gather": all_gather_attention,
}


def attention(
  query: jax.Array,
  key: jax.Array,
  value: jax.Array,
  segment_ids: jax.Array,
  row_positions: jax.Array,
  *,
  mesh: Mesh,
  method: str = "ring",
  data_axes: Sequence[str] = ("data",),
  context_axis: str = "cp",
  heads_axis: str = "tp",
  window: int | None = None,
) -> jax.Array:
  """Attends within global arrays; the batch may be in any layout.

  Rows are shared out over the data axes, positions over the context axis and
  heads over the heads axis. Where `sequence_parallel` shares out positions over
  (cp, tp), XLA moves them: positions over cp and heads over tp in here, as
  before out there.

  Args:
    query: [rows, S, heads, channels].
    key: the same shape.
    value: the same shape.
    segment_ids: int32[rows, S], 0 = padding; of the batch.
    row_positions: int32[1 or rows, S], of `loader.row_positions(batch)`.
    mesh: of the batch; an axis that it does not have shares out nothing.
    method: "ring" or "all_gather".
    data_axes: over which rows are shared out.
    context_axis: over which positions are.
    heads_axis: over which heads are.
    window: keys that a query sees, its own included; None: all before it.

  Returns:
    [rows, S, heads, channels], of query's dtype.

  Raises:
    ValueError: for an unknown method, a window below 1, or rows, positions or
      heads that do not divide over the mesh.
  """
  if method not in _METHODS:
    raise ValueError(
      f"method must be one of {tuple(_METHODS)}, got {method!r}."
    )
  if window is not None and window < 1:
    raise ValueError(f"A sliding window has at least 1 key, got {window}.")
  rows = tuple(axis for axis in data_axes if axis in mesh.shape)
  context = context_axis if context_axis in mesh.shape else None
  heads = heads_axis if heads_axis in mesh.shape else None
  for what, count, axes in (
    ("rows", query.shape[0], rows),
    ("positions", query.shape[1], (context,)),
    ("heads", query.shape[2], (heads,)),
  ):
    parts = 1
    for axis in axes:
      parts *= mesh.shape.get(axis, 1)
    if count % parts:
      raise ValueError(
        f"{count} {what} do not divide over the {parts} devices of {axes} in"
        f" the mesh {dict(mesh.shape)}; use a multiple of {parts}, or another"
        " mesh."
      )
  of_heads = P(rows, context, heads, None)
  of_rows = P(rows, context)
  # A row of positions that stands for all rows is the same on all of them.
  of_positions = of_rows if row_positions.shape[0] > 1 else P(None, context)
  arrays = (query, key, value, segment_ids, row_positions)
  specs = (of_heads, of_heads, of_heads, of_rows, of_positions)
  return jax.shard_map(
    functools.partial(_METHODS[method], axis=context, window=window),
    mesh=mesh,
    in_specs=specs,
    out_specs=of_heads,
  )(*(_moved(x, mesh, spec) for x, spec in zip(arrays, specs, strict=True)))


def _moved(x: jax.Array, mesh: Mesh, spec: P) -> jax.Array:
  """Moves `x` where `shard_map` would not: along axes of type Explicit."""
  types = zip(mesh.axis_names, mesh.axis_types, strict=True)
  explicit = {name for name, kind in types if kind is AxisType.Explicit}
  if not explicit:
    return x
  parts = ((part,) if isinstance(part, str) else part or () for part in spec)
  named = P(
    *(tuple(axis for axis in part if axis in explicit) for part in parts)
  )
  return jax.sharding.reshard(x, NamedSharding(mesh, named))


def _no_keys(query: jax.Array) -> _Sums:
  zeros = jnp.zeros(query.shape, jnp.float32)
  return _Sums(jnp.full(query.shape[:3], -jnp.inf), zeros[..., 0], zeros)


def _add_keys(
  sums: _Sums,
  query: jax.Array,
  here: _Keys,
  keys: _Keys,
  window: int | None,
) -> _Sums:
  """Takes some more keys into the softmax of each query.

  Args:
    sums: of the keys before.
    query: [rows, n, heads, channels].
    here: the segments and positions of the queries, as keys.
    keys: what is taken in.
    window: see `ring_attention`.
  """
  before = here.positions[:, :, None] - keys.positions[:, None, :]
  seen = here.segment_ids[:, :, None] == keys.segment_ids[:, None, :]
  seen &= before >= 0
  if window is not None:
    seen &= before < window
  # Keys travel in the dtype they have, and are counted in float32.
  query, key, value = (
    x.astype(jnp.float32) for x in (query, keys.key, keys.value)
  )
  scores = jnp.einsum("rqhc,rkhc->rqhk", query, key) * query.shape[-1] ** -0.5
  scores = jnp.where(seen[:, :, None], scores, -jnp.inf)
  highest = jnp.maximum(sums.highest, scores.max(-1))
  # Finite: every query has its own key among the first ones. Of -inf, the
  # first part's would be NaN.
  weights = jnp.exp(scores - highest[..., None])
  shrink = jnp.exp(sums.highest - highest)
  mixed = jnp.einsum("rqhk,rkhc->rqhc", weights, value)
  return _Sums(
    highest,
    sums.total * shrink + weights.sum(-1),
    sums.mixed * shrink[..., None] + mixed,
  )


def _mixed(sums: _Sums, query: jax.Array) -> jax.Array:
  # Every query has seen its own key, so no total is 0.
  return (sums.mixed / sums.total[..., None]).astype(query.dtype)
