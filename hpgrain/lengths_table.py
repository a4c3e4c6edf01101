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


def make_table(counts: np.ndarray, lengths: np.ndarray) -> LengthsTable:
  """Makes the table of records whose examples are known.

  Args:
    counts: int[n], examples of each record.
    lengths: int32[sum(counts)], positions of each example.
  """
  if not counts.size or counts.max() <= 1:
    own = np.zeros(len(counts), np.int32)
    own[counts > 0] = lengths
    return LengthsTable(own, None)
  first = np.zeros(len(counts) + 1, np.int64)
  np.cumsum(counts, out=first[1:])
  return LengthsTable(np.asarray(lengths, np.int32), first)
