"""Tokens of many examples, and several such blocks as one."""

import dataclasses
from collections.abc import Sequence

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


def joined(blocks: Sequence[TokenBlock]) -> TokenBlock:
  """Returns one block of several, one after the other."""
  if len(blocks) == 1:
    return blocks[0]
  weights = None
  if any(block.weights is not None for block in blocks):
    weights = np.concatenate([_weights(block) for block in blocks])
  none = np.zeros(0, np.int32)
  return TokenBlock(
    np.concatenate([none, *(block.ids for block in blocks)]),
    np.concatenate([none, *(block.labels for block in blocks)]),
    weights,
  )


def plain_weights(labels: np.ndarray) -> np.ndarray:
  """Returns float32[t]: 1 for every label, 0 where there is none."""
  return (labels != IGNORE_INDEX).astype(np.float32)


def _weights(block: TokenBlock) -> np.ndarray:
  """What each label counts for, float32[t]."""
  if block.weights is not None:
    return block.weights
  return plain_weights(block.labels)
