import itertools
import random

import numpy as np
import pytest
from corpora import random_documents, write_pair

from hpgrain import GPTSamples
from hpgrain.eod_segments import eod_segments

_EOD = 9


def _plans(tmp_path, documents, **options):
  """The rows of 4 + 1 tokens of an unshuffled corpus, its plans and lengths."""
  prefix = write_pair(tmp_path / "a", documents)
  samples = GPTSamples(prefix, seq_length=4, seed=0, shuffle=False, **options)
  plans = samples.plan_rows(range(len(samples)))
  splits = itertools.pairwise(plans.row_splits)
  lengths = np.array([plans.length[a:b].sum() for a, b in splits], np.int64)
  return samples, plans, lengths


def _starts(segments):
  return [
    segments.starts[a:b].tolist()
    for a, b in itertools.pairwise(segments.row_splits)
  ]


def test_documents_end_at_the_ids_and_not_where_the_plan_says(tmp_path):
  # One document holds ids inside, the next two have none at their ends.
  documents = [[[1, _EOD, 2, 3, _EOD, _EOD]], [[4, 5]], [[6, 7, 8, 1, _EOD]]]
  samples, plans, lengths = _plans(tmp_path, documents)
  assert samples.read(plans).tolist() == [
    [1, 9, 2, 3, 9],
    [9, 9, 4, 5, 6],
    [6, 7, 8, 1, 9],
  ]
  segments = eod_segments(
    plans, sources=samples.sources, eod_id=_EOD, lengths=lengths
  )
  # An id that is a row's last token begins nothing there.
  assert _starts(segments) == [[0, 2], [0, 1, 2], [0]]
  assert segments.lengths.tolist() == [5, 5, 5]
  assert _starts(samples.segments(plans)) == [[0], [0, 2, 4], [0]]


def test_a_shorter_row_ends_where_its_tokens_do(tmp_path):
  documents = [[[1, 2, 3, 4, 5, _EOD, 6, _EOD]]]
  samples, plans, lengths = _plans(tmp_path, documents, drop_last=False)
  assert samples.read(plans).tolist() == [[1, 2, 3, 4, 5], [5, 9, 6, 9, 0]]
  assert lengths.tolist() == [5, 4]
  segments = eod_segments(
    plans, sources=samples.sources, eod_id=_EOD, lengths=lengths
  )
  assert _starts(segments) == [[0], [0, 2]]
  assert segments.lengths.tolist() == [5, 4]
  # In a row that is told to be longer, the id would begin a document.
  segments = eod_segments(
    plans, sources=samples.sources, eod_id=_EOD, lengths=np.array([5, 5])
  )
  assert _starts(segments) == [[0], [0, 2, 4]]


def test_without_an_id_a_row_is_one_segment(tmp_path):
  samples, plans, lengths = _plans(tmp_path, [[[_EOD] * 9]])
  segments = eod_segments(
    plans, sources=samples.sources, eod_id=None, lengths=lengths
  )
  assert _starts(segments) == [[0], [0]]


def test_rows_of_many_pieces_are_those_of_a_slow_look(tmp_path):
  rng = random.Random(3)
  documents = [
    *random_documents(rng, num_documents=40, max_length=6, vocab_size=4),
    [[1] * 9],
  ]
  samples, plans, lengths = _plans(tmp_path, documents, drop_last=False)
  segments = eod_segments(
    plans, sources=samples.sources, eod_id=0, lengths=lengths
  )
  rows = [
    row[:length].tolist() for row, length in zip(samples.read(plans), lengths)
  ]
  assert len(rows) > 20
  assert _starts(segments) == [
    [0, *(t + 1 for t, token in enumerate(row[:-1]) if token == 0)]
    for row in rows
  ]


def test_no_rows_have_no_segments(tmp_path):
  samples, _, _ = _plans(tmp_path, [[[1] * 5]])
  segments = eod_segments(
    samples.plan_rows([]),
    sources=samples.sources,
    eod_id=1,
    lengths=np.zeros(0, np.int64),
  )
  assert len(segments) == 0 and not len(segments.starts)


def test_another_number_of_lengths_is_refused(tmp_path):
  samples, plans, lengths = _plans(tmp_path, [[[1] * 9]])
  with pytest.raises(
    ValueError, match=r"one length a row, got shape \(1,\) for 2 rows"
  ):
    eod_segments(plans, sources=samples.sources, eod_id=1, lengths=lengths[:1])
