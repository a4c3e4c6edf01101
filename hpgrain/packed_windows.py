r"""Records of known lengths in, rows packed window by window out.

  order     k-th record of source i, as the blend has them: 0 1 2 3 4 5 6 7 ..
  windows   plan_window positions each                     |0 1 2 3|4 5 6 7|..
  packed    each window by itself                          [0 3] [1] [2]  ...
  permuted  a window's rows, by (seed, window): packing sorts them by length

Windows know no epochs, so none ends short but the last one of a finite order.
Any window is packed by itself, so any row is found from the number of rows of
the windows before it.
"""

import collections
import dataclasses
import threading
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from hpgrain import pack
from hpgrain.arguments import integer
from hpgrain.mixes import Mix, Pattern
from hpgrain.order import grouped, permutation_key, permute

PACKERS = ("best_fit", "first_fit", "concat", "pad")
# Windows that are held: a batch may reach from one into the next.
_HELD_WINDOWS = 4


class Lengths(Protocol):
  """A source: records, each of which makes examples of known lengths."""

  name: str
  num_records: int

  def examples(self, records: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (first int64[n], count int64[n]): the examples of records."""
    ...

  def lengths(self, examples: np.ndarray) -> np.ndarray:
    """Returns int32[n], tokens of each example; 0 where it is left out."""
    ...


@dataclasses.dataclass(frozen=True)
class PackingOptions:
  """How the rows of a window are made; part of what decides the rows.

  Attributes:
    budget: tokens a row holds.
    packer: "best_fit" (best-fit-decreasing), "first_fit" (in the order of
      arrival), "concat" (cut anywhere), "pad" (an example a row).
    plan_window: positions of the order that are packed together.
    overlong: what becomes of an example longer than the budget; see
      `pack.overlong`.
    segment_multiple: room that a piece takes is rounded up to a multiple.
    max_items: pieces a row holds; 0 for no limit.
    min_buffered: of "first_fit".
  """

  budget: int
  packer: str = "best_fit"
  plan_window: int = 16384
  overlong: str = "error"
  segment_multiple: int = 1
  max_items: int = 0
  min_buffered: int = 200

  def __post_init__(self) -> None:
    if self.packer not in PACKERS:
      raise ValueError(
        f"packer must be one of {', '.join(PACKERS)}, got {self.packer!r}."
      )
    for name, least in (
      ("budget", 1),
      ("plan_window", 1),
      ("segment_multiple", 1),
      ("max_items", 0),
      ("min_buffered", 1),
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


@dataclasses.dataclass(frozen=True)
class WindowRows:
  """The rows of one window, in their final order.

  Attributes:
    row_splits: int64[rows + 1].
    source: int32[m], of each piece.
    example: int64[m], the example's number in its source.
    offset: int64[m], the piece's first token in it.
    length: int32[m], tokens of the piece.
    ends: bool[m], whether the example ends with the piece.
  """

  row_splits: np.ndarray
  source: np.ndarray
  example: np.ndarray
  offset: np.ndarray
  length: np.ndarray
  ends: np.ndarray

  def __len__(self) -> int:
    """Number of rows."""
    return len(self.row_splits) - 1


class PackedWindows:
  """Row number -> window -> pieces."""

  def __init__(
    self,
    sources: Sequence[Lengths],
    mix: Mix,
    options: PackingOptions,
    *,
    seed: int,
    shuffle: bool = True,
    epochs: int | None = None,
  ):
    """Holds what decides the rows; nothing is packed before a row is asked for.

    Args:
      sources: what the mix's sources are.
      mix: how records of several sources take turns.
      options: how rows are packed.
      seed: of the order of records, and of the rows in a window.
      shuffle: whether there is such an order; if not, records come as they
        are stored, and rows as they are packed.
      epochs: of the sources, after which the order ends; None = never.

    Raises:
      ValueError: a source that the mix draws from has no record.
    """
    self.sources = tuple(sources)
    self.options = options
    self._mix, self._epochs = mix, epochs
    self._seed, self._shuffle = integer("seed", seed), shuffle
    self._sizes = [source.num_records for source in self.sources]
    empty = [s.name for s in self.sources if not s.num_records]
    if empty and (mix.weights is not None or len(empty) == len(self._sizes)):
      raise ValueError(
        f"Source {empty[0]!r} has no record to draw. Leave it out of the"
        " blend, or give it data."
      )
    self._pattern: Pattern = mix.pattern(self._sizes)
    self._end: int | None = None
    if epochs is not None:
      self._end = mix.end(self._sizes, epochs)[0]
    # The first row of each window from `_base` on that has been counted.
    self._base, self._first_rows = 0, [0]
    self._make_room()

  def _make_room(self) -> None:
    self._lock = threading.Lock()
    # Held while windows are counted, which packs them.
    self._count_lock = threading.RLock()
    self._held: collections.OrderedDict[int, WindowRows] = (
      collections.OrderedDict()
    )

  def __getstate__(self) -> dict[str, Any]:
    """Leaves out the windows, which are packed anew."""
    gone = ("_lock", "_count_lock", "_held")
    return {k: v for k, v in self.__dict__.items() if k not in gone}

  def __setstate__(self, state: dict[str, Any]) -> None:
    self.__dict__.update(state)
    self._make_room()

  @property
  def num_windows(self) -> int | None:
    """Windows of the order; None = endless."""
    if self._end is None:
      return None
    return -(-self._end // self.options.plan_window)

  @property
  def num_rows(self) -> int | None:
    """Rows of the order, which packs all of it; None = endless."""
    windows = self.num_windows
    return None if windows is None else self.first_row(windows)

  def window(self, index: int) -> WindowRows:
    """Returns the rows of a window.

    Raises:
      IndexError: there is no such window.
      ValueError: an example is longer than a row, if that is an error.
    """
    windows = self.num_windows
    if index < 0 or (windows is not None and index >= windows):
      raise IndexError(f"There are {windows} windows, got window {index}.")
    with self._lock:
      if index in self._held:
        self._held.move_to_end(index)
        return self._held[index]
    packed = self._pack(index)
    with self._lock:
      self._held[index] = packed
      while len(self._held) > _HELD_WINDOWS:
        self._held.popitem(last=False)
    return packed

  def first_row(self, index: int) -> int:
    """Returns the number of the first row of a window, or of the end.

    The windows before it are packed to be counted, those from the last one
    that is known on.
    """
    with self._count_lock:
      if index < self._base:
        self._base, self._first_rows = 0, [0]
      while self._base + len(self._first_rows) <= index:
        counted = self._base + len(self._first_rows) - 1
        self._first_rows.append(
          self._first_rows[-1] + len(self.window(counted))
        )
      return self._first_rows[index - self._base]

  def seek(self, window: int, first_row: int) -> None:
    """Takes a window's first row as known, so that none before it is packed.

    It is what `place` said in the same order, where a checkpoint kept it.
    """
    with self._count_lock:
      if not self._base <= window < self._base + len(self._first_rows):
        self._base, self._first_rows = window, [first_row]

  def place(self, row: int) -> tuple[int, int]:
    """Returns (window, first_row) to `seek` before `row` is asked for.

    A row past the end, or the first of a window, is placed at that window's
    beginning.
    """
    windows = self.num_windows
    if windows is not None and row >= self.first_row(windows):
      return windows, self.first_row(windows)
    window = self.find(row)
    return window, self.first_row(window)

  def find(self, row: int) -> int:
    """Returns the window that holds a row.

    Raises:
      IndexError: there is no such row.
      ValueError: the order has no end, and no record makes a row.
    """
    if row < 0:
      raise IndexError(f"Rows count from 0, got row {row}.")
    windows = self.num_windows
    with self._count_lock:
      if row < self._first_rows[0]:
        self._base, self._first_rows = 0, [0]
      while self._first_rows[-1] <= row:
        counted = self._base + len(self._first_rows) - 1
        if counted == windows:
          raise IndexError(
            f"There are {self._first_rows[-1]} rows, got row {row}."
          )
        if windows is None and self._is_barren(counted):
          raise ValueError(
            f"No record of the first {counted} windows of"
            f" {self.options.plan_window} makes a row: every one is empty,"
            " filtered or dropped."
          )
        self.first_row(counted + 1)
      first_rows = np.asarray(self._first_rows)
    return self._base + int(np.searchsorted(first_rows, row, side="right")) - 1

  def records_before(self, row: int) -> np.ndarray:
    """Returns int64[sources], records of each that the rows before `row` hold.

    A record is counted with its first piece; one that makes none, with its
    window.
    """
    index = self.find(row) if row else 0
    if row == self.first_row(index):
      return self._pattern.counts(self._clip(index * self.options.plan_window))
    counts = self._pattern.counts(index * self.options.plan_window).copy()
    rows = self.window(index)
    end = rows.row_splits[row - self.first_row(index)]
    begins = rows.offset[:end] == 0
    counts += np.bincount(
      rows.source[:end][begins], minlength=len(self.sources)
    )
    return counts

  def _is_barren(self, counted: int) -> bool:
    """Whether each source was gone through without a row."""
    if self._first_rows[-1] or self._base or not counted:
      return False
    seen = self._pattern.counts(counted * self.options.plan_window)
    return bool((seen >= np.asarray(self._sizes)).all())

  def _clip(self, position: int) -> int:
    return position if self._end is None else min(position, self._end)

  def _pack(self, index: int) -> WindowRows:
    options = self.options
    begin = index * options.plan_window
    end = self._clip(begin + options.plan_window)
    source, example, lengths = self._examples(begin, end)
    if options.packer == "concat":
      pieces, row_splits = pack.concat(
        lengths, budget=options.budget, max_items=options.max_items
      )
    else:
      pieces, row_splits = _packed(lengths, options)
    rows = WindowRows(
      row_splits=row_splits,
      source=source[pieces.item],
      example=example[pieces.item],
      offset=pieces.offset,
      length=pieces.length,
      ends=pieces.offset + pieces.length == lengths[pieces.item],
    )
    return self._permuted(rows, index) if self._shuffle else rows

  def _examples(
    self, begin: int, end: int
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns (source, example, length) of the positions' examples in turn."""
    source, k = self._pattern.locate(np.arange(begin, end, dtype=np.int64))
    first = np.zeros(end - begin, np.int64)
    count = np.zeros(end - begin, np.int64)
    for i, chosen in grouped(source):
      first[chosen], count[chosen] = self.sources[i].examples(
        self._records(i, k[chosen])
      )
    # Example after example of each record.
    before = np.cumsum(count) - count
    example = np.repeat(first - before, count) + np.arange(count.sum())
    source = np.repeat(source, count)
    lengths = np.zeros(len(example), np.int32)
    for i, chosen in grouped(source):
      lengths[chosen] = self.sources[i].lengths(example[chosen])
    return source.astype(np.int32), example, lengths

  def _records(self, i: int, k: np.ndarray) -> np.ndarray:
    """Returns which record the k-th one of a source's order is."""
    source = self.sources[i]
    epochs, records = np.divmod(k, source.num_records)
    if not self._shuffle:
      return records
    for epoch, chosen in grouped(epochs):
      key = permutation_key(self._seed, source.name, epoch)
      records[chosen] = permute(records[chosen], source.num_records, key=key)
    return records

  def _permuted(self, rows: WindowRows, index: int) -> WindowRows:
    if len(rows) < 2:
      return rows
    key = permutation_key(self._seed, "rows of window", index)
    order = permute(np.arange(len(rows)), len(rows), key=key)
    counts = np.diff(rows.row_splits)[order]
    splits = np.concatenate([[0], np.cumsum(counts)])
    places = np.arange(splits[-1]) + np.repeat(
      rows.row_splits[:-1][order] - splits[:-1], counts
    )
    return WindowRows(
      splits,
      rows.source[places],
      rows.example[places],
      rows.offset[places],
      rows.length[places],
      rows.ends[places],
    )


def _packed(
  lengths: np.ndarray, options: PackingOptions
) -> tuple[pack.Pieces, np.ndarray]:
  """Packs examples that are not cut but where they are overlong."""
  budget = options.budget
  parts = pack.overlong(lengths, budget=budget, policy=options.overlong)
  multiple = options.segment_multiple
  room = parts.length
  if multiple > 1:
    room = -(-room.astype(np.int64) // multiple) * multiple
  if options.packer == "pad":
    items = np.flatnonzero(room)
    splits = np.arange(len(items) + 1, dtype=np.int64)
  else:
    packed = (
      pack.best_fit_decreasing(room, budget=budget, max_items=options.max_items)
      if options.packer == "best_fit"
      else pack.first_fit(
        room,
        budget=budget,
        max_items=options.max_items,
        min_buffered=options.min_buffered,
      )
    )
    items, splits = packed.items, packed.row_splits
  pieces = pack.Pieces(
    parts.item[items], parts.offset[items], parts.length[items]
  )
  return pieces, splits
