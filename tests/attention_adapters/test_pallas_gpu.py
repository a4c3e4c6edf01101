"""Pallas' GPU attention itself, in interpret mode, by the adapter's ids."""

import functools

import jax
import jax.numpy as jnp
import pytest
from attention_cases import WIDTH, error, inputs_of, layout_of
from jax.experimental.pallas.ops.gpu import attention

from hpgrain.attention_adapters import pallas_gpu


def _attend(packed_seq_params):
  return functools.partial(
    attention.mha,
    causal=True,
    sm_scale=WIDTH**-0.5,
    interpret=True,
    **packed_seq_params,
  )


def test_it_is_the_dense_mask():
  inputs = inputs_of()
  assert error(_attend(pallas_gpu.adapt(inputs)), inputs) < 1e-4


def test_a_bug_is_seen():
  inputs = inputs_of()
  one_segment = jax.tree.map(jnp.ones_like, pallas_gpu.adapt(inputs))
  assert error(_attend(one_segment), inputs, gradient=False) > 1e-2


@pytest.mark.parametrize("length", [32, 64, 128, 256, 384])
def test_rows_of_whole_blocks_are_served(length):
  pallas_gpu.adapt(inputs_of(lengths=((20,),), length=length))


@pytest.mark.parametrize("length", [24, 96, 192])
def test_rows_that_no_blocks_divide_are_refused(length):
  with pytest.raises(ValueError, match=f"multiple of 128 .* has {length}"):
    pallas_gpu.adapt(inputs_of(lengths=((20,),), length=length))


def test_a_window_is_refused():
  with pytest.raises(ValueError, match="no sliding window, and 40 keys"):
    pallas_gpu.adapt(inputs_of(window=40))


@pytest.mark.parametrize(
  "name", ["contiguous", "zigzag", "striped", "document_zigzag"]
)
def test_split_rows_are_refused(name):
  said = rf"'pallas_gpu' needs whole rows, .* cp=2 \(layout '{name}'\)"
  with pytest.raises(ValueError, match=said):
    pallas_gpu.adapt(inputs_of(layout_of(name, 2)))
  alone = inputs_of(layout_of(name, 1))
  assert pallas_gpu.adapt(alone)["segment_ids"] is alone.segment_ids
