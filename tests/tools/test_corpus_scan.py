"""Counts of a corpus' tokens, against a plain count of lists."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpgrain.sources.document_blocks import DocumentBlock
from hpgrain.tools.corpus_scan import CorpusScan, Place

EOD = 7


def block(documents, *, first=0, piece=3, dtype="<u2"):
  tokens = np.array([t for d in documents for s in d for t in s], dtype)
  return DocumentBlock(
    first,
    np.array([len(d) for d in documents], np.int64),
    np.array([len(s) for d in documents for s in d], np.int32),
    None,
    iter([tokens[i : i + piece] for i in range(0, len(tokens), piece)]),
  )


def test_counts_of_a_few_documents():
  scan = CorpusScan(eod_id=EOD, vocab_size=10, listed=2)
  scan.add(block([[[1, 7]], [], [[7, 7, 2], [10]], [[7]]]))
  scan.add(block([[[]], [[7, 11, 12, 13]]], first=4))
  assert (scan.documents, scan.sequences, scan.tokens, scan.empty) == (
    6,
    6,
    11,
    2,
  )
  assert (scan.least, scan.most) == (0, 4)
  assert scan.histogram[:5].tolist() == [2, 1, 1, 2, 0]
  assert (scan.eods, scan.ended) == (5, 2)
  assert scan.unended.count == 2
  assert scan.unended.first == [Place(2, 3, 10), Place(5, 3, 13)]
  assert scan.inner.count == 3
  assert scan.inner.first == [Place(2, 0, 7), Place(2, 1, 7)]
  assert scan.outside.count == 4
  assert scan.outside.first == [Place(2, 3, 10), Place(5, 1, 11)]


def test_records_of_another_length_are_told():
  scan = CorpusScan(eod_id=None, vocab_size=None, record_length=3)
  scan.add(block([[[1, 2, 3]], [[1, 2]], [[1, 2], [3]], []], first=5))
  assert scan.uncut.count == 3
  # (document, sequences, tokens)
  assert scan.uncut.first == [(6, 1, 2), (7, 2, 3), (8, 0, 0)]


@pytest.mark.parametrize(
  ("dtype", "tokens", "vocab_size", "outside"),
  [
    ("<i4", [-1, 5], 6, [-1]),
    ("<u1", [0, 255], 50_000, []),
    ("<u1", [0, 255], 255, [255]),
    ("<f4", [-1.5, 99], 6, []),
  ],
)
def test_ids_outside_the_vocabulary(dtype, tokens, vocab_size, outside):
  scan = CorpusScan(eod_id=99_999, vocab_size=vocab_size)
  scan.add(block([[tokens]], dtype=dtype))
  assert [place.id for place in scan.outside.first] == outside
  assert scan.eods == 0


def test_lengths_alone():
  scan = CorpusScan(eod_id=EOD, vocab_size=10)
  some = block([[[1, 2]]])
  scan.add(some, read_tokens=False)
  assert (scan.documents, scan.tokens, scan.eods) == (1, 2, 0)
  assert [piece.tolist() for piece in some.tokens] == [[1, 2]]


@settings(max_examples=200, deadline=None)
@given(
  blocks=st.lists(
    st.lists(
      st.lists(st.lists(st.integers(0, 12), max_size=5), max_size=3), max_size=6
    ),
    max_size=4,
  ),
  piece=st.integers(1, 9),
)
def test_counts_are_those_of_the_lists(blocks, piece):
  scan = CorpusScan(eod_id=EOD, vocab_size=11, listed=10**6)
  documents = []
  for some in blocks:
    scan.add(block(some, first=len(documents), piece=piece))
    documents += some
  flat = [[t for sequence in d for t in sequence] for d in documents]
  places = [(d, i, t) for d, ts in enumerate(flat) for i, t in enumerate(ts)]
  ends = {(d, len(ts) - 1) for d, ts in enumerate(flat) if ts}
  assert scan.documents == len(flat)
  assert scan.sequences == sum(map(len, documents))
  assert scan.tokens == len(places)
  assert scan.empty == sum(not ts for ts in flat)
  assert scan.least == min(map(len, flat), default=None)
  assert scan.most == max(map(len, flat), default=0)
  assert scan.histogram.tolist() == [
    sum(len(ts).bit_length() == k for ts in flat) for k in range(65)
  ]
  assert scan.eods == sum(t == EOD for _, _, t in places)
  assert scan.outside.first == [p for p in places if p[2] >= 11]
  inner = [p for p in places if p[2] == EOD and p[:2] not in ends]
  assert scan.inner.first == inner
  assert scan.inner.count == len(inner)
  unended = [p for p in places if p[2] != EOD and p[:2] in ends]
  assert scan.unended.first == unended
  assert scan.ended == len(ends) - len(unended)
