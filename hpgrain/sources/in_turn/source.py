r"""Records one after the other: what a source without an index looks like.

  source.open()        -> a reader at the beginning, of one pass
    .read(3)           -> block of records 0 1 2
    .cursor()          -> [0, 57]        the place after record 2
  source.open([0, 57]) -> a reader whose read(3) gives records 3 4 5

A block's records are found, but made only when they are taken: whoever needs
one in eight of them decodes one in eight.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from hpgrain.order import grouped
from hpgrain.sources.records import Record

# Where record i of a block lies, as messages name it.
Place = Callable[[int], str]


@dataclasses.dataclass(frozen=True)
class Block:
  """Records that follow each other, as they were found.

  Attributes:
    num_records: how many.
    take: numbers in the block to their records, in that order. Raises
      ValueError where one cannot be read; names its place and what is wrong,
      never the text.
    place: where a record lies, by its number in the block.
  """

  num_records: int
  take: Callable[[Sequence[int]], list[Record]]
  place: Place

  def __len__(self) -> int:
    """Number of records."""
    return self.num_records

  def records(self) -> list[Record]:
    """All of them; raises as `take`."""
    return self.take(range(self.num_records))


class InTurnReader(Protocol):
  """One pass over a source. One thread at a time may use it.

  After an error it is of no use but to be closed.
  """

  def read(self, n: int) -> Block:
    """Returns the next n records; fewer only at the end, none after it.

    No more is asked of what lies behind the source than finding these takes:
    of a file the block they lie in, of an iterable exactly n items.

    Raises:
      FileNotFoundError: a file is gone.
      ValueError: they cannot be found: a file is broken, was written again, or
        is not the one that the cursor was taken from.
    """
    ...

  def cursor(self) -> list[Any]:
    """JSON of the place after the last record that was read.

    The same length and types at every place of a source, and the same
    whatever sizes were read; it reads nothing.
    """
    ...

  def close(self) -> None:
    """Lets go of files; may be called twice."""
    ...


class InTurn(Protocol):
  """A source of records in an order of its own. It can be pickled.

  Attributes:
    name: stands for the source in orders, states and reports.
    seekable: whether a pass may begin anywhere at once. Where it may not, what
      stands before a cursor is read through again, which is said once.
  """

  name: str
  seekable: bool

  @property
  def identity(self) -> dict[str, Any]:
    """JSON of what the records are, not of where they lie."""
    ...

  def open(self, cursor: list[Any] | None = None) -> InTurnReader:
    """Begins a pass at a place that a reader told; None: at the beginning.

    It reads nothing yet.

    Raises:
      ValueError: the cursor is none of this source.
    """
    ...


def block_of(records: Sequence[Record], place: Place) -> Block:
  """A block of records that are there already."""
  held = list(records)
  return Block(len(held), lambda numbers: [held[i] for i in numbers], place)


def joined(blocks: Sequence[Block]) -> Block:
  """One block of several, one after the other."""
  if len(blocks) == 1:
    return blocks[0]
  first = np.cumsum([0, *map(len, blocks)])

  def take(numbers: Sequence[int]) -> list[Record]:
    chosen = np.asarray(numbers, np.int64)
    records: list[Record] = [{}] * len(chosen)
    # Each block once, though a shuffle asks for them all over. Blocks without
    # records are stepped over.
    of_block = np.searchsorted(first, chosen, side="right") - 1
    for number, places in grouped(of_block):
      found = blocks[number].take((chosen[places] - first[number]).tolist())
      for place, record in zip(places.tolist(), found):
        records[place] = record
    return records

  def place(i: int) -> str:
    number = int(np.searchsorted(first, i, side="right")) - 1
    return blocks[number].place(i - int(first[number]))

  return Block(int(first[-1]), take, place)


def read_cursor(cursor: object, *, length: int, name: str) -> list[int]:
  """Returns the whole numbers of a cursor.

  Args:
    cursor: a list of `length` integers, none of them negative.
    length: as it must be.
    name: of the source, for messages.

  Raises:
    ValueError: it is something else.
  """
  good = (
    isinstance(cursor, (list, tuple))
    and len(cursor) == length
    and all(type(part) is int and part >= 0 for part in cursor)
  )
  if not good:
    raise ValueError(
      f"{name} has cursors of {length} whole numbers from 0; got {cursor!r}."
      " Give what `cursor()` returned, of this source."
    )
  return list(cursor)
