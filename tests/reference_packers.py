"""Which examples share a row, slowly: every packer on a list of pieces.

  lengths   3 9 4 2 12 1 5 5   budget 10
  first_fit [3 4] [9] [2 1] [12] [5 5]      3 buffered

A packer takes pieces in order of arrival, as many as there are or without an
end, and yields rows. It looks at no piece before it must: what a row holds
depends on the pieces up to then alone. Nothing of the package is imported.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence

IGNORE = -100


@dataclasses.dataclass(frozen=True)
class Piece:
  """Part of an example: what it puts into a row, and whose it is.

  `weights` is what each label counts for. `place` is (record drawn, example of
  the record, first position in the example).
  """

  source: int
  place: tuple[int, int, int]
  ids: list[int]
  labels: list[int]
  weights: list[float]

  def __len__(self) -> int:
    return len(self.ids)

  def part(self, begin: int, end: int) -> "Piece":
    draw, example, offset = self.place
    return Piece(
      self.source,
      (draw, example, offset + begin),
      self.ids[begin:end],
      self.labels[begin:end],
      self.weights[begin:end],
    )


Row = list[Piece]


@dataclasses.dataclass(frozen=True)
class Packing:
  """How pieces become rows.

  `pack_window` is of best_fit over a stream; where all pieces are known it
  packs from the longest on. `max_items` 0 is no limit.
  """

  budget: int
  packer: str = "best_fit"
  overlong: str = "error"
  segment_multiple: int = 1
  max_items: int = 0
  min_buffered: int = 200
  pack_window: int = 64
  examples_per_row: int = 1

  @property
  def limit(self) -> int:
    """How long a piece may be: of fixed, its even share of the budget."""
    share = self.budget // self.examples_per_row
    return share - share % self.segment_multiple

  def room(self, piece: Piece) -> int:
    """What a piece takes of the budget."""
    return -(-len(piece) // self.segment_multiple) * self.segment_multiple

  def used(self, row: Sequence[Piece]) -> int:
    return sum(self.room(piece) for piece in row)

  def takes(self, row: Sequence[Piece], piece: Piece) -> bool:
    """Whether a row that was begun has room for one more."""
    if self.max_items and len(row) >= self.max_items:
      return False
    return self.used(row) + self.room(piece) <= self.budget


class Overlong(Exception):
  """An example is longer than a row, and that was to be an error."""


def cut_overlong(pieces: Iterable[Piece], packing: Packing) -> Iterator[Piece]:
  """Yields what goes into rows: no empty piece, none too long."""
  limit = packing.limit
  for piece in pieces:
    if not len(piece):
      continue
    if packing.packer == "concat" or len(piece) <= limit:
      yield piece
    elif packing.overlong == "error":
      raise Overlong(f"{len(piece)} positions, {limit} allowed")
    elif packing.overlong == "split":
      for begin in range(0, len(piece), limit):
        yield piece.part(begin, begin + limit)
    elif packing.overlong == "truncate":
      yield piece.part(0, limit)
    elif packing.overlong == "own_row":
      yield piece
    elif packing.overlong != "drop":
      raise AssertionError(packing.overlong)


def pack_known(pieces: Sequence[Piece], packing: Packing) -> list[Row]:
  """Rows of pieces that are all known: a window of a plan."""
  fitting = list(cut_overlong(pieces, packing))
  if packing.packer == "best_fit":
    return best_fit_decreasing(fitting, packing)
  if packing.packer == "fixed":
    # One beyond the limit has a row of its own, where it came.
    alone = [[piece] for piece in fitting if len(piece) > packing.limit]
    shared = (piece for piece in fitting if len(piece) <= packing.limit)
    rows = [*alone, *fixed(shared, packing)]
    return sorted(rows, key=lambda row: row[0].place)
  return list(pack_arriving(pieces, packing))


def pack_arriving(pieces: Iterable[Piece], packing: Packing) -> Iterator[Row]:
  """Rows of pieces that come one after the other."""
  fitting = cut_overlong(pieces, packing)
  if packing.packer == "concat":
    return concat(fitting, packing)
  if packing.packer == "pad":
    return ([piece] for piece in fitting)
  if packing.packer == "fixed":
    return fixed(fitting, packing)
  if packing.packer == "first_fit":
    return first_fit(fitting, packing)
  if packing.packer == "best_fit":
    return best_fit(fitting, packing)
  raise AssertionError(packing.packer)


def in_order(row: Row, arrival: list[Piece]) -> Row:
  """A row's pieces in the order in which they came."""
  return [piece for piece in arrival if any(piece is p for p in row)]


def best_fit_decreasing(pieces: list[Piece], packing: Packing) -> list[Row]:
  """From the longest on, each into the fullest row that has room."""
  rows: list[Row] = []
  for piece in sorted(pieces, key=lambda p: -packing.room(p)):
    open_rows = [row for row in rows if packing.takes(row, piece)]
    if open_rows:
      max(open_rows, key=packing.used).append(piece)
    else:
      rows.append([piece])
  return [in_order(row, pieces) for row in rows]


def first_fit(pieces: Iterator[Piece], packing: Packing) -> Iterator[Row]:
  """The oldest, then in order of arrival whatever still fits."""
  waiting: list[Piece] = []
  ended = False
  while True:
    while not ended and (
      len(waiting) < packing.min_buffered
      or packing.used(waiting) < packing.budget
    ):
      piece = next(pieces, None)
      ended = piece is None
      if piece is not None:
        waiting.append(piece)
    if not waiting:
      return
    row = [waiting.pop(0)]
    for piece in list(waiting):
      if packing.takes(row, piece):
        row.append(piece)
        waiting = [other for other in waiting if other is not piece]
    yield row


def best_fit(pieces: Iterator[Piece], packing: Packing) -> Iterator[Row]:
  """The oldest, then always the longest of the window that still fits."""
  waiting: list[Piece] = []
  while True:
    missing = packing.pack_window - len(waiting)
    waiting += itertools.islice(pieces, max(missing, 0))
    if not waiting:
      return
    arrival = list(waiting)
    row = [waiting.pop(0)]
    while True:
      fitting = [piece for piece in waiting if packing.takes(row, piece)]
      if not fitting:
        break
      # The first of those that are alike is the oldest.
      longest = max(fitting, key=packing.room)
      row.append(longest)
      waiting = [piece for piece in waiting if piece is not longest]
    yield in_order(row, arrival)


def concat(pieces: Iterator[Piece], packing: Packing) -> Iterator[Row]:
  """End to end, cut where a row is full."""
  row: Row = []
  for piece in pieces:
    rest = piece
    while len(rest):
      full = sum(map(len, row)) == packing.budget
      if full or (packing.max_items and len(row) == packing.max_items):
        yield row
        row = []
      count = min(len(rest), packing.budget - sum(map(len, row)))
      row.append(rest.part(0, count))
      rest = rest.part(count, len(rest))
  if row:
    yield row


def fixed(pieces: Iterator[Piece], packing: Packing) -> Iterator[Row]:
  """So many pieces a row, whatever their lengths; the last may hold fewer."""
  while row := list(itertools.islice(pieces, packing.examples_per_row)):
    yield row
