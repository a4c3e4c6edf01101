r"""One stream's pieces in, its rows out, and where it stands after any of them.

  pieces    a b c d e f g h i j ..        the order in which they arrive
  row 0     a   c     f                   the oldest, then what fits
  row 1       b   d e                     a window of them is looked at
  after 0   at b's record; 5 looked at, of which the bits 0 1 0 0 1 are used

A stream's history is bounded, because every packer takes the oldest piece
first. So its position is a record and which of the pieces from there on are
used: no token of them. It is the same whatever has been read beyond.
"""

import dataclasses

import numpy as np

from hpgrain.packing import PackingOptions
from hpgrain.stream_packing import MadeRows, make_rows
from hpgrain.stream_pieces import (
  COUNT,
  LENGTH,
  OFFSET,
  ORDINAL,
  RECORD,
  cut_front,
  no_pieces,
)


@dataclasses.dataclass(frozen=True)
class Position:
  """Where a stream stands after a row.

  Attributes:
    rows: it has given.
    at: the record of its oldest piece that is in no row of them, or not
      wholly; if there is none among those that were looked at, the record
      after them.
    arrived: pieces, from that record's first one on, that were looked at.
    used: bit i says whether the i-th of these is in a row.
    offset: tokens of that oldest piece that are in a row, of "concat".
  """

  rows: int
  at: int
  arrived: int
  used: int
  offset: int


class StreamPacker:
  """Packs one stream. For one thread at a time."""

  def __init__(
    self,
    options: PackingOptions,
    *,
    position: Position,
    num_streams: int,
    pack_window: int,
  ):
    """Stands at a position; pieces are to be added from its record on.

    Args:
      options: how rows are packed.
      position: where.
      num_streams: a stream's records are so far apart.
      pack_window: pieces that "best_fit" chooses among.
    """
    self._options, self._pack_window = options, pack_window
    self._num_streams = num_streams
    # As it was found last; None when a row was given since.
    self._position: Position | None = position
    self._num_rows = position.rows
    # Pieces that are wanted still, and some of those before them.
    self._table = no_pieces()
    self._parts: list[np.ndarray] = []
    # Of the table: which are in a row that is made, or in one that was given,
    # and how many had been looked at then.
    self._made, self._given = np.zeros(0, bool), np.zeros(0, bool)
    self._made_arrived = self._given_arrived = position.arrived
    self._given_offset = position.offset
    # Of a position that was restored: pieces to come that it had looked at.
    self._known, self._known_used = position.arrived, position.used
    self._cut = position.offset
    self._flags: list[np.ndarray] = []
    self._rows: MadeRows | None = None
    self._row = 0
    self._waiting = 0
    self._final = False

  @property
  def num_rows(self) -> int:
    """Rows that it has given."""
    return self._num_rows

  @property
  def waits(self) -> bool:
    """Whether it holds pieces, of which at least one more row will be made."""
    return self._waiting > 0

  def add(self, pieces: np.ndarray) -> np.ndarray:
    """Takes the pieces that follow; returns how many tokens of each it needs.

    Args:
      pieces: see `stream_pieces`. They are its own from now on.

    Raises:
      ValueError: they do not fit the position that was restored.
    """
    count = pieces.shape[1]
    used = np.zeros(count, bool)
    known = min(self._known, count)
    if known:
      for i in range(known):
        used[i] = self._known_used >> i & 1
      self._known -= known
      self._known_used >>= known
    if self._cut and not used.all():
      first = int(np.argmin(used))
      if pieces[LENGTH, first] <= self._cut:
        raise _changed()
      cut_front(pieces, first, self._cut)
      self._cut = 0
    self._parts.append(pieces)
    self._flags.append(used)
    needed = np.where(used, 0, pieces[LENGTH])
    self._waiting += int(needed.sum())
    return needed

  def end(self) -> None:
    """Says that no piece follows.

    Raises:
      ValueError: the position that was restored had seen more.
    """
    if self._known or self._cut:
      raise _changed()
    self._final = True

  def has_row(self) -> bool:
    """Whether a row can be given now; if not, pieces must be added."""
    if self._rows is None or self._row == len(self._rows):
      if self._known or not (self._parts or self._final):
        return False
      self._join()
      self._rows = self._make()
      self._row = 0
    return self._row < len(self._rows)

  def give(self) -> np.ndarray:
    """Returns the pieces of the next row, which `has_row` must have made."""
    rows, row = self._rows, self._row
    assert rows is not None, "has_row() was asked"
    begin, end = rows.splits[row], rows.splits[row + 1]
    pieces = rows.pieces[:, begin:end]
    used = slice(rows.used_splits[row], rows.used_splits[row + 1])
    self._given[rows.used[used]] = True
    self._given_arrived = rows.arrived[row]
    self._given_offset = rows.offset[row]
    self._waiting -= rows.tokens[row]
    self._row += 1
    self._num_rows += 1
    self._position = None
    return pieces

  def position(self) -> Position:
    """Returns where it stands after the last row that was given."""
    if self._position is None:
      self._position = self._find()
    return self._position

  def _oldest(self) -> int:
    """The oldest piece that is in no row given, or the first not looked at."""
    given = self._given[: self._given_arrived]
    if not len(given):
      return self._given_arrived
    first = int(given.argmin())
    return self._given_arrived if given[first] else first

  def _find(self) -> Position:
    table, oldest, arrived = self._table, self._oldest(), self._given_arrived
    if oldest < arrived or self._given_offset:
      at, before = int(table[RECORD, oldest]), int(table[ORDINAL, oldest])
    else:
      # All that it looked at is used: the last of them says what follows.
      last = oldest - 1
      at, before = int(table[RECORD, last]), int(table[ORDINAL, last]) + 1
      if before == table[COUNT, last]:
        at, before = at + self._num_streams, 0
    bits = np.packbits(self._given[oldest:arrived], bitorder="little")
    used = int.from_bytes(bits.tobytes(), "little") << before
    return Position(
      rows=self._num_rows,
      at=at,
      arrived=arrived - oldest + before,
      used=used | (1 << before) - 1,
      offset=self._given_offset,
    )

  def _join(self) -> None:
    """Appends what was added to the table, and forgets what none needs."""
    table = np.concatenate([self._table, *self._parts], axis=1)
    self._given = np.concatenate([self._given, *self._flags])
    made = np.concatenate([self._made, *self._flags])
    self._parts, self._flags = [], []
    # The one before the oldest may say what follows.
    gone = max(self._oldest() - 1, 0)
    self._table, self._given = table[:, gone:], self._given[gone:]
    self._made = made[gone:]
    self._given_arrived -= gone
    self._made_arrived -= gone

  def _make(self) -> MadeRows:
    """Makes rows of what can be told by now."""
    rows = make_rows(
      self._table,
      self._made,
      arrived=self._made_arrived,
      final=self._final,
      options=self._options,
      pack_window=self._pack_window,
    )
    if len(rows):
      self._made[rows.used] = True
      self._made_arrived = rows.arrived[-1]
      if rows.offset[-1]:
        piece = rows.arrived[-1]
        done = rows.offset[-1] - int(self._table[OFFSET, piece])
        cut_front(self._table, piece, done)
    return rows


def _changed() -> ValueError:
  return ValueError(
    "A stream's records give fewer examples, or shorter ones, than when its"
    " state was saved: the data or the transform changed. Restore with those"
    " of the saved run."
  )
