"""Documents of one tokenized corpus in, rows of seq_length tokens out.

All tokens of a split stand in a line, document after document, and rows are
cut from it; which cut is row i is arithmetic on (seed, name, i):

  tokens   |--o--|S------|S------|S------|S--  slack
  cut              0       1       2
  row i    epoch e = i // M, cut permute(i % M), shifted by the epoch's o

No array is made and nothing is cached, however many documents there are.
"""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grain
import numpy as np

from hpgrain import _kernels, gather
from hpgrain.order import permutation_key
from hpgrain.records import RowPlans, Segments
from hpgrain.sources.indexed import IndexedReader
from hpgrain.splits import SPLIT_NAMES, split_bounds


class Corpus:
  """A reader under the name that keys its order: a `gather.TokenSource`."""

  def __init__(self, reader: IndexedReader, name: str | None):
    self.reader = reader
    self.name = name or Path(reader.prefix).name

  def token_file(self) -> _kernels.TokenFile:
    """Returns the open `.idx`/`.bin` pair."""
    return self.reader.token_file()

  @functools.cached_property
  def content(self) -> str:
    """A digest of what the files hold, wherever they lie."""
    return self.reader.content_digest()


def check_rows(rows: np.ndarray | Sequence[int]) -> np.ndarray:
  """Returns row numbers as int64[n].

  Raises:
    IndexError: for a negative row.
  """
  rows = np.ascontiguousarray(rows, np.int64)
  lowest = np.minimum.reduce(rows, axis=None, initial=0)
  if lowest < 0:
    raise IndexError(f"Rows count from 0, got row {lowest}.")
  return rows


def choose_split(
  reader: IndexedReader, split: str, split_index: int
) -> tuple[int, int]:
  """Returns the [begin, end) sequences of one split of a corpus.

  Raises:
    ValueError: for an unknown split_index, or a split of weight zero.
  """
  if not 0 <= split_index < len(SPLIT_NAMES):
    raise ValueError(
      f"split_index is 0 (train), 1 (valid) or 2 (test), got {split_index!r}."
    )
  span = split_bounds(split, len(reader))[split_index]
  if span is None:
    raise ValueError(
      f"Split {split!r} gives {SPLIT_NAMES[split_index]} no weight, so it has"
      " no rows; give it a positive weight or do not ask for it."
    )
  return span


