"""Which source fills each row of a blend, as arithmetic on the row number.

A pattern maps a row position g to (source, k): row g of the blend is row k of
that source. No pattern holds an array that grows with the rows, so any row
can be found without the ones before it:

  StableBlend   by weights, each source within 1.5 rows of its share
  RoundRobin    `inter`: one row from each source in turn
  InOrder       `intra`: all of one source, then the next
  Repeated      an epoch of one of them over and over, each source going on

StableBlend is a tree of two-way splits. Weights 5, 3, 2 give

        10               a node of weights L + R = T sends
       /  \\              (2nL + T) // (2T) of its first n rows to the left
      5    5   (2 + 3)
     [0]  /  \\
        2     3          the index on arrival is the source's own row
       [2]   [1]
"""

import functools
import heapq
import math
import numbers
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from hpgrain import _kernels
from hpgrain.arguments import kernel_rows

# Weights become integers of about this sum, so that 7:3 and .7:.3 are alike.
_SCALE = 1 << 40


def check_weights(weights: Sequence[float]) -> None:
  """Raises ValueError unless every weight is a positive, finite number."""
  if len(weights) == 0:
    raise ValueError("A blend needs at least one weight, got none.")
  for i, weight in enumerate(weights):
    if isinstance(weight, bool) or not isinstance(weight, numbers.Real):
      raise ValueError(
        f"Blend weights must be numbers; source {i} has {weight!r}."
      )
    if not (math.isfinite(weight) and weight > 0):
      raise ValueError(
        f"Blend weights must be positive and finite; source {i} has"
        f" {weight!r}. Leave a source out instead of giving it no weight."
      )


def _scaled(weights: Sequence[float]) -> list[int]:
  """Returns round(w * 2^40 / sum) for each weight, exactly, half to even."""
  check_weights(weights)
  scaled = _shares(weights)
  for i, weight in enumerate(scaled):
    if weight == 0:
      raise ValueError(
        f"Source {i} has weight {weights[i]!r}, less than 2^-41 of the sum"
        f" {float(sum(weights))}; its share would round to nothing. Leave it"
        " out or raise its weight."
      )
  return scaled


def _shares(weights: Sequence[float]) -> list[int]:
  # NumPy's numbers have a Python number each, which Fraction takes exactly.
  exact = [Fraction(getattr(w, "item", lambda w=w: w)()) for w in weights]
  total = sum(exact)
  return [round(weight * _SCALE / total) for weight in exact]


