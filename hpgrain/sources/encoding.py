"""What a document must satisfy to be stored: Python values in, arrays out.

Everything is checked before anything is written, and nothing is rounded,
wrapped or cut to fit. `where` names the document in messages.
"""

from collections.abc import Sequence

import numpy as np

from hpgrain.sources import index_file

_MAX_LENGTH = int(np.iinfo(index_file.LENGTH).max)
_BOUNDS = {
  dtype: np.iinfo(dtype)
  for dtype in index_file.DTYPES.values()
  if dtype.kind in "iu"
}
_MODES = np.iinfo(index_file.MODE)


def encode_ids(
  tokens: Sequence[int] | np.ndarray, dtype: np.dtype, *, where: str
) -> np.ndarray:
  """A document's ids as they are stored.

  Args:
    tokens: 1-D; integers, or real numbers for a floating point dtype.
    dtype: a dtype of the format.
    where: names the document.

  Returns:
    [len(tokens)] of `dtype`, C-contiguous.

  Raises:
    ValueError: a token would not come back as it is.
  """
  ids = np.asarray(tokens)
  if ids.ndim != 1:
    raise ValueError(
      f"{where}: tokens must be 1-D, got the shape {ids.shape}. Add one "
      "document at a time."
    )
  if not ids.size:
    return np.empty(0, dtype)
  if ids.dtype == dtype:
    return np.ascontiguousarray(ids)
  if dtype.kind == "f":
    return _encode_floats(ids, dtype, where)
  if ids.dtype.kind not in "iu":
    raise ValueError(
      f"{where}: tokens must be integers, got dtype {ids.dtype}. Give "
      "integers of at most 64 bits."
    )
  bounds = _BOUNDS[dtype]
  # Half the time of ids.min() and ids.max() on a short document.
  least, most = np.minimum.reduce(ids), np.maximum.reduce(ids)
  if int(least) < bounds.min or int(most) > bounds.max:
    position = int(np.argmax((ids < bounds.min) | (ids > bounds.max)))
    raise ValueError(
      f"{where}: token {ids[position]} at position {position} does not fit "
      f"{dtype.name}, which holds {bounds.min} to {bounds.max}. Write another "
      "dtype, or check the tokenizer."
    )
  return ids.astype(dtype)


def encode_lengths(
  lengths: Sequence[int] | np.ndarray | None, num_tokens: int, *, where: str
) -> Sequence[int]:
  """The lengths of a document's sequences, as checked integers.

  Args:
    lengths: 1-D integers that add up to `num_tokens`. None makes one
      sequence, or none where there is no token.
    num_tokens: tokens of the document.
    where: names the document.

  Raises:
    ValueError: they do not add up, or one is negative or too long.
  """
  if lengths is None:
    counts = [num_tokens] if num_tokens else []
  else:
    counts = _integers(lengths, "lengths", where)
    if min(counts, default=0) < 0 or sum(counts) != num_tokens:
      raise ValueError(
        f"{where}: the lengths of its sequences add up to {sum(counts)} and "
        f"the least is {min(counts, default=0)}, but it has {num_tokens} "
        "tokens. Lengths are not negative and add up to the tokens."
      )
  if max(counts, default=0) > _MAX_LENGTH:
    raise ValueError(
      f"{where}: a sequence of {max(counts)} tokens is too long, the format "
      f"holds {_MAX_LENGTH}. Split it by `lengths`."
    )
  return counts


def check_columns(
  lengths: np.ndarray, counts: np.ndarray, *, where: str
) -> None:
  """Checks the lengths and sequence counts of many documents.

  Args:
    lengths: [sequences], tokens of each sequence.
    counts: [documents], sequences of each document.
    where: names the documents.

  Raises:
    ValueError: they contradict each other or the format.
  """
  if not all(a.ndim == 1 and a.dtype.kind in "iu" for a in (lengths, counts)):
    raise ValueError(
      f"{where}: lengths and counts must be 1-D integers, got"
      f" {lengths.dtype} of shape {lengths.shape} and {counts.dtype} of shape"
      f" {counts.shape}."
    )
  if counts.min(initial=0) < 0 or counts.sum() != len(lengths):
    raise ValueError(
      f"{where}: {len(lengths)} sequences were given, but the documents have"
      f" {counts.sum()} and the least has {counts.min(initial=0)}."
    )
  if lengths.min(initial=0) < 0 or lengths.max(initial=0) > _MAX_LENGTH:
    raise ValueError(
      f"{where}: sequences have {lengths.min()} to {lengths.max()} tokens, the"
      f" format holds 0 to {_MAX_LENGTH}."
    )


