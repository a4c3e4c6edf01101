import jax
import numpy as np
import pytest

from hpgrain import loss_inputs, model_inputs, num_loss_tokens

_X = -100


def _batch():
  """A row of documents "11 12 9" and "21 22", and one of three positions."""
  return {
    "input_ids": np.array([[11, 12, 9, 21, 22], [1, 2, 3, 0, 0]], np.int32),
    "labels": np.array([[12, 9, _X, 22, _X], [2, 3, _X, _X, _X]], np.int32),
    "position_ids": np.array([[0, 1, 2, 3, 4]] * 2, np.int32),
    "segment_ids": np.array([[1, 1, 1, 2, 2], [1, 1, 1, 0, 0]], np.int32),
    "loss_mask": np.array([[1, 1, 0, 1, 0], [1, 1, 0, 0, 0]], np.float32),
  }


def test_loss_tokens_are_counted_in_jit_over_the_whole_batch():
  mesh = jax.make_mesh((2,), ("cp",), axis_types=(jax.sharding.AxisType.Auto,))
  sharding = jax.NamedSharding(mesh, jax.P(None, None))
  placed = {k: jax.device_put(v, sharding) for k, v in _batch().items()}
  assert float(jax.jit(num_loss_tokens)(placed)) == 5.0


def test_the_two_views_hold_their_keys():
  fields = _batch()
  assert list(model_inputs(fields)) == [
    "input_ids",
    "labels",
    "position_ids",
    "segment_ids",
  ]
  assert list(loss_inputs(fields)) == ["labels", "loss_mask"]
  assert loss_inputs(fields)["labels"] is fields["labels"]


def test_masks_are_made_on_request_inside_jit():
  fields = _batch()
  made = jax.jit(
    lambda b: model_inputs(b, attention_mode="dense", sliding_window=2)
  )(fields)
  assert made["attention_mask"].shape == (2, 1, 5, 5)
  assert made["swa_mask"].shape == (2, 1, 5, 5)
  assert made["attention_mask"][0, 0].astype(int).tolist() == [
    [1, 0, 0, 0, 0],
    [1, 1, 0, 0, 0],
    [1, 1, 1, 0, 0],
    [0, 0, 0, 1, 0],
    [0, 0, 0, 1, 1],
  ]
  assert made["swa_mask"][0, 0, 2].astype(int).tolist() == [0, 1, 1, 0, 0]
  wider = model_inputs(fields, sliding_window=2, window_keys="reference")
  assert wider["swa_mask"][0, 0, 2].astype(int).tolist() == [1, 1, 1, 0, 0]
  assert "attention_mask" not in wider


def test_an_unknown_attention_mode_is_refused():
  with pytest.raises(ValueError, match="got 'sparse'"):
    model_inputs(_batch(), attention_mode="sparse")
  with pytest.raises(ValueError, match="an adapter belong together"):
    model_inputs(_batch(), attention_mode="compressed")
