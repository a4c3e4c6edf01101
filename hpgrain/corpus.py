"""One tokenized corpus by name, and the part of it that a split reads."""

import functools
from pathlib import Path

import numpy as np

from hpgrain import _kernels
from hpgrain.sources.indexed import IndexedReader
from hpgrain.splits import SPLIT_NAMES, split_bounds


class Corpus:
  """A reader under the name that keys its order: a `gather.TokenSource`."""

  def __init__(self, reader: IndexedReader, name: str | None):
    """Names a reader.

    Args:
      reader: of the pair.
      name: default the prefix's basename.

    Raises:
      ValueError: if the pair holds floats, which are no token ids.
    """
    if reader.dtype.kind == "f":
      raise ValueError(
        f"{reader.prefix}.idx says that its sequences are of"
        f" {reader.dtype.name}, but token ids are integers. Read it with"
        " IndexedReader if it holds something else; if it holds ids, write"
        ' them again with IndexedWriter(prefix, dtype="int32").'
      )
    self.reader = reader
    self.name = name or Path(reader.prefix).name

  def token_file(self) -> _kernels.TokenFile:
    """Returns the open `.idx`/`.bin` pair."""
    return self.reader.token_file()

  @property
  def path(self) -> str:
    """The prefix of the pair, for messages."""
    return self.reader.prefix

  @functools.cached_property
  def identity(self) -> dict[str, str]:
    """The name and a digest of what the files hold, wherever they lie."""
    return {"name": self.name, "content": self.reader.content_digest()}

  @functools.cached_property
  def cache_identity(self) -> dict[str, str | int]:
    """What an index built from the `.idx` is good for.

    Besides what the files hold, when the `.idx` was written: the digest is of
    samples, and a corpus written anew must never meet an old index.
    """
    return {
      "content": self.identity["content"],
      "idx_bytes": self.reader.idx_bytes,
      "idx_mtime_ns": self.reader.idx_mtime_ns,
    }


def choose_split(
  reader: IndexedReader, split: str, split_index: int
) -> tuple[int, int]:
  """Returns the [begin, end) sequences of one split of a corpus.

  Raises:
    ValueError: for an unknown split_index, or a split of weight zero.
  """
  if not 0 <= split_index < len(SPLIT_NAMES):
    raise ValueError(
      f"split_index is 0 (train), 1 (valid) or 2 (test), got {split_index!r}."
    )
  span = split_bounds(split, len(reader))[split_index]
  if span is None:
    raise ValueError(
      f"Split {split!r} gives {SPLIT_NAMES[split_index]} no weight, so it has"
      " no rows; give it a positive weight or do not ask for it."
    )
  return span


def span_tokens(reader: IndexedReader, first: int, last: int) -> int:
  """Returns the tokens of sequences [first, last), in O(1)."""
  if first == last:
    return 0
  pointers, itemsize = reader.pointers, reader.dtype.itemsize
  end = int(pointers[last - 1]) + int(reader.lengths[last - 1]) * itemsize
  return (end - int(pointers[first])) // itemsize


def too_small(
  corpus: Corpus,
  *,
  span: tuple[int, int],
  split: str,
  split_index: int,
  num_tokens: int,
  row_tokens: int,
  enough_tokens: int,
) -> str:
  """Says why a split has no row, and the smallest share that would have one.

  Args:
    corpus: the source.
    span: the split's sequences, [begin, end).
    split: its weights, as given.
    split_index: which of the splits.
    num_tokens: in the span.
    row_tokens: what a row needs.
    enough_tokens: how many a split needs to have a row: as many, or one where
      a row may hold several epochs.
  """
  count = len(corpus.reader)
  lengths = corpus.reader.lengths
  # Train begins where the corpus does; the others end where they end.
  ordered = lengths[: span[1]][::-1] if split_index else lengths
  totals = np.cumsum(ordered, dtype=np.int64)
  enough = int(np.searchsorted(totals, enough_tokens)) + 1
  if enough <= len(totals):
    advice = (
      f"The smallest share that works is {enough} of its {count} sequences"
      f" ({enough / count:.6g} of the whole)."
    )
  else:
    advice = "No share of this corpus is enough: use a shorter seq_length."
  return (
    f"Source {corpus.name!r}, split {SPLIT_NAMES[split_index]} of {split!r}:"
    f" its {span[1] - span[0]} sequences hold T = {num_tokens} tokens, a row"
    f" needs S + x = {row_tokens}. {advice}"
  )