class GPTSamples(grain.MapDataset):
  """Rows of seq_length tokens cut from the documents of one split.

  `samples[i]` is a row for looking and for composing with Grain; a loader
  asks `read(plan_rows(rows), window)` once a batch. Any row i >= 0 exists:
  epochs follow one another, each in an order of its own.
  """

  def __init__(
    self,
    prefix: str | IndexedReader,
    *,
    seq_length: int,
    seed: int,
    order: str = "stable",
    num_samples: int | None = None,
    split: str = "1,0,0",
    split_index: int = 0,
    add_extra_token: bool = True,
    drop_last: bool = True,
    shuffle: bool = True,
    name: str | None = None,
    contiguous: bool = True,
    vocab_size: int | None = None,
  ):
    """Opens the corpus; O(1) however many documents it has.

    Args:
      prefix: of the `.idx`/`.bin` pair, or a reader of it.
      seq_length: positions a row, S.
      seed: keys the order, together with the name and the epoch.
      order: "stable": row i depends on nothing but (seed, name, i).
      num_samples: must be None: the stable order knows no run length.
      split: weights of train, valid and test over the sequences.
      split_index: 0, 1 or 2, which of them to read.
      add_extra_token: whether rows have S + 1 tokens, so that the last
        position has a label too.
      drop_last: whether the tail that does not fill a row is left out;
        otherwise it becomes a row padded at its end.
      shuffle: whether an epoch's rows are permuted.
      name: keys the order; default the prefix's basename.
      contiguous: whether sequences lie back to back in the `.bin`, as every
        writer leaves them. False reads all lengths once and needs no such
        thing.
      vocab_size: ids at or above it are an error when rows are read.

    Raises:
      ValueError: for an illegal argument, or a pair that is not sound.
    """
    super().__init__()
    if order != "stable":
      raise ValueError(
        f'order must be "stable", got {order!r}; this version has no other.'
      )
    if num_samples is not None:
      raise ValueError(
        f'num_samples must be None with order="stable", got {num_samples}:'
        " the order does not depend on how many rows are asked for. Stop"
        " after as many rows as you need."
      )
    if seq_length <= 0:
      raise ValueError(f"seq_length must be positive, got {seq_length}.")
    if vocab_size is not None and vocab_size <= 0:
      raise ValueError(f"vocab_size must be positive, got {vocab_size}.")
    if not isinstance(prefix, IndexedReader):
      prefix = IndexedReader(prefix)
    self.corpus = Corpus(prefix, name)
    self.sources = (self.corpus,)
    self.seq_length = seq_length
    self.extra = int(add_extra_token)
    self.vocab_size = vocab_size
    self._seed = seed
    self._split, self._split_index = split, split_index
    self._drop_last, self._shuffle = drop_last, shuffle
    self._contiguous = contiguous
    self._first, self._last = choose_split(prefix, split, split_index)
    starts = None
    if contiguous:
      self.num_tokens = _span_tokens(prefix, self._first, self._last)
    else:
      starts = np.zeros(self._last - self._first + 1, np.int64)
      np.cumsum(prefix.lengths[self._first : self._last], out=starts[1:])
      self.num_tokens = int(starts[-1])
    cuts = max(self.num_tokens - self.extra, 0)
    self.rows_per_epoch = (
      cuts // seq_length if drop_last else -(-cuts // seq_length)
    )
    self._rows = _kernels.StableRows(
      self._first,
      self._last,
      seq_length,
      self.extra,
      self.rows_per_epoch,
      self.num_tokens,
      shuffle,
      not drop_last,
      starts,
    )

  def __len__(self) -> int:
    """Rows of one epoch."""
    return self.rows_per_epoch

  def __getitem__(self, index: Any) -> Any:
    """Returns {tokens, labels}, int32[seq_length] each, of row `index`."""
    if isinstance(index, slice):
      return self.slice(index)
    text = self.read(self.plan(index))[0]
    return gather.row_fields(text, self.extra)

  @property
  def unique_identifiers(self) -> dict[str, Any]:
    """Everything that decides the rows; paths and times do not."""
    return {
      "kind": "gpt",
      "sources": [{"name": s.name, "content": s.content} for s in self.sources],
      "order": "stable",
      "shuffle": self._shuffle,
      "seed": self._seed,
      "seq_length": self.seq_length,
      "add_extra_token": bool(self.extra),
      "split": self._split,
      "split_index": self._split_index,
      "drop_last": self._drop_last,
    }

  def rows_per_source(self, num_rows: int) -> np.ndarray:
    """Returns int64[1]: all of the first `num_rows` rows are this source's."""
    return np.array([num_rows], np.int64)

  def num_rows(self, epochs: int) -> int:
    """Returns how many rows `epochs` epochs have."""
    return self.rows_per_epoch * epochs

  def plan(self, index: int) -> RowPlans:
    """Plans one row."""
    return self.plan_rows(np.array([index], np.int64))

  def plan_rows(
    self, rows: np.ndarray | Sequence[int], *, source: int = 0
  ) -> RowPlans:
    """Plans many rows in one call, reading no token.

    Args:
      rows: int64[n], any rows from 0 on, in any order.
      source: the number to give this corpus in the plans.

    Returns:
      n rows; each holds seq_length + 1 tokens (seq_length without the extra
      token), the last one of a kept tail fewer.

    Raises:
      IndexError: for a negative row.
      ValueError: for a split too small for one row, or sequences that do not
        lie back to back.
    """
    rows = np.ascontiguousarray(rows, np.int64)
    if not self.rows_per_epoch:
      check_rows(rows)
      raise ValueError(self._too_small())
    # The kernels refuse a negative row in the words of `check_rows`.
    # All at once: a batch over a tiny split may need thousands.
    while self._rows.missing_epoch(rows) >= 0:
      for epoch in np.unique(rows // self.rows_per_epoch).tolist():
        key = permutation_key(self._seed, self.corpus.name, epoch)
        self._rows.add_epoch(epoch, key)
    try:
      plan = self._rows.plan(self.corpus.token_file(), rows, source)
    except ValueError as error:
      raise ValueError(
        f"{self.corpus.reader.prefix}.idx: {error}. Pass contiguous=False to"
        " read sequences that do not lie back to back, and run"
        " `IndexedReader.verify` to see whether the file is damaged."
      ) from error
    return RowPlans(*plan)

  def read(
    self,
    plans: RowPlans,
    window: tuple[int, int] | None = None,
    *,
    sources: Sequence[gather.TokenSource] | None = None,
  ) -> np.ndarray:
    """Reads positions [a, b) of planned rows, and one token more for labels.

    Args:
      plans: n rows.
      window: [a, b); default the whole row.
      sources: what `plans.source` counts; default this corpus alone.

    Returns:
      int32[n, b - a + 1]; the last column is absent where b is seq_length
      and rows have no extra token.

    Raises:
      ValueError: for a window outside the row, or an id outside the
        vocabulary, naming source, sequence and offset.
    """
    columns = gather.window_columns(window, self.seq_length, self.extra)
    return gather.read_rows(
      plans,
      sources=sources or self.sources,
      columns=columns,
      vocab_size=self.vocab_size,
    )

  def segments(
    self,
    plans: RowPlans,
    *,
    sources: Sequence[gather.TokenSource] | None = None,
  ) -> Segments:
    """Returns where documents begin in planned rows, reading no token."""
    del sources
    return gather.segments(plans)

  def _too_small(self) -> str:
    needed = self.seq_length + self.extra
    count = len(self.corpus.reader)
    lengths = self.corpus.reader.lengths
    totals = np.cumsum(lengths[self._first :], dtype=np.int64)
    enough = int(np.searchsorted(totals, needed)) + 1
    if enough <= len(totals):
      advice = (
        f"The smallest share that works is {enough} of its {count} sequences"
        f" ({enough / count:.6g} of the whole)."
      )
    else:
      advice = "No share of this corpus is enough: use a shorter seq_length."
    return (
      f"Source {self.corpus.name!r}, split"
      f" {SPLIT_NAMES[self._split_index]} of {self._split!r}: its"
      f" {self._last - self._first} sequences hold T = {self.num_tokens}"
      f" tokens, a row needs S + x = {needed}. {advice}"
    )


def _span_tokens(reader: IndexedReader, first: int, last: int) -> int:
  """Returns the tokens of sequences [first, last), in O(1)."""
  if first == last:
    return 0
  pointers, itemsize = reader.pointers, reader.dtype.itemsize
  end = int(pointers[last - 1]) + int(reader.lengths[last - 1]) * itemsize
  return (end - int(pointers[first])) // itemsize
