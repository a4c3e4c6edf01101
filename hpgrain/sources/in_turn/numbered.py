r"""Records that have numbers, one after the other: what is in memory, say.

InMemoryRecords(["a", "b", "c"], ...)   read(2) -> a b    cursor [2]
"""

from typing import Any

import numpy as np

from hpgrain.sources.in_turn.source import Block, read_cursor
from hpgrain.sources.records import Records


class NumberedInTurn:
  """Any `Records`, from the first to the last; see `InTurn`.

  Attributes:
    name: of the records.
    seekable: always.
  """

  seekable = True

  def __init__(self, records: Records) -> None:
    """Takes the records; reads none."""
    self.records = records
    self.name = records.name

  @property
  def identity(self) -> dict[str, Any]:
    """That of the records."""
    return self.records.identity

  def open(self, cursor: list[Any] | None = None) -> "_NumberedReader":
    """As `InTurn.open`."""
    start = 0
    if cursor is not None:
      (start,) = read_cursor(cursor, length=1, name=self.name)
    if start > len(self.records):
      raise ValueError(
        f"{self.name} has {len(self.records)} records; the cursor {cursor} is"
        " of a longer one. Give it the data it had."
      )
    return _NumberedReader(self.records, start)


class _NumberedReader:
  def __init__(self, records: Records, start: int) -> None:
    self._records = records
    self._next = start

  def read(self, n: int) -> Block:
    """As `InTurnReader.read`."""
    start, records = self._next, self._records
    stop = min(start + n, len(records))
    self._next = stop
    return Block(
      stop - start,
      lambda numbers: records.read(start + np.asarray(numbers, np.int64)),
      lambda i: records.place(start + i),
    )

  def cursor(self) -> list[int]:
    """[records read]."""
    return [self._next]

  def close(self) -> None:
    """Nothing is open."""
