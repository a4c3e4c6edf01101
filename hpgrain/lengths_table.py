r"""Which examples each record makes, and how long they are: a table of numbers.

  records        0        1     2           3
  examples       a b      -     c           d e f
  first_example  0        2     2           3         6
  lengths        7 4            9           1 2 3

Where no record makes more than one, records are their own examples, which
takes 4 bytes a record:

  records        0   1   2   3
  lengths        7   0   9   1         0: it makes none
"""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class LengthsTable:
  """The examples of n records.

  Attributes:
    lengths: int32[m], positions of each example.
    first_example: int64[n + 1]; record r has the examples [first_example[r],
      first_example[r + 1]). None: record r has the example r.
  """

  lengths: np.ndarray
  first_example: np.ndarray | None

  def examples(self, records: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (first int64[n], count int64[n]) of records int64[n]."""
    if self.first_example is None:
      return records, np.ones(len(records), np.int64)
    first = self.first_example[records]
    return first, self.first_example[records + 1] - first

  def records_of(self, examples: np.ndarray) -> np.ndarray:
    """Returns int64[n], the record that makes each of examples int64[n]."""
    if self.first_example is None:
      return examples
    # Records without an example begin where the next one does: the last of
    # them is the one that has it.
    return np.searchsorted(self.first_example, examples, side="right") - 1

  def filled(self, records: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns what `filled_examples` does, of records int64[n]."""
    first, counts = self.examples(records)
    before = np.cumsum(counts) - counts
    examples = np.repeat(first - before, counts) + np.arange(counts.sum())
    return filled_examples(counts, self.lengths[examples])


def filled_examples(
  counts: np.ndarray, lengths: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """Leaves out examples without a position.

  Args:
    counts: int64[n], examples of each record.
    lengths: int[sum(counts)], positions of each example.

  Returns:
    (number of the record int64[m], positions int[m]) of the others.
  """
  owners = np.repeat(np.arange(len(counts)), counts)
  return owners[lengths > 0], lengths[lengths > 0]


def own_lengths(counts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
  """Returns int32[n], the length of each record's one example, or 0.

  Args:
    counts: int[n], examples of each record, at most 1.
    lengths: int32[sum(counts)], positions of each example.
  """
  own = np.zeros(len(counts), np.int32)
  own[counts > 0] = lengths
  return own
