"""launch/ring_attention.py by what the `context_parallel` adapter gives."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attention_cases import WINDOW, cp_mesh, error, inputs_of, layout_of

from hpgrain.attention_adapters import context_parallel

sys.path.insert(0, str(Path(__file__).parents[2] / "launch"))

import ring_attention

_LAYOUTS = ("contiguous", "zigzag", "striped", "document_zigzag")


def _attend(method, inputs, bug=lambda params: params):
  """Attention over two devices, by nothing but the adapter's arrays."""
  params = bug(context_parallel.adapt(inputs))

  def attend(query, key, value):
    return ring_attention.attention(
      query,
      key,
      value,
      params["segment_ids"],
      params["row_positions"],
      mesh=cp_mesh(2),
      method=method,
      window=inputs.sliding_window,
    )

  return attend


@pytest.mark.parametrize("name", _LAYOUTS)
def test_in_a_ring_it_is_the_dense_mask(name):
  inputs = inputs_of(layout_of(name, 2))
  assert error(_attend("ring", inputs), inputs) < 1e-5


@pytest.mark.parametrize("name", _LAYOUTS)
def test_with_gathered_keys_and_a_window_it_is_the_dense_mask(name):
  inputs = inputs_of(layout_of(name, 2), window=WINDOW)
  attend = _attend("all_gather", inputs)
  assert error(attend, inputs, gradient=False) < 1e-5


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
  attend = _attend("all_gather", inputs, bug)
  assert error(attend, inputs, gradient=False) > 1e-2


def test_all_arrays_are_split_as_the_batch_is():
  inputs = inputs_of(layout_of("zigzag", 2))
  params = jax.jit(lambda: context_parallel.adapt(inputs))()
  assert {k: (x.shape, x.dtype) for k, x in params.items()} == dict.fromkeys(
    ("segment_ids", "row_positions", "position_ids"),
    ((2, 256), np.dtype(np.int32)),
  )
  # Where each slot's token stood: not its slot, and not its segment.
  np.testing.assert_array_equal(params["position_ids"], inputs.position_ids)
  assert (inputs.position_ids != inputs.segment_ids).any()
  assert params["row_positions"][1, 60:68].tolist() == [
    *range(60, 64),
    *range(192, 196),
  ]
