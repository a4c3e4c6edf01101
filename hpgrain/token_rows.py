"""Planned rows of tokens in, the fields of any window of them out.

Rows of whole corpora are tokens one after another: labels are the tokens that
follow, and documents begin where the plan says. They are planned once for all
windows that a process reads of them.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from hpgrain.fields import FieldOptions, make_fields


class OpenRows(Protocol):
  """Rows of one batch that are planned, and read window by window."""

  def fields(
    self, window: tuple[int, int], *, num_rows: int, options: FieldOptions
  ) -> dict[str, np.ndarray]:
    """Returns positions [a, b) of every field, in fresh arrays.

    Args:
      window: [a, b).
      num_rows: rows to make; those past the planned ones are padding.
      options: how.
    """
    ...


class TokenRows:
  """Rows of samples that are read as tokens."""

  def __init__(self, samples: Any, rows: np.ndarray | Sequence[int]):
    """Plans the rows, and finds where their documents begin.

    Args:
      samples: with plan_rows, segments, read and seq_length.
      rows: int64[n].
    """
    self._samples = samples
    self._plans = samples.plan_rows(rows)
    self._segments = samples.segments(self._plans)

  def fields(
    self, window: tuple[int, int], *, num_rows: int, options: FieldOptions
  ) -> dict[str, np.ndarray]:
    """Returns positions [a, b) of every field; see `OpenRows`."""
    row_sources = None
    if options.source_ids:
      # All pieces of a row are of one source.
      row_sources = self._plans.source[self._plans.row_splits[:-1]]
    return make_fields(
      self._samples.read(self._plans, window),
      self._segments,
      window=window,
      seq_length=self._samples.seq_length,
      num_rows=num_rows,
      options=options,
      row_sources=row_sources,
    )
