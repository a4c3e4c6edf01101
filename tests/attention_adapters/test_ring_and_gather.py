"""Attention over a cp axis by what the `context_parallel` adapter gives."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attention_cases import WIDTH, WINDOW, cp_mesh, error, inputs_of, layout_of
from jax.sharding import PartitionSpec as P

from hpgrain.attention_adapters import context_parallel

_LAYOUTS = ("contiguous", "zigzag", "striped", "document_zigzag")
_SLOTS = P(None, "cp")


def _may_see(query, key, window):
  """bool[rows, queries, keys] of a block, by the adapter's documentation."""
  distance = query["row_positions"][:, :, None] - key["row_positions"][:, None]
  seen = query["segment_ids"][:, :, None] == key["segment_ids"][:, None]
  seen &= distance >= 0
  return seen if window is None else seen & (distance < window)


def _ring(query, key, value, ids, window):
  """Keys travel with their ids; an online softmax takes a block at a time."""
  ranks = jax.lax.axis_size("cp")
  top = jnp.full(query.shape[:3], -1e30)
  total, out = jnp.zeros(query.shape[:3]), jnp.zeros_like(query)
  block = (key, value, ids)
  for step in range(ranks):
    key, value, key_ids = block
    if step + 1 < ranks:
      pairs = [(r, (r + 1) % ranks) for r in range(ranks)]
      block = jax.lax.ppermute(block, "cp", pairs)
    seen = _may_see(ids, key_ids, window)[:, :, None]
    scores = jnp.einsum("bqhd,bkhd->bqhk", query, key) * WIDTH**-0.5
    new = jnp.maximum(top, jnp.where(seen, scores, -1e30).max(-1))
    # Where a block has no key, its scores are left out, not -1e30 less -1e30.
    shares = jnp.where(seen, jnp.exp(scores - new[..., None]), 0.0)
    scale = jnp.exp(top - new)
    total = total * scale + shares.sum(-1)
    out = out * scale[..., None] + jnp.einsum("bqhk,bkhd->bqhd", shares, value)
    top = new
  return out / total[..., None]


def _gather(query, key, value, ids, window):
  whole = functools.partial(
    jax.lax.all_gather, axis_name="cp", axis=1, tiled=True
  )
  key, value, key_ids = jax.tree.map(whole, (key, value, ids))
  scores = jnp.einsum("bqhd,bkhd->bqhk", query, key) * WIDTH**-0.5
  seen = _may_see(ids, key_ids, window)[:, :, None]
  shares = jax.nn.softmax(jnp.where(seen, scores, -1e30))
  return jnp.einsum("bqhk,bkhd->bqhd", shares, value)


def _attend(local, inputs, bug=lambda params: params):
  """Attention over two devices, by nothing but the adapter's arrays."""
  params = bug(context_parallel.adapt(inputs))
  run = jax.shard_map(
    functools.partial(local, window=inputs.sliding_window),
    mesh=cp_mesh(2),
    in_specs=_SLOTS,
    out_specs=_SLOTS,
  )
  return lambda query, key, value: run(query, key, value, params)


@pytest.mark.parametrize("name", _LAYOUTS)
def test_in_a_ring_it_is_the_dense_mask(name):
  inputs = inputs_of(layout_of(name, 2))
  assert error(_attend(_ring, inputs), inputs) < 1e-5


@pytest.mark.parametrize("name", _LAYOUTS)
def test_with_gathered_keys_and_a_window_it_is_the_dense_mask(name):
  inputs = inputs_of(layout_of(name, 2), window=WINDOW)
  assert error(_attend(_gather, inputs), inputs, gradient=False) < 1e-5


def _slots(params):
  ids = params["segment_ids"]
  slots = jnp.broadcast_to(jnp.arange(ids.shape[1]), ids.shape)
  return {**params, "row_positions": slots}


def _dropped(params):
  return {**params, "segment_ids": jnp.ones_like(params["segment_ids"])}


def _one_order_for_all(params):
  first = params["row_positions"][:1]
  shape = params["segment_ids"].shape
  return {**params, "row_positions": jnp.broadcast_to(first, shape)}


@pytest.mark.parametrize("bug", [_slots, _dropped, _one_order_for_all])
def test_a_bug_is_seen(bug):
  inputs = inputs_of(layout_of("document_zigzag", 2))
  attend = _attend(_gather, inputs, bug)
  assert error(attend, inputs, gradient=False) > 1e-2


def test_all_arrays_are_split_as_the_batch_is():
  inputs = inputs_of(layout_of("zigzag", 2))
  params = jax.jit(lambda: context_parallel.adapt(inputs))()
  assert {k: (x.shape, x.dtype) for k, x in params.items()} == dict.fromkeys(
    ("segment_ids", "row_positions", "position_ids"),
    ((2, 256), np.dtype(np.int32)),
  )
  assert params["row_positions"][1, 60:68].tolist() == [
    *range(60, 64),
    *range(192, 196),
  ]
