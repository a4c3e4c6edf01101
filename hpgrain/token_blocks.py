"""Tokens of many examples, one after the other."""

import dataclasses

import numpy as np

from hpgrain.records import IGNORE_INDEX


@dataclasses.dataclass(frozen=True)
class TokenBlock:
  """Tokens of many examples.

  Attributes:
    ids: int32[t].
    labels: int32[t].
    weights: float32[t], or None: 1 wherever there is a label.
  """

  ids: np.ndarray
  labels: np.ndarray
  weights: np.ndarray | None

  @property
  def nbytes(self) -> int:
    """Bytes of the arrays."""
    weights = 0 if self.weights is None else self.weights.nbytes
    return self.ids.nbytes + self.labels.nbytes + weights

  def part(self, begin: int, end: int) -> "TokenBlock":
    """Returns a copy of tokens [begin, end); itself, if it is all."""
    if begin == 0 and end == len(self.ids):
      return self
    weights = self.weights
    return TokenBlock(
      self.ids[begin:end].copy(),
      self.labels[begin:end].copy(),
      None if weights is None else weights[begin:end].copy(),
    )


def plain_weights(labels: np.ndarray) -> np.ndarray:
  """Returns float32[t]: 1 for every label, 0 where there is none."""
  return (labels != IGNORE_INDEX).astype(np.float32)
