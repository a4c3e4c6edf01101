"""A corpus in, its documents in order out, some megabytes at a time.

Pairs and ArrayRecord files are walked alike, so that what converts, describes
or checks a corpus is written once.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np

from hpgrain.sources.indexed_reader import IndexedReader

# Looked at together; one document may have more sequences.
BLOCK_DOCUMENTS = 1 << 16
_BLOCK_SEQUENCES = 1 << 20


@dataclasses.dataclass(frozen=True)
class DocumentBlock:
  """Documents that follow one another.

  Attributes:
    first: number of the first of them.
    counts: int64[documents], sequences of each; 0 for an empty one.
    lengths: int32[sequences], tokens of each sequence.
    modes: int8[sequences], the mode of each, or None.
    tokens: their tokens, in order, in pieces [n] of any size; to be read once.
  """

  first: int
  counts: np.ndarray
  lengths: np.ndarray
  modes: np.ndarray | None
  tokens: Iterator[np.ndarray]

  def token_bounds(self) -> np.ndarray:
    """int64[documents + 1], tokens of the block before each document."""
    ends = np.concatenate(([0], np.cumsum(self.lengths, dtype=np.int64)))
    return ends[np.concatenate(([0], np.cumsum(self.counts, dtype=np.int64)))]


def pair_blocks(reader: IndexedReader) -> Iterator[DocumentBlock]:
  """Walks a pair whose `.idx` is sound (`reader.verify()`).

  The tokens of a block have to be read before the next block is asked for.
  """
  documents, lengths, modes = (
    reader.document_indices,
    reader.lengths,
    reader.modes,
  )
  first, token = 0, 0
  while first < reader.num_documents:
    bounds = np.array(documents[first : first + BLOCK_DOCUMENTS + 1])
    begin = int(bounds[0])
    fitting = np.searchsorted(bounds, begin + _BLOCK_SEQUENCES, "right") - 1
    bounds = bounds[: max(int(fitting), 1) + 1]
    end = int(bounds[-1])
    some = np.array(lengths[begin:end])
    num_tokens = int(some.sum(dtype=np.int64))
    yield DocumentBlock(
      first,
      np.diff(bounds),
      some,
      None if modes is None else np.array(modes[begin:end]),
      reader.token_blocks(token, token + num_tokens),
    )
    first += len(bounds) - 1
    token += num_tokens
