"""Documents of one tokenized corpus in, rows of seq_length tokens out.

Which pieces of which documents make row i is the order's matter:

  stable     cuts of the documents as they are stored    (stable_order)
  documents  cuts of the documents, permuted each epoch  (documents_order)
  megatron   as Megatron-core has it, for so many rows   (megatron_order)

What is the same for all of them is here: opening, reading, fields.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any

import grain
import numpy as np

from hpgrain import gather, ltor
from hpgrain.arguments import integer, kernel_rows
from hpgrain.buckets import Buckets
from hpgrain.corpus import Corpus, too_small
from hpgrain.documents_order import DocumentsOrder
from hpgrain.eod_segments import eod_segments
from hpgrain.index_cache import IndexCache
from hpgrain.ltor import LtorOptions
from hpgrain.megatron_order import MegatronOrder
from hpgrain.records import RowPlans, Segments
from hpgrain.sources.indexed import IndexedReader
from hpgrain.split_tokens import split_tokens
from hpgrain.splits import parse_split
from hpgrain.stable_order import StableOrder
from hpgrain.token_rows import TokenRows

ORDERS = ("stable", "documents", "megatron")


class GPTSamples(grain.MapDataset):
  """Rows of seq_length tokens cut from the documents of one split.

  `samples[i]` is a row for looking and for composing with Grain; a loader
  asks `read(plan_rows(rows), window)` once a batch. Any row i >= 0 exists:
  epochs follow one another, each in an order of its own. In Megatron's order
  there are just as many rows as its index was built for.
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
    data_sharding: int | None = None,
    ltor_options: LtorOptions | None = None,
    cache: IndexCache | None = None,
  ):
    """Opens the corpus; O(1) however many documents it has.

    Args:
      prefix: of the `.idx`/`.bin` pair, or a reader of it.
      seq_length: positions a row, S.
      seed: decides the order; keys it together with the name and the epoch.
      order: "stable" or "documents": row i depends on nothing but (seed,
        name, i). "megatron": on num_samples too.
      num_samples: rows asked for, in Megatron's order; None is one epoch.
        Others do not depend on it: leave it out.
      split: weights of train, valid and test over the sequences.
      split_index: 0, 1 or 2, which of them to read.
      add_extra_token: whether rows have S + 1 tokens, so that the last
        position has a label too.
      drop_last: whether the tail that does not fill a row is left out;
        otherwise it becomes a row padded at its end.
      shuffle: whether an epoch is permuted; Megatron's always is.
      name: keys the order; default the prefix's basename.
      contiguous: whether sequences lie back to back in the `.bin`, as every
        writer leaves them. False reads all lengths once and needs no such
        thing.
      vocab_size: ids at or above it are an error when rows are read.
      data_sharding: number of buckets that take turns, each permuted in
        itself (`buckets`), in place of an epoch's permutation of rows.
      ltor_options: how to make Megatron's masks for `samples[i]`; documents
        then end at end-of-document ids, not where the index says.
      cache: of indices; default none, so that they are built in memory.

    Raises:
      ValueError: for an illegal argument, or a pair that is not sound.
    """
    super().__init__()
    _check_order(order, num_samples, shuffle)
    seq_length = integer("seq_length", seq_length, minimum=1)
    seed = integer("seed", seed)
    if num_samples is not None:
      num_samples = integer("num_samples", num_samples, minimum=0)
    if vocab_size is not None:
      vocab_size = integer("vocab_size", vocab_size, minimum=1)
    if not isinstance(prefix, IndexedReader):
      prefix = IndexedReader(prefix)
    self.corpus = Corpus(prefix, name)
    self.sources = (self.corpus,)
    self.seq_length = seq_length
    self.extra = int(add_extra_token)
    self.vocab_size = vocab_size
    self.num_samples = num_samples
    self.cache = cache or IndexCache(None)
    self._seed = seed
    self._kind = order
    self._split, self._split_index = split, split_index
    self._drop_last, self._shuffle = drop_last, shuffle
    self._ltor = ltor_options
    self._data_sharding = data_sharding
    self._tokens = split_tokens(
      self.corpus, split=split, split_index=split_index, contiguous=contiguous
    )
    self._order = self._make_order()
    self.buckets = self._make_buckets()
    self.rows_per_epoch = (self.buckets or self._order).rows_per_epoch

  def _make_order(self) -> StableOrder | DocumentsOrder | MegatronOrder:
    common: dict[str, Any] = {
      "seq_length": self.seq_length,
      "extra": self.extra,
      "seed": self._seed,
      "drop_last": self._drop_last,
      "cache": self.cache,
    }
    if self._kind == "megatron":
      return MegatronOrder(self._tokens, num_samples=self.num_samples, **common)
    if self._kind == "documents" and self._shuffle:
      return DocumentsOrder(self._tokens, **common)
    # Documents that are not permuted are as they are stored.
    shuffle = self._shuffle and self._data_sharding is None
    return StableOrder(self._tokens, shuffle=shuffle, **common)

  def _make_buckets(self) -> Buckets | None:
    if self._data_sharding is None:
      return None
    num_buckets = integer("data_sharding", self._data_sharding, minimum=1)
    if not self._order.rows_per_epoch:
      # A split without rows says so when a row is asked of it.
      return None
    return Buckets(
      self._order.rows_per_epoch,
      num_buckets,
      seed=self._seed,
      name=self.corpus.name,
    )

  def with_num_samples(self, num_samples: int | None) -> "GPTSamples":
    """Returns the same rows in Megatron's order for another number of them.

    Raises:
      ValueError: if the order does not depend on it.
    """
    return GPTSamples(
      self.corpus.reader,
      seq_length=self.seq_length,
      seed=self._seed,
      order=self._kind,
      num_samples=num_samples,
      split=self._split,
      split_index=self._split_index,
      add_extra_token=bool(self.extra),
      drop_last=self._drop_last,
      shuffle=self._shuffle,
      name=self.corpus.name,
      contiguous=self._tokens.contiguous,
      vocab_size=self.vocab_size,
      data_sharding=self._data_sharding,
      ltor_options=self._ltor,
      cache=self.cache,
    )

  def __len__(self) -> int:
    """Rows of one epoch; in Megatron's order, of the whole index."""
    return self.rows_per_epoch

  def __getitem__(self, index: Any) -> Any:
    """Returns {tokens, labels}, int32[seq_length] each, of row `index`.

    With ltor_options also `ltor.ltor_fields`.
    """
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
    """What decides the rows besides the corpus and the number asked for."""
    settings = {
      "kind": "gpt",
      "order": self._kind,
      "shuffle": bool(self._shuffle),
      "seed": self._seed,
      "seq_length": self.seq_length,
      "add_extra_token": bool(self.extra),
      "split": parse_split(self._split),
      "split_index": self._split_index,
      "drop_last": bool(self._drop_last),
    }
    # Only where they are used, so that other fingerprints stay what they were.
    if self._data_sharding is not None:
      settings["data_sharding"] = self._data_sharding
    if self._ltor is not None:
      settings["eod_id"] = self._ltor.eod_id
    return settings

  @property
  def unique_identifiers(self) -> dict[str, Any]:
    """Everything that decides the rows; paths and times do not."""
    identity = {**self.settings, "sources": [self.corpus.identity]}
    if self._kind == "megatron":
      identity["num_samples"] = self.num_samples
    return identity

  @property
  def num_tokens(self) -> int:
    """Tokens of the split, T."""
    return self._tokens.num_tokens

  @property
  def document_index(self) -> np.ndarray:
    """int32[E * sequences], Megatron's order of the split's sequences."""
    return self._megatron().document_index

  @property
  def sample_index(self) -> np.ndarray:
    """int32[rows + 1, 2], (place in document_index, offset) of each sample."""
    return self._megatron().sample_index

  @property
  def shuffle_index(self) -> np.ndarray:
    """uint32[rows], which sample each row is."""
    return self._megatron().shuffle_index

  def _megatron(self) -> MegatronOrder:
    if not isinstance(self._order, MegatronOrder):
      raise AttributeError(
        f'These samples have order={self._kind!r}; only order="megatron" has'
        " a document, a sample and a shuffle index for a whole run."
      )
    return self._order

  def rows_per_source(self, num_rows: int) -> np.ndarray:
    """Returns int64[1]: all of the first `num_rows` rows are this source's."""
    return np.array([num_rows], np.int64)

  def num_rows(self, epochs: int) -> int:
    """Returns how many rows `epochs` epochs have."""
    return self.rows_per_epoch * epochs

  @property
  def rows_per_pass(self) -> float:
    """Rows that read every token once: an epoch's, not a whole index's."""
    if self._kind == "megatron":
      cuts = max(self._tokens.num_tokens - self.extra, 0)
      return cuts / self.seq_length
    return float(self.rows_per_epoch)

  def build_index(self, epochs: int = 1) -> None:
    """Builds, or finds in the cache, the indices that the rows need.

    Args:
      epochs: how many, of an order that has some of its own each epoch.
    """
    self._with_path(lambda: self._order.build_index(epochs))

  def open_rows(self, rows: np.ndarray | Sequence[int]) -> TokenRows:
    """Plans rows, to read windows of their fields."""
    return TokenRows(self, rows)

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
      IndexError: for a negative row, or one past the end of Megatron's index.
      ValueError: for a split too small for one row, or sequences that do not
        lie back to back.
    """
    rows = kernel_rows(rows)
    if not self.rows_per_epoch:
      row_tokens = self.seq_length + self.extra
      spans_epochs = self._kind == "megatron" and self.num_samples is not None
      raise ValueError(
        too_small(
          self.corpus,
          span=(self._tokens.first, self._tokens.last),
          split=self._split,
          split_index=self._split_index,
          num_tokens=self._tokens.num_tokens,
          row_tokens=row_tokens,
          enough_tokens=1 if spans_epochs else row_tokens,
        )
      )
    if self.buckets is not None:
      epochs, rows = self.buckets.map(rows)
      if self._kind != "megatron":
        rows = epochs * self._order.rows_per_epoch + rows
    return RowPlans(*self._with_path(lambda: self._order.plan(rows, source)))

  def _with_path(self, do: Callable[[], Any]) -> Any:
    """Does it; an error says which corpus it is about."""
    try:
      return do()
    except ValueError as error:
      raise ValueError(f"{self.corpus.path}.idx: {error}") from error
    except MemoryError as error:
      raise MemoryError(
        f"{self.corpus.path}: the index of order={self._kind!r} for"
        f" num_samples={self.num_samples} (training.train_samples) has"
        f" {self.rows_per_epoch} rows, which do not fit into memory: {error}"
      ) from error

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
    """Returns where documents begin in planned rows.

    The plan knows and no token is read, but with ltor_options: then whole
    rows are looked through for end-of-document ids.
    """
    segments = gather.segments(plans)
    if self._ltor is None:
      return segments
    return eod_segments(
      plans,
      sources=sources or self.sources,
      eod_id=self._ltor.eod_id,
      lengths=segments.lengths,
    )


def _check_order(order: str, num_samples: int | None, shuffle: bool) -> None:
  """Raises ValueError for an unknown order, or arguments it does not take."""
  if order not in ORDERS:
    raise ValueError(
      f"order must be one of {', '.join(map(repr, ORDERS))}; got {order!r}."
    )
  if order == "megatron":
    if not shuffle:
      raise ValueError(
        'order="megatron" is shuffled always, got shuffle=False. Use'
        ' order="stable" to read rows as they are stored.'
      )
  elif num_samples is not None:
    raise ValueError(
      f'num_samples must be None with order="{order}", got {num_samples}:'
      " the order does not depend on how many rows are asked for. Stop"
      " after as many rows as you need."
    )
