"""Megatron's blend once more, slow and obvious, from the rule.

At position t each source lags its share by w * max(t, 1) - c, in float64; the
one that lags most stands there, the first of those that lag alike.
"""

from collections.abc import Sequence

import numpy as np


def _draw(
  weights: np.ndarray, limits: Sequence[int] | None, size: int
) -> tuple[list[int], list[int]]:
  drawn = np.zeros(len(weights), np.int64)
  source, sample = [], []
  for t in range(size):
    errors = weights * np.float64(max(t, 1)) - drawn.astype(np.float64)
    if limits is not None:
      errors[drawn == np.array(limits)] = -np.inf
    # argmax takes the first of equal values.
    best = int(np.argmax(errors))
    source.append(best)
    sample.append(int(drawn[best]))
    drawn[best] += 1
  return source, sample


def blend_index(
  weights: Sequence[float], size: int
) -> tuple[list[int], list[int]]:
  """(source, sample) of each position."""
  return _draw(np.array(weights, np.float64), None, size)


def exhaustive_blend_index(
  sizes: Sequence[int],
) -> tuple[list[int], list[int]]:
  """The same by sizes, over sources that have rows left."""
  total = sum(sizes)
  weights = [size / float(total) if total else 0.0 for size in sizes]
  return _draw(np.array(weights, np.float64), sizes, total)


def normalize(weights: Sequence[float]) -> np.ndarray:
  """Weights by their sum, as Megatron divides them."""
  array = np.array(weights, np.float64)
  return array / np.sum(array)