class StableBlend:
  """Blends sources by weight; the order depends on nothing but the weights.

  Whoever needs position g gets its source and that source's row number in
  O(depth) integer steps; there is no array of rows and no run length.
  """

  def __init__(self, weights: Sequence[float]):
    """Builds the tree.

    Args:
      weights: one positive finite number a source, in any unit: [7, 3],
        [.7, .3] and [70, 30] give one order.

    Raises:
      ValueError: for an empty list, or a weight that is zero, negative, not
        finite, or under 2^-41 of the sum.
    """
    self._build(_scaled(list(weights)), list(range(len(weights))), len(weights))

  @classmethod
  def from_counts(cls, counts: Sequence[int]) -> "StableBlend":
    """Blends whole sources: of the first sum(counts) rows, counts[i] each.

    Counts are scaled like weights. Where the scaling would cost or give a
    source a row by the end (near 2^40 rows), they are taken as they are.
    A source of no rows keeps its number and is never drawn.
    """
    sources = [i for i, count in enumerate(counts) if count]
    sizes = [int(counts[i]) for i in sources]
    if not sources:
      raise ValueError(f"A blend needs a row, got the counts {list(counts)}.")
    blend = cls.__new__(cls)
    shares = _shares(sizes)
    if all(shares):
      blend._build(shares, sources, len(counts))
      if blend.counts(sum(sizes)).tolist() == list(counts):
        return blend
    blend._build(sizes, sources, len(counts))
    return blend

  def _build(
    self, weights: Sequence[int], sources: Sequence[int], num_sources: int
  ) -> None:
    self.num_sources = num_sources
    # Of the sources that have a share, as the tree takes them.
    self.weights = [int(weight) for weight in weights]
    # The tree knows only sources that have a share; leaf i is sources[i].
    self._sources = np.array(sources, np.int32)
    # A leaf is ~i; the heap breaks ties by the order of making.
    heap = [(weight, i, ~i) for i, weight in enumerate(weights)]
    heapq.heapify(heap)
    made: list[tuple[tuple[int, int], tuple[int, int]]] = []
    while len(heap) > 1:
      left_weight, _, left = heapq.heappop(heap)
      right_weight, _, right = heapq.heappop(heap)
      made.append(((left, right), (left_weight, right_weight)))
      order = len(sources) + len(made) - 1
      heapq.heappush(heap, (left_weight + right_weight, order, len(made) - 1))
    # The root is made last and stored first: node i is stored at last - i.
    last = len(made) - 1
    self._children = [
      tuple(last - child if child >= 0 else child for child in pair)
      for pair, _ in reversed(made)
    ]
    self._weights = [pair for _, pair in reversed(made)]
    self._tree = self._make_tree()

  def _make_tree(self) -> _kernels.BlendTree:
    return _kernels.BlendTree(
      np.array(self._children, np.int32).reshape(-1, 2),
      np.array(self._weights, np.uint64).reshape(-1, 2),
      len(self._sources),
    )

  def __getstate__(self) -> dict[str, Any]:
    """Leaves out the kernel's object, which is made anew from the rest."""
    return {k: v for k, v in self.__dict__.items() if k != "_tree"}

  def __setstate__(self, state: dict[str, Any]) -> None:
    self.__dict__.update(state)
    self._tree = self._make_tree()

  def locate(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (source int32[n], k int64[n]) of blend rows int64[n]."""
    leaf, k = self._tree.locate(kernel_rows(positions))
    if len(self._sources) == self.num_sources:
      return leaf, k
    return self._sources[leaf], k

  def counts(self, position: int) -> np.ndarray:
    """Returns int64[sources]: each source's rows among the first `position`."""
    counts = np.zeros(self.num_sources, np.int64)
    counts[self._sources] = self._tree.counts(position)
    return counts

  @functools.cached_property
  def _paths(self) -> list[list[tuple[int, int, bool]]]:
    """For each source the (L, R, is left) steps from its leaf to the root."""
    paths: list[list[tuple[int, int, bool]]] = [
      [] for _ in range(self.num_sources)
    ]
    if not self._children:
      return paths
    waiting: list[tuple[int, list[tuple[int, int, bool]]]] = [(0, [])]
    while waiting:
      node, above = waiting.pop()
      left, right = self._weights[node]
      for is_left, child in zip((True, False), self._children[node]):
        path = [(left, right, is_left), *above]
        if child < 0:
          paths[self._sources[~child]] = path
        else:
          waiting.append((child, path))
    return paths

  def position(self, source: int, k: int) -> int:
    """Returns the blend row that is row `k` of `source`; undoes `locate`.

    The source must have a share.
    """
    for left, right, is_left in self._paths[source]:
      total = left + right
      if is_left:
        # The least n + 1 with (2(n+1)L + T) // (2T) >= k + 1.
        k = -((total - 2 * total * (k + 1)) // (2 * left)) - 1
      else:
        # The least n + 1 with (n+1) - (2(n+1)L + T) // (2T) >= k + 1.
        k = (2 * total * k + total) // (2 * right)
    return k


class RoundRobin:
  """One row from each source in turn; exhausted sources are skipped."""

  def __init__(self, sizes: Sequence[int]):
    self._sizes = np.asarray(sizes, np.int64)
    self.num_sources = len(self._sizes)
    # While the smallest sources last, a round takes a row from all of them.
    ascending = np.sort(self._sizes)
    alive = np.arange(self.num_sources, 0, -1)
    rounds = np.diff(ascending, prepend=0)
    self._phase_rounds = ascending - rounds
    self._phase_alive = alive
    self._phase_begin = np.cumsum(rounds * alive) - rounds * alive

  def locate(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (source int32[n], k int64[n]) of rows within the epoch."""
    positions = np.asarray(positions, np.int64)
    # Empty phases share a beginning: the last of them is the one that holds.
    phase = np.searchsorted(self._phase_begin, positions, side="right") - 1
    within = positions - self._phase_begin[phase]
    turn, seat = np.divmod(within, self._phase_alive[phase])
    k = self._phase_rounds[phase] + turn
    source = np.empty(len(positions), np.int32)
    for value in np.unique(phase):
      chosen = phase == value
      left = np.flatnonzero(self._sizes > self._phase_rounds[value])
      source[chosen] = left[seat[chosen]]
    return source, k

  def counts(self, position: int) -> np.ndarray:
    """Returns int64[sources]: each source's rows among the first `position`."""
    phase = np.searchsorted(self._phase_begin, position, side="right") - 1
    begin, done = self._phase_begin[phase], self._phase_rounds[phase]
    turns, seats = divmod(position - begin, self._phase_alive[phase])
    left = np.flatnonzero(self._sizes > done)
    counts = np.minimum(self._sizes, done + turns)
    counts[left[:seats]] += 1
    return counts


class InOrder:
  """All rows of one source, then all of the next."""

  def __init__(self, sizes: Sequence[int]):
    self._ends = np.cumsum(np.asarray(sizes, np.int64))
    self._begins = self._ends - np.asarray(sizes, np.int64)
    self.num_sources = len(self._ends)

  def locate(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (source int32[n], k int64[n]) of rows within the epoch."""
    positions = np.asarray(positions, np.int64)
    source = np.searchsorted(self._ends, positions, side="right")
    return source.astype(np.int32), positions - self._begins[source]

  def counts(self, position: int) -> np.ndarray:
    """Returns int64[sources]: each source's rows among the first `position`."""
    return np.clip(position - self._begins, 0, self._ends - self._begins)


class Repeated:
  """An epoch's pattern over and over; each source goes on with its rows.

  Epoch e of the blend is made of each source's epoch e: row k of the pattern
  becomes row e * size + k of its source.
  """

  def __init__(self, pattern: Any, sizes: Sequence[int]):
    """Holds a pattern of `sum(sizes)` rows, `sizes[i]` of source i."""
    self._pattern = pattern
    self._sizes = np.asarray(sizes, np.int64)
    self._epoch = int(self._sizes.sum())
    self.num_sources = pattern.num_sources

  def locate(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (source int32[n], k int64[n]) of blend rows int64[n]."""
    epoch, within = np.divmod(np.asarray(positions, np.int64), self._epoch)
    source, k = self._pattern.locate(within)
    return source, k + epoch * self._sizes[source]

  def counts(self, position: int) -> np.ndarray:
    """Returns int64[sources]: each source's rows among the first `position`."""
    epoch, within = divmod(position, self._epoch)
    return epoch * self._sizes + self._pattern.counts(within)