def encode_modes(
  modes: Sequence[int] | np.ndarray | None,
  num_sequences: int,
  *,
  multimodal: bool,
  where: str,
) -> Sequence[int]:
  """The modes of a document's sequences, as checked integers.

  Args:
    modes: 1-D integers, one for each sequence; None makes them 0.
    num_sequences: sequences of the document.
    multimodal: whether the pair has modes; if not, there must be none.
    where: names the document.

  Raises:
    ValueError: they are not wanted, too many or few, or do not fit int8.
  """
  if not multimodal:
    if modes is not None:
      raise ValueError(_unwanted_modes(where))
    return []
  if modes is None:
    return [0] * num_sequences
  kinds = _integers(modes, "modes", where)
  inside = all(_MODES.min <= kind <= _MODES.max for kind in kinds)
  if len(kinds) != num_sequences or not inside:
    raise ValueError(
      f"{where}: it has {num_sequences} sequences, got the modes {kinds}. "
      f"Give one mode from {_MODES.min} to {_MODES.max} for each sequence."
    )
  return kinds


def encode_mode_column(
  modes: np.ndarray | None,
  num_sequences: int,
  *,
  multimodal: bool,
  where: str,
) -> np.ndarray:
  """The modes of many documents' sequences, checked.

  Args:
    modes: int8[num_sequences]; None makes them 0.
    num_sequences: sequences of the documents.
    multimodal: whether the file has modes; if not, there must be none.
    where: names the documents.

  Returns:
    int8[num_sequences], or int8[0] where the file has no modes.

  Raises:
    ValueError: they are not wanted, too many or few, or not int8.
  """
  if not multimodal:
    if modes is not None:
      raise ValueError(_unwanted_modes(where))
    return np.empty(0, index_file.MODE)
  if modes is None:
    return np.zeros(num_sequences, index_file.MODE)
  if modes.dtype != index_file.MODE or modes.shape != (num_sequences,):
    raise ValueError(
      f"{where}: modes must be int8[{num_sequences}], one for each sequence,"
      f" got {modes.dtype} of shape {modes.shape}."
    )
  return modes


def _encode_floats(
  values: np.ndarray, dtype: np.dtype, where: str
) -> np.ndarray:
  if values.dtype.kind not in "iuf":
    raise ValueError(
      f"{where}: tokens must be numbers, got dtype {values.dtype}."
    )
  if values.dtype.kind == "f":
    with np.errstate(over="ignore"):
      stored = values.astype(dtype)
    lost = (stored.astype(values.dtype) != values) & ~np.isnan(values)
  else:
    # Up to here every integer has a floating point value of its own.
    exact = 2 ** (np.finfo(dtype).nmant + 1)
    stored = values.astype(dtype)
    lost = (values > exact) | (values < -exact)
  if lost.any():
    position = int(np.argmax(lost))
    raise ValueError(
      f"{where}: {values[position]} at position {position} cannot be stored "
      f"as {dtype.name} without loss. Write another dtype, or round it first."
    )
  return stored


def _unwanted_modes(where: str) -> str:
  return (
    f"{where}: modes were given, but the pair is not multimodal. Leave them"
    " out, or make the writer with multimodal=True."
  )


def _integers(
  values: Sequence[int] | np.ndarray, name: str, where: str
) -> list[int]:
  array = np.asarray(values)
  if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
    raise ValueError(
      f"{where}: {name} must be 1-D integers, got dtype {array.dtype} of "
      f"shape {array.shape}."
    )
  return [int(value) for value in array.tolist()]
