"""Megatron's blend: weights and a size in, which source fills each row out.

  dataset_index          row -> source
  dataset_sample_index   row -> which of that source's rows

At row t the source that lags its share most is drawn: the largest of
w_i * max(t, 1) - c_i in float64, c_i its rows so far, ties to the lowest i.
The rule and the sizes are those of Megatron-core 0.16
(`megatron/core/datasets/blended_megatron_dataset_builder.py`, `helpers.cpp`).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hpgrain import _kernels
from hpgrain.arguments import MAX_ROW, integer, row_numbers
from hpgrain.blend import Repeated, check_weights
from hpgrain.index_cache import IndexCache

# Megatron builds each source for this much more than its share.
_SURPLUS = 0.005

# More sources than an int16 numbers; Megatron refuses them, ours are wider.
_MAX_NARROW_SOURCES = 2**15 - 1

# Rows counted at a time.
_CHUNK = 1 << 20


def blend_index(
  weights: Sequence[float], size: int
) -> tuple[np.ndarray, np.ndarray]:
  """Draws `size` rows from sources by weight.

  Args:
    weights: one a source, taken as they are: they need not sum to one.
    size: rows.

  Returns:
    (source int16[size], row of that source int64[size]); the sources are
    int32 where there are more than 32,767.

  Raises:
    ValueError: for no weights, one that is zero, negative or not finite, or a
      negative size.
  """
  check_weights(weights)
  return _kernels.blend_index(
    np.asarray(weights, np.float64),
    integer("size", size, minimum=0, maximum=MAX_ROW),
  )


def exhaustive_blend_index(
  sizes: Sequence[int],
) -> tuple[np.ndarray, np.ndarray]:
  """Draws every row of every source once, by the same rule.

  A source's weight is its share of all rows; one that is spent is left out.

  Args:
    sizes: rows of each source.

  Returns:
    As `blend_index`, sum(sizes) rows.

  Raises:
    ValueError: for no sizes, or a negative one.
  """
  if len(sizes) == 0:
    raise ValueError("A blend needs at least one source, got no sizes.")
  numbers = [
    integer("a source's size", size, minimum=0, maximum=MAX_ROW)
    for size in sizes
  ]
  return _kernels.exhaustive_blend_index(np.array(numbers, np.int64))


def normalize(weights: Sequence[float]) -> list[float]:
  """Divides weights by their sum, with NumPy's rounding of that sum.

  Raises:
    ValueError: if the sum is beyond float64, or a share below it.
  """
  array = np.array(weights, np.float64)
  with np.errstate(over="ignore", invalid="ignore"):
    shares = array / np.sum(array)
  wrong = np.flatnonzero(~(shares > 0))
  if len(wrong):
    raise ValueError(
      f"Blend weights are too far apart for float64: source {wrong[0]} has"
      f" {weights[wrong[0]]!r}, and its share of the sum would be"
      f" {shares[wrong[0]]}. Only their proportions matter: scale them, or"
      " leave a source out."
    )
  return shares.tolist()


def target_sizes(weights: Sequence[float], num_samples: int) -> list[int]:
  """Returns each source's share of `num_samples` rows, rounded up."""
  return [math.ceil(num_samples * w) for w in normalize(weights)]


def member_sizes(weights: Sequence[float], num_samples: int) -> list[int]:
  """Returns how many rows Megatron asks of each source: 0.5 % in reserve."""
  return [
    math.ceil(target * (1 + _SURPLUS))
    for target in target_sizes(weights, num_samples)
  ]


