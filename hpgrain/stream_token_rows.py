"""The pieces of rows of streams in, the fields of any window of them out."""

from collections.abc import Sequence

import numpy as np

from hpgrain.fields import FieldOptions
from hpgrain.packed_fields import (
  PackedPlans,
  clip,
  make_packed_fields,
  starts,
)
from hpgrain.stream_pieces import LENGTH, OFFSET, RECORD, SOURCE
from hpgrain.token_blocks import TokenBlock


class StreamTokenRows:
  """Rows of one batch; see `token_rows.OpenRows`.

  Attributes:
    plans: their pieces; `example` is the blended record of each.
    filled: bool[n], which rows are there: the others are of streams that have
      ended, and padding.
  """

  def __init__(
    self,
    pieces: np.ndarray,
    tokens: TokenBlock,
    *,
    counts: Sequence[int],
    multiple: int,
  ):
    """Takes the rows.

    Args:
      pieces: int64[NUM_COLUMNS, m], row after row.
      tokens: of the pieces, one after the other.
      counts: pieces of each row; 0 where there is none.
      multiple: what the room of a piece is rounded up to.
    """
    row_splits = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=row_splits[1:])
    length = pieces[LENGTH].astype(np.int32)
    self.plans = PackedPlans(
      row_splits=row_splits,
      source=pieces[SOURCE].astype(np.int32),
      example=pieces[RECORD],
      offset=pieces[OFFSET],
      length=length,
      start=starts(row_splits, length, multiple=multiple),
    )
    self.filled = np.diff(row_splits) > 0
    self._tokens = tokens
    self._begin = np.cumsum(pieces[LENGTH]) - pieces[LENGTH]

  def fields(
    self, window: tuple[int, int], *, num_rows: int, options: FieldOptions
  ) -> dict[str, np.ndarray]:
    """Returns positions [a, b) of every field; see `token_rows.OpenRows`."""
    plans, tokens = self.plans, self._tokens
    pieces, skipped, _ = clip(plans, window)
    begin = self._begin.copy()
    begin[pieces] += skipped
    return make_packed_fields(
      plans,
      id_begin=begin,
      label_begin=begin,
      ids=tokens.ids,
      labels=tokens.labels,
      weights=tokens.weights,
      window=window,
      num_rows=num_rows,
      options=options,
    )
