r"""The positions of a row in, which of them each context-parallel rank holds.

  row of 8 positions, 2 ranks      rank 0       rank 1
    contiguous                     0 1 2 3      4 5 6 7
    zigzag                         0 1 6 7      2 3 4 5
    striped                        0 2 4 6      1 3 5 7
  packed row, rooms of 4 and 4
    document_zigzag                0 3 4 7      1 2 5 6

Under a causal mask the last positions of a row cost most. `zigzag` gives each
rank a cheap and a costly chunk, `striped` every num_ranks-th position, and
`document_zigzag` a cheap and a costly chunk of every document, as kernels do
that skip what lies in another document. Positions in this order are called
slots: slot j of a batch holds position `order[j]` of its row.

A layout only permutes. What stands at a position, its label and its segment
included, does not depend on it. NumPy alone; `context_parallel` has the same
inside `jit`.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

CONTIGUOUS = "contiguous"
ZIGZAG = "zigzag"
STRIPED = "striped"
DOCUMENT_ZIGZAG = "document_zigzag"
LAYOUTS = (CONTIGUOUS, ZIGZAG, STRIPED, DOCUMENT_ZIGZAG)


class Run(NamedTuple):
  """Positions first, first + step, ... of a row, `count` of them."""

  first: int
  count: int
  step: int

  @property
  def span(self) -> tuple[int, int]:
    """The least [begin, end) that holds them."""
    return self.first, self.first + (self.count - 1) * self.step + 1


@dataclasses.dataclass(frozen=True)
class Rooms:
  """How the positions of n rows are divided among their segments.

  Attributes:
    row_splits: int64[n + 1], where each row's rooms begin.
    length: int64[m], positions of each room, what is padding in it included.
      Those of a row add up to its positions: padding at its end is a room.
  """

  row_splits: np.ndarray
  length: np.ndarray

  def __len__(self) -> int:
    """Number of rows."""
    return len(self.row_splits) - 1


@dataclasses.dataclass(frozen=True)
class ContextLayout:
  """Which positions of a row the ranks of a context-parallel group hold.

  Attributes:
    name: one of `LAYOUTS`.
    num_ranks: of the group; with 1 every layout is the identity.
    segment_multiple: what the rooms of a packed row are multiples of; of
      "document_zigzag", which divides each among the ranks.
  """

  name: str = CONTIGUOUS
  num_ranks: int = 1
  segment_multiple: int = 1

  def __post_init__(self) -> None:
    if self.name not in LAYOUTS:
      raise ValueError(
        f"context_parallel_layout must be one of {LAYOUTS}, got {self.name!r}."
      )
    if self.num_ranks < 1 or self.segment_multiple < 1:
      raise ValueError(
        "num_ranks and segment_multiple are at least 1, got"
        f" {self.num_ranks} and {self.segment_multiple}."
      )
    if self.name == DOCUMENT_ZIGZAG and self.segment_multiple % self.multiple:
      raise ValueError(
        "context_parallel_layout='document_zigzag' cuts the room of every"
        f" segment into 2 x {self.num_ranks} chunks, so"
        f" dataloader.segment_multiple must be a multiple of {self.multiple},"
        f" got {self.segment_multiple}. It shapes rows, so set it for the"
        " largest cp that the run may have."
      )

  @property
  def multiple(self) -> int:
    """What the positions of a row must be a multiple of."""
    if self.num_ranks == 1:
      return 1
    chunked = self.name in (ZIGZAG, DOCUMENT_ZIGZAG)
    return 2 * self.num_ranks if chunked else self.num_ranks

  @property
  def is_identity(self) -> bool:
    """Whether slots are positions."""
    return self.num_ranks == 1 or self.name == CONTIGUOUS

  @property
  def depends_on_rows(self) -> bool:
    """Whether rows have orders of their own, by where their segments end."""
    return self.num_ranks > 1 and self.name == DOCUMENT_ZIGZAG

  def order(self, num_positions: int) -> np.ndarray:
    """Returns int32[num_positions]: the position that each slot holds.

    Raises:
      ValueError: the positions do not divide, or rows have their own orders.
    """
    runs = self.runs((0, num_positions), num_positions)
    return np.concatenate(
      [
        run.first + run.step * np.arange(run.count, dtype=np.int32)
        for run in runs
      ]
    ).astype(np.int32)

  def runs(self, slots: tuple[int, int], num_positions: int) -> tuple[Run, ...]:
    """Returns the positions that slots [begin, end) hold, in their order.

    Args:
      slots: [begin, end).
      num_positions: of a row.

    Raises:
      ValueError: as `order`, or the slots do not lie in the row.
    """
    begin, end = slots
    if not 0 <= begin < end <= num_positions:
      raise ValueError(
        f"Slots are [begin, end) with 0 <= begin < end <= {num_positions}, got"
        f" {slots}."
      )
    self.check(num_positions)
    if self.depends_on_rows:
      raise ValueError(
        f"The slots of {self.name!r} depend on the row: see `order_of_rows`."
      )
    if self.is_identity:
      return (Run(begin, end - begin, 1),)
    found: list[Run] = []
    for first, stop, origin, step in self._chunks(num_positions):
      a, b = max(first, begin), min(stop, end)
      if a >= b:
        continue
      run = Run(origin + (a - first) * step, b - a, step)
      if found and step == 1 and found[-1].span[1] == run.first:
        found[-1] = Run(found[-1].first, found[-1].count + run.count, 1)
      else:
        found.append(run)
    return tuple(found)

  def _chunks(
    self, num_positions: int
  ) -> tuple[tuple[int, int, int, int], ...]:
    """Returns (first slot, last + 1, its position, step) of each chunk."""
    ranks, each = self.num_ranks, num_positions // self.num_ranks
    if self.name == STRIPED:
      return tuple((r * each, (r + 1) * each, r, ranks) for r in range(ranks))
    half = each // 2
    return tuple(
      (slot, slot + half, chunk * half, 1)
      for r in range(ranks)
      for slot, chunk in (
        (r * each, r),
        (r * each + half, 2 * ranks - 1 - r),
      )
    )

  def order_of_rows(self, rooms: Rooms, num_positions: int) -> np.ndarray:
    """Returns int32[n, num_positions]: the position of each row's slots.

    Args:
      rooms: of the rows; without meaning where `depends_on_rows` is False.
      num_positions: of a row.

    Raises:
      ValueError: the positions, or a room, do not divide.
    """
    if not self.depends_on_rows:
      order = self.order(num_positions)
      return np.broadcast_to(order, (len(rooms), num_positions))
    self.check(num_positions)
    row_splits, length = rooms.row_splits, np.asarray(rooms.length, np.int64)
    ends = np.concatenate([[0], np.cumsum(length)])
    filled = np.diff(ends[row_splits])
    if (length % self.multiple).any() or (filled != num_positions).any():
      raise ValueError(
        f"Rooms must be multiples of {self.multiple} that add up to the"
        f" {num_positions} positions of a row; got sums {filled.tolist()}."
      )
    # Where each room begins, in its row.
    row = np.repeat(np.arange(len(rooms)), np.diff(row_splits))
    begin = ends[:-1] - ends[row_splits[:-1]][row]
    half = length // self.multiple
    shape, by_rank = (len(rooms), num_positions // self.num_ranks), []
    for rank in range(self.num_ranks):
      chunks = np.stack(
        [begin + rank * half, begin + (self.multiple - 1 - rank) * half], 1
      )
      by_rank.append(
        _ranges(chunks.reshape(-1), np.repeat(half, 2)).reshape(shape)
      )
    return np.concatenate(by_rank, axis=1).astype(np.int32)

  def check(self, num_positions: int) -> None:
    """Raises ValueError if the positions of a row do not divide."""
    if num_positions % self.multiple:
      raise ValueError(
        f"{num_positions} positions of a row do not divide over"
        f" {self.num_ranks} ranks in layout {self.name!r}: they must be a"
        f" multiple of {self.multiple}."
      )


# Slots are positions.
ROW_ORDER = ContextLayout()


def _ranges(first: np.ndarray, count: np.ndarray) -> np.ndarray:
  """Returns first, first + 1, ... of each pair, `count` numbers, joined."""
  ends = np.cumsum(count)
  return np.arange(ends[-1] if len(ends) else 0) + np.repeat(
    first - ends + count, count
  )
