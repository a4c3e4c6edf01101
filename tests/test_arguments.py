"""Integers that are integers, rows that are rows."""

import numpy as np
import pytest

from hpgrain.arguments import integer, row_numbers


def test_whole_numbers_become_python_ints():
  for value in (3, np.int64(3), np.uint8(3)):
    number = integer("seed", value)
    assert number == 3
    assert type(number) is int


@pytest.mark.parametrize("value", [1.0, "3", True, np.True_, None, [3]])
def test_what_is_no_integer_is_refused(value):
  with pytest.raises(ValueError, match="seed must be an integer, got "):
    integer("seed", value)


def test_numbers_out_of_range_are_refused():
  with pytest.raises(ValueError, match="n must be at least 1, got 0"):
    integer("n", 0, minimum=1)
  with pytest.raises(ValueError, match="n must be at most 4, got 5"):
    integer("n", 5, maximum=4)


def test_rows_become_int64():
  for rows in ([2, 0], np.array([2, 0], np.uint8), (2, 0)):
    array = row_numbers(rows)
    assert array.dtype == np.int64
    assert array.tolist() == [2, 0]
  assert row_numbers([]).tolist() == []


def test_what_is_no_row_is_refused():
  with pytest.raises(TypeError, match=r"Rows are integers, got \[1\.5\]"):
    row_numbers([1.5])
  with pytest.raises(IndexError, match="Rows count from 0, got row -1"):
    row_numbers([3, -1])
  with pytest.raises(IndexError, match=r"Rows end at 2\^62, got row 922337203"):
    row_numbers([2**63 - 1])
