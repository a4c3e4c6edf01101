"""cuDNN's lengths through `jax.nn`; its offsets through an interpreter."""

import dataclasses
import functools

import interpreters
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attention_cases import (
  LENGTH,
  ONE_EACH,
  WINDOW,
  error,
  inputs_of,
  layout_of,
  mask_of,
  rows_of,
)
from hypothesis import given
from hypothesis import strategies as st
from jax._src.cudnn import fused_attention_stablehlo as fused

from hpgrain.attention_adapters import cudnn
from hpgrain.attention_inputs import AttentionInputs
from hpgrain.context_layout import ROW_ORDER


def _one_segment(window=None):
  return inputs_of(lengths=ONE_EACH, window=window, max_segments=2)


def _attend(params, window):
  return functools.partial(
    jax.nn.dot_product_attention,
    is_causal=True,
    local_window_size=window,
    implementation="xla",
    **params,
  )


@pytest.mark.parametrize("window", [None, WINDOW])
def test_lengths_of_one_segment_are_the_dense_mask(window):
  inputs = _one_segment(window)
  attend = _attend(cudnn.adapt(inputs), cudnn.local_window_size(window))
  # Gradients of one of the two; they take the same masks.
  gradient = window is not None
  found = error(attend, inputs, lengths=ONE_EACH, gradient=gradient)
  assert found < 1e-5


def test_a_wrong_window_of_lengths_is_seen():
  inputs = _one_segment(WINDOW)
  for window in (WINDOW + 1, WINDOW - 1):
    size = cudnn.local_window_size(window)
    attend = _attend(cudnn.adapt(inputs), size)
    found = error(attend, inputs, lengths=ONE_EACH, gradient=False)
    assert found > 1e-2


def test_lengths_written_out():
  params = cudnn.adapt(_one_segment())
  assert {name: x.tolist() for name, x in params.items()} == {
    "query_seq_lengths": [201, 256],
    "key_value_seq_lengths": [201, 256],
  }
  assert all(x.dtype == np.int32 for x in params.values())
  # Without them padding would be seen by padding alone, as causality has it.
  seen = interpreters.lengths(*params.values(), length=LENGTH)
  ids = rows_of(ONE_EACH)
  assert (seen == mask_of(_one_segment()) & (ids > 0)[:, :, None]).all()
  short = interpreters.lengths(*(x - 1 for x in params.values()), length=LENGTH)
  assert (short != seen).any()


def test_windows_written_out():
  assert cudnn.local_window_size(None) is None
  assert cudnn.local_window_size(3) == (2, 0)
  assert cudnn.local_window_size(3, "reference") == (3, 0)
  assert cudnn.sliding_window_length(None) is None
  assert cudnn.sliding_window_length(3) == 3
  assert cudnn.sliding_window_length(3, "reference") == 4


def _of(rows, max_segments, window=None):
  ids = jnp.asarray(rows, jnp.int32)
  return AttentionInputs(
    segment_ids=ids,
    position_ids=ids,
    layout=ROW_ORDER,
    max_segments=max_segments,
    sliding_window=window,
  )


def test_offsets_written_out():
  rows = [[1, 1, 2, 0, 3, 0, 0], [1, 1, 1, 1, 1, 1, 1], [0] * 7]
  params = jax.jit(lambda: cudnn.adapt(_of(rows, 5)))()
  for side in ("q", "kv"):
    assert params[f"{side}_seqlen"].tolist() == [
      [2, 2, 1, 2, -1],
      [7, -1, -1, -1, -1],
      [7, -1, -1, -1, -1],
    ]
    assert params[f"{side}_offsets"].tolist() == [
      [0, 2, 4, 5, -1, -1],
      [0, -1, -1, -1, -1, -1],
      [0, -1, -1, -1, -1, -1],
    ]
  assert all(x.dtype == np.int32 for x in params.values())
  assert set(params) == {"q_seqlen", "kv_seqlen", "q_offsets", "kv_offsets"}


def _seen(params, inputs, window=None):
  params = {name: np.asarray(x) for name, x in params.items()}
  return interpreters.offsets(
    params["q_seqlen"],
    params["kv_seqlen"],
    params["q_offsets"],
    params["kv_offsets"],
    length=inputs.segment_ids.shape[1],
    window=window,
  )


def _check(inputs):
  window = cudnn.sliding_window_length(inputs.sliding_window)
  seen = _seen(cudnn.adapt(inputs), inputs, window)
  real = np.asarray(inputs.segment_ids) > 0
  np.testing.assert_array_equal(seen[real], mask_of(inputs)[real])
  # No softmax runs over nothing, and no output is left unwritten.
  assert seen.any(axis=2).all()


