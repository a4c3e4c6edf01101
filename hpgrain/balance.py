r"""Packed rows in, the same rows in blocks whose shares cost alike out.

  block     rows 0..3 cost 9 1 8 2          shares=2
  shares    [0 1] cost 10, [2 3] cost 10    each an equal run of the block

Attention costs the square of a segment's length, so rows that hold as many
tokens do not cost alike, and a step waits for the share that costs most. Which
rows a block holds does not change; their order in it is made from plans alone.
"""

import collections
import heapq
import operator
import threading
from collections.abc import Sequence
from typing import Any

import grain
import numpy as np

from hpgrain.arguments import integer, row_numbers
from hpgrain.packed_fields import PackedPlans
from hpgrain.token_rows import OpenRows

_HELD_BLOCKS = 8


def row_costs(plans: PackedPlans) -> np.ndarray:
  """Returns int64[n]: the sum of the squared lengths of each row's pieces."""
  squares = np.concatenate([[0], np.cumsum(plans.length.astype(np.int64) ** 2)])
  return np.diff(squares[plans.row_splits])


def balanced_order(
  costs: np.ndarray, *, shares: int, rows: int | None = None
) -> np.ndarray:
  """Orders rows so that equal runs of them cost nearly the same.

  The costliest row first, each goes to the share that costs least so far and
  is not full; of two that are alike to the earlier one. Within a share rows
  keep their order.

  Args:
    costs: int64[n].
    shares: into how many runs the block is divided.
    rows: of a whole block, a multiple of shares; default n. A block of fewer,
      the last one, fills its shares from the first one on.

  Returns:
    int64[n]: which row stands at each place.
  """
  each = (len(costs) if rows is None else rows) // shares
  full = [
    min(max(len(costs) - share * each, 0), each) for share in range(shares)
  ]
  chosen: list[list[int]] = [[] for _ in range(shares)]
  waiting = [(0, share) for share in range(shares) if full[share]]
  for row in np.argsort(-costs, kind="stable").tolist():
    cost, share = heapq.heappop(waiting)
    chosen[share].append(row)
    if len(chosen[share]) < full[share]:
      heapq.heappush(waiting, (cost + int(costs[row]), share))
  return np.array([row for of in chosen for row in sorted(of)], np.int64)


