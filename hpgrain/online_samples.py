"""Records that are tokenized while training in, rows packed of them out.

  lengths    measured once, so that rows are planned
  plan       row -> pieces of examples, no token made
  read       the examples of a batch's rows, tokenized once for all windows

Any process makes any row, and the position in them is a row number.
"""

import operator
from collections.abc import Sequence
from typing import Any

import grain
import numpy as np

from hpgrain.online_rows import Member, OnlineRows
from hpgrain.packed_fields import PackedPlans
from hpgrain.packed_rows import Pass, RowPlanner
from hpgrain.packing import PackingOptions


class OnlineSamples(grain.MapDataset):
  """Rows packed of the examples of one or several sources."""

  def __init__(
    self,
    members: Sequence[Member],
    *,
    options: PackingOptions,
    seed: int,
    weights: Sequence[float] | None = None,
    shuffle: bool = True,
    epochs: int | None = None,
    vocab_size: int | None = None,
    length_buckets: Sequence[int] = (),
  ):
    """Holds what decides the rows; nothing is measured before one is asked for.

    Args:
      members: the sources.
      options: how rows are packed; `budget` is the positions of a row.
      seed: decides the order.
      weights: by which records of several sources take turns; None takes each
        once an epoch.
      shuffle: whether records are permuted, each epoch anew.
      epochs: after which the rows end; None = never.
      vocab_size: ids at or above it are an error when rows are read.
      length_buckets: positions that a batch may have; see `row_positions`.

    Raises:
      ValueError: for an illegal argument, no source, two of one name, or one
        without a record.
    """
    super().__init__()
    self.planner = RowPlanner(
      members,
      options=options,
      seed=seed,
      weights=weights,
      shuffle=shuffle,
      epochs=epochs,
      length_buckets=length_buckets,
    )
    self.sources = tuple(members)
    self.seq_length = options.budget
    self.vocab_size = vocab_size

  def __len__(self) -> int:
    """Rows of all epochs, which packs them once; sys.maxsize without end."""
    return self.planner.num_rows_or_endless

  def __getitem__(self, index: Any) -> Any:
    """Returns {tokens, labels}, int32[n] each, of row `index`, not padded.

    Of several sources also dataset_id, int32[n]: which one each token is of.
    """
    if isinstance(index, slice):
      return self.slice(index)
    return self.open_rows([operator.index(index)]).row(0)

  @property
  def unique_identifiers(self) -> dict[str, Any]:
    """Everything that decides the rows; paths and times do not."""
    return {
      "kind": "online",
      # The names key the order.
      "sources": [
        {"name": source.name, **source.identity} for source in self.sources
      ],
      **self.planner.identity,
    }

  @property
  def members(self) -> tuple[Pass, ...]:
    """What one time through each source is, for `rows_per_source`."""
    return self.planner.passes

  @property
  def rows_per_epoch(self) -> int:
    """Rows of one epoch by itself, which packs all of it."""
    return self.planner.rows_per_epoch()

  def num_rows(self, epochs: int) -> int:
    """Returns how many rows `epochs` epochs have, which packs them once.

    Raises:
      ValueError: these rows end after another number of epochs, or never.
    """
    return self.planner.num_rows(epochs)

  def measure(self) -> None:
    """Finds the lengths of all sources, unless they are known."""
    for source in self.sources:
      source.measure()

  def has_row(self) -> bool:
    """Whether there is a row at all, packing as little as it takes."""
    return self.planner.windows.has_row()

  def rows_per_source(self, num_rows: int) -> np.ndarray:
    """Returns int64[sources]: records of each in the first `num_rows` rows."""
    return self.planner.windows.records_before(num_rows)

  @property
  def length_buckets(self) -> tuple[int, ...]:
    """Positions that a batch may have, ascending; `row_positions` is one."""
    return self.planner.buckets.positions

  def counters(self, num_rows: int) -> dict[str, Any]:
    """Returns what the first rows hold; see `PackingCounters.as_dict`."""
    return self.planner.counters.as_dict(num_rows)

  def row_positions(self, rows: np.ndarray | Sequence[int]) -> int:
    """Returns how many positions a batch of rows int64[n] needs.

    See `RowPlanner.row_positions`.
    """
    return self.planner.row_positions(rows)

  def plan(self, index: int) -> PackedPlans:
    """Plans one row."""
    return self.plan_rows([operator.index(index)])

  def plan_rows(self, rows: np.ndarray | Sequence[int]) -> PackedPlans:
    """Plans many rows, tokenizing nothing; see `RowPlanner.plan_rows`."""
    return self.planner.plan_rows(rows)

  def open_rows(self, rows: np.ndarray | Sequence[int]) -> OnlineRows:
    """Plans rows, to make windows of their fields."""
    return OnlineRows(
      self.sources, self.plan_rows(rows), vocab_size=self.vocab_size
    )

  def reaches(self, row: int) -> bool:
    """Whether there is a row, packing no further than to know."""
    return self.planner.windows.reaches(row)

  def place(self, row: int) -> tuple[int, int]:
    """Returns (window, first_row), which `seek` takes."""
    return self.planner.windows.place(row)

  def seek(self, window: int, first_row: int) -> None:
    """Lets rows from a window on be found without those before it."""
    self.planner.windows.seek(window, first_row)
