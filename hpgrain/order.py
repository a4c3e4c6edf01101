"""The keys of hpgrain's orders: (seed, name, epoch) to 16 bytes, for ever.

`docs/orders.md` gives the definition and vectors; changing either would
change the rows of every run that was ever started.
"""

import hashlib
import json
from collections.abc import Iterator

import numpy as np

from hpgrain import _kernels
from hpgrain.arguments import integer


def permutation_key(seed: int, name: str, epoch: int) -> bytes:
  """Returns the 16-byte key of a source's order in one epoch.

  It is the beginning of BLAKE2b over the JSON list `[seed,name,epoch]` in
  UTF-8, without spaces.

  Raises:
    ValueError: for a seed or an epoch that is no integer.
  """
  return _key(integer("seed", seed), str(name), integer("epoch", epoch))


def bucket_key(seed: int, name: str, epoch: int, bucket: int) -> bytes:
  """Returns the 16-byte key of one bucket of a source in one epoch.

  Like `permutation_key`, over the list `[seed,name,epoch,bucket]`.

  Raises:
    ValueError: for a seed, an epoch or a bucket that is no integer.
  """
  return _key(
    integer("seed", seed),
    str(name),
    integer("epoch", epoch),
    integer("bucket", bucket),
  )


def _key(*parts: int | str) -> bytes:
  text = json.dumps(parts, ensure_ascii=False, separators=(",", ":"))
  return hashlib.blake2b(text.encode()).digest()[:16]


def grouped(values: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
  """Yields each number among int64[n] `values` and where it stands.

  In ascending order, and each number's places ascend too. A permutation has
  one key, so rows of several are sent through it group by group.
  """
  if not len(values):
    return
  places = np.argsort(values, kind="stable")
  ordered = values[places]
  begins = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
  for part in np.split(places, begins):
    yield int(values[part[0]]), part


def permute(
  index: int | np.ndarray, size: int, *, key: bytes
) -> int | np.ndarray:
  """Returns where a keyed permutation of [0, size) sends `index`.

  A balanced Feistel network of eight rounds with cycle walking: no array,
  any index by itself.

  Args:
    index: an int, or integers of any shape.
    size: how many indices there are, at least 1.
    key: 16 bytes, from `permutation_key`.

  Returns:
    An int, or int64 of the shape of `index`.

  Raises:
    ValueError: for indices or a size that are no integers, a size below 1,
      or a key that is not 16 bytes.
    IndexError: for an index outside [0, size).
  """
  array = np.asarray(index)
  # An empty list is an array of floats to NumPy.
  if array.size and array.dtype.kind not in "iu":
    raise ValueError(
      f"permute takes integers, got {index!r} of dtype {array.dtype}. Convert"
      " them on purpose if that is what you mean."
    )
  out = _kernels.permute(
    array.astype(np.int64).ravel(), integer("size", size), key
  )
  return int(out[0]) if array.ndim == 0 else out.reshape(array.shape)
