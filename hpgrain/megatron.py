"""Megatron's order of one split: numbers in, its three indices out.

  document_index   the split's sequences, E epochs of them, shuffled
  sample_index     where each sample begins: (place in document_index, offset)
  shuffle_index    row -> sample

  row i -> j = shuffle_index[i] -> the tokens between sample_index[j] and [j+1]

The rule is Megatron-core 0.16's (`megatron/core/datasets/gpt_dataset.py`), bit
for bit; where that goes wrong (a float32 ceil above 2^24 tokens, a split
without tokens, an empty document at the end) this does not. docs/megatron.md
says what differs. How many rows are asked for decides the number of epochs and
with it every row: no other order of this package depends on that.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from hpgrain import _kernels
from hpgrain.arguments import MAX_ROW, integer

# Below this part of an epoch's samples, the last epoch is shuffled by itself.
_LAST_EPOCH_SHARE = 0.80

_INT32_MAX = 2**31 - 1
# From here on Megatron numbers samples in int64.
_WIDE_TOTAL = 2**32 - 2
# What numpy.random.RandomState takes as a seed.
_MAX_SEED = 2**32 - 1

_STATE_WORDS = 624


@dataclasses.dataclass(frozen=True)
class IndexShape:
  """How many epochs and samples an index has.

  Attributes:
    num_epochs: E, passes over the split.
    separate_last: whether the last epoch is shuffled by itself.
    first_rows: samples that are shuffled together: all, or those before the
      last epoch.
    num_rows: M, samples in all.
  """

  num_epochs: int
  separate_last: bool
  first_rows: int
  num_rows: int


def num_samples_in(
  num_tokens: int, *, seq_length: int, extra: int, drop_last: bool
) -> int:
  """Returns how many samples so many tokens hold, in exact integers.

  Megatron computes the kept tail's ceil in float32, which is off from 2^24
  tokens on.
  """
  cuts = max(num_tokens - extra, 0)
  return cuts // seq_length if drop_last else -(-cuts // seq_length)


def index_shape(
  num_samples: int | None,
  *,
  tokens_per_epoch: int,
  seq_length: int,
  extra: int,
  drop_last: bool,
) -> IndexShape:
  """Returns how large the index for `num_samples` rows is.

  Args:
    num_samples: rows asked for; None is one epoch.
    tokens_per_epoch: T, in the split.
    seq_length: S.
    extra: x, tokens a row has beyond its positions.
    drop_last: whether the tail that does not fill a sample is left out.

  Returns:
    The shape; num_rows is num_samples or more. A split without tokens has no
    rows, whatever is asked for (Megatron looks for its epochs for ever).
  """
  if not tokens_per_epoch:
    return IndexShape(1, False, 0, 0)
  needed = 0 if num_samples is None else num_samples * seq_length + extra
  num_epochs = max(1, -(-needed // tokens_per_epoch))
  num_rows = num_samples_in(
    num_epochs * tokens_per_epoch,
    seq_length=seq_length,
    extra=extra,
    drop_last=drop_last,
  )
  if num_epochs == 1 or num_samples is None:
    return IndexShape(1, False, num_rows, num_rows)
  before = ((num_epochs - 1) * tokens_per_epoch - extra) // seq_length
  per_epoch = (tokens_per_epoch - extra) // seq_length
  separate = num_samples - before < int(_LAST_EPOCH_SHARE * per_epoch)
  return IndexShape(
    num_epochs, separate, before if separate else num_rows, num_rows
  )


def shuffle(array: np.ndarray, random_state: np.random.RandomState) -> None:
  """Does `random_state.shuffle(array)`, several times faster.

  Every length, seed and dtype comes out as NumPy's, and so does the state.
  The algorithm is Fisher and Yates's with bounded integers by masked
  rejection, as NumPy's legacy generator has it.

  Args:
    array: one dimension, C-contiguous, writable, items of 1, 2, 4 or 8 bytes.
    random_state: over an MT19937, as `numpy.random.RandomState(seed)` is.

  Raises:
    ValueError: for another array, or another generator.
  """
  masked = isinstance(array, np.ma.MaskedArray)
  if masked or not isinstance(array, np.ndarray):
    raise ValueError(
      f"shuffle works in place on a NumPy array, got {type(array).__name__}."
      " Convert it first: numpy.array(values)."
    )
  if not isinstance(random_state, np.random.RandomState):
    raise ValueError(
      "shuffle takes a numpy.random.RandomState, got"
      f" {type(random_state).__name__}: its bits are what the order is made of."
    )
  state = random_state.get_state(legacy=False)
  if state["bit_generator"] != "MT19937":
    raise ValueError(
      "shuffle takes a RandomState over MT19937, got one over"
      f" {state['bit_generator']}. Make it as numpy.random.RandomState(seed)."
    )
  key = state["state"]["key"].copy()
  position = _kernels.shuffle(array, key, int(state["state"]["pos"]))
  state["state"] = {"key": key, "pos": position}
  random_state.set_state(state)


def document_index_dtype(last: int) -> np.dtype:
  """Returns int32, or int64 where sequence numbers below `last` need it."""
  return np.dtype(np.int32 if last - 1 <= _INT32_MAX else np.int64)


def shuffle_index_dtype(num_rows: int) -> np.dtype:
  """Returns uint32, or int64 from 2^32 - 2 rows on."""
  return np.dtype(np.uint32 if num_rows < _WIDE_TOTAL else np.int64)


def sample_index_dtype(num_documents: int, longest: int = 0) -> np.dtype:
  """Returns int32, or int64 where a place or an offset needs it."""
  widest = max(num_documents, longest)
  return np.dtype(np.int32 if widest <= _INT32_MAX else np.int64)


def build_documents(
  first: int, last: int, shape: IndexShape, *, seed: int
) -> dict[str, np.ndarray]:
  """Builds the document index, the first of the three.

  Args:
    first: the split's first sequence.
    last: one past its last.
    shape: of the index.
    seed: of the one generator that all shuffles draw from.

  Returns:
    document_index [E * (last - first)], and random_state uint32[625], the
    generator's words and position afterwards: what the shuffle index needs.

  Raises:
    ValueError: for a seed that the generator does not take.
  """
  random_state = np.random.RandomState(check_seed(seed))
  sequences = np.arange(first, last, dtype=document_index_dtype(last))
  count = len(sequences)
  document_index = sequences
  if shape.num_epochs > 1:
    document_index = np.tile(sequences, shape.num_epochs)
  if shape.separate_last:
    split = (shape.num_epochs - 1) * count
    shuffle(document_index[:split], random_state)
    shuffle(document_index[split:], random_state)
  else:
    shuffle(document_index, random_state)
  _, key, position, _, _ = random_state.get_state(legacy=True)
  state = np.append(key.astype(np.uint32), np.uint32(position))
  return {"document_index": document_index, "random_state": state}


def build_shuffle(
  shape: IndexShape, *, random_state: np.ndarray
) -> dict[str, np.ndarray]:
  """Builds the shuffle index, the last of the three.

  Args:
    shape: of the index.
    random_state: uint32[625], of `build_documents`.

  Returns:
    shuffle_index [num_rows].
  """
  generator = np.random.RandomState()
  words = np.array(random_state[:_STATE_WORDS])
  generator.set_state(("MT19937", words, int(random_state[_STATE_WORDS])))
  dtype = shuffle_index_dtype(shape.num_rows)
  shuffle_index = np.arange(shape.num_rows, dtype=dtype)
  shuffle(shuffle_index[: shape.first_rows], generator)
  if shape.first_rows < shape.num_rows:
    shuffle(shuffle_index[shape.first_rows :], generator)
  return {"shuffle_index": shuffle_index}


def check_seed(seed: int) -> int:
  """Returns the seed, if numpy.random.RandomState takes it.

  Raises:
    ValueError: if it is no integer, or none of 32 bits.
  """
  seed = integer("seed", seed)
  if not 0 <= seed <= _MAX_SEED:
    raise ValueError(
      f'order="megatron" takes a seed from 0 to {_MAX_SEED}, got {seed}: its'
      " generator has no others. Choose another training.seed, or"
      ' order="stable".'
    )
  return seed


def sample_index(
  lengths: np.ndarray,
  document_index: np.ndarray,
  *,
  seq_length: int,
  num_epochs: int,
  tokens_per_epoch: int,
  drop_last: bool = True,
  add_extra_token: bool = True,
) -> np.ndarray:
  """Walks over documents and notes where each sample begins.

  A sample takes seq_length tokens and the extra one; the next begins at that
  extra one. A sample that ends where its document does keeps pointing at that
  document. Empty documents are stepped over.

  Args:
    lengths: int32 or int64[sequences], tokens of each sequence.
    document_index: int32 or int64[n], sequences in the order they are read.
    seq_length: positions a sample, S.
    num_epochs: E, how often document_index holds each sequence.
    tokens_per_epoch: T, tokens of one epoch.
    drop_last: whether the tail that does not fill a sample is left out.
    add_extra_token: whether samples have S + 1 tokens.

  Returns:
    [M + 1, 2]: (place in document_index, offset) of each sample's first token
    and of the end; int32, or int64 where a number needs it.

  Raises:
    ValueError: for numbers below what they count, a sequence there is none
      of, or fewer tokens than the numbers promise.
  """
  most = MAX_ROW
  seq_length = integer("seq_length", seq_length, minimum=1, maximum=most)
  num_epochs = integer("num_epochs", num_epochs, minimum=1, maximum=most)
  tokens = integer(
    "tokens_per_epoch", tokens_per_epoch, minimum=0, maximum=most
  )
  extra = int(add_extra_token)
  num_samples = num_samples_in(
    num_epochs * tokens,
    seq_length=seq_length,
    extra=extra,
    drop_last=drop_last,
  )
  if num_samples > most:
    raise ValueError(
      f"num_epochs={num_epochs} times tokens_per_epoch={tokens} promises"
      f" {num_samples} samples, more than 2^62."
    )
  try:
    return _kernels.sample_index(
      np.asarray(lengths),
      np.asarray(document_index),
      seq_length,
      extra,
      num_samples,
    )
  except ValueError as error:
    raise ValueError(
      f"{str(error).rstrip('.')}. (num_epochs={num_epochs} times"
      f" tokens_per_epoch={tokens} promises {num_samples} samples.)"
    ) from error


def stages(
  shape: IndexShape, num_documents: int, *, last: int
) -> dict[str, Mapping[str, tuple[np.dtype, tuple[int, ...]]]]:
  """Returns dtype and shape of every array, by the stage that makes it.

  Args:
    shape: of the index.
    num_documents: sequences of the split.
    last: one past the split's last sequence.
  """
  places = shape.num_epochs * num_documents
  return {
    "documents": {
      "document_index": (document_index_dtype(last), (places,)),
      "random_state": (np.dtype(np.uint32), (_STATE_WORDS + 1,)),
    },
    "samples": {
      "sample_index": (sample_index_dtype(places), (shape.num_rows + 1, 2)),
    },
    "shuffle": {
      "shuffle_index": (shuffle_index_dtype(shape.num_rows), (shape.num_rows,)),
    },
  }
