r"""Token ids in, examples out: checked and cut, and no tokenizer is called.

  a record            input_ids  a b c d       max_seq_len 2
  shifted, no labels  [a b] [c]   with labels  [b c] [d]

What labels a record brings mean:

  shifted     labels[t] is the target at position t    a b c   with b c d
  unshifted   labels[t] is input_ids[t], or ignored    a b c   with a b c

`records_are_shifted` says which they are, `labels_are_shifted` which the run
wants. Unshifted ones are shifted here where that is wanted. A loss mask
belongs to the labels beside it; without labels, to the ids.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hpgrain.arguments import integer
from hpgrain.examples import Examples, cut_documents, cut_positions
from hpgrain.records import IGNORE_INDEX
from hpgrain.transforms.counters import Counters
from hpgrain.transforms.labelless import drop_labelless
from hpgrain.transforms.token_fields import TokenFields, read_fields
from hpgrain.transforms.transform import Place, Record


class PretokenizedTransform:
  """Takes token ids as they are; see `transform.Transform`."""

  one_to_one = False

  def __init__(
    self,
    *,
    max_seq_len: int,
    vocab_size: int | None = None,
    labels_are_shifted: bool = True,
    records_are_shifted: bool | None = None,
  ) -> None:
    """Checks the options.

    Args:
      max_seq_len: positions an example has at most; a longer record gives
        several.
      vocab_size: ids lie in [0, vocab_size); None where it is not known.
      labels_are_shifted: whether the examples' labels[t] is the target at
        position t.
      records_are_shifted: the same of labels in records; None: as
        `labels_are_shifted`.

    Raises:
      ValueError: an option is not legal, or the records' labels cannot be
        made what the run wants.
    """
    self._max_seq_len = integer("max_seq_len", max_seq_len, minimum=1)
    self._vocab_size = (
      None
      if vocab_size is None
      else integer("vocab_size", vocab_size, minimum=1, maximum=2**31 - 1)
    )
    if records_are_shifted is None:
      records_are_shifted = labels_are_shifted
    if records_are_shifted and not labels_are_shifted:
      raise ValueError(
        "data_transform.records_are_shifted=True goes with"
        " get_batch.labels_are_shifted=True only: the last label of a shifted"
        " record is no input of it, so an unshifted one would lose it."
      )
    self._labels_are_shifted = labels_are_shifted
    self._records_are_shifted = records_are_shifted
    self.counters = Counters()

  @property
  def identity(self) -> dict[str, Any]:
    """Everything that decides the examples, as JSON."""
    return {
      "transform": "pretokenized",
      "version": 1,
      "max_seq_len": self._max_seq_len,
      "labels_are_shifted": self._labels_are_shifted,
      "records_are_shifted": self._records_are_shifted,
    }

  def __call__(self, records: Sequence[Record], place: Place) -> Examples:
    """See `transform.Transform`.

    Raises:
      ValueError: ids or labels are no integers or outside the vocabulary,
        lengths differ, or the labels are shifted the other way.
    """
    fields = read_fields(
      records,
      place,
      vocab_size=self._vocab_size,
      are_shifted=self._records_are_shifted,
    )
    made = self._cut(fields)
    empty = np.diff(made.record_splits) == 0
    examples, out, positions = drop_labelless(made)
    self.counters.add(
      examples,
      dropped={"empty": empty, "no_label": out},
      tokens_dropped={"no_label": positions},
    )
    return examples

  def _cut(self, fields: Sequence[TokenFields]) -> Examples:
    """Examples of records, those without a label among them."""
    if all(f.labels is None and f.weights is None for f in fields):
      return cut_documents(
        _joined([f.ids for f in fields], np.int32),
        [len(f.ids) for f in fields],
        max_seq_len=self._max_seq_len,
        labels_are_shifted=self._labels_are_shifted,
      )
    rows = [self._row(f) for f in fields]
    ids, labels, weights = zip(*rows)
    flat = _joined(weights, np.float32)
    return cut_positions(
      _joined(ids, np.int32),
      _joined(labels, np.int32),
      np.array([len(row) for row in ids], np.int64),
      max_seq_len=self._max_seq_len,
      # Zeros and ones say no more than the labels do.
      weights=flat if ((flat != 0) & (flat != 1)).any() else None,
    )

  def _row(
    self, fields: TokenFields
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, labels and weights of a record, position by position."""
    ids, labels, weights = fields.ids, fields.labels, fields.weights
    shift = self._labels_are_shifted and (
      labels is None or not self._records_are_shifted
    )
    if labels is None:
      labels = ids
    if weights is None:
      weights = np.ones(len(ids), np.float32)
    weights = np.where(labels == IGNORE_INDEX, np.float32(0), weights)
    labels = np.where(weights > 0, labels, np.int32(IGNORE_INDEX))
    if shift:
      ids, labels, weights = ids[:-1], labels[1:], weights[1:]
    return ids, labels, weights


def _joined(rows: Sequence[np.ndarray], dtype: type) -> np.ndarray:
  return np.concatenate([np.zeros(0, dtype), *rows])
