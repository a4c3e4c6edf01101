"""Orders that mix documents inside rows, by arrays that a cache keeps.

  MegatronOrder    E epochs in one index, as Megatron-core builds it
  DocumentsOrder   each epoch by itself: its documents permuted, then cut

Both walk over documents and note where each sample begins (`megatron`); they
differ in what puts the documents in order. Every array is a stage of its own
in the cache, named by what decides it, so that another seq_length finds the
documents' order where it was.
"""

import collections
import functools
import threading
from typing import Any

import numpy as np

from hpgrain import _kernels, megatron
from hpgrain.index_cache import IndexCache
from hpgrain.megatron_blend import past_the_end
from hpgrain.order import permutation_key, permute
from hpgrain.split_tokens import SplitTokens

PlanTuple = tuple[np.ndarray, ...]

# Epochs whose arrays are held: a batch may reach from one into the next.
_HELD_EPOCHS = 2

# Documents permuted at a time.
_CHUNK = 1 << 22


class MegatronOrder:
  """Megatron's order of one split, for a number of rows asked for."""

  def __init__(
    self,
    tokens: SplitTokens,
    *,
    seq_length: int,
    extra: int,
    seed: int,
    drop_last: bool,
    num_samples: int | None,
    cache: IndexCache,
  ):
    """Computes how large the index is; builds nothing.

    Args:
      tokens: of the split.
      seq_length: positions a row, S.
      extra: tokens a row has beyond them.
      seed: of the generator, 0 to 2^32 - 1.
      drop_last: whether the tail that does not fill a row is left out.
      num_samples: rows asked for; None is one epoch.
      cache: of the index.

    Raises:
      ValueError: for a seed that the generator does not take.
    """
    self._tokens = tokens
    self._seq_length, self._extra = seq_length, extra
    self._seed = megatron.check_seed(seed)
    self._cache = cache
    self._drop_last = drop_last
    self.shape = megatron.index_shape(
      num_samples,
      tokens_per_epoch=tokens.num_tokens,
      seq_length=seq_length,
      extra=extra,
      drop_last=drop_last,
    )
    self.rows_per_epoch = self.shape.num_rows
    self._stages = megatron.stages(
      self.shape, tokens.last - tokens.first, last=tokens.last
    )

  def __getstate__(self) -> dict[str, Any]:
    """Leaves out the arrays, which are loaded or built anew."""
    arrays = ("_documents", "sample_index", "shuffle_index")
    return {k: v for k, v in self.__dict__.items() if k not in arrays}

  @property
  def document_index(self) -> np.ndarray:
    """int32[E * sequences] (int64 where they need it), shuffled."""
    return self._documents["document_index"]

  @functools.cached_property
  def _documents(self) -> dict[str, np.ndarray]:
    first, last = self._tokens.first, self._tokens.last
    return self._get(
      "documents",
      self._documents_key,
      lambda: megatron.build_documents(
        first, last, self.shape, seed=self._seed
      ),
    )

  @functools.cached_property
  def sample_index(self) -> np.ndarray:
    """int32[rows + 1, 2] (int64 where they need it): (place, offset)."""
    key = {
      **self._documents_key,
      "seq_length": self._seq_length,
      "extra": self._extra,
      "drop_last": self._drop_last,
    }

    def build() -> dict[str, np.ndarray]:
      return {
        "sample_index": walk(
          self._tokens,
          self.document_index,
          num_epochs=self.shape.num_epochs,
          seq_length=self._seq_length,
          extra=self._extra,
          num_rows=self.shape.num_rows,
        )
      }

    return self._get("samples", key, build)["sample_index"]

  @functools.cached_property
  def shuffle_index(self) -> np.ndarray:
    """uint32[rows] (int64 where they need it): row -> sample."""
    shape = self.shape
    key = {
      # No corpus: what was drawn before depends on the lengths drawn for.
      "seed": self._seed,
      "sequences": self._tokens.last - self._tokens.first,
      "num_epochs": shape.num_epochs,
      "separate_last": shape.separate_last,
      "first_rows": shape.first_rows,
      "num_rows": shape.num_rows,
    }

    def build() -> dict[str, np.ndarray]:
      state = self._documents["random_state"]
      return megatron.build_shuffle(shape, random_state=state)

    return self._get("shuffle", key, build)["shuffle_index"]

  def plan(self, rows: np.ndarray, source: int) -> PlanTuple:
    """Returns the arrays of `RowPlans` for int64[n] rows.

    Raises:
      IndexError: for a row that the index was not built for.
      ValueError: if the index does not fit the corpus.
    """
    if len(rows) and int(rows.max()) >= self.rows_per_epoch:
      raise IndexError(past_the_end(int(rows.max()), self.rows_per_epoch))
    return _kernels.plan_samples(
      self._tokens.corpus.token_file(),
      rows,
      source,
      self.document_index,
      self.sample_index,
      self.shuffle_index,
      self._seq_length,
      self._extra,
    )

  def build_index(self, epochs: int) -> None:
    """Builds the three indices, or finds them in the cache."""
    del epochs
    _ = self.document_index, self.sample_index, self.shuffle_index

  @property
  def _documents_key(self) -> dict[str, Any]:
    return {
      **self._tokens.key,
      "seed": self._seed,
      "num_epochs": self.shape.num_epochs,
      "separate_last": self.shape.separate_last,
    }

  def _get(self, kind: str, key: dict[str, Any], build: Any) -> Any:
    return self._cache.get(
      kind, key=key, arrays=self._stages[kind], build=build
    )