class BalancedSamples(grain.MapDataset):
  """Packed rows, those of each block in an order that balances its shares.

  A batch of a number of blocks has equal runs that cost alike, too.
  """

  def __init__(self, samples: Any, *, shares: int, rows: int):
    """Holds the arguments; nothing is planned before a row is asked for.

    Args:
      samples: packed rows: `OnlineSamples` or `PackedSamples`.
      shares: equal runs of a block that are to cost alike.
      rows: of a block.

    Raises:
      ValueError: an argument is illegal, or the rows do not divide.
    """
    super().__init__()
    self._shares = integer("balance_shares", shares, minimum=1)
    self._rows = integer("balance_rows", rows, minimum=1)
    if rows % shares:
      raise ValueError(
        f"balance_rows must be a multiple of balance_shares, got {rows} and"
        f" {shares}."
      )
    self._samples = samples
    self._make_room()

  def _make_room(self) -> None:
    self._lock = threading.Lock()
    self._held: collections.OrderedDict[int, np.ndarray] = (
      collections.OrderedDict()
    )

  def __getstate__(self) -> dict[str, Any]:
    """Leaves out the orders, which are made anew."""
    gone = ("_lock", "_held")
    return {k: v for k, v in self.__dict__.items() if k not in gone}

  def __setstate__(self, state: dict[str, Any]) -> None:
    self.__dict__.update(state)
    self._make_room()

  def __len__(self) -> int:
    """As many as the samples."""
    return len(self._samples)

  def __getitem__(self, index: Any) -> Any:
    """Returns the row of the samples that stands at `index`."""
    if isinstance(index, slice):
      return self.slice(index)
    return self._samples[int(self.rows([operator.index(index)])[0])]

  def rows(self, rows: np.ndarray | Sequence[int]) -> np.ndarray:
    """Returns int64[n]: which rows of the samples stand at `rows`.

    Raises:
      IndexError: there is no such row.
    """
    numbers = row_numbers(rows).reshape(-1)
    blocks, places = np.divmod(numbers, self._rows)
    out = np.empty_like(numbers)
    for block in np.unique(blocks).tolist():
      order = self._order(block)
      chosen = blocks == block
      if places[chosen].max() >= len(order):
        raise IndexError(
          f"There are {len(self)} rows, got row {numbers[chosen].max()}."
        )
      out[chosen] = block * self._rows + order[places[chosen]]
    return out

  def _order(self, block: int) -> np.ndarray:
    with self._lock:
      if block in self._held:
        self._held.move_to_end(block)
        return self._held[block]
    begin = block * self._rows
    end = begin + self._rows
    if not self._samples.reaches(end - 1):
      end = max(min(end, len(self)), begin)
    plans = self._samples.plan_rows(np.arange(begin, end, dtype=np.int64))
    order = balanced_order(
      row_costs(plans), shares=self._shares, rows=self._rows
    )
    with self._lock:
      self._held[block] = order
      while len(self._held) > _HELD_BLOCKS:
        self._held.popitem(last=False)
    return order

  def plan(self, index: int) -> PackedPlans:
    """Plans one row."""
    return self.plan_rows([operator.index(index)])

  def plan_rows(self, rows: np.ndarray | Sequence[int]) -> PackedPlans:
    """Plans many rows, reading no token."""
    return self._samples.plan_rows(self.rows(rows))

  def open_rows(self, rows: np.ndarray | Sequence[int]) -> OpenRows:
    """Plans rows, to read windows of their fields."""
    return self._samples.open_rows(self.rows(rows))

  def row_positions(self, rows: np.ndarray | Sequence[int]) -> int:
    """Returns how many positions a batch of these rows needs."""
    return self._samples.row_positions(self.rows(rows))

  def reaches(self, row: int) -> bool:
    """Whether there is a row, packing no further than to know."""
    return self._samples.reaches(row)

  def place(self, row: int) -> tuple[int, int]:
    """Returns (window, first_row) to `seek`, of the first row of the block.

    Rows from there on are needed to make the block.
    """
    return self._samples.place(row // self._rows * self._rows)

  def seek(self, window: int, first_row: int) -> None:
    """Lets rows from a window on be found without those before it."""
    self._samples.seek(window, first_row)

  @property
  def unique_identifiers(self) -> dict[str, Any]:
    """Everything that decides the rows; paths and times do not."""
    return {
      **self._samples.unique_identifiers,
      "balance": {"balance_shares": self._shares, "balance_rows": self._rows},
    }

  def rows_per_source(self, num_rows: int) -> np.ndarray:
    """Returns int64[sources]: records of each in the first `num_rows` rows.

    Within a block they are counted as the samples have them.
    """
    return self._samples.rows_per_source(num_rows)

  def counters(self, num_rows: int) -> dict[str, Any]:
    """Returns what the first rows hold, as `rows_per_source` counts."""
    return self._samples.counters(num_rows)

  def num_rows(self, epochs: int) -> int:
    """Returns how many rows `epochs` epochs have."""
    return self._samples.num_rows(epochs)

  def has_row(self) -> bool:
    """Whether there is a row at all."""
    return self._samples.has_row()

  def measure(self) -> None:
    """Finds what the rows' plans need of the sources."""
    if hasattr(self._samples, "measure"):
      self._samples.measure()

  @property
  def rows_per_epoch(self) -> int:
    """Rows of one epoch by itself."""
    return self._samples.rows_per_epoch

  @property
  def seq_length(self) -> int:
    """Positions a row."""
    return self._samples.seq_length

  @property
  def length_buckets(self) -> tuple[int, ...]:
    """Positions that a batch may have, ascending."""
    return self._samples.length_buckets

  @property
  def vocab_size(self) -> int | None:
    """Ids at or above it are an error when rows are read."""
    return self._samples.vocab_size

  @property
  def sources(self) -> Any:
    """What a plan's source counts."""
    return self._samples.sources

  @property
  def members(self) -> Any:
    """What one time through each source is."""
    return self._samples.members
