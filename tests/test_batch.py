import jax
import numpy as np
import pytest

from hpgrain import loss_inputs, model_inputs, num_loss_tokens
from hpgrain.batch import MAX_WINDOW, AttentionOptions

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


def test_a_window_is_counted_in_keys_with_the_querys_own():
  assert AttentionOptions().keys_seen is None
  assert AttentionOptions(sliding_window=4).keys_seen == 4
  wider = AttentionOptions(sliding_window=4, window_keys="reference")
  assert wider.keys_seen == 5


@pytest.mark.parametrize(
  "options, said",
  [
    ({"sliding_window": 0}, "sliding_window must be at least 1, got 0"),
    ({"sliding_window": 2**40}, "must be at most 2147483646, got 1099511"),
    ({"sliding_window": 2.0}, r"sliding_window must be an integer, got 2\.0"),
    ({"max_segments": 1}, "max_segments must be at least 2, got 1"),
    ({"max_segments": 0}, "max_segments must be at least 2, got 0"),
    ({"max_segments": -1}, "max_segments must be at least 2, got -1"),
    ({"max_segments": 1.5}, r"max_segments must be an integer, got 1\.5"),
  ],
)
def test_numbers_that_are_none_are_refused(options, said):
  with pytest.raises(ValueError, match=said):
    model_inputs(_batch(), **options)


def test_the_widest_window_is_all_before():
  fields = _batch()
  for keys in ("inclusive", "reference"):
    made = model_inputs(
      fields,
      attention_mode="dense",
      sliding_window=MAX_WINDOW,
      window_keys=keys,
    )
    assert (made["swa_mask"] == made["attention_mask"]).all()


def test_an_unknown_attention_mode_is_refused():
  with pytest.raises(ValueError, match="got 'sparse'"):
    model_inputs(_batch(), attention_mode="sparse")
  with pytest.raises(ValueError, match="an adapter belong together"):
    model_inputs(_batch(), attention_mode="compressed")
