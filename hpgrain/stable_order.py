"""Rows cut from the documents of a split in stored order.

All tokens of the split stand in a line, document after document, and rows are
cut from it; which cut is row i is arithmetic on (seed, name, i):

  tokens   |--o--|S------|S------|S------|S--  slack
  cut              0       1       2
  row i    epoch e = i // M, cut permute(i % M), shifted by the epoch's o

No array is made and nothing is cached, however many documents there are.
"""

import functools
from typing import Any

import numpy as np

from hpgrain import _kernels
from hpgrain.index_cache import IndexCache
from hpgrain.megatron import num_samples_in
from hpgrain.order import permutation_key
from hpgrain.records import PlanTuple
from hpgrain.split_tokens import APART, SplitTokens


class StableOrder:
  """Row number -> pieces, in the stable order."""

  def __init__(
    self,
    tokens: SplitTokens,
    *,
    seq_length: int,
    extra: int,
    seed: int,
    drop_last: bool,
    shuffle: bool,
    cache: IndexCache,
  ):
    """Holds the numbers; O(1) for back-to-back sequences.

    Args:
      tokens: of the split.
      seq_length: positions a row, S.
      extra: tokens a row has beyond them.
      seed: keys the order, with the corpus's name and the epoch.
      drop_last: whether the tail that does not fill a row is left out.
      shuffle: whether an epoch's rows are permuted.
      cache: of where sequences begin, if they do not lie back to back.
    """
    self._tokens = tokens
    self._seq_length, self._extra = seq_length, extra
    self._seed, self._drop_last, self._shuffle = seed, drop_last, shuffle
    self._cache = cache
    self.rows_per_epoch = num_samples_in(
      tokens.num_tokens,
      seq_length=seq_length,
      extra=extra,
      drop_last=drop_last,
    )

  def __getstate__(self) -> dict[str, Any]:
    """Leaves out the kernel's object, which is made anew from the rest."""
    return {k: v for k, v in self.__dict__.items() if k != "_rows"}

  @functools.cached_property
  def _rows(self) -> _kernels.StableRows:
    return _kernels.StableRows(
      self._tokens.first,
      self._tokens.last,
      self._seq_length,
      self._extra,
      self.rows_per_epoch,
      self._tokens.num_tokens,
      self._shuffle,
      not self._drop_last,
      self._tokens.starts(self._cache),
    )

  def plan(self, rows: np.ndarray, source: int) -> PlanTuple:
    """Returns the arrays of `RowPlans` for int64[n] rows.

    Raises:
      IndexError: for a negative row.
      ValueError: for sequences that do not lie back to back.
    """
    file = self._tokens.corpus.token_file()
    try:
      plan = self._rows.plan(file, rows, source)
      if plan is None:
        plan = self._rows.plan(file, rows, source, self._keys(rows))
    except ValueError as error:
      raise ValueError(f"{str(error).rstrip('.')}. {APART}") from error
    return plan

  def build_index(self, epochs: int) -> None:
    """Finds where sequences begin, if their pointers do not tell."""
    del epochs
    self._tokens.starts(self._cache)

  def _keys(self, rows: np.ndarray) -> list[tuple[int, bytes]]:
    """Returns the key of every epoch among the rows."""
    epochs = np.unique(rows // self.rows_per_epoch).tolist()
    name = self._tokens.corpus.name
    return [(e, permutation_key(self._seed, name, e)) for e in epochs]
