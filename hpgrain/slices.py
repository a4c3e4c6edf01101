r"""Rows of a batch in, the fields of the slots that a device holds out.

  slots 0..3 of 8, zigzag over 2 ranks   positions 0 1 | 6 7
  read                                   two windows, nothing between them
  fields                                 [rows, 4] in the order of the slots

Whoever reads rows knows windows of positions alone; which of them a device
holds, and in which order, is decided here. Windows that the devices of this
process hold, and that touch, are read as one.
"""

import functools
from typing import Any, Protocol, runtime_checkable

import numpy as np

from hpgrain.context_layout import ContextLayout, Rooms, Run
from hpgrain.fields import FieldOptions, empty_fields, make_padding
from hpgrain.packed_fields import PackedPlans, find_rooms
from hpgrain.token_rows import OpenRows

Fields = dict[str, np.ndarray]


class PackedRows(OpenRows, Protocol):
  """Packed rows, whose pieces are known."""

  plans: PackedPlans


@runtime_checkable
class PartlyReadRows(PackedRows, Protocol):
  """Packed rows that need not read what no device here holds."""

  def fields_of_ranks(
    self,
    context: ContextLayout,
    ranks: frozenset[int],
    *,
    num_positions: int,
    num_rows: int,
    options: FieldOptions,
  ) -> Fields:
    """Returns whole rows; the tokens of `ranks`' positions alone are there."""
    ...


class Slices:
  """The fields of some rows, for all the devices here that hold any."""

  def __init__(
    self,
    opened: OpenRows | None,
    *,
    context: ContextLayout,
    num_positions: int,
    num_rows: int,
    windows: list[tuple[int, int]],
    options: FieldOptions,
  ):
    """Holds the arguments.

    Args:
      opened: the rows; None: all are padding.
      context: which position of its row each slot holds.
      num_positions: of a row.
      num_rows: rows to make; those past the opened ones are padding.
      windows: of slots, that will be asked for.
      options: how fields are made.
    """
    self._opened, self._context = opened, context
    self._num_positions, self._num_rows = num_positions, num_rows
    self._windows, self._options = windows, options
    self._made: dict[tuple[int, int], Fields] = {}
    self._whole: tuple[Fields, np.ndarray] | None = None

  def fields(self, window: tuple[int, int]) -> Fields:
    """Returns the fields of slots [begin, end), in fresh arrays."""
    if self._context.is_identity:
      return self._make(window)
    if self._context.depends_on_rows:
      return self._chosen(window)
    runs = self._context.runs(window, self._num_positions)
    if len(runs) == 1 and runs[0].step == 1 and runs[0].span in self._spans:
      return self._make(runs[0].span)
    parts = [self._view(run) for run in runs]
    out = self._empty(window)
    for name, values in out.items():
      np.concatenate([part[name] for part in parts], axis=1, out=values)
    return out

  def _empty(self, window: tuple[int, int]) -> Fields:
    shape = (self._num_rows, window[1] - window[0])
    return empty_fields(*shape, self._options.dtypes)

  @functools.cached_property
  def _spans(self) -> list[tuple[int, int]]:
    """The positions to read for all windows: none twice, neighbours as one."""
    runs = (
      run
      for window in self._windows
      for run in self._context.runs(window, self._num_positions)
    )
    spans: list[tuple[int, int]] = []
    for begin, end in sorted(run.span for run in runs):
      if spans and begin <= spans[-1][1]:
        spans[-1] = (spans[-1][0], max(spans[-1][1], end))
      else:
        spans.append((begin, end))
    return spans

  def _view(self, run: Run) -> Fields:
    """Returns the fields of a run of positions, as views."""
    begin, end = run.span
    (span,) = (s for s in self._spans if s[0] <= begin and end <= s[1])
    if span not in self._made:
      self._made[span] = self._make(span)
    chosen = slice(begin - span[0], end - span[0], run.step)
    return {name: v[:, chosen] for name, v in self._made[span].items()}

  def _make(self, window: tuple[int, int]) -> Fields:
    if self._opened is None:
      return make_padding(window, self._num_rows, self._options)
    return self._opened.fields(
      window, num_rows=self._num_rows, options=self._options
    )

  def _chosen(self, window: tuple[int, int]) -> Fields:
    """Returns slots of rows that have orders of their own."""
    if self._whole is None:
      self._whole = self._make_whole()
    fields, items = self._whole
    chosen = np.ascontiguousarray(items[:, slice(*window)])
    out = self._empty(window)
    for name, values in out.items():
      # All items are there; "raise" would copy `out` to be sure.
      np.take(fields[name], chosen, out=values, mode="clip")
    return out

  def _make_whole(self) -> tuple[Fields, np.ndarray]:
    """Returns whole rows and int64[rows, positions], the item of each slot."""
    context, length = self._context, self._num_positions
    opened: Any = self._opened
    if opened is None:
      rooms = Rooms(np.zeros(1, np.int64), np.zeros(0, np.int64))
    else:
      multiple = context.segment_multiple
      rooms = find_rooms(opened.plans, length, multiple=multiple)
    # A row of padding is one room.
    missing = self._num_rows - len(rooms)
    splits, more = rooms.row_splits, np.arange(1, missing + 1)
    rooms = Rooms(
      np.append(splits, splits[-1] + more),
      np.append(rooms.length, np.full(missing, length)),
    )
    items = context.order_of_rows(rooms, length).astype(np.intp)
    items += length * np.arange(self._num_rows)[:, None]
    each = length // context.num_ranks
    ranks = frozenset(
      rank
      for begin, end in self._windows
      for rank in range(begin // each, -(-end // each))
    )
    partly = len(ranks) < context.num_ranks
    if not (partly and isinstance(opened, PartlyReadRows)):
      return self._make((0, length)), items
    fields = opened.fields_of_ranks(
      context,
      ranks,
      num_positions=length,
      num_rows=self._num_rows,
      options=self._options,
    )
    return fields, items
