"""Samples in, the same rows under other numbers out.

A sampler permutes the rows of an epoch, a map says which row stands at each
place, and epochs follow one another:

  row g      epoch e = g // L, place g % L        L places an epoch
  permute    place -> p                           if rows are permuted
  map        p -> map[p], in [0, M)               if there is a map
  read       row e * M + map[p] of the samples, or row map[p] again

No array is made but for what the map holds.
"""

import functools
import operator
from collections.abc import Sequence
from typing import Any

import grain
import numpy as np

from hpgrain.arguments import integer
from hpgrain.rearrange_map import PartialMap, rearranged_rows, resolve
from hpgrain.records import RowPlans, Segments
from hpgrain.token_rows import OpenRows

# Rows to plan at a time where they are counted.
_PLANNED = 1 << 16


class RearrangedSamples(grain.MapDataset):
  """Samples whose rows are renumbered by a map, a permutation or both.

  Nothing of the samples is looked at before a row, a length or an identity is
  asked for, so they may be lazy; the map is checked then.
  """

  def __init__(
    self,
    samples: Any,
    *,
    order_map: np.ndarray | PartialMap | None,
    permute_seed: int | None,
    wraps: bool,
  ):
    """Holds what decides the order.

    Args:
      samples: rows by number, M an epoch; see `batches.Samples`.
      order_map: which row stands at each place of an epoch: integers [L], each
        in [0, M), see `load_rearrange_map`. None: L = M, as they stand.
      permute_seed: keys how each epoch's places are permuted, as Megatron's
        cyclic sampler does; None leaves them.
      wraps: whether the samples have rows [0, M) alone, so that every epoch
        reads them again.

    Raises:
      ValueError: for a seed that is no integer.
    """
    super().__init__()
    if permute_seed is not None:
      permute_seed = integer("permute_seed", permute_seed)
    self._samples = samples
    self._order_map = order_map
    self._permute_seed = permute_seed
    self._wraps = bool(wraps)
    # How many rows were last counted, and each source's among them.
    self._counted: tuple[int, np.ndarray] | None = None

  @functools.cached_property
  def _num_rows(self) -> int:
    """Rows of the samples' epoch, M."""
    return len(self._samples)

  @functools.cached_property
  def _checked_map(self) -> tuple[np.ndarray | None, str | None]:
    """The map and its digest; the first look checks it."""
    if self._order_map is None:
      return None, None
    return resolve(self._order_map, self._num_rows)

  @property
  def _map(self) -> np.ndarray | None:
    return self._checked_map[0]

  @property
  def rows_per_epoch(self) -> int:
    """Rows of one epoch, L; none where the samples have none."""
    if not self._num_rows or self._map is None:
      return self._num_rows
    return len(self._map)

  @property
  def seq_length(self) -> int:
    """Positions a row."""
    return self._samples.seq_length

  @property
  def extra(self) -> int:
    """Tokens a row has beyond its positions, 0 or 1."""
    return self._samples.extra

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
    """Those of a blend; AttributeError for other samples."""
    return self._samples.members

  @property
  def num_samples(self) -> int | None:
    """Rows that Megatron's order was asked for; None for other orders."""
    return getattr(self._samples, "num_samples", None)

  @property
  def rows_per_pass(self) -> float:
    """Rows that read every token of one source once."""
    return self._samples.rows_per_pass

  def with_num_samples(self, num_samples: int | None) -> "RearrangedSamples":
    """Returns the same order over samples for another number of rows."""
    return RearrangedSamples(
      self._samples.with_num_samples(num_samples),
      order_map=self._order_map,
      permute_seed=self._permute_seed,
      wraps=self._wraps,
    )

  def build_index(self, epochs: int = 1) -> None:
    """Builds, or finds in the cache, the indices that the rows need."""
    self._samples.build_index(1 if self._wraps else epochs)

  @property
  def settings(self) -> dict[str, Any]:
    """What decides the rows besides the corpus; not of a blend."""
    return {**self._samples.settings, **self._own_settings}

  @property
  def unique_identifiers(self) -> dict[str, Any]:
    """Everything that decides the rows; paths and times do not."""
    return {**self._samples.unique_identifiers, **self._own_settings}

  @property
  def _own_settings(self) -> dict[str, Any]:
    permuted = self._permute_seed is not None
    own: dict[str, Any] = {
      "sampler": "cyclic" if permuted else "sequential",
      "sampler_wraps": self._wraps,
    }
    if permuted:
      own["sampler_seed"] = self._permute_seed
    if self._order_map is not None:
      own["data_rearrange_map"] = self._checked_map[1]
    return own

  def __len__(self) -> int:
    """Rows of one epoch."""
    return self.rows_per_epoch

  def __getitem__(self, index: Any) -> Any:
    """Returns the row of the samples that stands at `index`."""
    if isinstance(index, slice):
      return self.slice(index)
    return self._samples[int(self._rows([operator.index(index)])[0])]

  def num_rows(self, epochs: int) -> int:
    """Returns how many rows `epochs` epochs have."""
    return self.rows_per_epoch * epochs

  def open_rows(self, rows: np.ndarray | Sequence[int]) -> OpenRows:
    """Plans rows, to read windows of their fields."""
    return self._samples.open_rows(self._rows(rows))

  def plan(self, index: int) -> RowPlans:
    """Plans one row."""
    return self.plan_rows([operator.index(index)])

  def plan_rows(self, rows: np.ndarray | Sequence[int]) -> RowPlans:
    """Plans many rows in one go, reading no token.

    Raises:
      IndexError: for a negative row.
      ValueError: for samples without a row, or a map that does not fit them.
    """
    return self._samples.plan_rows(self._rows(rows))

  def read(
    self, plans: RowPlans, window: tuple[int, int] | None = None
  ) -> np.ndarray:
    """Reads positions [a, b) of planned rows, and one token more for labels.

    Returns:
      int32[n, b - a + 1]; the last column is absent where b is seq_length
      and rows have no extra token.
    """
    return self._samples.read(plans, window)

  def segments(self, plans: RowPlans) -> Segments:
    """Returns where documents begin in planned rows."""
    return self._samples.segments(plans)

  def _rows(self, rows: np.ndarray | Sequence[int]) -> np.ndarray:
    """Returns int64[n]: which rows of the samples stand at `rows`."""
    if not self._num_rows:
      # Samples that have no row say why.
      self._samples.plan_rows(np.zeros(1, np.int64))
      raise ValueError("These samples have no row to rearrange.")
    return rearranged_rows(
      rows,
      num_rows=self._num_rows,
      order_map=self._map,
      permute_seed=self._permute_seed,
      wraps=self._wraps,
    )

  def rows_per_source(self, num_rows: int) -> np.ndarray:
    """Returns int64[sources]: each one's rows among the first `num_rows`.

    Of several sources, the rows of an epoch that is not over are planned to
    be counted; the next call goes on from there. Whole epochs cost nothing
    where each takes every row once, and those that wrap are counted once; a
    map that leaves rows out is counted through otherwise.

    Raises:
      ValueError: for a number below 0.
    """
    num_rows = integer("num_rows", num_rows, minimum=0)
    if len(self.sources) == 1:
      return np.array([num_rows], np.int64)
    if not num_rows:
      return np.zeros(len(self.sources), np.int64)
    epochs = num_rows // max(self.rows_per_epoch, 1)
    if not (self._takes_every_row_once or self._wraps):
      epochs = 0
    begin = epochs * self.rows_per_epoch
    counted = self._counted
    if counted is not None and begin <= counted[0] <= num_rows:
      begin, counts = counted
    else:
      counts = self._count_epochs(epochs)
    counts = counts + self._count(begin, num_rows)
    self._counted = (num_rows, counts)
    return counts.copy()

  @functools.cached_property
  def _takes_every_row_once(self) -> bool:
    """Whether an epoch reads all of the samples' rows, in some order."""
    if self._map is None:
      return True
    if len(self._map) != self._num_rows:
      return False
    taken = np.zeros(self._num_rows, bool)
    taken[self._map] = True
    return bool(taken.all())

  def _count_epochs(self, epochs: int) -> np.ndarray:
    """Counts each source's rows in the first `epochs` epochs."""
    if not epochs:
      return np.zeros(len(self.sources), np.int64)
    if not self._takes_every_row_once:
      return epochs * self._one_epoch
    if self._wraps:
      return epochs * self._samples.rows_per_source(self._num_rows)
    return self._samples.rows_per_source(epochs * self._num_rows)

  @functools.cached_property
  def _one_epoch(self) -> np.ndarray:
    return self._count(0, self.rows_per_epoch)

  def _count(self, begin: int, end: int) -> np.ndarray:
    """Counts each source's rows among rows [begin, end), by planning them."""
    counts = np.zeros(len(self.sources), np.int64)
    for first in range(begin, end, _PLANNED):
      plans = self.plan_rows(np.arange(first, min(first + _PLANNED, end)))
      source = plans.source[plans.row_splits[:-1]]
      counts += np.bincount(source, minlength=len(counts))
    return counts
