"""Turns a split such as "98, 1, 1" into ranges of a corpus's sequences.

The rule is Megatron-core's (`megatron/core/datasets/utils.py` and
`blended_megatron_dataset_config.py`): weights are divided by their sum, and
each bound is the rounded cumulative weight times the number of sequences.
"""

import math
import re

SPLIT_NAMES = ("train", "valid", "test")


def parse_split(split: str) -> tuple[float, float, float]:
  """Returns the three weights of a split, divided by their sum.

  Raises:
    ValueError: for a minus sign, more than three numbers, a number that is
      none, or a sum of zero or beyond the largest float.
  """
  if not isinstance(split, str):
    raise ValueError(
      f'A split is a string such as "98, 1, 1" (train, valid, test), got'
      f" {split!r}."
    )
  if "-" in split:
    raise ValueError(
      f"A split's weights cannot be negative, got {split!r}; write for"
      ' example "98, 1, 1" (train, valid, test).'
    )
  texts = re.findall(r"[.0-9]+", split)
  try:
    weights = [float(text) for text in texts]
  except ValueError as error:
    raise ValueError(
      f"Split {split!r} holds something that is not a number ({error});"
      ' write for example "98, 1, 1" (train, valid, test).'
    ) from None
  if len(weights) > len(SPLIT_NAMES):
    raise ValueError(
      f"A split has at most three weights (train, valid, test), got"
      f" {len(weights)} in {split!r}."
    )
  weights += [0.0] * (len(SPLIT_NAMES) - len(weights))
  total = sum(weights)
  if not total > 0:
    raise ValueError(
      f"A split's weights must have a positive sum, got {split!r}."
    )
  if math.isinf(total):
    raise ValueError(
      f"A split's weights add up to more than a float holds, got {split!r};"
      ' only their proportions matter, so write for example "98, 1, 1".'
    )
  train, valid, test = (weight / total for weight in weights)
  return train, valid, test


def split_bounds(split: str, count: int) -> list[tuple[int, int] | None]:
  """Returns the [begin, end) of train, valid and test among `count` elements.

  Args:
    split: up to three weights, as in "98, 1, 1".
    count: the number of low-level elements: sequences, or pre-cut records.

  Returns:
    A range for each split; None where the weight is zero. A positive weight
    whose share rounds to nothing gives an empty range.

  Raises:
    ValueError: if the split cannot be read, or count is negative.
  """
  if count < 0:
    raise ValueError(f"A split needs a count of at least 0, got {count}.")
  bounds = []
  reached = 0.0
  for weight in parse_split(split):
    begin = reached
    reached += weight
    # Python rounds halves to even, as Megatron does.
    span = (round(begin * count), round(reached * count))
    bounds.append(span if weight > 0 else None)
  return bounds
