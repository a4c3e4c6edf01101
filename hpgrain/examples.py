r"""Token ids of documents in, examples of at most max_seq_len positions out.

  document   a b c d e f g          max_seq_len 3
  shifted    abc def    inputs      d is the label of c, and the next input
             bcd efg    labels
  unshifted  abc def g  both

An example is what a packer places: inputs and labels of one length. What its
labels are is settled here, so rows are made of examples by copying alone.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from hpgrain.records import IGNORE_INDEX


@dataclasses.dataclass(frozen=True)
class Examples:
  """The examples of n records, in order.

  Attributes:
    record_splits: int64[n + 1]; record r has the examples [record_splits[r],
      record_splits[r + 1]).
    example_splits: int64[m + 1]; example e has the tokens [example_splits[e],
      example_splits[e + 1]).
    input_ids: int32[t].
    labels: int32[t], IGNORE_INDEX where a position takes no part in the loss.
  """

  record_splits: np.ndarray
  example_splits: np.ndarray
  input_ids: np.ndarray
  labels: np.ndarray

  def __len__(self) -> int:
    """Number of examples."""
    return len(self.example_splits) - 1

  @property
  def num_records(self) -> int:
    """Number of records they were made of."""
    return len(self.record_splits) - 1

  def example(self, index: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns (input_ids, labels) of one example."""
    begin, end = self.example_splits[index : index + 2]
    return self.input_ids[begin:end], self.labels[begin:end]


def cut_documents(
  ids: np.ndarray,
  lengths: np.ndarray | Sequence[int],
  *,
  max_seq_len: int,
  labels_are_shifted: bool,
  trained: np.ndarray | None = None,
) -> Examples:
  """Cuts documents into examples, every record into those of its document.

  Shifted: windows ids[s : s + L + 1] at s = 0, L, 2L, ...: L inputs, and the
  id after each as its label. A document of n ids makes ceil((n - 1) / L)
  examples. Unshifted: windows ids[s : s + L], labels equal to inputs, and
  ceil(n / L) examples.

  Args:
    ids: int32[t], one document's after the other.
    lengths: int64[n], ids of each document.
    max_seq_len: positions an example has at most, L.
    labels_are_shifted: see above.
    trained: bool[t], which ids are to be learnt: a label that is another one
      is IGNORE_INDEX. None: all.

  Raises:
    ValueError: max_seq_len is below 1, or lengths do not add up to the ids.
  """
  if max_seq_len < 1:
    raise ValueError(f"max_seq_len must be at least 1, got {max_seq_len}.")
  lengths = np.asarray(lengths, np.int64)
  if lengths.sum() != len(ids) or (len(lengths) and lengths.min() < 0):
    raise ValueError(
      f"The lengths of {len(lengths)} documents add up to {lengths.sum()}, but"
      f" there are {len(ids)} ids."
    )
  ids = np.asarray(ids, np.int32)
  targets = ids
  if trained is not None:
    targets = np.where(trained, ids, np.int32(IGNORE_INDEX))
  ahead = int(labels_are_shifted)
  positions = np.maximum(lengths - ahead, 0)
  counts = -(-positions // max_seq_len)
  # Of each example: which one of its document it is, and its length.
  number = np.arange(counts.sum()) - np.repeat(
    np.cumsum(counts) - counts, counts
  )
  sizes = np.minimum(
    np.repeat(positions, counts) - number * max_seq_len, max_seq_len
  )
  # All ids are inputs but the last of a document, where labels are shifted.
  last = np.cumsum(lengths)[lengths > 0] - 1
  is_input = np.ones(len(ids), bool)
  is_label = np.ones(len(ids), bool)
  if ahead:
    is_input[last] = False
    is_label[last + 1 - lengths[lengths > 0]] = False
  return Examples(
    record_splits=np.concatenate([[0], np.cumsum(counts)]),
    example_splits=np.concatenate([[0], np.cumsum(sizes)]),
    input_ids=ids[is_input],
    labels=targets[is_label].copy(),
  )
