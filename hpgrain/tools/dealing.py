"""Records dealt in turn to many partitions, by reading the units only once.

  records     0 1 2 3 4 5 | 6 7 8 9 ...      read in order, a wave at a time
  spill file  0 3 1 4 2 5 | 6 9 7 8 ...      each wave by partition (here 3)
  partition   0: 0 3 6 9, 1: 1 4 7, ...      its part of each wave

The spill file has no name, and is as large as the tokens. Of each wave:

  tokens, i64 lengths[sequences], i64 counts[documents],
  i64[partitions + 1, 3]   where each partition's tokens, sequences and
                           documents begin in those
"""

import dataclasses
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np

from hpgrain.tools.unit_file import BLOCK_TOKENS
from hpgrain.tools.unit_records import (
  Documents,
  UnitRecords,
  portions,
  ranges,
)

# Tokens, sequences and documents of a wave, all together.
_WAVE = 1 << 23
# Records whose bounds are looked at together.
_BLOCK_RECORDS = 1 << 16
# Bytes; small, since it is the least that is read at once.
_BUFFER = 1 << 13
_INT = np.dtype("<i8")


class Dealer:
  """Deals record i of the units to partition i % P."""

  def __init__(
    self, records: UnitRecords, *, partitions: int, folder: Path
  ) -> None:
    """Reads all records once, and spills them into a file in the folder.

    Raises:
      OSError: it could not be written.
    """
    self._partitions = partitions
    self._waves: list[_Wave] = []
    self._file: BinaryIO = tempfile.TemporaryFile(dir=folder, buffering=_BUFFER)
    try:
      first = 0
      for wave in _waves(records):
        first += self._spill(wave, first)
    except BaseException:
      self.close()
      raise

  def __enter__(self) -> "Dealer":
    return self

  def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    traceback: TracebackType | None,
  ) -> None:
    self.close()

  def close(self) -> None:
    """Closes the file, and with that removes it."""
    try:
      self._file.close()
    except OSError:
      # A full disk: what failed to be written is not wanted any more.
      pass

  def read(self, partition: int) -> Iterator[Documents]:
    """Yields a partition's documents in order: its part of each wave."""
    for wave in self._waves:
      rows = self._read(wave.bounds_at, 3 * partition, 3 * partition + 6, _INT)
      tokens, lengths, counts = rows.reshape(2, 3).T.tolist()
      if counts[0] < counts[1]:
        yield Documents(
          self._blocks(wave, *tokens),
          self._read(wave.lengths_at, *lengths, _INT),
          self._read(wave.counts_at, *counts, _INT),
        )

  def _spill(self, wave: Sequence[Documents], first: int) -> int:
    """Writes documents from number `first` on; returns how many."""
    lengths = np.concatenate([some.lengths for some in wave])
    counts = np.concatenate([some.counts for some in wave])
    begins = _ends(lengths)[_ends(counts)]
    sizes = np.diff(begins)
    partitions = np.arange(first, first + len(counts)) % self._partitions
    order = np.argsort(partitions, kind="stable")
    at = self._file.tell()
    dtype = self._write_tokens(wave, begins[order], sizes[order])
    which = ranges(_ends(counts)[order], counts[order])
    dealt = np.searchsorted(partitions[order], np.arange(self._partitions + 1))
    bounds = np.stack(
      [_ends(sizes[order])[dealt], _ends(counts[order])[dealt], dealt], axis=1
    )
    places = []
    for column in (lengths[which], counts[order], bounds):
      places.append(self._file.tell())
      self._file.write(np.ascontiguousarray(column, _INT).data)
    self._waves.append(_Wave(dtype, at, *places))
    return len(counts)

  def _write_tokens(
    self, wave: Sequence[Documents], begins: np.ndarray, sizes: np.ndarray
  ) -> np.dtype | None:
    """Writes the documents that begin there; returns their tokens' dtype."""
    blocks = (block for some in wave for block in some.tokens)
    dtype = None
    if len(begins) == 1:
      for block in blocks:
        self._file.write(block.data)
        dtype = block.dtype
      return dtype
    held = list(blocks)
    if not held:
      return None
    joined = np.concatenate(held)
    for some in portions(sizes):
      if some.stop - some.start == 1:
        begin = int(begins[some.start])
        chosen = joined[begin : begin + int(sizes[some.start])]
      else:
        chosen = joined[ranges(begins[some], sizes[some])]
      self._file.write(chosen.data)
    return joined.dtype

  def _blocks(
    self, wave: "_Wave", first: int, last: int
  ) -> Iterator[np.ndarray]:
    for begin in range(first, last, BLOCK_TOKENS):
      end = min(begin + BLOCK_TOKENS, last)
      assert wave.dtype is not None, "there are tokens"
      yield self._read(wave.tokens_at, begin, end, wave.dtype)

  def _read(
    self, at: int, first: int, last: int, dtype: np.dtype
  ) -> np.ndarray:
    """Entries [first, last) of what begins at a byte."""
    self._file.seek(at + first * dtype.itemsize)
    return np.frombuffer(
      self._file.read((last - first) * dtype.itemsize), dtype
    )


@dataclasses.dataclass(frozen=True)
class _Wave:
  """Where a wave lies in the spill file, in bytes.

  Attributes:
    dtype: of its tokens; None where there are none.
  """

  dtype: np.dtype | None
  tokens_at: int
  lengths_at: int
  counts_at: int
  bounds_at: int


def _waves(records: UnitRecords) -> Iterator[list[Documents]]:
  """All documents in order, as many at a time as memory may hold.

  One that is longer is alone, and its tokens are not read yet.
  """
  wave: list[Documents] = []
  held = 0
  for first in range(0, len(records), _BLOCK_RECORDS):
    last = min(first + _BLOCK_RECORDS, len(records))
    # As an array, which is what gives whole documents in small portions.
    for some in records.read(np.arange(first, last)):
      size = int(some.lengths.sum()) + len(some.lengths) + len(some.counts)
      if wave and held + size > _WAVE:
        yield wave
        wave, held = [], 0
      if size > _WAVE and len(some.counts) == 1:
        yield [some]
        continue
      wave.append(dataclasses.replace(some, tokens=list(some.tokens)))
      held += size
  if wave:
    yield wave


def _ends(sizes: np.ndarray) -> np.ndarray:
  """int64[n + 1]: 0, and where each of the sizes ends."""
  return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
