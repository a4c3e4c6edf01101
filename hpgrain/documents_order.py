"""Each epoch's documents in an order of their own, and rows cut across them.

  stored     document 0 | 1 | 2 | 3 | ...
  epoch e    document p is permute(p), whole
  row i      cut i % M of epoch i // M

An epoch's arrays are made when it is reached, and kept by a cache.
"""

import collections
import threading
from typing import Any

import numpy as np

from hpgrain import _kernels, megatron
from hpgrain.index_cache import IndexCache
from hpgrain.order import grouped, permutation_key, permute
from hpgrain.records import PlanTuple
from hpgrain.split_tokens import SplitTokens

# Epochs whose arrays are held: a batch may reach from one into the next.
_HELD_EPOCHS = 2

# Documents permuted at a time.
_CHUNK = 1 << 22


class DocumentsOrder:
  """Row number -> pieces, with an epoch's documents permuted.

  A document of several sequences stays together. Nothing depends on how many
  rows are asked for.
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
    for epoch, chosen in grouped(epochs):
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
        "sample_index": tokens.walk(
          document_index,
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
