r"""Planned rows of documents in, their fields out, reading what is asked for.

  a window           of each piece the part that lies in it
  ranks of a layout  of each piece the chunks that they hold

A part is read with one token more, the label of its last position.
"""

from typing import Protocol

import numpy as np

from hpgrain.context_layout import ContextLayout
from hpgrain.fields import FieldOptions
from hpgrain.packed_fields import (
  PackedPlans,
  clip,
  clip_to_ranks,
  make_packed_fields,
)
from hpgrain.records import PAD_ID


class PartReader(Protocol):
  """What reads parts of pieces: `PackedSamples`."""

  @property
  def ahead(self) -> int:
    """Tokens of a document that are labels alone, 0 or 1."""
    ...

  def read_parts(
    self,
    plans: PackedPlans,
    pieces: np.ndarray,
    *,
    skipped: np.ndarray,
    count: np.ndarray,
  ) -> np.ndarray:
    """Reads parts, one after the other, with `ahead` tokens more each."""
    ...


class PackedTokenRows:
  """Planned rows of `PackedSamples`.

  Attributes:
    plans: their pieces.
  """

  def __init__(self, samples: PartReader, plans: PackedPlans):
    """Holds the plan."""
    self._samples, self.plans = samples, plans

  def fields(
    self, window: tuple[int, int], *, num_rows: int, options: FieldOptions
  ) -> dict[str, np.ndarray]:
    """Returns positions [a, b) of every field; see `token_rows.OpenRows`."""
    pieces, skipped, count = clip(self.plans, window)
    ids, sizes = self._read(pieces, skipped, count)
    begin = np.zeros(len(self.plans.length), np.int64)
    begin[pieces] = np.cumsum(sizes) - sizes
    return self._make(
      ids, begin, window=window, num_rows=num_rows, options=options
    )

  def fields_of_ranks(
    self,
    context: ContextLayout,
    ranks: frozenset[int],
    *,
    num_positions: int,
    num_rows: int,
    options: FieldOptions,
  ) -> dict[str, np.ndarray]:
    """Returns whole rows; tokens are read where `ranks` hold the position.

    Elsewhere ids are PAD_ID, and labels, too.

    Args:
      context: "document_zigzag", over as many ranks.
      ranks: some of them.
      num_positions: of a row.
      num_rows: rows to make; those past the planned ones are padding.
      options: how.
    """
    pieces, skipped, count = clip_to_ranks(self.plans, context, ranks)
    read, sizes = self._read(pieces, skipped, count)
    # As if all had been read: every piece has room for its tokens.
    room = self.plans.length.astype(np.int64) + self._samples.ahead
    begin = np.cumsum(room) - room
    ids = np.full(int(room.sum()), PAD_ID, np.int32)
    ends = np.cumsum(sizes)
    ids[
      np.arange(len(read))
      + np.repeat(begin[pieces] + skipped - ends + sizes, sizes)
    ] = read
    window = (0, num_positions)
    return self._make(
      ids, begin, window=window, num_rows=num_rows, options=options
    )

  def _read(
    self, pieces: np.ndarray, skipped: np.ndarray, count: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns the tokens of parts of pieces, and int64[k], how many of each."""
    sizes = count.astype(np.int64) + self._samples.ahead
    if not len(pieces):
      return np.zeros(0, np.int32), sizes
    ids = self._samples.read_parts(
      self.plans, pieces, skipped=skipped, count=count
    )
    return ids, sizes

  def _make(
    self,
    ids: np.ndarray,
    begin: np.ndarray,
    *,
    window: tuple[int, int],
    num_rows: int,
    options: FieldOptions,
  ) -> dict[str, np.ndarray]:
    return make_packed_fields(
      self.plans,
      id_begin=begin,
      label_begin=begin + self._samples.ahead,
      ids=ids,
      labels=ids,
      window=window,
      num_rows=num_rows,
      options=options,
    )
