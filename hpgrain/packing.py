"""Lengths of examples and options in, rows of their pieces out.

  lengths   5 3 12 4         budget 8, overlong="split"
  pieces    5 3 8 4 4
  rows      [5 3] [8] [4 4]

This is what is done with a window whose examples are all known.
"""

import dataclasses

import numpy as np

from hpgrain import pack
from hpgrain.arguments import integer

PACKERS = ("best_fit", "first_fit", "concat", "pad", "fixed")


@dataclasses.dataclass(frozen=True)
class PackingOptions:
  """How the rows of a window are made; part of what decides the rows.

  Attributes:
    budget: tokens a row holds.
    packer: "best_fit" (best-fit-decreasing), "first_fit" (in the order of
      arrival), "concat" (cut anywhere), "pad" (an example a row), "fixed"
      (so many examples a row).
    plan_window: positions of the order that are packed together.
    overlong: what becomes of an example longer than `example_limit`; see
      `pack.overlong`. "concat" cuts where rows end, and needs none.
    segment_multiple: room that a piece takes is rounded up to a multiple.
    max_items: pieces a row holds; 0 for no limit.
    min_buffered: of "first_fit".
    examples_per_row: of "fixed"; else 1.
  """

  budget: int
  packer: str = "best_fit"
  plan_window: int = 16384
  overlong: str = "error"
  segment_multiple: int = 1
  max_items: int = 0
  min_buffered: int = 200
  examples_per_row: int = 1

  def __post_init__(self) -> None:
    for name, allowed in (("packer", PACKERS), ("overlong", pack.OVERLONG)):
      if getattr(self, name) not in allowed:
        raise ValueError(
          f"{name} must be one of {', '.join(allowed)}, got"
          f" {getattr(self, name)!r}."
        )
    for name, least in (
      ("budget", 1),
      ("plan_window", 1),
      ("segment_multiple", 1),
      ("max_items", 0),
      ("min_buffered", 1),
      ("examples_per_row", 1),
    ):
      integer(name, getattr(self, name), minimum=least)
    if self.packer == "concat" and self.segment_multiple > 1:
      raise ValueError(
        'packer="concat" cuts examples where a row ends, so their room is not'
        f" rounded up: segment_multiple must be 1, got {self.segment_multiple}."
      )
    if self.budget % self.segment_multiple:
      raise ValueError(
        f"The token budget must be a multiple of segment_multiple, got"
        f" {self.budget} and {self.segment_multiple}."
      )
    self._check_examples_per_row()

  def _check_examples_per_row(self) -> None:
    count = self.examples_per_row
    if self.packer != "fixed" and count != 1:
      raise ValueError(
        f'examples_per_row is of packer="fixed"; it must be 1 with'
        f" {self.packer!r}, got {count}."
      )
    if self.max_items and count > self.max_items:
      raise ValueError(
        f"examples_per_row is {count}, but a row may hold {self.max_items}"
        " pieces: raise max_segments."
      )
    if not self.example_limit:
      raise ValueError(
        f"A budget of {self.budget} tokens has no room for {count} examples"
        f" of {self.segment_multiple} tokens or more: raise the budget."
      )

  @property
  def example_limit(self) -> int:
    """Tokens an example may have before `overlong` is asked.

    A row's budget; of "fixed" each example's even share of it, so that any
    examples fit together.
    """
    share = self.budget // self.examples_per_row
    return share // self.segment_multiple * self.segment_multiple


def pack_window(
  lengths: np.ndarray, options: PackingOptions
) -> tuple[pack.Pieces, np.ndarray]:
  """Packs examples that are all known.

  Args:
    lengths: int32[n], tokens of each example in order.
    options: how.

  Returns:
    The pieces, and int64[rows + 1], where each row's begin among them.

  Raises:
    ValueError: an example is too long, if that is an error.
  """
  if options.packer == "concat":
    return pack.concat(
      lengths, budget=options.budget, max_items=options.max_items
    )
  parts = pack.overlong(
    lengths, budget=options.example_limit, policy=options.overlong
  )
  multiple = options.segment_multiple
  room = parts.length
  if multiple > 1:
    room = -(-room.astype(np.int64) // multiple) * multiple
  items, splits = _rows(room, options)
  pieces = pack.Pieces(
    parts.item[items], parts.offset[items], parts.length[items]
  )
  return pieces, splits


def reordered(
  row_splits: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """Takes rows of a CSR in another order.

  Args:
    row_splits: int64[n + 1].
    rows: int64[k], which of the n rows; any of them, any number of times.

  Returns:
    Their row_splits int64[k + 1], and int64[m], the places of their items.
  """
  counts = np.diff(row_splits)[rows]
  splits = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
  places = np.arange(splits[-1]) + np.repeat(
    row_splits[:-1][rows] - splits[:-1], counts
  )
  return splits, places


def _rows(
  room: np.ndarray, options: PackingOptions
) -> tuple[np.ndarray, np.ndarray]:
  """Returns (items, row_splits) of pieces that are not cut any more."""
  budget, max_items = options.budget, options.max_items
  if options.packer == "best_fit":
    packed = pack.best_fit_decreasing(room, budget=budget, max_items=max_items)
  elif options.packer == "first_fit":
    packed = pack.first_fit(
      room,
      budget=budget,
      max_items=max_items,
      min_buffered=options.min_buffered,
    )
  else:
    return _fixed(room, options)
  return packed.items, packed.row_splits


def _fixed(
  room: np.ndarray, options: PackingOptions
) -> tuple[np.ndarray, np.ndarray]:
  """So many examples a row; one beyond the limit alone, where it came."""
  alone = room > options.example_limit
  packed = pack.fixed(
    np.where(alone, 0, room), examples_per_row=options.examples_per_row
  )
  if not alone.any():
    return packed.items, packed.row_splits
  own = np.flatnonzero(alone)
  items = np.concatenate([packed.items, own])
  counts = np.concatenate([np.diff(packed.row_splits), np.ones_like(own)])
  splits = np.concatenate([[0], np.cumsum(counts)])
  splits, places = reordered(splits, np.argsort(items[splits[:-1]]))
  return items[places], splits
