import jax
import numpy as np
import pytest

from hpgrain.attention import (
  attention_mask,
  cu_seq_lens,
  sliding_window_mask,
)

# Two documents and padding, then one document that fills the row.
_SEGMENTS = np.array([[1, 1, 2, 2, 0, 0], [1, 1, 1, 1, 1, 1]], np.int32)


def _slow(segments, *, keys=None):
  """True where a query may see a key, one pair at a time."""
  length = len(segments)
  return [
    [
      segments[q] == segments[k] and k <= q and (keys is None or q - k < keys)
      for k in range(length)
    ]
    for q in range(length)
  ]


def test_a_position_attends_back_within_its_document():
  mask = jax.jit(attention_mask)(_SEGMENTS)
  assert mask.shape == (2, 1, 6, 6) and mask.dtype == bool
  assert mask[0, 0].astype(int).tolist() == [
    [1, 0, 0, 0, 0, 0],
    [1, 1, 0, 0, 0, 0],
    [0, 0, 1, 0, 0, 0],
    [0, 0, 1, 1, 0, 0],
    # Padding sees padding, so that no softmax runs over nothing.
    [0, 0, 0, 0, 1, 0],
    [0, 0, 0, 0, 1, 1],
  ]
  for row in range(2):
    assert mask[row, 0].tolist() == _slow(_SEGMENTS[row])


@pytest.mark.parametrize("window", [1, 2, 3, 6, 100])
def test_a_window_holds_so_many_keys_with_its_own(window):
  mask = jax.jit(lambda s: sliding_window_mask(s, window=window))(_SEGMENTS)
  for row in range(2):
    assert mask[row, 0].tolist() == _slow(_SEGMENTS[row], keys=window)
  assert int(mask[1, 0, 5].sum()) == min(window, 6)


@pytest.mark.parametrize("window", [1, 2, 5])
def test_the_references_window_holds_one_key_more(window):
  mask = sliding_window_mask(_SEGMENTS, window=window, window_keys="reference")
  for row in range(2):
    assert mask[row, 0].tolist() == _slow(_SEGMENTS[row], keys=window + 1)


def test_every_position_attends_to_itself():
  rng = np.random.default_rng(0)
  segments = np.sort(rng.integers(0, 4, (5, 9)), axis=1).astype(np.int32)
  for mask in (
    attention_mask(segments),
    sliding_window_mask(segments, window=1),
  ):
    assert np.asarray(mask)[:, 0, range(9), range(9)].all()


def test_illegal_windows_are_refused():
  with pytest.raises(ValueError, match="at least 1 key, got 0"):
    sliding_window_mask(_SEGMENTS, window=0)
  with pytest.raises(
    ValueError, match='"inclusive" or "reference", got \'both\''
  ):
    sliding_window_mask(_SEGMENTS, window=2, window_keys="both")


@pytest.mark.parametrize(
  "segments, expected",
  [
    # The padding's segment comes last, and fills the columns left.
    ([1, 1, 2, 2, 0, 0], [0, 2, 4, 6, 6]),
    ([1, 1, 1, 1, 1, 1], [0, 6, 6, 6, 6]),
    # Room between segments belongs to the one before it.
    ([1, 0, 2, 2, 2, 0], [0, 2, 5, 6, 6]),
    ([0, 0, 0, 0, 0, 0], [0, 6, 6, 6, 6]),
    ([1, 2, 3, 0, 0, 0], [0, 1, 2, 3, 6]),
  ],
)
def test_where_segments_begin_and_end(segments, expected):
  found = jax.jit(cu_seq_lens, static_argnames="max_segments")(
    np.array([segments], np.int32), max_segments=4
  )
  assert found.dtype == np.int32
  assert found.tolist() == [expected]


def test_segments_of_random_rows_are_those_of_a_slow_loop():
  rng = np.random.default_rng(0)
  for _ in range(20):
    row, ends = [], [0]
    for segment in range(1, 1 + rng.integers(0, 5)):
      gap = int(rng.integers(0, 3))
      row += [segment] * int(rng.integers(1, 5)) + [0] * gap
      ends.append(len(row))
      last = gap
    if row:
      # The last one has no room after it: that is padding.
      row = row[: len(row) - last]
      ends[-1] = len(row)
    row += [0] * (30 - len(row))
    ends += [30] * (8 - len(ends))
    found = cu_seq_lens(np.array([row], np.int32), max_segments=7)
    assert found.tolist() == [ends]


def test_no_segment_at_all_is_refused():
  with pytest.raises(ValueError, match="at least 1 segment, got 0"):
    cu_seq_lens(np.zeros((1, 2), np.int32), max_segments=0)
