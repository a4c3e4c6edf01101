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
    weights: float32[t], what each label counts for in the loss: 0 exactly
      where it is IGNORE_INDEX. None: 1 wherever there is a label.
  """

  record_splits: np.ndarray
  example_splits: np.ndarray
  input_ids: np.ndarray
  labels: np.ndarray
  weights: np.ndarray | None = None

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
  weights: np.ndarray | None = None,
  end_id: int | None = None,
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
    weights: float32[t], what each id counts for as a label; 0 where it is not
      to be learnt. None: 1 each, and the examples have no weights.
    end_id: one more id after each document that has any, learnt with weight
      1; None for none.

  Raises:
    ValueError: max_seq_len is below 1, or lengths do not add up to the ids.
  """
  lengths = np.asarray(lengths, np.int64)
  if lengths.sum() != len(ids) or (len(lengths) and lengths.min() < 0):
    raise ValueError(
      f"The lengths of {len(lengths)} documents add up to {lengths.sum()}, but"
      f" there are {len(ids)} ids."
    )
  ids = np.asarray(ids, np.int32)
  if weights is not None:
    weights = np.asarray(weights, np.float32)
    positive = weights > 0
    trained = positive if trained is None else positive & trained
    weights = np.where(trained, weights, np.float32(0))
  targets = ids
  if trained is not None:
    targets = np.where(trained, ids, np.int32(IGNORE_INDEX))
  filled = lengths > 0
  ends = np.cumsum(lengths)[filled]
  if not labels_are_shifted:
    positions = lengths + (filled if end_id is not None else 0)
    inputs = _with_ends(ids, ends, end_id)
    # A copy where nothing changed: labels may be masked later, inputs not.
    labels = _with_ends(targets, ends, end_id)
    labels = labels.copy() if labels is ids else labels
    counted = _with_ends(weights, ends, None if end_id is None else 1)
  elif end_id is not None:
    positions = lengths
    inputs = ids
    labels = _next_of_each(targets, ends, end_id)
    counted = _next_of_each(weights, ends, 1)
  else:
    positions = np.maximum(lengths - 1, 0)
    firsts = ends - lengths[filled]
    inputs = np.delete(ids, ends - 1)
    labels = np.delete(targets, firsts)
    counted = None if weights is None else np.delete(weights, firsts)
  return cut_positions(
    inputs, labels, positions, max_seq_len=max_seq_len, weights=counted
  )


def take_examples(examples: Examples, numbers: np.ndarray) -> Examples:
  """Takes some examples, each as the only one of a record of its own.

  Args:
    examples: what to take of.
    numbers: int64[n], in any order, any number of times; -1 for one without a
      position.
  """
  begin = np.append(examples.example_splits, 0)[numbers]
  sizes = np.append(np.diff(examples.example_splits), 0)[numbers]
  splits = _splits(sizes)
  places = np.repeat(begin - splits[:-1], sizes) + np.arange(splits[-1])
  weights = examples.weights
  return Examples(
    record_splits=np.arange(len(numbers) + 1),
    example_splits=splits,
    input_ids=examples.input_ids[places],
    labels=examples.labels[places],
    weights=None if weights is None else weights[places],
  )


def cut_positions(
  input_ids: np.ndarray,
  labels: np.ndarray,
  lengths: np.ndarray,
  *,
  max_seq_len: int,
  weights: np.ndarray | None = None,
) -> Examples:
  """Cuts records whose labels stand beside their inputs into examples.

  Args:
    input_ids: int32[t], one record's after the other.
    labels: int32[t], as in `Examples`.
    lengths: int64[n], positions of each record; they add up to t.
    max_seq_len: positions an example has at most.
    weights: float32[t], as in `Examples`.

  Raises:
    ValueError: max_seq_len is below 1.
  """
  if max_seq_len < 1:
    raise ValueError(f"max_seq_len must be at least 1, got {max_seq_len}.")
  counts = -(-lengths // max_seq_len)
  # Of each example: which one of its record it is, and its length.
  number = np.arange(counts.sum()) - np.repeat(
    np.cumsum(counts) - counts, counts
  )
  sizes = np.minimum(
    np.repeat(lengths, counts) - number * max_seq_len, max_seq_len
  )
  return Examples(
    record_splits=_splits(counts),
    example_splits=_splits(sizes),
    input_ids=input_ids,
    labels=labels,
    weights=weights,
  )


def _splits(counts: np.ndarray) -> np.ndarray:
  splits = np.zeros(len(counts) + 1, np.int64)
  np.cumsum(counts, out=splits[1:])
  return splits


def _with_ends(
  values: np.ndarray | None, ends: np.ndarray, end: int | None
) -> np.ndarray | None:
  """The values with one more at the end of each document."""
  if values is None or end is None:
    return values
  return np.insert(values, ends, end)


def _next_of_each(
  values: np.ndarray | None, ends: np.ndarray, end: int
) -> np.ndarray | None:
  """The value after each, and at each document's last the end's."""
  if values is None:
    return None
  following = np.empty_like(values)
  following[:-1] = values[1:]
  following[ends - 1] = end
  return following
