"""Rows of several sources in, one sequence of rows out.

A mix (`mixes`) says which source fills row g and which of its rows; each
source plans its own, and the plans are merged back into the order asked for.
"""

import functools
import operator
from collections.abc import Sequence
from typing import Any

import grain
import numpy as np

from hpgrain import _kernels
from hpgrain.arguments import row_numbers
from hpgrain.megatron_blend import MegatronMix
from hpgrain.mixes import Mix, Pattern, plain_mix
from hpgrain.order import grouped
from hpgrain.precut import PrecutSamples
from hpgrain.records import DATASET_ID, RowPlans, Segments
from hpgrain.samples import GPTSamples
from hpgrain.token_rows import TokenRows


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
    mix: Mix | None = None,
  ):
    """Holds the members.

    Args:
      members: one kind of samples, alike in seq_length and extra token.
      weights: one a member; None takes every row of every member once an
        epoch.
      simple_blend: "no" by weights, "inter" round robin, "intra" one member
        after the other.
      mix: another way for them to take turns, in place of both.

    Raises:
      ValueError: for no members, a wrong number of weights, an illegal one,
        or weights with "inter" or "intra".
    """
    super().__init__()
    if not members:
      raise ValueError("A blend needs at least one source, got none.")
    if mix is None:
      mix = plain_mix(weights, simple_blend)
      if weights is not None and len(weights) != len(members):
        raise ValueError(
          f"A blend needs one weight a source, got {len(weights)} weights for"
          f" {len(members)} sources."
        )
    self._given = tuple(members)
    self._mix: Mix = mix

  @functools.cached_property
  def _checked(self) -> tuple[Any, ...]:
    """The members; the first look opens them and checks that they agree."""
    first = self._given[0]
    seen: dict[str, int] = {}
    for i, member in enumerate(self._given):
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
    return self._given

  @functools.cached_property
  def members(self) -> tuple[Any, ...]:
    """The sources, opened, as large as the blend needs them."""
    return self._mix.fit(self._checked)

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
    if self._mix.weights is None:
      return any(self._sizes)
    return all(self._sizes)

  @functools.cached_property
  def _pattern(self) -> Pattern:
    if not self._drawn_from_all:
      # A member that has no row says why.
      self._checked[self._sizes.index(0)].plan(0)
    return self._mix.pattern(self._sizes)

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
    row = self._first.row_fields(self.read(plan)[0], plan)
    return {**row, DATASET_ID: plan.source[0]}

  @property
  def unique_identifiers(self) -> dict[str, Any]:
    """Everything that decides the rows; paths and times do not."""
    return {
      **self._first.settings,
      "kind": f"blend of {self._first.settings['kind']}",
      "sources": [source.identity for source in self.sources],
      **self._mix.identity,
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

    The source is None where all end together. A blend that would draw from a
    source without rows has none.
    """
    if not self._drawn_from_all:
      return 0, None
    return self._mix.end(self._sizes, epochs)

  @property
  def num_samples(self) -> int | None:
    """Rows that Megatron's order was asked for; None for other orders."""
    return getattr(self._mix, "num_samples", None)

  def with_num_samples(self, num_samples: int | None) -> "BlendSamples":
    """Returns the same blend in Megatron's order for so many rows.

    Raises:
      ValueError: if the order does not depend on a number of rows.
    """
    if not isinstance(self._mix, MegatronMix):
      raise ValueError(
        "This blend's rows do not depend on how many are asked for."
      )
    mix = self._mix.with_num_samples(num_samples)
    sizes = mix.member_samples(len(self._given))
    members = [m.with_num_samples(n) for m, n in zip(self._given, sizes)]
    return BlendSamples(members, mix=mix)

  def build_index(self, epochs: int = 1) -> None:
    """Builds, or finds in the cache, the indices that the rows need.

    Args:
      epochs: how many, of an order that has some of its own each epoch.
    """
    for member in self.members:
      member.build_index(epochs)
    self._pattern.counts(0)

  def open_rows(self, rows: np.ndarray | Sequence[int]) -> TokenRows:
    """Plans rows, to read windows of their fields."""
    return TokenRows(self, rows)

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
    members = self.members
    parts = []
    for i, chosen in grouped(source):
      plan = members[i].plan_rows(k[chosen], source=i)
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
