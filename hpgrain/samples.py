"""Documents of one tokenized corpus in, rows of seq_length tokens out.

All tokens of a split stand in a line, document after document, and rows are
cut from it; which cut is row i is arithmetic on (seed, name, i):

  tokens   |--o--|S------|S------|S------|S--  slack
  cut              0       1       2
  row i    epoch e = i // M, cut permute(i % M), shifted by the epoch's o

No array is made and nothing is cached, however many documents there are.
"""

import operator
from collections.abc import Sequence
from typing import Any

import grain
import numpy as np

from hpgrain import _kernels, gather
from hpgrain.arguments import integer, kernel_rows
from hpgrain.corpus import Corpus, choose_split, span_tokens, too_small
from hpgrain.order import permutation_key
from hpgrain.records import RowPlans, Segments
from hpgrain.sources.indexed import IndexedReader
from hpgrain.splits import parse_split


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
    seq_length = integer("seq_length", seq_length, minimum=1)
    seed = integer("seed", seed)
    if vocab_size is not None:
      vocab_size = integer("vocab_size", vocab_size, minimum=1)
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
    if contiguous:
      self.num_tokens = span_tokens(prefix, self._first, self._last)
    else:
      lengths = prefix.lengths[self._first : self._last]
      self.num_tokens = int(lengths.sum(dtype=np.int64))
    cuts = max(self.num_tokens - self.extra, 0)
    self.rows_per_epoch = (
      cuts // seq_length if drop_last else -(-cuts // seq_length)
    )
    self._rows = self._stable_rows()

  def _stable_rows(self) -> _kernels.StableRows:
    starts = None
    if not self._contiguous:
      lengths = self.corpus.reader.lengths[self._first : self._last]
      starts = np.zeros(len(lengths) + 1, np.int64)
      np.cumsum(lengths, out=starts[1:])
    return _kernels.StableRows(
      self._first,
      self._last,
      self.seq_length,
      self.extra,
      self.rows_per_epoch,
      self.num_tokens,
      self._shuffle,
      not self._drop_last,
      starts,
    )

  def __getstate__(self) -> dict[str, Any]:
    """Leaves out the kernel's object, which is made anew from the rest."""
    return {k: v for k, v in self.__dict__.items() if k != "_rows"}

  def __setstate__(self, state: dict[str, Any]) -> None:
    self.__dict__.update(state)
    self._rows = self._stable_rows()

  def __len__(self) -> int:
    """Rows of one epoch."""
    return self.rows_per_epoch

  def __getitem__(self, index: Any) -> Any:
    """Returns {tokens, labels}, int32[seq_length] each, of row `index`."""
    if isinstance(index, slice):
      return self.slice(index)
    plan = self.plan(index)
    return gather.row_fields(self.read(plan)[0], plan, self.extra)

  @property
  def settings(self) -> dict[str, Any]:
    """What decides the rows besides the corpus."""
    return {
      "kind": "gpt",
      "order": "stable",
      "shuffle": bool(self._shuffle),
      "seed": self._seed,
      "seq_length": self.seq_length,
      "add_extra_token": bool(self.extra),
      "split": parse_split(self._split),
      "split_index": self._split_index,
      "drop_last": bool(self._drop_last),
    }

  @property
  def unique_identifiers(self) -> dict[str, Any]:
    """Everything that decides the rows; paths and times do not."""
    return {**self.settings, "sources": [self.corpus.identity]}

  def rows_per_source(self, num_rows: int) -> np.ndarray:
    """Returns int64[1]: all of the first `num_rows` rows are this source's."""
    return np.array([num_rows], np.int64)

  def num_rows(self, epochs: int) -> int:
    """Returns how many rows `epochs` epochs have."""
    return self.rows_per_epoch * epochs

  def plan(self, index: int) -> RowPlans:
    """Plans one row."""
    return self.plan_rows([operator.index(index)])

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
    rows = kernel_rows(rows)
    if not self.rows_per_epoch:
      raise ValueError(
        too_small(
          self.corpus,
          span=(self._first, self._last),
          split=self._split,
          split_index=self._split_index,
          num_tokens=self.num_tokens,
          row_tokens=self.seq_length + self.extra,
        )
      )
    file = self.corpus.token_file()
    try:
      plan = self._rows.plan(file, rows, source)
      if plan is None:
        plan = self._rows.plan(file, rows, source, self._keys(rows))
    except ValueError as error:
      raise ValueError(
        f"{self.corpus.path}.idx: {str(error).rstrip('.')}. Pass"
        " contiguous=False to read sequences that do not lie back to back, and"
        " run `IndexedReader.verify` to see whether the file is damaged."
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

  def _keys(self, rows: np.ndarray) -> list[tuple[int, bytes]]:
    """Returns the key of every epoch among the rows."""
    epochs = np.unique(rows // self.rows_per_epoch).tolist()
    name = self.corpus.name
    return [(e, permutation_key(self._seed, name, e)) for e in epochs]
