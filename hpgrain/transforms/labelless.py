"""Examples in, those that have a label to learn out."""

import numpy as np

from hpgrain.examples import Examples
from hpgrain.records import IGNORE_INDEX


def drop_labelless(
  examples: Examples,
) -> tuple[Examples, int | np.ndarray, int | np.ndarray]:
  """Leaves out the examples without any label.

  They would cost a step's time and teach nothing.

  Returns:
    The examples that are left; how many were left out of each record, and
    their positions, int64[records]; or 0 where none was.
  """
  trained = examples.labels != IGNORE_INDEX
  begins = examples.example_splits[:-1]
  if not len(begins) or trained.all():
    return examples, 0, 0
  # No example is empty, which reduceat would get wrong.
  keep = np.logical_or.reduceat(trained, begins)
  if keep.all():
    return examples, 0, 0
  sizes = np.diff(examples.example_splits)
  record_of = np.repeat(
    np.arange(examples.num_records), np.diff(examples.record_splits)
  )
  counts = np.bincount(record_of[keep], minlength=examples.num_records)
  positions = np.repeat(keep, sizes)
  weights = examples.weights
  left = Examples(
    record_splits=np.concatenate([[0], np.cumsum(counts)]),
    example_splits=np.concatenate([[0], np.cumsum(sizes[keep])]),
    input_ids=examples.input_ids[positions],
    labels=examples.labels[positions],
    weights=None if weights is None else weights[positions],
  )
  gone = record_of[~keep]
  out = np.bincount(gone, minlength=examples.num_records)
  lost = np.bincount(gone, sizes[~keep], examples.num_records)
  return left, out, lost.astype(np.int64)
