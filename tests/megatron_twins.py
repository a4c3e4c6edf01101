"""Megatron's order once more, slow and obvious: NumPy's generator and lists.

Written from the rules, not from the C++; `test_kernel_megatron.py` compares
the two.
"""

import bisect
import itertools
from collections.abc import Callable, Sequence

import numpy as np
from twins import Corpus, Piece

Shuffle = Callable[[np.ndarray, np.random.RandomState], None]


def draw(random_state: np.random.RandomState, largest: int) -> int:
  """An integer in [0, largest] from whole 32-bit words, by masked rejection."""
  mask = (1 << largest.bit_length()) - 1
  while True:
    value = int(random_state.randint(0, 2**32, dtype=np.uint32))
    if largest > 2**32 - 1:
      low = int(random_state.randint(0, 2**32, dtype=np.uint32))
      value = value << 32 | low
    if value & mask <= largest:
      return value & mask


def shuffle(array: np.ndarray, random_state: np.random.RandomState) -> None:
  """Fisher and Yates's shuffle, from the end down."""
  items = array.tolist()
  for i in reversed(range(1, len(items))):
    j = draw(random_state, i)
    items[i], items[j] = items[j], items[i]
  array[:] = items


def sample_index(
  lengths: Sequence[int],
  document_index: Sequence[int],
  *,
  seq_length: int,
  extra: int,
  num_samples: int,
) -> list[list[int]]:
  """Where each sample begins, from where its predecessor's last token is."""
  sizes = [int(lengths[d]) for d in document_index]
  ends = list(itertools.accumulate(sizes))
  out = [[0, 0]]
  for sample in range(num_samples):
    # Samples overlap by the extra token; the last one may be short.
    last = min((sample + 1) * seq_length + extra, ends[-1]) - 1
    place = bisect.bisect_right(ends, last)
    offset = last - (ends[place] - sizes[place])
    out.append([place, offset + 1 - extra])
  return out


def num_samples(
  tokens: int, *, seq_length: int, extra: int, drop_last: bool
) -> int:
  cuts = max(tokens - extra, 0)
  return cuts // seq_length if drop_last else -(-cuts // seq_length)


def index_numbers(
  wanted: int | None,
  *,
  tokens: int,
  seq_length: int,
  extra: int,
  drop_last: bool,
) -> tuple[int, int | None, int]:
  """Epochs E, samples A before a separated last epoch or None, samples M."""
  epochs = 1
  while wanted is not None and epochs * tokens < wanted * seq_length + extra:
    epochs += 1
  rows = num_samples(
    epochs * tokens, seq_length=seq_length, extra=extra, drop_last=drop_last
  )
  if epochs == 1:
    return epochs, None, rows
  before = ((epochs - 1) * tokens - extra) // seq_length
  per_epoch = (tokens - extra) // seq_length
  separate = wanted - before < int(0.80 * per_epoch)
  return epochs, before if separate else None, rows


def shuffled_indices(
  sequences: np.ndarray,
  *,
  epochs: int,
  before: int | None,
  rows: int,
  seed: int,
  shuffle: Shuffle,
) -> tuple[np.ndarray, np.ndarray]:
  """The document index and the shuffle index, of one generator."""
  random_state = np.random.RandomState(seed)

  def shuffled(array: np.ndarray) -> np.ndarray:
    shuffle(array, random_state)
    return array

  sequences = np.asarray(sequences, np.int32)
  samples = np.arange(rows, dtype=np.uint32)
  if before is None:
    documents = shuffled(np.tile(sequences, epochs))
    return documents, shuffled(samples)
  parts = [np.tile(sequences, epochs - 1), sequences.copy()]
  documents = np.concatenate([shuffled(part) for part in parts])
  parts = [samples[:before].copy(), samples[before:].copy()]
  return documents, np.concatenate([shuffled(part) for part in parts])


def sample_pieces(
  corpus: Corpus,
  sample: int,
  *,
  document_index: Sequence[int],
  seq_length: int,
  extra: int,
) -> list[Piece]:
  """A sample's pieces: a list of all tokens in reading order, sliced."""
  tokens = [
    (place, int(sequence), offset)
    for place, sequence in enumerate(document_index)
    for offset in range(len(corpus.sequences[sequence]))
  ]
  begin = sample * seq_length
  own = tokens[begin : begin + seq_length + extra]
  pieces: list[Piece] = []
  for _, group in itertools.groupby(own, key=lambda token: token[0]):
    (_, sequence, offset), *rest = group
    # Empty sequences may stand between two of a document.
    before = pieces[-1][0] if pieces else sequence
    goes_on = (
      before < sequence
      and not any(corpus.sequences[before + 1 : sequence])
      and not {*range(before + 1, sequence + 1)} & {*corpus.document_indices}
    )
    pieces.append((sequence, offset, 1 + len(rest), not goes_on))
  return pieces
