"""Merging plans and finding their segments in C++, against lists."""

import itertools

import numpy as np
import pytest
import twins
from hypothesis import given
from hypothesis import strategies as st

from hpgrain import _kernels


def _int64(*values):
  return np.array(values, np.int64)


def assert_plans_equal(got, expected):
  names = ("row_splits", "source", "sequence", "offset", "length", "boundary")
  for name, a, b in zip(names, got, expected, strict=True):
    assert a.dtype == b.dtype, name
    assert a.tolist() == b.tolist(), name


@given(data=st.data())
def test_merged_plans_equal_their_twin(data):
  piece = st.tuples(
    st.integers(0, 5),
    st.integers(0, 2**40),
    st.integers(0, 99),
    st.integers(1, 99),
    st.booleans(),
  )
  rows = data.draw(st.lists(st.lists(piece, max_size=3), max_size=8))
  parts = data.draw(st.permutations(range(len(rows))))
  cut = data.draw(st.integers(0, len(rows)))
  merged = _kernels.merge_plans(
    len(rows),
    [
      (np.array(p, np.int64), twins.to_plan([rows[r] for r in p], None))
      for p in (parts[:cut], parts[cut:])
    ],
  )
  assert_plans_equal(merged, twins.to_plan(rows, None))


ONE_ROW = twins.to_plan([[(1, 2, 0, 3, True)]], None)


@pytest.mark.parametrize(
  ("n", "rows", "change", "message"),
  [
    (2, [_int64(0)], {}, "the parts hold 1 rows; the merged batch has 2"),
    (1, [_int64(0), _int64(0)], {}, "the parts hold 2 rows"),
    (2, [_int64(0), _int64(0)], {}, "row 0 stands twice"),
    (1, [_int64(1)], {}, "row 1 is outside"),
    (1, [_int64(-1)], {}, "row -1 is outside"),
    (-1, [], {}, "cannot merge into -1 rows"),
    (1, [_int64(0, 1)], {}, "places 2 rows but plans 1"),
    (1, [_int64(0)], {0: _int64(0, 2)}, "end with the number of pieces, 1"),
    (1, [_int64(0)], {0: _int64()}, "row_splits must begin with 0"),
    (3, [_int64(0, 1, 2)], {0: _int64(0, 9, 0, 1)}, "row 1 goes from 9 to 0"),
    (1, [_int64(0)], {4: np.zeros(2, np.int32)}, "one value a piece"),
    (1, [_int64(0)], {5: np.zeros(0, np.bool_)}, "one value a piece"),
  ],
)
def test_merge_refuses_parts_that_do_not_fit(n, rows, change, message):
  part = tuple(change.get(i, column) for i, column in enumerate(ONE_ROW))
  with pytest.raises(ValueError, match=message):
    _kernels.merge_plans(n, [(r, part) for r in rows])


@given(
  st.lists(st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=4))
)
def test_segments_equal_their_twin(rows):
  starts, lengths = [], []
  for row in rows:
    ends = [0, *itertools.accumulate(length for length, _ in row)]
    starts.append(
      [end for end, (_, new) in zip(ends, row, strict=False) if new]
    )
    lengths.append(ends[-1])
  pieces = [piece for row in rows for piece in row]
  got = _kernels.find_segments(
    np.cumsum([0, *map(len, rows)], dtype=np.int64),
    np.array([length for length, _ in pieces], np.int32),
    np.array([new for _, new in pieces], np.bool_),
  )
  assert [array.dtype for array in got] == [np.int64] * 3
  assert got[0].tolist() == [0, *itertools.accumulate(map(len, starts))]
  assert got[1].tolist() == [start for row in starts for start in row]
  assert got[2].tolist() == lengths


def test_segments_refuse_arrays_that_do_not_fit():
  length, boundary = np.ones(2, np.int32), np.ones(2, np.bool_)
  with pytest.raises(ValueError, match="end with the number of pieces, 2"):
    _kernels.find_segments(_int64(0, 3), length, boundary)
  with pytest.raises(ValueError, match="one value a piece; got 2 and 1"):
    _kernels.find_segments(_int64(0, 2), length, boundary[:1])