@pytest.mark.parametrize("window", [None, WINDOW])
def test_offsets_are_the_dense_mask(window):
  _check(inputs_of(window=window))


@given(
  st.lists(
    st.lists(st.integers(1, 6), min_size=0, max_size=4),
    min_size=3,
    max_size=3,
  ),
  st.sampled_from([None, 1, 2, 5]),
)
def test_offsets_of_any_rows_are_the_dense_mask(lengths, window):
  ids = rows_of(lengths, length=33)
  _check(_of(ids, 6, window))


def _repeated(params):
  """Past the last segment its end again and again, as cu_seq_lens has it."""
  return {
    name: np.where(x < 0, LENGTH if "offsets" in name else 0, x)
    for name, x in params.items()
  }


def _late(params):
  return {
    name: np.where((x >= 0) & (x < LENGTH - 1), x + 1, x)
    if "offsets" in name
    else x
    for name, x in params.items()
  }


def _one_late(params):
  offsets = np.array(params["kv_offsets"])
  offsets[0, 1] += 1
  return {**params, "kv_offsets": offsets}


def _dropped(params):
  """A row's segments as one."""
  del params
  return cudnn.adapt(inputs_of(lengths=((255,), (255,))))


@pytest.mark.parametrize("bug", [_repeated, _late, _one_late, _dropped])
def test_wrong_offsets_are_seen(bug):
  inputs = inputs_of()
  params = bug({k: np.asarray(v) for k, v in cudnn.adapt(inputs).items()})
  real = rows_of() > 0
  try:
    seen = _seen(params, inputs)
  except AssertionError:
    return  # It would read what is not its own.
  assert (seen[real] != mask_of(inputs)[real]).any()


@pytest.mark.parametrize("window", [None, WINDOW])
def test_a_row_of_too_many_segments_sees_no_key(window):
  """The first row has 4 segments with its padding, the second 3."""
  inputs = inputs_of(window=window, max_segments=3)
  params = cudnn.adapt(inputs)
  seen = _seen(params, inputs, window)
  assert not seen[0].any()
  real = rows_of()[1] > 0
  np.testing.assert_array_equal(seen[1][real], mask_of(inputs)[1][real])
  # Its output is written nevertheless.
  assert params["q_seqlen"].tolist() == [[256, -1, -1], [120, 130, 6]]
  assert params["kv_seqlen"].tolist() == [[0, -1, -1], [120, 130, 6]]
  assert params["q_offsets"].tolist() == [[0, -1, -1, -1], [0, 120, 250, -1]]
  assert (params["kv_offsets"] == params["q_offsets"]).all()


def test_a_row_of_two_segments_is_not_taken_for_one():
  inputs = inputs_of(lengths=((101, 61), (201,)), max_segments=2)
  params = cudnn.adapt(inputs)
  assert [x.tolist() for x in params.values()] == [[0, 201]] * 2
  # What the kernel makes of no keys is zeros, not other documents.
  attend = _attend(params, None)
  ones = jnp.ones((2, LENGTH, 1, 8))
  made = attend(ones, ones, ones)
  assert (made[0] == 0).all()
  np.testing.assert_allclose(made[1, :201], 1, rtol=1e-5)


def test_a_wrong_window_of_offsets_is_seen():
  inputs = inputs_of(window=WINDOW)
  params = cudnn.adapt(inputs)
  real = rows_of() > 0
  for window in (WINDOW + 1, WINDOW - 1, None):
    seen = _seen(params, inputs, window)
    assert (seen[real] != mask_of(inputs)[real]).any()


def test_the_interpreter_reads_offsets_as_jax_does():
  inputs = inputs_of()
  params = cudnn.adapt(inputs)
  heads = jnp.zeros((2, LENGTH, 1, 1))
  prepare = jax.jit(fused._fix_seqlen_offsets)
  found = prepare(*params.values(), heads, heads)
  # Segments of both rows at the front; what is left over ends everywhere.
  expected = [
    [104, 64, 66, 22, 120, 130, 6, 0, 0, 0],
    [0, 104, 168, 234, 256, 376, 506, *[512] * 5],
  ]
  for i in range(4):
    assert found[i].ravel().tolist() == expected[i // 2]


def test_split_rows_are_refused():
  with pytest.raises(ValueError, match=r"'cudnn' needs whole rows, .* cp=2"):
    cudnn.adapt(inputs_of(layout_of("contiguous", 2)))


def test_segments_without_a_limit_are_refused():
  inputs = dataclasses.replace(inputs_of(), max_segments=LENGTH)
  with pytest.raises(ValueError, match="256 segments of 256 positions would"):
    cudnn.adapt(inputs)
