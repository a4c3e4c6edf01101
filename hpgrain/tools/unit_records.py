"""Finished units as one sequence of records: numbers in, documents out."""

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType

import numpy as np

from hpgrain.tools.unit_file import BLOCK_TOKENS, UnitReader

# Open at once; far below what a process may have, and each is a few KB.
_MAX_OPEN = 128


@dataclasses.dataclass(frozen=True)
class Documents:
  """Documents, one after the other.

  Attributes:
    tokens: blocks [n] of all their tokens; read as they are gone through.
    lengths: int64[sequences], tokens of each sequence, perhaps 0.
    counts: int64[documents], sequences of each document.
  """

  tokens: Iterable[np.ndarray]
  lengths: np.ndarray
  counts: np.ndarray


class UnitRecords:
  """Reads records of many units by their numbers, for one key."""

  def __init__(self, paths: Sequence[Path], *, key: int) -> None:
    """Reads the number of records of each unit.

    Raises:
      FileNotFoundError: a unit is not finished.
      ValueError: a unit's file is damaged.
    """
    self._paths = paths
    self._key = key
    self._open: collections.OrderedDict[int, UnitReader] = (
      collections.OrderedDict()
    )
    counts = np.zeros(len(paths) + 1, np.int64)
    for unit in range(len(paths)):
      counts[unit + 1] = self._reader(unit).num_records
    self._starts = np.cumsum(counts)

  def __len__(self) -> int:
    return int(self._starts[-1])

  def __enter__(self) -> "UnitRecords":
    return self

  def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    traceback: TracebackType | None,
  ) -> None:
    while self._open:
      self._open.popitem()[1].close()

  def read(self, numbers: range | np.ndarray) -> Iterator[Documents]:
    """Yields the documents of records, in the order of the numbers.

    In portions of about a million tokens; of a longer document the tokens
    come in blocks.
    """
    if isinstance(numbers, range) and numbers.step == 1:
      yield from self._read_run(numbers.start, numbers.stop)
      return
    chosen = np.asarray(numbers, np.int64)
    ascending = bool((chosen[1:] > chosen[:-1]).all())
    units = np.searchsorted(self._starts, chosen, side="right") - 1
    if ascending:
      # A part of each unit, read through.
      for unit in np.unique(units):
        local = chosen[units == unit] - self._starts[unit]
        yield from self._read_some(int(unit), local)
    else:
      yield from self._read_scattered(units, chosen - self._starts[units])

  def _read_run(self, first: int, last: int) -> Iterator[Documents]:
    unit = int(np.searchsorted(self._starts, first, side="right")) - 1
    while first < last:
      start, stop = int(self._starts[unit]), int(self._starts[unit + 1])
      end = min(stop, last)
      if first < end:
        reader = self._reader(unit)
        sequences, tokens = self._bounds(reader, first - start, end - start)
        yield Documents(
          reader.tokens(self._key, int(tokens[0]), int(tokens[-1])),
          np.diff(tokens),
          np.diff(sequences),
        )
      first, unit = end, unit + 1

  def _read_some(self, unit: int, local: np.ndarray) -> Iterator[Documents]:
    """Ascending records of one unit, a portion of tokens at a time."""
    reader = self._reader(unit)
    first, last = int(local[0]), int(local[-1]) + 1
    sequences, tokens = self._bounds(reader, first, last)
    sequences = sequences - sequences[0]
    ends = tokens[sequences]
    local = local - first
    for some in portions(ends[local + 1] - ends[local]):
      here = local[some]
      begin, end = int(ends[here[0]]), int(ends[here[-1] + 1])
      counts = sequences[here + 1] - sequences[here]
      which = ranges(sequences[here], counts)
      lengths = tokens[which + 1] - tokens[which]
      if len(here) == 1:
        yield Documents(reader.tokens(self._key, begin, end), lengths, counts)
        continue
      yield Documents(
        self._spans(reader, ends[here], ends[here + 1]), lengths, counts
      )

  def _spans(
    self, reader: UnitReader, begins: np.ndarray, ends: np.ndarray
  ) -> Iterator[np.ndarray]:
    """Tokens of ascending spans, of which each has few."""
    if (begins[1:] == ends[:-1]).all():
      yield from reader.tokens(self._key, int(begins[0]), int(ends[-1]))
      return
    first = 0
    while first < len(begins):
      # What lies between the spans is read too, but not without end.
      limit = begins[first] + BLOCK_TOKENS
      last = max(first + 1, int(np.searchsorted(ends, limit, side="right")))
      start, stop = int(begins[first]), int(ends[last - 1])
      blocks = list(reader.tokens(self._key, start, stop))
      if blocks:
        joined = np.concatenate(blocks) if len(blocks) > 1 else blocks[0]
        here = slice(first, last)
        lengths = ends[here] - begins[here]
        yield joined[ranges(begins[here] - start, lengths)]
      first = last

  def _read_scattered(
    self, units: np.ndarray, local: np.ndarray
  ) -> Iterator[Documents]:
    """Records in any order: where each lies first, then their tokens."""
    found: list[tuple[np.ndarray, int]] = [(local[:0], 0)] * len(units)
    # By unit, since a unit's file need then be opened once.
    for i in np.lexsort((local, units)):
      reader = self._reader(int(units[i]))
      place = int(local[i])
      _, tokens = self._bounds(reader, place, place + 1)
      found[i] = np.diff(tokens), int(tokens[0])
    sizes = np.array([int(lengths.sum()) for lengths, _ in found], np.int64)
    for some in portions(sizes):
      here = range(some.start, some.stop)
      yield Documents(
        self._gather(units, found, sizes, here),
        np.concatenate([found[i][0] for i in here]),
        np.array([len(found[i][0]) for i in here], np.int64),
      )

  def _gather(
    self,
    units: np.ndarray,
    found: list[tuple[np.ndarray, int]],
    sizes: np.ndarray,
    here: range,
  ) -> Iterator[np.ndarray]:
    if len(here) == 1:
      begin = found[here[0]][1]
      yield from self._reader(int(units[here[0]])).tokens(
        self._key, begin, begin + int(sizes[here[0]])
      )
      return
    parts: dict[int, list[np.ndarray]] = {}
    for i in sorted(here, key=lambda i: (units[i], found[i][1])):
      begin = found[i][1]
      reader = self._reader(int(units[i]))
      parts[i] = list(reader.tokens(self._key, begin, begin + int(sizes[i])))
    joined = [block for i in here for block in parts[i]]
    if joined:
      yield np.concatenate(joined)

  def _bounds(
    self, reader: UnitReader, first: int, last: int
  ) -> tuple[np.ndarray, np.ndarray]:
    """Sequence bounds of records [first, last), token bounds of those."""
    sequences = reader.sequence_range(self._key, first, last)
    tokens = reader.token_range(
      self._key, int(sequences[0]), int(sequences[-1])
    )
    return sequences, tokens

  def _reader(self, unit: int) -> UnitReader:
    if unit in self._open:
      self._open.move_to_end(unit)
      return self._open[unit]
    if len(self._open) >= _MAX_OPEN:
      self._open.popitem(last=False)[1].close()
    reader = self._open[unit] = UnitReader(self._paths[unit])
    return reader


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
  """int64: starts[0], starts[0] + 1, ..., then those from starts[1], ..."""
  ends = np.cumsum(lengths)
  total = int(ends[-1]) if len(ends) else 0
  return np.arange(total) + np.repeat(starts - (ends - lengths), lengths)


def portions(sizes: np.ndarray) -> Iterator[slice]:
  """Runs of documents that together have about a block of tokens.

  A document with more than that is alone.
  """
  ends = np.cumsum(sizes)
  first = 0
  while first < len(sizes):
    before = ends[first] - sizes[first]
    last = int(np.searchsorted(ends, before + BLOCK_TOKENS, side="right"))
    last = max(last, first + 1)
    yield slice(first, last)
    first = last
