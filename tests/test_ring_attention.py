"""Attention over context-parallel devices by itself, against a dense one."""

import functools
import re
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from hpgrain import shard
from hpgrain.context_layout import ContextLayout

sys.path.insert(0, str(Path(__file__).parent.parent / "launch"))

from ring_attention import attention

AXES = ("data", "cp", "tp")
LENGTH = 32
# One segment in the last slots alone, so that on a contiguous rank 3 no query
# has a key in ranks 0 to 2; several; and a row of nothing but padding.
SEGMENT_IDS = np.array(
  [
    [0] * 24 + [1] * 8,
    [1] * 5 + [2] * 13 + [0] * 2 + [3] * 9 + [0] * 3,
    [0] * 32,
    [1] * 32,
  ],
  np.int32,
)
ROW_ORDER = np.arange(LENGTH, dtype=np.int32)[None]


def make_mesh(*sizes):
  sizes = dict(zip(AXES, sizes, strict=True))
  return shard.make_mesh(AXES, sizes, jax.devices())


def arrays(channels=8, dtype=np.float32):
  """Random query, key, value and what weights the output in a loss."""
  rng = np.random.default_rng(0)
  shape = (4, 4, LENGTH, 4, channels)
  return [jnp.asarray(x, dtype) for x in rng.normal(size=shape)]


def dense(query, key, value, *, window=None):
  """Every score of whole rows, those that are masked taken out."""
  at = np.arange(LENGTH)
  before = at[:, None] - at
  seen = SEGMENT_IDS[:, :, None] == SEGMENT_IDS[:, None]
  seen = seen & (before >= 0) & (before < (window or LENGTH))
  scores = jnp.einsum("rqhc,rkhc->rhqk", query, key) / 8**0.5
  weights = jnp.where(seen[:, None], jnp.exp(scores), 0)
  weights /= weights.sum(-1, keepdims=True)
  return jnp.einsum("rhqk,rkhc->rqhc", weights, value)


def out_and_grads(attend, query, key, value, weights):
  """What comes out, and the gradients of a number made of it."""

  def number(*inputs):
    out = attend(*inputs)
    return (out * weights).sum(), out

  grad = jax.grad(number, argnums=(0, 1, 2), has_aux=True)
  # Quick to compile rather than to run.
  quick = {"xla_backend_optimization_level": 0}
  grads, out = jax.jit(grad, compiler_options=quick)(query, key, value)
  return jax.device_get((out, *grads))


@pytest.mark.parametrize(
  "sizes, layout, window, method",
  [
    ((2, 4, 1), "contiguous", None, "ring"),
    ((2, 4, 1), "zigzag", 3, "ring"),
    ((1, 8, 1), "striped", 3, "ring"),
    ((1, 2, 4), "contiguous", 3, "ring"),
    ((2, 4, 1), "zigzag", None, "all_gather"),
    ((8, 1, 1), "contiguous", 3, "ring"),
  ],
)
def test_outputs_and_gradients_are_those_of_dense_attention(
  sizes, layout, window, method
):
  order = ContextLayout(layout, sizes[1]).order(LENGTH)
  rows = 8 // 4 if sizes[0] == 8 else 1
  inputs = [x[:, order] for x in arrays()]

  def many(x):
    return jnp.concatenate([x] * rows)

  def attend(*inputs):
    return attention(
      *(many(x) for x in inputs),
      many(SEGMENT_IDS[:, order]),
      jnp.asarray(order)[None],
      mesh=make_mesh(*sizes),
      method=method,
      window=window,
    )[:4]

  got = out_and_grads(attend, *inputs)
  want = out_and_grads(functools.partial(dense, window=window), *arrays())
  for a, b in zip(got, want, strict=True):
    assert np.isfinite(a).all()
    assert np.abs(a - b[:, order]).max() < 1e-5 * np.abs(b).max()


