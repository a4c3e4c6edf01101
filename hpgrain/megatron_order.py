"""Megatron-core's order of one split, by arrays that a cache keeps.

  row i -> shuffle_index -> sample_index -> document_index -> pieces

Every array is a stage of its own in the cache, named by what decides it, so
that another seq_length finds the documents' order where it was. `megatron`
has the rules; nothing is built before a row is asked for.
"""

import functools
from typing import Any

import numpy as np

from hpgrain import _kernels, megatron
from hpgrain.index_cache import IndexCache
from hpgrain.megatron_blend import past_the_end
from hpgrain.records import PlanTuple
from hpgrain.split_tokens import SplitTokens


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
        "sample_index": self._tokens.walk(
          self.document_index,
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
    try:
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
    except IndexError as error:
      # The kernel has looked at every row; it does not know what is asked for.
      last = int(rows.max())
      if last < self.rows_per_epoch:
        raise
      raise IndexError(past_the_end(last, self.rows_per_epoch)) from error

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
