"""Lengths of examples in, which of them fill which row out.

  lengths  3 9 4 2 12 1 5 5   budget 10
  rows     [3 4] [9] [2 1] [12] [5 5]          first_fit, 3 buffered

A packer sees lengths alone, so it works for tokens that are not read yet. An
example of length 0 (filtered, invalid or used before) goes into no row; one
that is longer than the budget makes a row of its own, unless `overlong` was
asked to do something else with it before.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from hpgrain import _kernels

OVERLONG = ("error", "split", "truncate", "drop", "own_row")


@dataclasses.dataclass(frozen=True)
class PackedRows:
  """Rows of examples, and how far the packer had looked when it ended.

  Attributes:
    row_splits: int64[rows + 1]; row r has items [row_splits[r],
      row_splits[r + 1]).
    items: int64[m], places in the lengths, ascending within a row.
    arrived: lengths that had been looked at when the last row was made. Those
      before it that are in no row wait for one; give them to the next call
      with this number.
  """

  row_splits: np.ndarray
  items: np.ndarray
  arrived: int

  def __len__(self) -> int:
    """Number of rows."""
    return len(self.row_splits) - 1

  def row(self, index: int) -> np.ndarray:
    """Items of one row."""
    return self.items[self.row_splits[index] : self.row_splits[index + 1]]


@dataclasses.dataclass(frozen=True)
class Pieces:
  """Parts of examples.

  Attributes:
    item: int64[n], the example's place in the lengths.
    offset: int64[n], where in it the part begins.
    length: int32[n], tokens of the part.
  """

  item: np.ndarray
  offset: np.ndarray
  length: np.ndarray


def first_fit(
  lengths: np.ndarray | Sequence[int],
  *,
  budget: int,
  min_buffered: int = 200,
  max_items: int = 0,
  arrived: int = 0,
  final: bool = True,
) -> PackedRows:
  """Packs as examples arrive: the oldest, then each in turn that still fits.

  A row is made once `min_buffered` examples wait and they have `budget`
  tokens.

  Args:
    lengths: int32[n], tokens of each example in the order of arrival.
    budget: tokens a row holds.
    min_buffered: see above.
    max_items: examples a row holds; 0 for no limit.
    arrived: how many have been looked at before.
    final: whether these are the last, so that what waits at the end makes
      rows; otherwise only rows that no later example could change are made.

  Raises:
    ValueError: an argument or a length is out of range.
  """
  return PackedRows(
    *_kernels.first_fit(
      _int32(lengths), budget, max_items, min_buffered, arrived, final
    )
  )


def best_fit(
  lengths: np.ndarray | Sequence[int],
  *,
  budget: int,
  window: int = 64,
  max_items: int = 0,
  arrived: int = 0,
  final: bool = True,
) -> PackedRows:
  """Packs as examples arrive: the oldest, then always the longest that fits.

  The older of two that are alike comes first. A row is made once `window`
  examples wait, so none waits for more than a few windows.

  Args:
    lengths: int32[n], tokens of each example in the order of arrival.
    budget: tokens a row holds.
    window: how many examples it chooses among.
    max_items: examples a row holds; 0 for no limit.
    arrived: how many have been looked at before.
    final: as for `first_fit`.

  Raises:
    ValueError: an argument or a length is out of range.
  """
  return PackedRows(
    *_kernels.oldest_best_fit(
      _int32(lengths), budget, max_items, window, arrived, final
    )
  )


def best_fit_decreasing(
  lengths: np.ndarray | Sequence[int], *, budget: int, max_items: int = 0
) -> PackedRows:
  """Packs examples that are all known: from the longest on, where it is tight.

  Each goes into the fullest row that it fits in, the earlier of two alike, or
  begins a row. Rows come in the order in which they were begun.

  Args:
    lengths: int32[n], tokens of each example.
    budget: tokens a row holds.
    max_items: examples a row holds; 0 for no limit.

  Raises:
    ValueError: an argument or a length is out of range.
  """
  return PackedRows(
    *_kernels.best_fit_decreasing(_int32(lengths), budget, max_items)
  )


def fixed(
  lengths: np.ndarray | Sequence[int],
  *,
  examples_per_row: int,
  arrived: int = 0,
  final: bool = True,
) -> PackedRows:
  """Packs so many examples a row, as they arrive, whatever their lengths.

  Args:
    lengths: int32[n], tokens of each example in the order of arrival.
    examples_per_row: of every row but the last of all, which may hold fewer.
    arrived: how many have been looked at before.
    final: as for `first_fit`.

  Raises:
    ValueError: an argument or a length is out of range.
  """
  lengths = _checked(lengths, 1, 0)
  if examples_per_row < 1:
    raise ValueError(
      f"examples_per_row must be at least 1, got {examples_per_row}."
    )
  if not 0 <= arrived <= len(lengths):
    raise ValueError(f"arrived must lie in [0, {len(lengths)}], got {arrived}.")
  items = np.flatnonzero(lengths)
  if not final:
    items = items[: len(items) // examples_per_row * examples_per_row]
  splits = np.arange(0, len(items), examples_per_row, dtype=np.int64)
  # Whether a row is full is known with its last example; that it stays short,
  # when there is no more.
  looked = int(items[-1]) + 1 if len(items) else 0
  if len(items) % examples_per_row:
    looked = len(lengths)
  return PackedRows(np.append(splits, len(items)), items, max(arrived, looked))


def concat(
  lengths: np.ndarray | Sequence[int], *, budget: int, max_items: int = 0
) -> tuple[Pieces, np.ndarray]:
  """Lays examples end to end and cuts rows of `budget` tokens.

  Nothing is padded but the last row, or a row that `max_items` closes early;
  an example goes on in the next row where one ends.

  Args:
    lengths: int32[n], tokens of each example.
    budget: tokens a row holds.
    max_items: pieces a row holds; 0 for no limit.

  Returns:
    The pieces, and int64[rows + 1], where each row's begin among them.

  Raises:
    ValueError: an argument or a length is out of range.
  """
  lengths = _checked(lengths, budget, max_items)
  items = np.flatnonzero(lengths)
  ends = np.cumsum(lengths[items], dtype=np.int64)
  cuts = _cuts(ends, budget, max_items)
  # A piece ends where an example does, or a row.
  bounds = np.union1d(ends, cuts)
  begins = np.concatenate([[0], bounds[:-1]])[: len(bounds)]
  which = np.searchsorted(ends, begins, side="right")
  starts = ends - lengths[items]
  pieces = Pieces(
    item=items[which],
    offset=begins - starts[which],
    length=(bounds - begins).astype(np.int32),
  )
  splits = np.searchsorted(bounds, cuts, side="right")
  return pieces, np.concatenate([[0], splits]).astype(np.int64)


def overlong(
  lengths: np.ndarray | Sequence[int], *, budget: int, policy: str
) -> Pieces:
  """Does what a policy says with examples that are longer than a row.

  Args:
    lengths: int32[n], tokens of each example.
    budget: tokens a row holds.
    policy: "error" refuses them, "split" cuts them into pieces of at most
      `budget`, "truncate" keeps their first `budget` tokens, "drop" leaves
      them out (a piece of length 0), "own_row" keeps them as they are.

  Returns:
    The pieces, in the examples' order; of "split" several an example, else
    one each.

  Raises:
    ValueError: an unknown policy, or an example is too long for "error".
  """
  if policy not in OVERLONG:
    raise ValueError(
      f"overlong must be one of {', '.join(OVERLONG)}, got {policy!r}."
    )
  lengths = _checked(lengths, budget, 0)
  if policy == "split":
    counts = np.maximum(-(-lengths.astype(np.int64) // budget), 1)
    item = np.repeat(np.arange(len(lengths)), counts)
    first = np.repeat(np.cumsum(counts) - counts, counts)
    offset = (np.arange(len(item)) - first) * budget
    length = np.minimum(lengths[item] - offset, budget)
    return Pieces(item, offset, length.astype(np.int32))
  long = lengths > budget
  if policy == "error" and long.any():
    place = int(np.argmax(long))
    raise ValueError(
      f"{np.count_nonzero(long)} of {len(lengths)} examples are longer than a"
      f" row of {budget} tokens; the first, example {place}, has"
      f" {lengths[place]}. Set dataloader.overlong to split, truncate or drop"
      " them, or take a larger max_seq_len or token_budget."
    )
  if policy == "truncate":
    lengths = np.minimum(lengths, budget)
  elif policy == "drop":
    lengths = np.where(long, 0, lengths)
  return Pieces(
    item=np.arange(len(lengths)),
    offset=np.zeros(len(lengths), np.int64),
    length=lengths.astype(np.int32),
  )


def _cuts(ends: np.ndarray, budget: int, max_items: int) -> np.ndarray:
  """int64[rows], the tokens up to the end of each row."""
  total = int(ends[-1]) if len(ends) else 0
  if not max_items:
    cuts = np.arange(budget, total, budget, dtype=np.int64)
    return np.append(cuts, total) if total else cuts
  cuts = []
  begin = 0
  while begin < total:
    # The first example that ends after the row's beginning is its first.
    first = int(np.searchsorted(ends, begin, side="right"))
    last = min(first + max_items, len(ends)) - 1
    begin = min(begin + budget, int(ends[last]))
    cuts.append(begin)
  return np.array(cuts, np.int64)


def _checked(
  lengths: np.ndarray | Sequence[int], budget: int, max_items: int
) -> np.ndarray:
  lengths = _int32(lengths)
  for name, value, least in (
    ("budget", budget, 1),
    ("max_items", max_items, 0),
  ):
    if value < least:
      raise ValueError(f"{name} must be at least {least}, got {value}.")
  if len(lengths) and lengths.min() < 0:
    place = int(np.argmin(lengths))
    raise ValueError(
      f"Example {place} has a length of {lengths[place]}; lengths are 0 or"
      " more."
    )
  return lengths


def _int32(lengths: np.ndarray | Sequence[int]) -> np.ndarray:
  array = np.asarray(lengths)
  if array.size == 0:
    array = array.astype(np.int32)
  if array.ndim != 1 or array.dtype.kind not in "iu":
    raise ValueError(
      "lengths must be integers of one dimension, got the dtype"
      f" {array.dtype} and the shape {array.shape}."
    )
  # Below it, the kernel says which.
  if array.max(initial=0) > np.iinfo(np.int32).max:
    raise ValueError(
      f"A length is {array.max()}, more than {np.iinfo(np.int32).max}."
    )
  return array.astype(np.int32, copy=False)
