r"""Examples in the order of a block in, pieces that packers place out.

  example   length 3   7   12        limit 8, overlong="split"
  pieces           3   7   8 4       columns RECORD .. OFFSET, a piece each

Pieces are columns of one int64 table: a stream joins, cuts and gathers all of
them at once.
"""

import numpy as np

from hpgrain import pack

# Rows of a table of pieces: the blended record; which piece of it this is, and
# of how many; the source; where its tokens are, in which block of tokens and
# from where on; how many they are; and how many come before it in its example.
RECORD, ORDINAL, COUNT, SOURCE, BLOCK, BEGIN, LENGTH, OFFSET = range(8)
NUM_COLUMNS = 8


def no_pieces() -> np.ndarray:
  """Returns int64[NUM_COLUMNS, 0]."""
  return np.zeros((NUM_COLUMNS, 0), np.int64)


def make_pieces(
  example_splits: np.ndarray,
  *,
  record: np.ndarray,
  source: np.ndarray,
  limit: int | None,
  overlong: str,
) -> np.ndarray:
  """Returns int64[NUM_COLUMNS, n]: the pieces of examples, in their order.

  Args:
    example_splits: int64[m + 1], where each example's tokens begin.
    record: int64[m], of each; those of one record follow each other.
    source: int64[m], of each.
    limit: tokens a piece may have; None for any number.
    overlong: what becomes of an example that has more; see `pack.overlong`.

  Raises:
    ValueError: an example has more, and that is an error.
  """
  lengths = np.diff(example_splits)
  if limit is None or lengths.max(initial=0) <= limit:
    if not len(lengths) or lengths.min() > 0:
      return _table(record, source, example_splits[:-1], lengths)
    kept = np.flatnonzero(lengths)
    return _table(
      record[kept], source[kept], example_splits[:-1][kept], lengths[kept]
    )
  parts = pack.overlong(lengths, budget=limit, policy=overlong)
  kept = np.flatnonzero(parts.length)
  item = parts.item[kept]
  begin = example_splits[item] + parts.offset[kept]
  pieces = _table(record[item], source[item], begin, parts.length[kept])
  pieces[OFFSET] = parts.offset[kept]
  return pieces


def cut_front(pieces: np.ndarray, index: int, tokens: int) -> None:
  """Takes away the first tokens of a piece."""
  pieces[BEGIN, index] += tokens
  pieces[OFFSET, index] += tokens
  pieces[LENGTH, index] -= tokens


def _table(
  record: np.ndarray, source: np.ndarray, begin: np.ndarray, length: np.ndarray
) -> np.ndarray:
  """Pieces with tokens of one block, numbered within their records."""
  pieces = np.empty((NUM_COLUMNS, len(record)), np.int64)
  pieces[RECORD], pieces[SOURCE] = record, source
  pieces[BLOCK], pieces[OFFSET] = 0, 0
  pieces[BEGIN], pieces[LENGTH] = begin, length
  if not len(record):
    return pieces
  cuts = np.flatnonzero(record[1:] != record[:-1]) + 1
  firsts = np.concatenate([[0], cuts])
  counts = np.diff(np.append(firsts, len(record)))
  pieces[ORDINAL] = np.arange(len(record)) - np.repeat(firsts, counts)
  pieces[COUNT] = np.repeat(counts, counts)
  return pieces
