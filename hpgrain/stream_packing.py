r"""Pieces that wait in, the rows that can be told by now out.

  room      3 9 0 2 7 1        0: in a row already
  arrived           ^          pieces that had been looked at before

The packers are `pack`'s; here each row also gets how many pieces had been
looked at when it was made, so that another can go on after it.
"""

import dataclasses

import numpy as np

from hpgrain import pack
from hpgrain.packing import PackingOptions
from hpgrain.stream_pieces import BEGIN, LENGTH, OFFSET


@dataclasses.dataclass(frozen=True)
class MadeRows:
  """Rows that are made.

  Attributes:
    splits: where each row's pieces begin, and the end.
    pieces: int64[NUM_COLUMNS, m], of all rows.
    tokens: of each row, how many it has.
    used: int64[k], which of the table are used up, row after row.
    used_splits: where each row's begin among them, and the end.
    arrived: of each row, pieces of the table that had been looked at; of
      "concat" those that are used up.
    offset: of each row, tokens before what is left of the piece that comes
      then, if it is a part; of "concat".
  """

  splits: list[int]
  pieces: np.ndarray
  tokens: list[int]
  used: np.ndarray
  used_splits: list[int]
  arrived: list[int]
  offset: list[int]

  def __len__(self) -> int:
    """Number of rows."""
    return len(self.splits) - 1


def make_rows(
  table: np.ndarray,
  made: np.ndarray,
  *,
  arrived: int,
  final: bool,
  options: PackingOptions,
  pack_window: int,
) -> MadeRows:
  """Makes every row that no later piece could change.

  Args:
    table: int64[NUM_COLUMNS, n], see `stream_pieces`.
    made: bool[n], which are in a row already.
    arrived: how many had been looked at before.
    final: whether no piece follows, so that all are to be in rows.
    options: how rows are packed.
    pack_window: pieces that "best_fit" chooses among.
  """
  lengths = np.where(made, 0, table[LENGTH])
  if options.packer == "concat":
    return _concat(table, lengths, final=final, options=options)
  multiple = options.segment_multiple
  room = (-(-lengths // multiple) * multiple).astype(np.int32)
  packed = _packed(
    room,
    arrived=arrived,
    final=final,
    options=options,
    pack_window=pack_window,
  )
  looked = _looked(room, packed, options=options, pack_window=pack_window)
  splits = packed.row_splits.tolist()
  pieces = table[:, packed.items]
  return MadeRows(
    splits=splits,
    pieces=pieces,
    tokens=_tokens(pieces, splits),
    used=packed.items,
    used_splits=splits,
    arrived=np.maximum(looked, arrived).tolist(),
    offset=[0] * (len(splits) - 1),
  )


def _packed(
  room: np.ndarray,
  *,
  arrived: int,
  final: bool,
  options: PackingOptions,
  pack_window: int,
) -> pack.PackedRows:
  if options.packer == "best_fit":
    return pack.best_fit(
      room,
      budget=options.budget,
      window=pack_window,
      max_items=options.max_items,
      arrived=arrived,
      final=final,
    )
  if options.packer == "first_fit":
    return pack.first_fit(
      room,
      budget=options.budget,
      min_buffered=options.min_buffered,
      max_items=options.max_items,
      arrived=arrived,
      final=final,
    )
  return pack.fixed(
    room,
    examples_per_row=options.examples_per_row,
    arrived=arrived,
    final=final,
  )


def _looked(
  room: np.ndarray,
  packed: pack.PackedRows,
  *,
  options: PackingOptions,
  pack_window: int,
) -> np.ndarray:
  """Returns int64[rows], the least number of pieces that each row took.

  A packer looks at one after the other until its rule lets it make a row, or
  there is no more.
  """
  splits = packed.row_splits
  if options.packer not in ("best_fit", "first_fit"):
    looked = packed.items[splits[1:] - 1] + 1
    if len(looked) and splits[-1] - splits[-2] < options.examples_per_row:
      looked[-1] = len(room)
    return looked
  first_fit = options.packer == "first_fit"
  window = options.min_buffered if first_fit else pack_window
  needed = np.searchsorted(np.cumsum(room > 0), splits[:-1] + window) + 1
  if first_fit:
    taken = np.concatenate([[0], np.cumsum(room[packed.items])])[splits[:-1]]
    tokens = np.cumsum(room, dtype=np.int64)
    enough = np.searchsorted(tokens, taken + options.budget) + 1
    needed = np.maximum(needed, enough)
  return np.minimum(needed, len(room))


def _tokens(pieces: np.ndarray, splits: list[int]) -> list[int]:
  """Of each row, how many it has; none is without a piece."""
  if len(splits) == 1:
    return []
  return np.add.reduceat(pieces[LENGTH], splits[:-1]).tolist()


def _concat(
  table: np.ndarray,
  lengths: np.ndarray,
  *,
  final: bool,
  options: PackingOptions,
) -> MadeRows:
  cut, row_splits = pack.concat(
    lengths, budget=options.budget, max_items=options.max_items
  )
  splits = row_splits.tolist()
  if len(splits) > 1 and not final:
    # The last row may go on, unless it is full.
    begin, end = splits[-2:]
    full = cut.length[begin:end].sum() == options.budget
    if not full and not 0 < options.max_items <= end - begin:
      splits.pop()
  items = cut.item[: splits[-1]]
  offset, length = cut.offset[: splits[-1]], cut.length[: splits[-1]]
  pieces = table[:, items]
  pieces[BEGIN] += offset
  pieces[OFFSET] += offset
  pieces[LENGTH] = length
  used_up = offset + length == lengths[items]
  last = np.array(splits[1:], np.int64) - 1
  after = np.where(used_up, 0, pieces[OFFSET] + length)
  return MadeRows(
    splits=splits,
    pieces=pieces,
    tokens=_tokens(pieces, splits),
    used=items[used_up],
    used_splits=np.concatenate([[0], np.cumsum(used_up)])[splits].tolist(),
    arrived=(items + used_up)[last].tolist(),
    offset=after[last].tolist(),
  )
