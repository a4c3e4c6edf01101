r"""Sources read in turn and weights in, one order of their records out.

  source a   a0 a1 a2 ...        weights 2 : 1
  source b   b0 b1 ...
  record     0  1  2  3  4  5  6          a0 b0 a1 a2 b1 a3 ..
                       ^ position: where each source is after a2

Which source gives record g is arithmetic (`blend.StableBlend`), so sources
are read in blocks, one call each. Where a source of so many epochs has no
record g, the blend ends: records after it belong to no row.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from hpgrain.arguments import integer
from hpgrain.blend import StableBlend
from hpgrain.example_order import GIVE_IT_DATA
from hpgrain.sources.in_turn.source import Place
from hpgrain.sources.records import Record


class RecordsInOrder(Protocol):
  """One source's records over its epochs, as `Epochs` gives them."""

  def read(
    self, n: int, *, wanted: np.ndarray | None = None
  ) -> list[Record | None]:
    """Returns the next n records; None where one is not wanted."""
    ...

  def places(self) -> Place:
    """Returns where the records of the last read lie."""
    ...

  def position(self) -> list[Any]:
    """JSON of the place after the last record, [epoch, ...]."""
    ...

  def seek(self, position: list[Any]) -> None:
    """Goes to such a place."""
    ...

  def close(self) -> None:
    """Lets go of what is open."""
    ...


@dataclasses.dataclass(frozen=True)
class SourceRecords:
  """What one source gave for a block.

  Attributes:
    source: its number.
    number: int64[n], the blended record that each is.
    records: those of them that were wanted; None for the others.
    place: where record i of `number` lies.
  """

  source: int
  number: np.ndarray
  records: list[Record | None]
  place: Place


@dataclasses.dataclass(frozen=True)
class RecordBlock:
  """Records [begin, end) of the blend, by source."""

  begin: int
  end: int
  parts: list[SourceRecords]

  def __len__(self) -> int:
    """Number of records."""
    return self.end - self.begin