class TablePattern:
  """The blend as arrays, for `BlendSamples`."""

  def __init__(self, source: np.ndarray, sample: np.ndarray, num_sources: int):
    self._source, self._sample = source, sample
    self.num_sources = num_sources
    self._counted = (0, np.zeros(num_sources, np.int64))

  def __len__(self) -> int:
    return len(self._source)

  def locate(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (source int32[n], k int64[n]) of blend rows int64[n].

    Raises:
      IndexError: for a row that the blend was not made for.
    """
    rows = row_numbers(positions)
    if len(rows) and int(rows.max()) >= len(self):
      raise IndexError(past_the_end(int(rows.max()), len(self)))
    return self._source[rows].astype(np.int32), self._sample[rows]

  def counts(self, position: int) -> np.ndarray:
    """Returns int64[sources]: each source's rows among the first `position`.

    Counts go on from the last ones asked for, as a log asks for them.
    """
    reached, counts = self._counted
    if position < reached:
      reached, counts = 0, np.zeros(self.num_sources, np.int64)
    counts = counts + _count(self._source[reached:position], self.num_sources)
    self._counted = (position, counts)
    return counts.copy()


def _count(source: np.ndarray, num_sources: int) -> np.ndarray:
  """Returns int64[num_sources]: how often each number occurs."""
  counts = np.zeros(num_sources, np.int64)
  # NumPy widens what it counts, so it gets a little at a time.
  for begin in range(0, len(source), _CHUNK):
    chosen = source[begin : begin + _CHUNK]
    counts += np.bincount(chosen, minlength=num_sources)
  return counts


def past_the_end(row: int, num_rows: int) -> str:
  """Says that a row was asked for that Megatron's index does not have."""
  return (
    f'Row {row} was asked for, but order="megatron" was built for'
    f" {num_rows} rows: how many are asked for decides all of them, so there"
    " are no more. Ask for more from the start (training.train_samples, or"
    ' num_samples), or use order="stable", which knows no end.'
  )


class MegatronMix:
  """How Megatron blends: for `BlendSamples`.

  Sources that the schedule asks for more rows than they were sized for
  (Megatron stops there) are sized by the exact count.
  """

  def __init__(
    self,
    weights: Sequence[float] | None,
    num_samples: int | None,
    *,
    cache: IndexCache,
    repeats: bool = False,
  ):
    """Holds the sizes.

    Args:
      weights: one a source, or None: by what an epoch of each holds.
      num_samples: rows asked for; None takes every row of every source once,
        and only without weights.
      cache: of the indices.
      repeats: whether the blend begins anew at its end, each source going on
        with its rows; the sources must have rows without end.

    Raises:
      ValueError: for an illegal weight, or weights without a size.
    """
    if weights is not None:
      check_weights(weights)
      if num_samples is None:
        raise ValueError(
          'A blend by weights with order="megatron" needs to know how many'
          " rows are asked for: set training.train_samples (or num_samples),"
          " or leave the weights out to read each source once."
        )
    self.weights = None if weights is None else [float(w) for w in weights]
    self.num_samples = num_samples
    self._cache = cache
    self._repeats = repeats
    self._held: tuple[tuple[int, ...], Mapping[str, np.ndarray]] | None = None

  def __getstate__(self) -> dict[str, Any]:
    """Leaves out the tables, which are loaded or made anew."""
    return {**self.__dict__, "_held": None}

  @property
  def identity(self) -> dict[str, Any]:
    """What decides the blend besides its sources."""
    return {
      "weights": self.weights,
      "num_samples": self.num_samples,
      "simple_blend": "no",
    }

  def member_samples(self, num_sources: int) -> list[int | None]:
    """Returns how many rows to ask of each source; None is one epoch."""
    if self.weights is None or self.num_samples is None:
      return [None] * num_sources
    return list(member_sizes(self.weights, self.num_samples))

  def with_num_samples(self, num_samples: int | None) -> "MegatronMix":
    """Returns the mix for another number of rows."""
    return MegatronMix(
      self.weights, num_samples, cache=self._cache, repeats=self._repeats
    )

  def end(self, sizes: Sequence[int], epochs: int) -> tuple[int, int | None]:
    """Returns (rows, None): all sources end together."""
    return self.num_rows(sizes) * epochs, None

  def num_rows(self, sizes: Sequence[int]) -> int:
    """Returns the blend's rows; `sizes` are the sources' as they were asked."""
    if self.weights is not None and self.num_samples is not None:
      return sum(target_sizes(self.weights, self.num_samples))
    total = sum(sizes)
    return total if self.num_samples is None else min(self.num_samples, total)

  def fit(self, members: Sequence[Any]) -> tuple[Any, ...]:
    """Returns the members, those that hold too little made larger."""
    counts = self._tables(tuple(m.rows_per_epoch for m in members))["counts"]
    return tuple(
      member
      if count <= member.rows_per_epoch
      else member.with_num_samples(int(count))
      for member, count in zip(members, counts)
    )

  def pattern(self, sizes: Sequence[int]) -> TablePattern | Repeated:
    """Returns the blend of sources that had `sizes` rows when asked."""
    tables = self._tables(tuple(sizes))
    pattern = TablePattern(
      tables["dataset_index"], tables["dataset_sample_index"], len(sizes)
    )
    if self._repeats:
      return Repeated(pattern, tables["counts"])
    return pattern

  def _tables(self, sizes: tuple[int, ...]) -> Mapping[str, np.ndarray]:
    if self._held is None or self._held[0] != sizes:
      self._held = (sizes, self._load(sizes))
    return self._held[1]

  def _load(self, sizes: tuple[int, ...]) -> Mapping[str, np.ndarray]:
    num_rows = self.num_rows(sizes)
    weights: list[float] | None = None
    drawn = np.arange(len(sizes))
    if self.weights is not None:
      weights = normalize(normalize(self.weights))
    elif self.num_samples is not None:
      # A source without rows has no weight, and the rule takes none of zero.
      drawn = np.flatnonzero(sizes)
      weights = normalize([sizes[i] for i in drawn])
    narrow = len(sizes) <= _MAX_NARROW_SOURCES
    dtype = np.dtype(np.int16 if narrow else np.int32)
    key = {
      "weights": None if weights is None else [w.hex() for w in weights],
      # Sizes that give the same weights may belong to other sources.
      "sizes": list(sizes) if self.weights is None else None,
      "size": num_rows,
    }

    def build() -> dict[str, np.ndarray]:
      if weights is None:
        source, sample = exhaustive_blend_index(sizes)
      else:
        source, sample = blend_index(weights, num_rows)
      if len(drawn) < len(sizes):
        source = drawn.astype(dtype)[source]
      return {
        "dataset_index": source.astype(dtype, copy=False),
        "dataset_sample_index": sample,
        "counts": _count(source, len(sizes)),
      }

    return self._cache.get(
      "blend",
      key=key,
      arrays={
        "dataset_index": (dtype, (num_rows,)),
        "dataset_sample_index": (np.dtype(np.int64), (num_rows,)),
        "counts": (np.dtype(np.int64), (len(sizes),)),
      },
      build=build,
    )
