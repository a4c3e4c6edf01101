"""The part of a corpus that one split reads: its sequences and tokens."""

import dataclasses
from typing import Any

import numpy as np

from hpgrain import _kernels
from hpgrain.corpus import Corpus, choose_split, span_tokens
from hpgrain.index_cache import IndexCache

# What to do about sequences that are not where they should be.
APART = (
  "Pass contiguous=False to read sequences that do not lie back to back, and"
  " run `IndexedReader.verify` to see whether the file is damaged."
)


@dataclasses.dataclass(frozen=True)
class SplitTokens:
  """The sequences [first, last) of a corpus.

  Attributes:
    corpus: the source.
    first: the first sequence.
    last: one past the last.
    num_tokens: T, in all of them.
    contiguous: whether they lie back to back in the `.bin`, so that their
      pointers tell where in the split each begins.
  """

  corpus: Corpus
  first: int
  last: int
  num_tokens: int
  contiguous: bool

  @property
  def key(self) -> dict[str, Any]:
    """What names these sequences' lengths in an index cache."""
    return {
      "corpus": self.corpus.cache_identity,
      "first": self.first,
      "last": self.last,
    }

  def starts(self, cache: IndexCache) -> np.ndarray | None:
    """Returns int64[last - first + 1], where each sequence begins.

    They count tokens from the split's beginning; None where pointers tell.
    """
    if self.contiguous:
      return None
    count = self.last - self.first

    def build() -> dict[str, np.ndarray]:
      starts = np.zeros(count + 1, np.int64)
      lengths = self.corpus.reader.lengths[self.first : self.last]
      np.cumsum(lengths, out=starts[1:])
      return {"starts": starts}

    return cache.get(
      "starts",
      key=self.key,
      arrays={"starts": (np.dtype(np.int64), (count + 1,))},
      build=build,
    )["starts"]

  def walk(
    self,
    document_index: np.ndarray,
    *,
    seq_length: int,
    extra: int,
    num_rows: int,
  ) -> np.ndarray:
    """Returns where each sample begins; see `megatron.sample_index`.

    Args:
      document_index: sequences in the order they are read, whole epochs.
      seq_length: positions a sample.
      extra: tokens a sample has beyond them.
      num_rows: samples.

    Raises:
      ValueError: if the lengths of the sequences do not add up to what their
        pointers say.
    """
    lengths = self.corpus.reader.lengths
    found = int(lengths[self.first : self.last].sum(dtype=np.int64))
    if found != self.num_tokens:
      raise ValueError(
        f"the lengths of its sequences add up to {found} tokens, their"
        f" pointers to {self.num_tokens}. {APART}"
      )
    return _kernels.sample_index(
      lengths, document_index, seq_length, extra, num_rows
    )


def split_tokens(
  corpus: Corpus, *, split: str, split_index: int, contiguous: bool
) -> SplitTokens:
  """Returns one split of a corpus.

  O(1), but where sequences do not lie back to back: then all lengths are
  added up.

  Raises:
    ValueError: for an unknown split_index, or a split of weight zero.
  """
  first, last = choose_split(corpus.reader, split, split_index)
  if contiguous:
    num_tokens = span_tokens(corpus.reader, first, last)
  else:
    lengths = corpus.reader.lengths[first:last]
    num_tokens = int(lengths.sum(dtype=np.int64))
  return SplitTokens(corpus, first, last, num_tokens, contiguous)
