"""Rows of several sources in, one sequence of rows out.

A pattern (`blend`) says which source fills row g and which of its rows; each
source plans its own, and the plans are merged back into the order asked for.
"""

import functools
import operator
from collections.abc import Sequence
from typing import Any

import grain
import numpy as np

from hpgrain import _kernels, blend, gather
from hpgrain.arguments import row_numbers
from hpgrain.precut import PrecutSamples
from hpgrain.records import DATASET_ID, RowPlans, Segments
from hpgrain.samples import GPTSamples


class BlendSamples(grain.MapDataset):
  """Blends the rows of several sources; each row names its source.

  Nothing is opened before a row, a length or an identity is asked for, so
  members may be lazy.
  """

  def __init__(
    self,
    members: Sequence[GPTSamples] | Sequence[PrecutSamples],
    *,
    weights: Sequence[float] | None = None,
    simple_blend: str = "no",
  ):
    """Holds the members.

    Args:
      members: one kind of samples, alike in seq_length and extra token.
      weights: one a member; None takes every row of every member once an
        epoch.
      simple_blend: "no" by weights, "inter" round robin, "intra" one member
        after the other.

    Raises:
      ValueError: for no members, a wrong number of weights, an illegal one,
        or weights with "inter" or "intra".
    """
    super().__init__()
    if not members:
      raise ValueError("A blend needs at least one source, got none.")
    if simple_blend not in ("no", "inter", "intra"):
      raise ValueError(
        f'simple_blend must be "no", "inter" or "intra", got {simple_blend!r}.'
      )
    if weights is not None:
      if simple_blend != "no":
        raise ValueError(
          f"simple_blend={simple_blend!r} takes every row of every source and"
          f" knows no weights, got weights {list(weights)}. Leave them out, or"
          ' set simple_blend="no".'
        )
      if len(weights) != len(members):
        raise ValueError(
          f"A blend needs one weight a source, got {len(weights)} weights for"
          f" {len(members)} sources."
        )
    self.members = tuple(members)
    self._weighted = None if weights is None else blend.StableBlend(weights)
    self._simple_blend = simple_blend

  @functools.cached_property
  def _checked(self) -> tuple[Any, ...]:
    """The members; the first look opens them and checks that they agree."""
    first = self.members[0]
    seen: dict[str, int] = {}
    for i, member in enumerate(self.members):
      for key, value in _common(first).items():
        if _common(member).get(key) != value:
          raise ValueError(
            f"The sources of a blend must agree in {key}; source 0 has"
            f" {value!r}, source {i} {_common(member).get(key)!r}."
          )
      name = member.sources[0].name
      if seen.setdefault(name, i) != i:
        raise ValueError(
          f"Sources {seen[name]} and {i} are both named {name!r}, so their"
          " rows would share an order. Give each its own name:"
          f' {{"path": ..., "name": "{name}-{i}"}}.'
        )
    return self.members

  @property
  def _first(self) -> Any:
    return self._checked[0]

  @functools.cached_property
  def sources(self) -> tuple[Any, ...]:
    """The members' corpora; a plan's source counts them."""
    return tuple(member.sources[0] for member in self._checked)

  @property
  def seq_length(self) -> int:
    """Positions a row."""
    return self._first.seq_length

  @property
  def extra(self) -> int:
    """Tokens a row has beyond its positions, 0 or 1."""
    return self._first.extra

  @property
  def vocab_size(self) -> int | None:
    """Ids at or above it are an error when rows are read."""
    return self._first.vocab_size

  @functools.cached_property
  def _sizes(self) -> list[int]:
    return [member.rows_per_epoch for member in self._checked]

  @property
  def _drawn_from_all(self) -> bool:
    """Whether every source that the blend draws from has a row to give."""
    if self._weighted is None:
      return any(self._sizes)
    return all(self._sizes)

  @functools.cached_property
  def _pattern(self) -> Any:
    sizes = self._sizes
    if not self._drawn_from_all:
      # A member that has no row says why.
      self.members[sizes.index(0)].plan(0)
    if self._weighted is not None:
      return self._weighted
    if self._simple_blend == "inter":
      pattern: Any = blend.RoundRobin(sizes)
    elif self._simple_blend == "intra":
      pattern = blend.InOrder(sizes)
    else:
      pattern = blend.StableBlend.from_counts(sizes)
    return blend.Repeated(pattern, sizes)

  def __len__(self) -> int:
    """Rows of one epoch; with weights, until the first source would repeat."""
    return self.num_rows(1)

  def __getitem__(self, index: Any) -> Any:
    """Returns {tokens, labels, dataset_id} of row `index`.

    tokens and labels are int32[seq_length], dataset_id is the source's
    number as int32.
    """
    if isinstance(index, slice):
      return self.slice(index)
    plan = self.plan(index)
    row = gather.row_fields(self.read(plan)[0], plan, self.extra)
    return {**row, DATASET_ID: plan.source[0]}

  @property
  def unique_identifiers(self) -> dict[str, Any]:
    """Everything that decides the rows; paths and times do not."""
    weighted = self._weighted
    return {
      **self._first.settings,
      "kind": f"blend of {self._first.settings['kind']}",
      "sources": [source.identity for source in self.sources],
      # As the blend takes them, so that 7:3 and .7:.3 are alike.
      "weights": None if weighted is None else weighted.weights,
      "simple_blend": self._simple_blend,
    }

  def rows_per_source(self, num_rows: int) -> np.ndarray:
    """Returns int64[sources]: each one's rows among the first `num_rows`."""
    return self._pattern.counts(num_rows)

  def num_rows(self, epochs: int) -> int:
    """Returns how many rows there are in `epochs` epochs.

    Without weights every row of every source comes `epochs` times. With
    weights the blend ends before the first row that would begin one epoch
    more of its source.
    """
    return self.end(epochs)[0]

  def end(self, epochs: int) -> tuple[int, int | None]:
    """Returns (rows, source): how many there are, and who ends the blend.

    The source is None without weights, where all end together. A blend that
    would draw from a source without rows has none.
    """
    if self._weighted is None or not self._drawn_from_all:
      return sum(self._sizes) * epochs * self._drawn_from_all, None
    ends = [
      (self._weighted.position(i, size * epochs), i)
      for i, size in enumerate(self._sizes)
    ]
    return min(ends)

  def plan(self, index: int) -> RowPlans:
    """Plans one row."""
    return self.plan_rows([operator.index(index)])

  def plan_rows(self, rows: np.ndarray | Sequence[int]) -> RowPlans:
    """Plans many rows in one go, reading no token.

    Raises:
      IndexError: for a negative row.
      ValueError: for a source whose split is too small for one row.
    """
    rows = row_numbers(rows)
    source, k = self._pattern.locate(rows)
    parts = []
    for i in np.unique(source):
      chosen = np.flatnonzero(source == i)
      plan = self.members[i].plan_rows(k[chosen], source=int(i))
      parts.append((chosen, _as_tuple(plan)))
    if len(parts) == 1:
      return RowPlans(*parts[0][1])
    return RowPlans(*_kernels.merge_plans(len(rows), parts))

  def read(
    self, plans: RowPlans, window: tuple[int, int] | None = None
  ) -> np.ndarray:
    """Reads positions [a, b) of planned rows, and one token more for labels.

    Returns:
      int32[n, b - a + 1]; the last column is absent where b is seq_length
      and rows have no extra token.
    """
    return self._first.read(plans, window, sources=self.sources)

  def segments(self, plans: RowPlans) -> Segments:
    """Returns where documents begin in planned rows."""
    return self._first.segments(plans, sources=self.sources)


def _common(member: Any) -> dict[str, Any]:
  """What all members of a blend must have alike."""
  return {**member.settings, "vocab_size": member.vocab_size}


def _as_tuple(plan: RowPlans) -> tuple[np.ndarray, ...]:
  return (
    plan.row_splits,
    plan.source,
    plan.sequence,
    plan.offset,
    plan.length,
    plan.boundary,
  )
