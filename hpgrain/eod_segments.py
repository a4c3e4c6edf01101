"""Row plans in; out come the documents that end-of-document ids set apart.

  row        1 9 2 3 9 4 5 6      end-of-document id 9
  segments   1 1 2 2 2 3 3 3      a boundary after each 9 and at the end

For rows whose plans no longer know where their documents begin, and for who
wants documents to be what the ids say; all tokens of the rows are read.
"""

from collections.abc import Sequence

import numpy as np

from hpgrain import gather
from hpgrain.records import RowPlans, Segments


def eod_segments(
  plans: RowPlans,
  *,
  sources: Sequence[gather.TokenSource],
  eod_id: int | None,
  lengths: np.ndarray,
) -> Segments:
  """Finds where documents begin: after each end-of-document id.

  Adjacent ids make segments of one token. Without an end-of-document id a row
  is one segment.

  Args:
    plans: n rows.
    sources: what `plans.source` counts.
    eod_id: the id that ends a document; None for none.
    lengths: int64[n], tokens each row holds, the extra one included. An id at
      a row's end begins nothing there.

  Raises:
    ValueError: for another number of lengths than rows, or a file that does
      not hold what its index promises.
    OSError: for a file that cannot be read.
  """
  num = len(plans)
  lengths = np.asarray(lengths, np.int64)
  if lengths.shape != (num,):
    raise ValueError(
      f"eod_segments needs one length a row, got shape {lengths.shape} for"
      f" {num} rows."
    )
  if eod_id is None:
    row_splits = np.arange(num + 1, dtype=np.int64)
    return Segments(row_splits, np.zeros(num, np.int64), lengths)
  splits, ends = gather.find_token(plans, sources=sources, token=eod_id)
  rows = np.repeat(np.arange(num), np.diff(splits))
  inside = ends + 1 < lengths[rows]
  row_splits = np.zeros(num + 1, np.int64)
  np.cumsum(np.bincount(rows[inside], minlength=num) + 1, out=row_splits[1:])
  starts = np.zeros(row_splits[-1], np.int64)
  later = np.ones(len(starts), bool)
  later[row_splits[:-1]] = False
  starts[later] = ends[inside] + 1
  return Segments(row_splits, starts, lengths)
