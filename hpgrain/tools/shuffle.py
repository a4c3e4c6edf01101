"""A number of records and a seed in, the records' order out.

The order is a keyed permutation that needs no array, so any number of records
is shuffled in the same memory: place i holds record permute(i).
"""

from collections.abc import Callable

import numpy as np

from hpgrain.order import permutation_key, permute

# Part of what decides the bytes of shuffled output: never to be changed.
_NAME = "offline_preparation"


def record_order(
  num_records: int, *, seed: int | None
) -> Callable[[range | np.ndarray], np.ndarray] | None:
  """Returns the function from places to records; None for the input's order.

  Args:
    num_records: how many there are.
    seed: of the order.
  """
  if seed is None or not num_records:
    return None
  key = permutation_key(seed, _NAME, 0)
  return lambda places: permute(
    np.asarray(places, np.int64), num_records, key=key
  )
