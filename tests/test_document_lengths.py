import numpy as np
import pytest

from hpgrain.corpus import Corpus
from hpgrain.document_lengths import DocumentLengths
from hpgrain.sources.indexed import IndexedReader, IndexedWriter

# Documents as the lengths of their sequences.
_DOCUMENTS = [[3], [], [2, 4, 1], [5, 1], [], [2]]


@pytest.fixture
def corpus(tmp_path):
  prefix = str(tmp_path / "a")
  with IndexedWriter(prefix, dtype="uint16") as writer:
    for lengths in _DOCUMENTS:
      writer.add_document(np.arange(sum(lengths)), lengths)
    writer.finalize()
  return Corpus(IndexedReader(prefix), None)


def lengths_of(corpus, first, last, ahead=0):
  documents = DocumentLengths(corpus, first=first, last=last, ahead=ahead)
  examples, count = documents.examples(np.arange(documents.num_records))
  assert count.tolist() == [1] * documents.num_records
  lengths = documents.lengths(examples)
  assert lengths.dtype == np.int32
  return lengths.tolist()


def test_a_document_is_one_example(corpus):
  assert lengths_of(corpus, 0, 7) == [3, 0, 7, 6, 0, 2]
  assert lengths_of(corpus, 0, 7, ahead=1) == [2, 0, 6, 5, 0, 1]
  documents = DocumentLengths(corpus, first=0, last=7, ahead=0)
  assert documents.name == "a"
  assert documents.place(2) == "document 2"
  assert documents.lengths(np.array([3, 0, 3])).tolist() == [6, 3, 6]
  assert documents.lengths(np.zeros(0, np.int64)).tolist() == []


def test_a_bound_of_a_split_ends_the_document_there(corpus):
  assert lengths_of(corpus, 0, 2) == [3, 0, 2]
  assert lengths_of(corpus, 2, 5) == [5, 5]
  assert lengths_of(corpus, 5, 7) == [1, 0, 2]
  assert lengths_of(corpus, 4, 6) == [6]
  assert lengths_of(corpus, 7, 7) == []
  documents = DocumentLengths(corpus, first=2, last=5, ahead=0)
  assert documents.place(1) == "document 3"


def test_runs_are_found_in_their_sequences(corpus):
  documents = DocumentLengths(corpus, first=0, last=7, ahead=0)
  run, sequence, offset, length = documents.parts(
    np.array([2, 0, 3, 2]),
    offset=np.array([1, 0, 5, 6]),
    count=np.array([5, 3, 1, 1]),
  )
  assert run.tolist() == [0, 0, 1, 2, 3]
  assert sequence.tolist() == [1, 2, 0, 5, 3]
  assert offset.tolist() == [1, 0, 0, 0, 0]
  assert length.tolist() == [1, 4, 3, 1, 1]
  assert length.dtype == np.int32


def test_a_document_may_be_too_long(corpus, monkeypatch):
  monkeypatch.setattr("hpgrain.document_lengths._MAX_LENGTH", 6)
  with pytest.raises(ValueError, match="'a', document 2: it has 7 positions"):
    lengths_of(corpus, 0, 7)