class BlendedRecords:
  """Reads sources side by side. For one thread at a time."""

  def __init__(
    self,
    sources: Sequence[RecordsInOrder],
    *,
    names: Sequence[str],
    weights: Sequence[float] | None,
  ):
    """Stands before the first record; reads none.

    Args:
      sources: one or more.
      names: of the sources, for messages.
      weights: one a source, by which they take turns; of one source they mean
        nothing.

    Raises:
      ValueError: several sources have no weights, or a wrong number.
    """
    self._sources, self._names = tuple(sources), tuple(names)
    self._blend = make_blend(len(sources), weights)
    self._next = 0
    self._end: int | None = None
    self._positions: list[Any] = [None] * len(sources)

  @property
  def ended(self) -> bool:
    """Whether the last record was read."""
    return self._end is not None

  @property
  def next_record(self) -> int:
    """The number of the record that is read next."""
    return self._next

  def read(self, n: int, *, first: np.ndarray | None = None) -> RecordBlock:
    """Reads the next n records; fewer only at the end, none after it.

    Args:
      n: how many.
      first: int64[V], for records g of each remainder by V the first that is
        wanted; None for all.

    Raises:
      ValueError: as the sources, or one of a blend has no record at all.
    """
    begin = self._next
    if self._end is not None:
      return RecordBlock(begin, begin, [])
    numbers = np.arange(begin, begin + integer("n", n, minimum=1))
    wanted = None
    if first is not None:
      wanted = numbers >= first[numbers % len(first)]
    self.position()
    turns = self._turns(numbers)
    read, failed = {}, {}
    for i, turn in turns.items():
      try:
        read[i] = self._read(i, turn, wanted)
      except ValueError as error:
        # What lies behind the end is in no row, whatever it is like.
        if len(self._sources) == 1:
          raise
        failed[i] = error
    end = self._ends(begin + n, turns, {i: len(r) for i, r in read.items()})
    if failed:
      end = self._read_again(end, turns, wanted, read, failed)
    parts = [
      self._part(i, turns[i] + begin, read[i], end) for i in sorted(read)
    ]
    for i in read:
      self._positions[i] = None
    self._next = end
    if end < begin + n:
      self._end = end
    return RecordBlock(begin, end, [part for part in parts if part is not None])

  def position(self) -> tuple[int, list[Any]]:
    """Returns (g, every source's position), before record g is read.

    Each is JSON, and stays as it is when more is read. After the end there is
    none: sources have been read beyond it.
    """
    assert self._end is None, "the blend has not ended"
    for i, position in enumerate(self._positions):
      if position is None:
        self._positions[i] = self._sources[i].position()
    return self._next, list(self._positions)

  def epochs(self) -> np.ndarray:
    """Returns int64[sources], the epoch that each source is in."""
    return np.array([position[0] for position in self.position()[1]], np.int64)

  def seek(self, number: int, positions: Sequence[Any]) -> None:
    """Goes where `position` was.

    Raises:
      ValueError: these are no positions of these sources.
    """
    if len(positions) != len(self._sources):
      raise ValueError(
        f"This state has the positions of {len(positions)} sources, and there"
        f" are {len(self._sources)}."
      )
    for source, position in zip(self._sources, positions):
      source.seek(position)
    self._next, self._end = number, None
    self._positions = list(positions)

  def close(self) -> None:
    """Closes the sources."""
    for source in self._sources:
      source.close()

  def _turns(self, numbers: np.ndarray) -> dict[int, np.ndarray]:
    """For each source int64[n], its records' places in the block."""
    if self._blend is None:
      return {0: np.arange(len(numbers))}
    source, _ = self._blend.locate(numbers)
    order = np.argsort(source, kind="stable")
    splits = np.searchsorted(
      source[order], np.arange(len(self._sources) + 1)
    ).tolist()
    return {
      i: order[splits[i] : splits[i + 1]]
      for i in range(len(self._sources))
      if splits[i] < splits[i + 1]
    }

  def _read(
    self, i: int, turn: np.ndarray, wanted: np.ndarray | None
  ) -> list[Record | None]:
    return self._sources[i].read(
      len(turn), wanted=None if wanted is None else wanted[turn]
    )

  def _ends(
    self, end: int, turns: dict[int, np.ndarray], counts: dict[int, int]
  ) -> int:
    """Returns where the block ends, the sources having given so many."""
    for i, count in counts.items():
      if count < len(turns[i]):
        missing = self._next + int(turns[i][count])
        self._check_drawn(i, missing)
        end = min(end, missing)
    return end

  def _check_drawn(self, i: int, missing: int) -> None:
    """Refuses a source that a blend draws from in vain."""
    if self._blend is not None and not self._blend.counts(missing)[i]:
      raise ValueError(
        f"Source {self._names[i]!r} has no record to draw. {GIVE_IT_DATA}"
      )

  def _read_again(
    self,
    end: int,
    turns: dict[int, np.ndarray],
    wanted: np.ndarray | None,
    read: dict[int, list[Record | None]],
    failed: dict[int, ValueError],
  ) -> int:
    """Reads what could not be read, now up to the blend's end alone."""
    counts = {}
    for i in failed:
      self._sources[i].seek(self._positions[i])
      none = np.zeros(len(turns[i]), bool)
      counts[i] = len(self._sources[i].read(len(none), wanted=none))
    end = self._ends(end, turns, counts)
    for i in failed:
      before = self._next + turns[i] < end
      if wanted is not None:
        before &= wanted[turns[i]]
      self._sources[i].seek(self._positions[i])
      read[i] = self._sources[i].read(len(before), wanted=before)
    return end

  def _part(
    self, i: int, number: np.ndarray, records: list[Record | None], end: int
  ) -> SourceRecords | None:
    count = min(len(records), int(np.searchsorted(number, end)))
    if not count:
      return None
    return SourceRecords(
      i, number[:count], records[:count], self._sources[i].places()
    )


def make_blend(
  num_sources: int, weights: Sequence[float] | None
) -> StableBlend | None:
  """Returns how sources take turns; None for one source.

  Raises:
    ValueError: several sources have no weights, a wrong number of them, or
      weights that are none.
  """
  if weights is not None and len(weights) != num_sources:
    raise ValueError(
      f"A blend needs one weight a source, got {len(weights)} weights for"
      f" {num_sources} sources."
    )
  if weights is not None:
    blend = StableBlend(weights)
    return blend if num_sources > 1 else None
  if num_sources > 1:
    raise ValueError(
      f"{num_sources} sources that are read in turn need weights: how many"
      " records each has is not known, so none follows from their sizes. Give"
      " every entry of data_path a weight, or set dataset_type='mapping'."
    )
  return None
