"""Records that were cut to the row's length offline in, rows out.

A record of S + x tokens is a row as it stands; an epoch permutes the records.
What the records lost when they were cut is where their documents begin: it is
found again from the end-of-document id, so a row's segments need its tokens.

  record     1 9 2 3 9 4 5 6      end-of-document id 9
  segments   1 1 2 2 2 3 3 3      a boundary after each 9 and at the end
"""

import operator
from collections.abc import Sequence
from typing import Any

import grain
import numpy as np

from hpgrain import gather, ltor
from hpgrain.arguments import integer, row_numbers
from hpgrain.buckets import Buckets
from hpgrain.corpus import Corpus, choose_split
from hpgrain.eod_segments import eod_segments
from hpgrain.ltor import LtorOptions
from hpgrain.order import grouped, permutation_key, permute
from hpgrain.records import RowPlans, Segments
from hpgrain.sources.indexed import IndexedReader
from hpgrain.splits import parse_split
from hpgrain.token_rows import TokenRows

_CHUNK = 1 << 22


class PrecutSamples(grain.MapDataset):
  """Rows read as they were cut offline, one record each."""

  def __init__(
    self,
    prefix: str | IndexedReader,
    *,
    seq_length: int,
    seed: int,
    split: str = "1,0,0",
    split_index: int = 0,
    add_extra_token: bool = True,
    shuffle: bool = True,
    name: str | None = None,
    eod_id: int | None = None,
    pad_id: int | None = None,
    skip_data_check: bool = False,
    vocab_size: int | None = None,
    data_sharding: int | None = None,
    ltor_options: LtorOptions | None = None,
  ):
    """Opens the corpus and checks that every record has S + x tokens.

    Args:
      prefix: of the `.idx`/`.bin` pair, or a reader of it.
      seq_length: positions a row, S.
      seed: keys the order, together with the name and the epoch.
      split: weights of train, valid and test over the records.
      split_index: 0, 1 or 2, which of them to read.
      add_extra_token: whether records have S + 1 tokens.
      shuffle: whether an epoch's records are permuted.
      name: keys the order; default the prefix's basename.
      eod_id: ends a document; needed to tell a row's documents apart.
      pad_id: a token that must not occur: records are cut, not padded.
      skip_data_check: whether to trust the lengths instead of reading them.
      vocab_size: ids at or above it are an error when rows are read.
      data_sharding: in how many buckets records are permuted instead of all
        together; see `buckets`.
      ltor_options: how to make Megatron's masks for `samples[i]`.

    Raises:
      ValueError: for an illegal argument, an unsound pair, records of
        another length, or fewer records than buckets.
    """
    super().__init__()
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
    self.eod_id, self._pad_id = eod_id, pad_id
    self._seed, self._shuffle = seed, shuffle
    self._ltor = ltor_options
    self._split, self._split_index = split, split_index
    self._first, self._last = choose_split(prefix, split, split_index)
    self.rows_per_epoch = self._last - self._first
    if data_sharding is not None:
      data_sharding = integer("data_sharding", data_sharding, minimum=1)
    self.data_sharding = data_sharding
    self.buckets = self._make_buckets()
    if self.buckets is not None:
      self.rows_per_epoch = self.buckets.rows_per_epoch
    if not skip_data_check:
      _check_lengths(prefix, seq_length + self.extra)

  def _make_buckets(self) -> Buckets | None:
    num_buckets = self.data_sharding
    if num_buckets is None:
      return None
    if not self._shuffle:
      raise ValueError(
        f"data_sharding={num_buckets} permutes records in buckets, and"
        " shuffle=False keeps them as they stand. Leave one of the two out."
      )
    if not self.rows_per_epoch:
      # A split without records says so when a row is asked of it.
      return None
    return Buckets(
      self.rows_per_epoch, num_buckets, seed=self._seed, name=self.corpus.name
    )

  def __len__(self) -> int:
    """Rows of one epoch."""
    return self.rows_per_epoch

  def __getitem__(self, index: Any) -> Any:
    """Returns {tokens, labels}, int32[seq_length] each, of row `index`."""
    if isinstance(index, slice):
      return self.slice(index)
    plan = self.plan(index)
    return self.row_fields(self.read(plan)[0], plan)

  def row_fields(
    self, text: np.ndarray, plan: RowPlans
  ) -> dict[str, np.ndarray]:
    """Returns the fields of one row, whose tokens are int32[S + extra]."""
    fields = gather.row_fields(text, plan, self.extra)
    if self._ltor is None:
      return fields
    return ltor.add_ltor_fields(fields, self._ltor)

  @property
  def settings(self) -> dict[str, Any]:
    """What decides the rows besides the corpus."""
    settings = {
      "kind": "precut",
      "order": "stable",
      "shuffle": bool(self._shuffle),
      "seed": self._seed,
      "seq_length": self.seq_length,
      "add_extra_token": bool(self.extra),
      "split": parse_split(self._split),
      "split_index": self._split_index,
      "eod_id": self.eod_id,
    }
    if self.data_sharding is not None:
      settings["data_sharding"] = self.data_sharding
    return settings

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

  @property
  def rows_per_pass(self) -> float:
    """Rows that read everything once: an epoch's."""
    return float(self.rows_per_epoch)

  def build_index(self, epochs: int = 1) -> None:
    """Does nothing: these rows need no index."""
    del epochs

  def open_rows(self, rows: np.ndarray | Sequence[int]) -> TokenRows:
    """Plans rows, to read windows of their fields."""
    return TokenRows(self, rows)

  def plan(self, index: int) -> RowPlans:
    """Plans one row."""
    return self.plan_rows([operator.index(index)])

  def plan_rows(
    self, rows: np.ndarray | Sequence[int], *, source: int = 0
  ) -> RowPlans:
    """Plans many rows: one piece each, a whole record.

    Raises:
      IndexError: for a negative row.
      ValueError: if the split holds no record.
    """
    rows = row_numbers(rows)
    if not self.rows_per_epoch:
      count = len(self.corpus.reader)
      raise ValueError(
        f"Source {self.corpus.name!r}: split {self._split_index} of"
        f" {self._split!r} holds none of its {count} records. The smallest"
        f" share that works is one record, {1 / max(count, 1):.6g} of the"
        " whole."
      )
    epochs, records = np.divmod(rows, self.rows_per_epoch)
    if self.buckets is not None:
      _, records = self.buckets.map(rows)
    elif self._shuffle:
      for epoch, chosen in grouped(epochs):
        key = permutation_key(self._seed, self.corpus.name, epoch)
        records[chosen] = permute(records[chosen], self.rows_per_epoch, key=key)
    num = len(rows)
    return RowPlans(
      row_splits=np.arange(num + 1, dtype=np.int64),
      source=np.full(num, source, np.int32),
      sequence=records + self._first,
      offset=np.zeros(num, np.int64),
      length=np.full(num, self.seq_length + self.extra, np.int32),
      boundary=np.ones(num, bool),
    )

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
      and records have no extra token.

    Raises:
      ValueError: for a window outside the row, padding inside a record, or
        an id outside the vocabulary, naming source, record and offset.
    """
    sources = sources or self.sources
    columns = gather.window_columns(window, self.seq_length, self.extra)
    tokens = gather.read_rows(
      plans, sources=sources, columns=columns, vocab_size=self.vocab_size
    )
    pad_id = self._pad_id
    if pad_id is not None and (padding := tokens == pad_id).any():
      row, column = np.argwhere(padding)[0]
      raise ValueError(
        f"Source {sources[plans.source[row]].name!r}, record"
        f" {plans.sequence[row]}, offset {columns[0] + column}: pad id"
        f" {pad_id}. Pre-cut records are full of tokens; cut this corpus"
        " without padding (offline_preparation --pack-to-seq-len)."
      )
    return tokens

  def segments(
    self,
    plans: RowPlans,
    *,
    sources: Sequence[gather.TokenSource] | None = None,
  ) -> Segments:
    """Finds where documents begin: after each end-of-document id.

    Adjacent ids make segments of one token. Without an end-of-document id a
    record is one segment.
    """
    return eod_segments(
      plans,
      sources=sources or self.sources,
      eod_id=self.eod_id,
      lengths=np.full(len(plans), self.seq_length + self.extra, np.int64),
    )


def _check_lengths(reader: IndexedReader, expected: int) -> None:
  """Raises ValueError if a record has another length than `expected`."""
  offenders: list[tuple[int, int]] = []
  count = 0
  for begin in range(0, len(reader), _CHUNK):
    lengths = np.asarray(reader.lengths[begin : begin + _CHUNK])
    wrong = np.flatnonzero(lengths != expected)
    count += len(wrong)
    for i in wrong[: 3 - len(offenders)]:
      offenders.append((begin + int(i), int(lengths[i])))
  if not count:
    return
  shown = ", ".join(f"record {i} has {length}" for i, length in offenders)
  more = f" and {count - len(offenders)} more" if count > len(offenders) else ""
  raise ValueError(
    f"{reader.prefix}: pre-cut records must have seq_length + extra ="
    f" {expected} tokens; {shown}{more}, of {len(reader)} records. Set"
    " is_dataset_from_mr=False to read documents of any length, set"
    " seq_length to what the records were cut to, or skip_data_check=True to"
    " read these records all the same."
  )
