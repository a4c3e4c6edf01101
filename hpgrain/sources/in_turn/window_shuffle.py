r"""A source over and over, each epoch's windows of records shuffled.

  buffer 4     records    0 1 2 3 | 4 5 6 7 | 8 9         the end
  epoch 0      gives      2 1 0 3 | 4 6 5 7 | 9 8
  epoch 1      gives      3 1 2 0 | 4 6 7 5 | 9 8

Window k of an epoch is records [k * B, (k + 1) * B); place j of it gives its
record permute(j, records in it, bucket_key(seed, source.name, epoch, k)), see
`docs/orders.md`. So what is given at a place hangs on the window it lies in
and on nothing before it: a position is where its window begins.

  epoch 0      gives      ....... | 4 6 5 7 | 9 8
                                       ^   [0, 6, *cursor before record 4]
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from hpgrain.arguments import integer
from hpgrain.order import bucket_key, permute
from hpgrain.sources.in_turn.source import Block, InTurn, InTurnReader, Place
from hpgrain.sources.records import Record

# Records, their numbers in the source and their epoch, to what replaces them.
Change = Callable[[list[Record], list[int], int], list[Record]]


@dataclasses.dataclass(frozen=True)
class _Window:
  """Records that are given out in an order of their own.

  Attributes:
    block: the records.
    order: int64[n], the record of each place.
    epoch: they lie in.
    first: records of the epoch before it.
    start, after: cursors of its beginning and end.
  """

  block: Block
  order: np.ndarray
  epoch: int
  first: int
  start: list[Any]
  after: list[Any]


class Epochs:
  """The records of a source, epoch after epoch. For one thread at a time.

  The same records follow a position, whatever sizes were read to come there.
  After an error it is of no use but to be closed, or to `seek`.

  Attributes:
    source: as given.
  """

  def __init__(
    self,
    source: InTurn,
    *,
    seed: int,
    shuffle_buffer_size: int | None,
    epochs: int | None,
    change: Change | None = None,
  ) -> None:
    """Stands before the first record; opens nothing yet.

    Args:
      source: what to read.
      seed: of the shuffle.
      shuffle_buffer_size: records a window, B above, which are held in
        memory. None: the order of the source.
      epochs: how often the source is read; None: for ever.
      change: gets records, their numbers in the source and their epoch, and
        returns what they are replaced by; None leaves them as they are.

    Raises:
      ValueError: numbers that are none, or are not positive.
    """
    self.source = source
    self._change = change
    self._seed = integer("seed", seed)
    self._size = shuffle_buffer_size
    if shuffle_buffer_size is not None:
      self._size = integer(
        "shuffle_buffer_size", shuffle_buffer_size, minimum=1
      )
    self._epochs = epochs
    if epochs is not None:
      self._epochs = integer("epochs", epochs, minimum=1)
    self._reader: InTurnReader | None = None
    self._stand(0, 0, None)

  def read(
    self, n: int, *, wanted: np.ndarray | None = None
  ) -> list[Record | None]:
    """Returns the next n records; fewer only at the end of the last epoch.

    Args:
      n: how many.
      wanted: bool[n], or None for all. Those that are not wanted are None;
        they are found, but not decoded.

    Raises:
      ValueError: an endless order of an epoch without a record; or as the
        source and its blocks raise it.
    """
    records: list[Record | None] = []
    self._places = []
    while len(records) < n:
      window = self._window
      if window is None or self._given == len(window.block):
        window = self._next_window(n - len(records))
        if window is None:
          break
        continue
      stop = min(self._given + n - len(records), len(window.block))
      chosen = window.order[self._given : stop]
      keep = None if wanted is None else wanted[len(records) :][: len(chosen)]
      taken = _taken(window.block, chosen, keep)
      records += self._changed(taken, window.first + chosen, window.epoch)
      self._places.append((window.block, chosen))
      self._given = stop
      self._epoch, self._record = window.epoch, window.first + stop
      whole = stop == (self._size or len(window.block))
      self._start = window.after if whole else window.start
    return records

  def _changed(
    self, records: list[Record | None], numbers: np.ndarray, epoch: int
  ) -> list[Record | None]:
    """Changes those that were taken."""
    if self._change is None:
      return records
    taken = [i for i, record in enumerate(records) if record is not None]
    found = [record for record in records if record is not None]
    changed = self._change(found, numbers[taken].tolist(), epoch)
    for i, record in zip(taken, changed, strict=True):
      records[i] = record
    return records

  def places(self) -> Place:
    """Returns where the records of the last read lie: i to its place.

    It stays as it is when more is read, and holds on to those records.
    """
    read = list(self._places)

    def place(i: int) -> str:
      for block, chosen in read:
        if i < len(chosen):
          return block.place(int(chosen[i]))
        i -= len(chosen)
      raise IndexError(f"The last read gave no record {i} more.")

    return place

  def position(self) -> list[Any]:
    """JSON of the place after the last record that was given.

    [its epoch, records given of that epoch, *cursor of the window's start]:
    the same length and types at every place.
    """
    if self._start is None:
      self._start = self._opened().cursor()
    return [self._epoch, self._record, *self._start]

  def seek(self, position: list[Any]) -> None:
    """Goes to a place that `position` told, here or elsewhere.

    Of a source that is seekable, nothing before the window is read.

    Raises:
      ValueError: it is no position of this source.
    """
    numbers = position[:2] if isinstance(position, (list, tuple)) else []
    if len(numbers) != 2 or not all(
      type(part) is int and part >= 0 for part in numbers
    ):
      raise ValueError(
        f"A position in {self.source.name} is [epoch, record, *cursor], got"
        f" {position!r}. Give what `position()` returned."
      )
    self._stand(*numbers, list(position[2:]))
    self._opened()

  def close(self) -> None:
    """Lets go of the source's files; a read opens them again."""
    self._stand(self._epoch, self._record, self._start)

  def _stand(self, epoch: int, record: int, start: list[Any] | None) -> None:
    """Has a position, at which the next read begins, and nothing else."""
    if self._reader is not None:
      self._reader.close()
    self._reader = None
    # After the last record that was given.
    self._epoch, self._record, self._start = epoch, record, start
    # The window that records are given of, and how many of them were.
    self._window: _Window | None = None
    self._given = 0
    self._places: list[tuple[Block, np.ndarray]] = []

  def _opened(self) -> InTurnReader:
    """The reader, at the start of the position's window if it is new."""
    if self._reader is None:
      self._reader = self.source.open(self._start)
      # Where it stands, and what was given of the window that begins there.
      self._pass = self._epoch
      self._skip = self._record % (self._size or 1)
      self._first = self._record - self._skip
    return self._reader

  def _next_window(self, most: int) -> _Window | None:
    """Reads the next window; None at the end of the last epoch."""
    reader = self._opened()
    while self._epochs is None or self._pass < self._epochs:
      start = reader.cursor()
      block = reader.read(self._size or most)
      if self._skip > len(block):
        raise ValueError(
          f"{self.source.name} has {self._first + len(block)} records, and the"
          f" position is after {self._record} of them. Give it the data it had."
        )
      if len(block):
        self._window = _Window(
          block=block,
          order=self._order(len(block)),
          epoch=self._pass,
          first=self._first,
          start=start,
          after=reader.cursor(),
        )
        self._first += len(block)
        self._given, self._skip = self._skip, 0
        return self._window
      if not self._first and self._epochs is None:
        raise ValueError(
          f"{self.source.name} has no record in epoch {self._pass}, and is to"
          " be read for ever. Give it some, leave it out, or set epochs."
        )
      if self._pass + 1 == self._epochs:
        break
      reader.close()
      reader = self._reader = self.source.open()
      self._pass, self._first = self._pass + 1, 0
    return None

  def _order(self, size: int) -> np.ndarray:
    """int64[size]: the record of each place of the window to come."""
    places = np.arange(size)
    if self._size is None:
      return places
    number = self._first // self._size
    key = bucket_key(self._seed, self.source.name, self._pass, number)
    return permute(places, size, key=key)


def _taken(
  block: Block, chosen: np.ndarray, keep: np.ndarray | None
) -> list[Record | None]:
  """The records int64[n] of a block; None where they are not kept."""
  if keep is None:
    return list(block.take(chosen.tolist()))
  found = iter(block.take(chosen[keep].tolist()))
  return [next(found) if kept else None for kept in keep.tolist()]
