r"""Records of known lengths in, rows packed window by window out.

  order     k-th record of source i, as the blend has them: 0 1 2 3 4 5 6 7 ..
  windows   plan_window positions each                     |0 1 2 3|4 5 6 7|..
  packed    each window by itself                          [0 3] [1] [2]  ...
  permuted  a window's rows, by (seed, window): packing sorts them by length

Windows know no epochs, so none ends short but the last one of a finite order.
Any window is packed by itself, so any row is found from the number of rows of
the windows before it.
"""

import bisect
import collections
import dataclasses
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from hpgrain.example_order import ExampleOrder, Lengths
from hpgrain.mixes import Mix
from hpgrain.order import permutation_key, permute
from hpgrain.packing import PackingOptions, pack_window, reordered

# Windows that are held: a batch may reach from one into the next.
_HELD_WINDOWS = 4


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
    position: int64[m], of the record that made it, in the order.
    tokens: int64[sources], of the window's examples, in a row or not.
  """

  row_splits: np.ndarray
  source: np.ndarray
  example: np.ndarray
  offset: np.ndarray
  length: np.ndarray
  ends: np.ndarray
  position: np.ndarray
  tokens: np.ndarray

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
    self.options = options
    self.order = ExampleOrder(
      sources, mix, seed=seed, shuffle=shuffle, epochs=epochs
    )
    self._seed, self._shuffle = seed, shuffle
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
  def sources(self) -> tuple[Lengths, ...]:
    """What pieces are of."""
    return self.order.sources

  @property
  def num_windows(self) -> int | None:
    """Windows of the order; None = endless."""
    if self.order.end is None:
      return None
    return -(-self.order.end // self.options.plan_window)

  @property
  def num_rows(self) -> int | None:
    """Rows of the order, which packs all of it; None = endless."""
    windows = self.num_windows
    return None if windows is None else self.first_row(windows)

  def has_row(self) -> bool:
    """Whether there is a row at all, packing as little as it takes."""
    windows = self.num_windows
    if windows is not None:
      return any(len(self.window(index)) for index in range(windows))
    options = self.options
    drops = options.overlong == "drop" and options.packer != "concat"
    return self.order.has_tokens(options.example_limit if drops else None)

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
    if windows is not None and not self.reaches(row):
      return windows, self.first_row(windows)
    window = self.find(row)
    return window, self.first_row(window)

  def reaches(self, row: int) -> bool:
    """Whether there is a row, packing no further than to know.

    Raises:
      ValueError: the order has no end, and no record makes a row.
    """
    try:
      self.find(row)
    except IndexError:
      return False
    return True

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
        self.first_row(counted + 1)
        # The first windows may be empty, but then it is time to know.
        if windows is None and not counted and not self._first_rows[-1]:
          self._check_has_row()
      return self._base + bisect.bisect_right(self._first_rows, row) - 1

  def locate(self, row: int) -> tuple[int, int]:
    """Returns the window that `row` begins in, and its pieces before it.

    Raises:
      IndexError: there is no such row, and it is not the end.
    """
    windows = self.num_windows
    if row == 0 and windows is None:
      return 0, 0
    if windows is not None and not self.reaches(row):
      if row == self.first_row(windows):
        return windows, 0
    window = self.find(row)
    place = row - self.first_row(window)
    return window, int(self.window(window).row_splits[place])

  def records_before(self, row: int) -> np.ndarray:
    """Returns int64[sources], records of each that the rows before `row` hold.

    A record is counted as soon as one of its pieces is there; one that makes
    none, with its window.
    """
    window, end = self.locate(row)
    counts = self.order.counts(window * self.options.plan_window)
    if not end:
      return counts
    rows = self.window(window)
    _, first = np.unique(rows.position[:end], return_index=True)
    return counts + np.bincount(rows.source[first], minlength=len(self.sources))

  def _check_has_row(self) -> None:
    if self.has_row():
      return
    names = ", ".join(repr(source.name) for source in self.sources)
    raise ValueError(
      f"No record of {names} makes a row: every one is empty, filtered or"
      " dropped."
    )

  def _pack(self, index: int) -> WindowRows:
    options = self.options
    begin = index * options.plan_window
    position, source, example, lengths = self.order.examples(
      begin, self.order.clip(begin + options.plan_window)
    )
    self._refuse_overlong(source, example, lengths)
    pieces, row_splits = pack_window(lengths, options)
    item = pieces.item
    if self._shuffle and len(row_splits) > 2:
      count = len(row_splits) - 1
      key = permutation_key(self._seed, "rows of window", index)
      order = permute(np.arange(count), count, key=key)
      row_splits, places = reordered(row_splits, order)
    else:
      places = np.arange(len(item))
    item, offset = item[places], pieces.offset[places]
    length = pieces.length[places]
    return WindowRows(
      row_splits=row_splits,
      source=source[item],
      example=example[item],
      offset=offset,
      length=length,
      ends=offset + length == lengths[item],
      position=position[item],
      tokens=np.bincount(
        source, weights=lengths, minlength=len(self.sources)
      ).astype(np.int64),
    )

  def _refuse_overlong(
    self, source: np.ndarray, example: np.ndarray, lengths: np.ndarray
  ) -> None:
    """Names the first example that is too long, if that is an error."""
    options = self.options
    if options.overlong != "error" or options.packer == "concat":
      return
    long = np.flatnonzero(lengths > options.example_limit)
    if not len(long):
      return
    where = self.sources[source[long[0]]]
    raise ValueError(
      f"Source {where.name!r}, {where.place(int(example[long[0]]))}: an"
      f" example has {lengths[long[0]]} tokens, and a row has room for one of"
      f" {options.example_limit}; so it is with {len(long)} of the"
      f" {len(lengths)} examples that are packed together. Set"
      " dataloader.overlong to split, truncate or drop them, or take a larger"
      " max_seq_len or token_budget."
    )
