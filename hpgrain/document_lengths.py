r"""One split of a tokenized corpus in, its documents as examples out.

  sequences   s0 s1 | s2 | s3 s4 s5 |      stored back to back
  documents   [s0 s1] [s2] [s3 s4 s5]      what packing places and cuts
  split       [      train     ) valid     a bound ends the document there

A document may be stored as several sequences; it is read as one.
"""

import numpy as np

from hpgrain.corpus import Corpus

_MAX_LENGTH = np.iinfo(np.int32).max


class DocumentLengths:
  """The documents of some sequences of a corpus; an `example_order.Lengths`.

  All is looked up in the mapped `.idx`, so opening costs nothing.
  """

  def __init__(self, corpus: Corpus, *, first: int, last: int, ahead: int):
    """Holds the part of the corpus.

    Args:
      corpus: the source.
      first: the first sequence.
      last: one past the last.
      ahead: tokens of a document that are labels alone, 0 or 1.
    """
    self.corpus = corpus
    self.name = corpus.name
    self._first, self._last, self._ahead = first, last, ahead
    begins = corpus.reader.document_indices
    at = int(np.searchsorted(begins, first))
    # The document that `first` lies in, where it does not begin one.
    self._document = at if begins[at] == first else at - 1
    end = int(np.searchsorted(begins, last))
    self.num_records = max(end - self._document, 0)

  def examples(self, records: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (first int64[n], count int64[n]): one example each."""
    return records, np.ones(len(records), np.int64)

  def lengths(self, examples: np.ndarray) -> np.ndarray:
    """Returns int32[n], positions of each document.

    Raises:
      ValueError: one has more than 2**31 - 1.
    """
    splits, _, lengths = self._sequences(examples)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    positions = np.maximum(np.diff(ends[splits]) - self._ahead, 0)
    if positions.max(initial=0) > _MAX_LENGTH:
      longest = int(np.argmax(positions))
      raise ValueError(
        f"Source {self.name!r}, {self.place(int(examples[longest]))}: it has"
        f" {positions[longest]} positions, and a document may have"
        f" {_MAX_LENGTH}."
      )
    return positions.astype(np.int32)

  def place(self, example: int) -> str:
    """Which document of the corpus an example is, for messages."""
    return f"document {self._document + example}"

  def parts(
    self, examples: np.ndarray, *, offset: np.ndarray, count: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Finds runs of documents' tokens in their sequences.

    Args:
      examples: int64[n], the documents.
      offset: int64[n], each run's first token in its document.
      count: int64[n], its tokens.

    Returns:
      (run int64[m], sequence int64[m], offset int64[m], length int32[m]):
      the parts in sequences that make each run, one run's after the other.
    """
    splits, sequence, lengths = self._sequences(examples)
    run = np.repeat(np.arange(len(examples)), np.diff(splits))
    ends = np.concatenate([[0], np.cumsum(lengths)])
    before = ends[:-1] - ends[splits[:-1]][run]
    begin = np.maximum(offset[run], before)
    end = np.minimum((offset + count)[run], before + lengths)
    kept = end > begin
    return (
      run[kept],
      sequence[kept],
      (begin - before)[kept],
      (end - begin)[kept].astype(np.int32),
    )

  def _sequences(
    self, examples: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the sequences of documents, one document's after the other.

    Returns:
      (splits int64[n + 1], sequence int64[m], length int64[m]).
    """
    documents = self._document + np.asarray(examples, np.int64)
    begins = self.corpus.reader.document_indices
    begin = np.maximum(begins[documents], self._first)
    counts = np.minimum(begins[documents + 1], self._last) - begin
    splits = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    sequence = np.arange(splits[-1]) + np.repeat(begin - splits[:-1], counts)
    lengths = self.corpus.reader.lengths[sequence]
    return splits, sequence, lengths.astype(np.int64)
