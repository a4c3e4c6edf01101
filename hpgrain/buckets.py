"""Row numbers of a source in, (epoch, place) out: an order of N buckets.

An epoch's M rows are cut into N buckets of m = M // N; row after row takes
the next of another bucket, and each bucket is permuted by itself.

  places   [0 ... m) [m ... 2m) ... [(N-1)m ... Nm)   left: M - Nm
  bucket       0         1              N - 1
  rows 0, 1, ..., N-1, N, ...   take buckets 0, 1, ..., N-1, 0, ...

So reader b of N that takes every N-th row stays within one bucket, and the
rows are the same however many readers there are.
"""

import functools
from collections.abc import Sequence

import numpy as np

from hpgrain import _kernels
from hpgrain.arguments import integer, row_numbers
from hpgrain.order import bucket_key, grouped

# A batch takes a row or a few of each bucket, the next batch of them again:
# without this, making keys would cost more than all the rest.
_key = functools.lru_cache(maxsize=1 << 14)(bucket_key)


class Buckets:
  """The order of one source whose rows are permuted bucket by bucket.

  Attributes:
    num_buckets: N.
    bucket_rows: rows of a bucket, m.
    rows_per_epoch: rows an epoch reads, m * N.
    left: rows of an epoch that no bucket holds, fewer than N: the same ones,
      its last, in every epoch.
  """

  def __init__(self, num_rows: int, num_buckets: int, *, seed: int, name: str):
    """Divides the rows.

    Args:
      num_rows: rows the source has an epoch, M.
      num_buckets: N.
      seed: keys the order, together with the name, the epoch and the bucket.
      name: of the source.

    Raises:
      ValueError: for an argument that is no integer, no bucket, or fewer rows
        than buckets.
    """
    num_rows = integer("num_rows", num_rows, minimum=0)
    self.num_buckets = integer("data_sharding", num_buckets, minimum=1)
    self._seed, self._name = integer("seed", seed), name
    self.bucket_rows = num_rows // self.num_buckets
    if not self.bucket_rows:
      raise ValueError(
        f"Source {name!r}: {num_rows} rows an epoch are too few for"
        f" data_sharding={self.num_buckets}, whose buckets need a row each."
        " Set data_sharding to at most the rows of the smallest source, or"
        " leave this source out."
      )
    self.rows_per_epoch = self.bucket_rows * self.num_buckets
    self.left = num_rows - self.rows_per_epoch

  def map(
    self, rows: np.ndarray | Sequence[int]
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns where rows stand.

    Args:
      rows: int64[n], any rows from 0 on, in any order.

    Returns:
      (epoch int64[n], place int64[n]), places in [0, rows_per_epoch).

    Raises:
      IndexError: for a negative row.
    """
    rows = row_numbers(rows)
    epoch, row = np.divmod(rows, self.rows_per_epoch)
    k, bucket = np.divmod(row, self.num_buckets)
    place = np.empty_like(rows)
    for group, chosen in grouped(epoch * self.num_buckets + bucket):
      e, b = divmod(group, self.num_buckets)
      key = _key(self._seed, self._name, e, b)
      within = _kernels.permute(k[chosen], self.bucket_rows, key)
      place[chosen] = b * self.bucket_rows + within
    return epoch, place
