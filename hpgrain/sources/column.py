"""A column of integers too long for memory: values in, blocks of them out."""

import array
import os
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import numpy as np

# Entries held, written or read at once: 2 MB of int64.
_BLOCK = 1 << 18


class Column:
  """Integers appended to a file, from where it stands, a block at a time.

  Attributes:
    count: how many were appended.
  """

  def __init__(self, file: BinaryIO, dtype: np.dtype) -> None:
    self._file = file
    self._dtype = dtype
    self._offset = file.tell()
    self._waiting = array.array("q")
    self.count = 0

  def extend(self, values: Iterable[int]) -> None:
    """Appends values, which fit the dtype."""
    before = len(self._waiting)
    self._waiting.extend(values)
    self.count += len(self._waiting) - before
    if len(self._waiting) >= _BLOCK:
      self.flush()

  def extend_array(self, values: np.ndarray) -> None:
    """Appends integers [n], which fit the dtype."""
    self._waiting.frombytes(values.astype(np.int64, copy=False).tobytes())
    self.count += len(values)
    if len(self._waiting) >= _BLOCK:
      self.flush()

  def flush(self) -> None:
    """Writes what is held."""
    waiting = np.frombuffer(self._waiting, np.int64)
    self._file.write(waiting.astype(self._dtype).data)
    self._file.flush()
    self._waiting = array.array("q")

  def blocks(self) -> Iterator[np.ndarray]:
    """What was appended and flushed, in order, in arrays of the dtype."""
    itemsize = self._dtype.itemsize
    for first in range(0, self.count, _BLOCK):
      yield np.frombuffer(
        os.pread(
          self._file.fileno(),
          min(_BLOCK, self.count - first) * itemsize,
          self._offset + first * itemsize,
        ),
        self._dtype,
      )


def blocks_of(values: np.ndarray) -> Iterator[np.ndarray]:
  """A long, perhaps mapped, array in pieces that are worth a copy."""
  for first in range(0, len(values), _BLOCK):
    yield values[first : first + _BLOCK]
