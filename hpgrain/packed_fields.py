"""Rows packed of pieces in, the fields of a window of them out.

  pieces        a b c | d e | . f g      . a gap, where pieces have a multiple
  input_ids     a b c   d e   0 f g
  segment_ids   1 1 1   2 2   0 3 3
  position      0 1 2   0 1   0 0 1      with reset_position_ids
  source_ids    2 2 2   0 0  -1 2 2      where asked for

A piece's labels are its own, so none crosses into the next.
"""

import dataclasses
from collections.abc import Collection

import numpy as np

from hpgrain import _kernels
from hpgrain.context_layout import ContextLayout, Rooms
from hpgrain.fields import (
  FieldOptions,
  empty_fields,
  fill_padding,
  kernel_fields,
)
from hpgrain.records import NO_SOURCE, SOURCE_IDS

_NO_WEIGHTS = np.zeros(0, np.float32)


@dataclasses.dataclass(frozen=True)
class PackedPlans:
  """Which pieces fill each of n rows, and where they lie in it.

  Attributes:
    row_splits: int64[n + 1], where each row's pieces begin.
    source: int32[m], the number of a piece's source.
    example: int64[m], the example's number in it.
    offset: int64[m], the piece's first position in the example.
    length: int32[m], its positions.
    start: int64[m], its first position in the row.
  """

  row_splits: np.ndarray
  source: np.ndarray
  example: np.ndarray
  offset: np.ndarray
  length: np.ndarray
  start: np.ndarray

  def __len__(self) -> int:
    """Number of rows."""
    return len(self.row_splits) - 1


def starts(
  row_splits: np.ndarray, length: np.ndarray, *, multiple: int = 1
) -> np.ndarray:
  """Returns int64[m]: where pieces lie, one after the other in their rows.

  Args:
    row_splits: int64[n + 1].
    length: int32[m].
    multiple: what the room of a piece is rounded up to.
  """
  room = -(-length.astype(np.int64) // multiple) * multiple
  ends = np.cumsum(room)
  before = np.concatenate([[0], ends])[row_splits]
  return ends - room - np.repeat(before[:-1], np.diff(row_splits))


def find_rooms(
  plans: PackedPlans, num_positions: int, *, multiple: int
) -> Rooms:
  """Returns how the positions of rows are divided among their pieces.

  Padding at a row's end is a room of its own.

  Args:
    plans: n rows.
    num_positions: of a row.
    multiple: what the room of a piece was rounded up to.
  """
  length = -(-plans.length.astype(np.int64) // multiple) * multiple
  ends = np.concatenate([[0], np.cumsum(length)])[plans.row_splits]
  tail = num_positions - np.diff(ends)
  return Rooms(
    row_splits=plans.row_splits + np.arange(len(plans) + 1),
    length=np.insert(length, plans.row_splits[1:], tail),
  )


def clip_to_ranks(
  plans: PackedPlans, context: ContextLayout, ranks: Collection[int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Finds the parts of pieces that ranks of "document_zigzag" hold.

  Args:
    plans: n rows.
    context: that layout.
    ranks: some of its ranks.

  Returns:
    As `clip`; a piece may have several parts, in order.
  """
  length = plans.length.astype(np.int64)[:, None]
  half = -(-length // context.segment_multiple) * context.segment_multiple
  half //= context.multiple
  last = context.multiple - 1
  chunks = np.array(sorted({*ranks, *(last - rank for rank in ranks)}))
  first = chunks * half
  count = np.clip(length - first, 0, half)
  pieces, chosen = np.nonzero(count)
  return pieces, first[pieces, chosen], count[pieces, chosen].astype(np.int32)


def clip(
  plans: PackedPlans, window: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Finds the parts of pieces that lie in a window.

  Returns:
    (pieces int64[k], the first position in the piece int64[k], positions
    int32[k]) of those that have any.
  """
  begin, end = window
  first = np.maximum(plans.start, begin)
  count = np.minimum(plans.start + plans.length, end) - first
  pieces = np.flatnonzero(count > 0)
  skipped = (first - plans.start)[pieces]
  return pieces, skipped, count[pieces].astype(np.int32)


def make_packed_fields(
  plans: PackedPlans,
  *,
  id_begin: np.ndarray,
  label_begin: np.ndarray,
  ids: np.ndarray,
  labels: np.ndarray,
  weights: np.ndarray | None = None,
  window: tuple[int, int],
  num_rows: int,
  options: FieldOptions,
) -> dict[str, np.ndarray]:
  """Makes positions [begin, end) of every field, in fresh arrays.

  Args:
    plans: n rows.
    id_begin: int64[m], where in `ids` a piece's first id in the window is;
      of no meaning where it has none there.
    label_begin: int64[m], where in `labels`.
    ids: int32.
    labels: int32, IGNORE_INDEX where there is none.
    weights: float32 like labels, of each in the loss; None: 1.
    window: [begin, end).
    num_rows: rows to make, at least n; those from n on are padding.
    options: how. Labels are taken as they are.

  Returns:
    The fields of `options.dtypes`, each [num_rows, end - begin].
  """
  begin, end = window
  fields = empty_fields(num_rows, end - begin, options.dtypes)
  _kernels.make_packed_fields(
    plans.row_splits,
    plans.start,
    plans.length,
    id_begin,
    label_begin,
    ids,
    labels,
    _NO_WEIGHTS if weights is None else weights,
    begin,
    end,
    options.eod_id if options.eod_mask_loss else -1,
    options.reset_position_ids,
    options.reset_attention_mask,
    *kernel_fields(fields),
  )
  if options.source_ids:
    sources = lay_out_sources(plans, window)
    fields[SOURCE_IDS][: len(plans)] = sources
  fill_padding(fields, window, len(plans))
  return fields


def lay_out_sources(plans: PackedPlans, window: tuple[int, int]) -> np.ndarray:
  """Returns int32[n, end - begin]: the source of each position of a window.

  Segments would not do: without reset_attention_mask a row is one.

  Args:
    plans: n rows; where there is no piece, there is no source.
    window: [begin, end).
  """
  begin, end = window
  width = end - begin
  # Where each piece begins and ends, rows one after the other.
  row = np.repeat(np.arange(len(plans)), np.diff(plans.row_splits))
  first = plans.start - begin
  edges = np.zeros(2 * len(row) + 2, np.int64)
  edges[1:-1:2] = row * width + np.clip(first, 0, width)
  edges[2:-1:2] = row * width + np.clip(first + plans.length, 0, width)
  edges[-1] = len(plans) * width
  values = np.full(len(edges) - 1, NO_SOURCE, np.int32)
  values[1::2] = plans.source
  return np.repeat(values, np.diff(edges)).reshape(len(plans), width)
