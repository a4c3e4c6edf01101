"""The keys of hpgrain's orders: (seed, name, epoch) to 16 bytes, for ever.

`docs/orders.md` gives the definition and vectors; changing either would
change the rows of every run that was ever started.
"""

import hashlib
import json

import numpy as np

from hpgrain import _kernels


def permutation_key(seed: int, name: str, epoch: int) -> bytes:
  """Returns the 16-byte key of a source's order in one epoch.

  It is the beginning of BLAKE2b over the JSON list `[seed,name,epoch]` in
  UTF-8, without spaces.
  """
  text = json.dumps(
    [int(seed), str(name), int(epoch)],
    ensure_ascii=False,
    separators=(",", ":"),
  )
  return hashlib.blake2b(text.encode()).digest()[:16]


def permute(
  index: int | np.ndarray, size: int, *, key: bytes
) -> int | np.ndarray:
  """Returns where a keyed permutation of [0, size) sends `index`.

  A balanced Feistel network of eight rounds with cycle walking: no array,
  any index by itself.

  Args:
    index: an int, or int64[n].
    size: how many indices there are, at least 1.
    key: 16 bytes, from `permutation_key`.

  Returns:
    An int, or int64[n], as `index` was.

  Raises:
    ValueError: for a size below 1 or a key that is not 16 bytes.
    IndexError: for an index outside [0, size).
  """
  array = np.atleast_1d(np.ascontiguousarray(index, np.int64))
  out = _kernels.permute(array.ravel(), size, key)
  if np.ndim(index) == 0:
    return int(out[0])
  return out.reshape(np.shape(index))
