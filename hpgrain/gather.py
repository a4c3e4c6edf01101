"""Fills row plans with tokens, only the positions asked for.

Plans say which pieces of which sequences make each row; `read_rows` gathers
a window of all of them in one C++ call, `segments` says where the documents
begin without reading a token.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from hpgrain import _kernels
from hpgrain.records import (
  IGNORE_INDEX,
  LABELS,
  PAD_ID,
  TOKENS,
  RowPlans,
  Segments,
)

_FIRST_SOURCE = np.zeros(1, np.int32)


class TokenSource(Protocol):
  """What rows are read from: a named corpus of token sequences."""

  name: str
  path: str

  def token_file(self) -> _kernels.TokenFile:
    """Returns the open `.idx`/`.bin` pair."""
    ...


def window_columns(
  window: tuple[int, int] | None, seq_length: int, extra: int
) -> tuple[int, int]:
  """Returns the [begin, end) tokens that positions `window` of a row need.

  One more token than positions gives the shifted labels; a row without an
  extra token has none after its last position.

  Raises:
    ValueError: if the window does not lie within the row.
  """
  begin, end = (0, seq_length) if window is None else window
  if not 0 <= begin < end <= seq_length:
    raise ValueError(
      f"A window is [begin, end) with 0 <= begin < end <= {seq_length},"
      f" got ({begin}, {end})."
    )
  return begin, min(end + 1, seq_length + extra)


def _files(
  plans: RowPlans, sources: Sequence[TokenSource]
) -> tuple[np.ndarray, list[_kernels.TokenFile]]:
  """Returns the numbers of the sources that the plans use, and their files."""
  if len(sources) == 1:
    return _FIRST_SOURCE, [sources[0].token_file()]
  used = np.unique(plans.source)
  return used, [sources[i].token_file() for i in used]


def read_rows(
  plans: RowPlans,
  *,
  sources: Sequence[TokenSource],
  columns: tuple[int, int],
  vocab_size: int | None,
) -> np.ndarray:
  """Reads token columns [begin, end) of each planned row.

  Args:
    plans: n rows.
    sources: what `plans.source` counts.
    columns: [begin, end), in tokens from the row's beginning.
    vocab_size: ids must lie below it; None allows any int32.

  Returns:
    int32[n, end - begin], PAD_ID past a row's end.

  Raises:
    ValueError: for an id outside the vocabulary, or a file that does not
      hold what its index promises.
  """
  begin, end = columns
  out = np.empty((len(plans), end - begin), np.int32)
  used, files = _files(plans, sources)
  try:
    piece, position, token = _kernels.gather(
      plans.row_splits,
      plans.source,
      plans.sequence,
      plans.offset,
      plans.length,
      used,
      files,
      begin,
      end,
      PAD_ID,
      vocab_size or 0,
      out,
    )
  except (IndexError, OSError) as error:
    raise _with_paths(error, sources, used) from error
  if piece >= 0:
    row = np.searchsorted(plans.row_splits, piece, side="right") - 1
    before = plans.length[plans.row_splits[row] : piece].sum()
    offset = plans.offset[piece] + position - before
    allowed = vocab_size or 1 << 31
    raise ValueError(
      f"Source {sources[plans.source[piece]].name!r}, sequence"
      f" {plans.sequence[piece]}, offset {offset}: token id {token} lies"
      f" outside the vocabulary [0, {allowed}). The corpus was made with"
      " another tokenizer, or `vocab_size` is wrong."
    )
  return out


def find_token(
  plans: RowPlans, *, sources: Sequence[TokenSource], token: int
) -> tuple[np.ndarray, np.ndarray]:
  """Finds a token in whole rows.

  Returns:
    (row_splits int64[n + 1], positions int64[k]): where in each row the id
    stands, ascending.
  """
  used, files = _files(plans, sources)
  try:
    return _kernels.find_id(
      plans.row_splits,
      plans.source,
      plans.sequence,
      plans.offset,
      plans.length,
      used,
      files,
      token,
    )
  except (IndexError, OSError) as error:
    raise _with_paths(error, sources, used) from error


def _with_paths(
  error: IndexError | OSError, sources: Sequence[TokenSource], used: np.ndarray
) -> ValueError | OSError:
  """Returns the error with paths: kernels know sources by number alone."""
  kind = ValueError if isinstance(error, IndexError) else OSError
  paths = ", ".join(sources[i].path for i in used[:4])
  return kind(
    f"{paths}: {str(error).rstrip('.')}. The .bin does not hold what the .idx"
    " promises: was it changed or cut short after it was opened?"
  )


def segments(plans: RowPlans) -> Segments:
  """Returns where the documents of each row begin, from the plan alone."""
  return Segments(
    *_kernels.find_segments(plans.row_splits, plans.length, plans.boundary)
  )


def row_fields(
  text: np.ndarray, plan: RowPlans, extra: int
) -> dict[str, np.ndarray]:
  """Splits the tokens of a row, int32[S + extra], into inputs and labels.

  Positions without a following token, at the end of a row that has no extra
  token or is padded, have no label. Boundaries between documents are not
  masked here: that is `batch`'s part.
  """
  if extra:
    tokens, labels = text[:-1], text[1:].copy()
  else:
    tokens, labels = text, np.roll(text, -1)
  labels[plan.length.sum() - 1 :] = IGNORE_INDEX
  return {TOKENS: tokens, LABELS: labels}