class DocumentsOrder:
  """Each epoch's documents in an order of its own, and rows cut across them.

  Row i is sample i % M of epoch i // M. A document of several sequences stays
  together. Nothing depends on how many rows are asked for.
  """

  def __init__(
    self,
    tokens: SplitTokens,
    *,
    seq_length: int,
    extra: int,
    seed: int,
    drop_last: bool,
    cache: IndexCache,
  ):
    """Holds the numbers; an epoch's arrays are made when it is reached.

    Args:
      tokens: of the split.
      seq_length: positions a row, S.
      extra: tokens a row has beyond them.
      seed: keys the order, with the corpus's name and the epoch.
      drop_last: whether the tail that does not fill a row is left out.
      cache: of the arrays.
    """
    self._tokens = tokens
    self._seq_length, self._extra = seq_length, extra
    self._seed, self._drop_last = seed, drop_last
    self._cache = cache
    self.rows_per_epoch = megatron.num_samples_in(
      tokens.num_tokens,
      seq_length=seq_length,
      extra=extra,
      drop_last=drop_last,
    )
    self._make_room()

  def _make_room(self) -> None:
    self._lock = threading.Lock()
    self._held: collections.OrderedDict[int, tuple[np.ndarray, np.ndarray]] = (
      collections.OrderedDict()
    )

  def __getstate__(self) -> dict[str, Any]:
    """Leaves out the arrays, which are loaded or built anew."""
    gone = ("_lock", "_held")
    return {k: v for k, v in self.__dict__.items() if k not in gone}

  def __setstate__(self, state: dict[str, Any]) -> None:
    self.__dict__.update(state)
    self._make_room()

  def epoch_index(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns (document_index, sample_index) of an epoch."""
    with self._lock:
      if epoch not in self._held:
        self._held[epoch] = self._load(epoch)
      self._held.move_to_end(epoch)
      while len(self._held) > _HELD_EPOCHS:
        self._held.popitem(last=False)
      return self._held[epoch]

  def plan(self, rows: np.ndarray, source: int) -> PlanTuple:
    """Returns the arrays of `RowPlans` for int64[n] rows.

    Raises:
      IndexError: for a negative row.
      ValueError: if the index does not fit the corpus.
    """
    if len(rows) and int(rows.min()) < 0:
      raise IndexError(f"Rows count from 0, got row {rows.min()}.")
    epochs, samples = np.divmod(rows, self.rows_per_epoch)
    parts = []
    for epoch in np.unique(epochs).tolist():
      chosen = np.flatnonzero(epochs == epoch)
      document_index, sample_index = self.epoch_index(epoch)
      plan = _kernels.plan_samples(
        self._tokens.corpus.token_file(),
        samples[chosen],
        source,
        document_index,
        sample_index,
        None,
        self._seq_length,
        self._extra,
      )
      parts.append((chosen, plan))
    if len(parts) == 1:
      return parts[0][1]
    return _kernels.merge_plans(len(rows), parts)

  def build_index(self, epochs: int) -> None:
    """Builds the arrays of the first epochs, or finds them in the cache."""
    for epoch in range(epochs):
      self.epoch_index(epoch)

  def _load(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
    tokens = self._tokens
    count = tokens.last - tokens.first
    key = {
      **tokens.key,
      "seed": self._seed,
      "name": tokens.corpus.name,
      "epoch": epoch,
    }
    documents = self._cache.get(
      "epoch_documents",
      key=key,
      arrays={
        "document_index": (megatron.document_index_dtype(tokens.last), (count,))
      },
      build=lambda: {"document_index": self._permuted(epoch)},
    )
    document_index = documents["document_index"]
    samples = self._cache.get(
      "epoch_samples",
      key={
        **key,
        "seq_length": self._seq_length,
        "extra": self._extra,
        "drop_last": self._drop_last,
      },
      arrays={
        "sample_index": (
          megatron.sample_index_dtype(count),
          (self.rows_per_epoch + 1, 2),
        )
      },
      build=lambda: {
        "sample_index": walk(
          tokens,
          document_index,
          num_epochs=1,
          seq_length=self._seq_length,
          extra=self._extra,
          num_rows=self.rows_per_epoch,
        )
      },
    )
    return document_index, samples["sample_index"]

  def _permuted(self, epoch: int) -> np.ndarray:
    """Returns the split's sequences, document after permuted document."""
    tokens = self._tokens
    first, last = tokens.first, tokens.last
    dtype = megatron.document_index_dtype(last)
    begins = np.asarray(tokens.corpus.reader.document_indices)
    # The documents that the split's bounds cut through end there.
    inner = begins[
      np.searchsorted(begins, first, side="right") : np.searchsorted(
        begins, last, side="left"
      )
    ]
    count = len(inner) + 1
    key = permutation_key(self._seed, tokens.corpus.name, epoch)
    order = np.empty(count, np.int64)
    for begin in range(0, count, _CHUNK):
      places = np.arange(begin, min(begin + _CHUNK, count))
      order[begin : begin + _CHUNK] = permute(places, count, key=key)
    edges = np.concatenate([[first], inner, [last]])
    sizes = np.diff(edges)
    if (sizes == 1).all():
      # One sequence a document, as most corpora have it.
      order += first
      return order.astype(dtype)
    sizes = sizes[order]
    ends = np.cumsum(sizes)
    shifts = np.repeat(edges[:-1][order] - (ends - sizes), sizes)
    return (np.arange(last - first) + shifts).astype(dtype)


def walk(
  tokens: SplitTokens,
  document_index: np.ndarray,
  *,
  num_epochs: int,
  seq_length: int,
  extra: int,
  num_rows: int,
) -> np.ndarray:
  """Returns the sample index of a split, after counting its tokens.

  Raises:
    ValueError: if the lengths of its sequences do not add up to what their
      pointers say.
  """
  lengths = tokens.corpus.reader.lengths
  found = int(lengths[tokens.first : tokens.last].sum(dtype=np.int64))
  if found != tokens.num_tokens:
    raise ValueError(
      f"the lengths of its sequences add up to {found} tokens, their pointers"
      f" to {tokens.num_tokens}"
    )
  assert len(document_index) == num_epochs * (tokens.last - tokens.first)
  return _kernels.sample_index(
    lengths, document_index, seq_length, extra, num_rows
  )