def test_a_mesh_without_a_context_axis_holds_whole_rows():
  mesh = shard.make_mesh(("data",), {"data": 4}, jax.devices()[:4])
  *inputs, _ = arrays()
  got = jax.jit(functools.partial(attention, mesh=mesh, window=5))(
    *inputs, SEGMENT_IDS, ROW_ORDER
  )
  np.testing.assert_allclose(got, dense(*inputs, window=5), atol=1e-5)


def test_low_precision_goes_in_and_comes_out_and_is_summed_in_float32():
  *inputs, _ = arrays(dtype=jnp.bfloat16)
  attend = functools.partial(attention, mesh=make_mesh(1, 8, 1))
  got = jax.jit(attend)(*inputs, SEGMENT_IDS, ROW_ORDER)
  assert got.dtype == jnp.bfloat16
  want = dense(*(x.astype(jnp.float32) for x in inputs))
  # Nothing is rounded but what comes in and goes out.
  error = np.abs(got.astype(np.float32) - want).max()
  assert 0 < error < 2**-8 * np.abs(want).max()


@pytest.mark.parametrize("method, keys", [("ring", 4), ("all_gather", 32)])
def test_no_device_has_all_queries_and_all_keys(method, keys):
  attend = functools.partial(attention, mesh=make_mesh(1, 8, 1), method=method)
  *inputs, _ = arrays(channels=2)
  text = jax.jit(attend).lower(*inputs, SEGMENT_IDS, ROW_ORDER).compile()
  shapes = {
    tuple(map(int, found.split(",")))
    for found in re.findall(r"\w+\[(\d+(?:,\d+)+)\]", text.as_text())
  }
  # Scores are of [rows, queries, heads, keys], and nothing is S x S.
  assert sorted((4, LENGTH // 8, 4, keys)) in [
    sorted(shape) for shape in shapes
  ]
  assert not [shape for shape in shapes if shape.count(LENGTH) > 1]


@pytest.mark.parametrize(
  "types",
  [
    (AxisType.Explicit,) * 3,
    (AxisType.Explicit, AxisType.Auto, AxisType.Auto),
    (AxisType.Auto, AxisType.Explicit, AxisType.Explicit),
  ],
)
@pytest.mark.parametrize("spec", [P("data", "cp"), P("data", ("cp", "tp"))])
def test_axes_may_be_explicit(types, spec):
  mesh = jax.make_mesh((2, 2, 2), AXES, axis_types=types)
  order = ContextLayout("zigzag", 2).order(LENGTH)
  *inputs, segment_ids = jax.device_put(
    [x[:, order] for x in (*arrays()[:3], SEGMENT_IDS)],
    NamedSharding(mesh, spec),
  )
  attend = functools.partial(attention, mesh=mesh, window=5)
  got = jax.jit(attend)(*inputs, segment_ids, jnp.asarray(order)[None])
  assert got.sharding.is_equivalent_to(
    NamedSharding(mesh, P("data", "cp", "tp")), 4
  )
  want = dense(*arrays()[:3], window=5)[:, order]
  np.testing.assert_allclose(got, want, atol=1e-5)


@pytest.mark.parametrize(
  "options, words",
  [
    ({"method": "rings"}, r"one of \('ring', 'all_gather'\), got 'rings'"),
    ({"window": 0}, "at least 1 key, got 0"),
    ({"mesh": (8, 1, 1)}, r"4 rows do not divide over the 8 devices of \('da"),
    ({"mesh": (1, 1, 8)}, r"4 heads do not divide over the 8 devices of \('tp"),
  ],
)
def test_what_cannot_be_is_refused(options, words):
  *inputs, _ = arrays()
  mesh = make_mesh(*options.pop("mesh", (2, 4, 1)))
  with pytest.raises(ValueError, match=words):
    attention(*inputs, SEGMENT_IDS, ROW_ORDER, mesh=mesh, **options)


def test_positions_that_do_not_divide_are_refused():
  inputs = [x[:, :30] for x in arrays()[:3]]
  with pytest.raises(ValueError, match="30 positions do not divide over the 8"):
    attention(
      *inputs, SEGMENT_IDS[:, :30], ROW_ORDER[:, :30], mesh=make_mesh(1, 8, 1)
    )
