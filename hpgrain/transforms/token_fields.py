"""Records of token ids in, checked arrays out; what is wrong is named."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from hpgrain.records import IGNORE_INDEX
from hpgrain.transforms.transform import Place, Record

_IDS, _LABELS, _MASK = "input_ids", "labels", "loss_mask"
_INT32_MAX = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class TokenFields:
  """One record's ids, and what it says of its labels.

  Attributes:
    ids: int32[n].
    labels: int32[n] or None.
    weights: float32[n] or None, what `loss_mask` holds.
  """

  ids: np.ndarray
  labels: np.ndarray | None
  weights: np.ndarray | None


def read_fields(
  records: Sequence[Record],
  place: Place,
  *,
  vocab_size: int | None,
  are_shifted: bool,
) -> list[TokenFields]:
  """Takes `input_ids`, `labels` and `loss_mask` of records.

  The last two may be missing or None.

  Args:
    records: a batch.
    place: names record i of it.
    vocab_size: ids lie in [0, vocab_size); None where it is not known.
    are_shifted: whether labels[t] is the target at position t, and not that
      of input_ids[t] itself.

  Raises:
    ValueError: a field is missing, no list of numbers, of another length,
      outside the vocabulary, or labels are shifted the other way.
  """
  made = []
  for index, record in enumerate(records):
    try:
      made.append(_read(record, vocab_size, are_shifted))
    except ValueError as error:
      raise ValueError(f"{place(index)}: {error}") from None
  return made


def _read(
  record: Record, vocab_size: int | None, are_shifted: bool
) -> TokenFields:
  if record.get(_IDS) is None:
    raise ValueError(
      f"it has no field {_IDS!r}. Pretokenized records hold token ids; for"
      " text take data_transform.data_type='plaintext'."
    )
  ids = _integers(record[_IDS], _IDS)
  _check_range(ids, _IDS, vocab_size)
  labels = weights = None
  if record.get(_LABELS) is not None:
    labels = _integers(record[_LABELS], _LABELS)
    _check_length(labels, _LABELS, ids)
    _check_range(labels, _LABELS, vocab_size, ignored=True)
    labels = labels.astype(np.int32, copy=False)
  ids = ids.astype(np.int32, copy=False)
  if labels is not None:
    _check_shift(ids, labels, are_shifted)
  if record.get(_MASK) is not None:
    weights = _weights(record[_MASK])
    _check_length(weights, _MASK, ids)
  return TokenFields(ids, labels, weights)


def _array(value: Any, name: str) -> np.ndarray:
  try:
    array = np.asarray(value)
  except (ValueError, OverflowError, TypeError):
    array = np.asarray(None)
  if array.ndim != 1:
    raise ValueError(
      f"its field {name!r} must be a list of numbers, got"
      f" {type(value).__name__} of {array.ndim} dimensions."
    )
  return array


def _integers(value: Any, name: str) -> np.ndarray:
  array = _array(value, name)
  if not array.size:
    return np.zeros(0, np.int32)
  if array.dtype.kind not in "iu":
    raise ValueError(
      f"its field {name!r} must hold integers, got dtype {array.dtype}."
    )
  return array


def _weights(value: Any) -> np.ndarray:
  array = _array(value, _MASK)
  if array.size and array.dtype.kind not in "biuf":
    raise ValueError(
      f"its field {_MASK!r} must hold numbers, got dtype {array.dtype}."
    )
  weights = array.astype(np.float32)
  wrong = ~(np.isfinite(weights) & (weights >= 0))
  if wrong.any():
    at = int(np.argmax(wrong))
    raise ValueError(
      f"its field {_MASK!r} must hold weights of at least 0, got {array[at]} at"
      f" position {at}."
    )
  return weights


def _check_length(array: np.ndarray, name: str, ids: np.ndarray) -> None:
  if len(array) != len(ids):
    raise ValueError(
      f"its fields {_IDS!r} and {name!r} must have one length, got {len(ids)}"
      f" and {len(array)}."
    )


def _check_range(
  array: np.ndarray, name: str, vocab_size: int | None, ignored: bool = False
) -> None:
  end = _INT32_MAX if vocab_size is None else vocab_size
  if not array.size:
    return
  # As unsigned numbers, those below 0 are the greatest: one look finds both.
  if int(np.maximum.reduce(array.view(f"u{array.itemsize}"))) < end:
    return
  wrong = (array < 0) | (array >= end)
  if ignored:
    wrong &= array != IGNORE_INDEX
  if wrong.any():
    at = int(np.argmax(wrong))
    also = f", or {IGNORE_INDEX} where there is no loss" if ignored else ""
    raise ValueError(
      f"its field {name!r} has {array[at]} at position {at}; ids lie in [0,"
      f" {end}){also}. Was it made with another tokenizer?"
    )


def _check_shift(
  ids: np.ndarray, labels: np.ndarray, are_shifted: bool
) -> None:
  """Refuses labels that fit the other way of shifting, and not this one.

  Labels that fit neither are of a task of their own, and are taken.
  """
  fits = {
    False: _agree(ids, labels),
    True: _agree(ids[1:], labels[:-1]),
  }
  if not fits[are_shifted] and fits[not are_shifted]:
    found, asked = (
      ("those of the same position", "those of the next one")
      if are_shifted
      else ("those of the next position", "those of the same one")
    )
    raise ValueError(
      f"its labels are {found}, but {asked} are expected, and they would be"
      " shifted wrongly. Set data_transform.records_are_shifted="
      f"{not are_shifted}."
    )


def _agree(ids: np.ndarray, labels: np.ndarray) -> bool:
  return bool(((labels == ids) | (labels == IGNORE_INDEX)).all())
