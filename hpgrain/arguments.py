"""Checks of what callers hand to samples: integers that are integers."""

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

# Rows are counted in int64; arithmetic on them keeps clear of its end.
MAX_ROW = 1 << 62


def integer(
  name: str,
  value: Any,
  *,
  minimum: int | None = None,
  maximum: int | None = None,
) -> int:
  """Returns `value` as a Python int.

  Raises:
    ValueError: for a bool, a float, a string or anything else that is not a
      whole number, or one out of range.
  """
  try:
    if isinstance(value, (bool, np.bool_)):
      raise TypeError
    number = operator.index(value)
  except TypeError:
    raise ValueError(f"{name} must be an integer, got {value!r}.") from None
  if minimum is not None and number < minimum:
    raise ValueError(f"{name} must be at least {minimum}, got {number}.")
  if maximum is not None and number > maximum:
    raise ValueError(f"{name} must be at most {maximum}, got {number}.")
  return number


def row_numbers(rows: np.ndarray | Sequence[int] | int) -> np.ndarray:
  """Returns row numbers as int64[n].

  Raises:
    TypeError: for anything but integers.
    IndexError: for a row below 0 or above 2^62.
  """
  array = np.asarray(rows)
  if array.dtype.kind not in "iu" and array.size:
    raise TypeError(f"Rows are integers, got {rows!r}.")
  if array.size and array.min() < 0:
    raise IndexError(f"Rows count from 0, got row {array.min()}.")
  if array.size and array.max() > MAX_ROW:
    raise IndexError(f"Rows end at 2^62, got row {array.max()}.")
  return np.ascontiguousarray(array, np.int64)


def kernel_rows(rows: np.ndarray | Sequence[int] | int) -> np.ndarray:
  """Returns row numbers as int64[n] for a kernel that checks them itself.

  Checking an array costs as much as finding its rows, so one that is int64
  already goes as it is.

  Raises:
    As `row_numbers`, for anything else.
  """
  if isinstance(rows, np.ndarray) and rows.dtype == np.int64:
    return rows
  return row_numbers(rows)
