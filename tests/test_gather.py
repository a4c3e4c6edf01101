import itertools
import random

import numpy as np
import pytest
import twins
from corpora import write_pair

from hpgrain import IndexedReader, RowPlans, gather
from hpgrain.samples import Corpus


def _plan(rows):
  """Rows of (source, sequence, offset, length, boundary)."""
  return RowPlans(*twins.to_plan(rows, source=None))


@pytest.fixture
def sources(tmp_path):
  first = write_pair(tmp_path / "a", [[[10, 11, 12]], [[13]]])
  second = write_pair(tmp_path / "b", [[[20, 21, 22, 23]]], dtype="int32")
  return [
    Corpus(IndexedReader(path), name)
    for path, name in ((first, "books"), (second, "code"))
  ]


_ROWS = [
  [(0, 0, 1, 2, True), (0, 1, 0, 1, True)],
  [(1, 0, 0, 3, True)],
  [(1, 0, 3, 1, True), (0, 0, 0, 1, False)],
]


def test_rows_are_their_pieces_in_order_and_padding(sources):
  found = gather.read_rows(
    _plan(_ROWS), sources=sources, columns=(0, 4), vocab_size=None
  )
  assert found.tolist() == [
    [11, 12, 13, 0],
    [20, 21, 22, 0],
    [23, 10, 0, 0],
  ]
  assert found.dtype == np.int32
  part = gather.read_rows(
    _plan(_ROWS), sources=sources, columns=(1, 3), vocab_size=None
  )
  assert part.tolist() == [[12, 13], [21, 22], [10, 0]]


def test_only_the_sources_used_are_opened(sources):
  class Closed:
    name = "closed"

    def token_file(self):
      raise AssertionError("not asked for")

  found = gather.read_rows(
    _plan(_ROWS[:1]),
    sources=[sources[0], Closed()],
    columns=(0, 3),
    vocab_size=None,
  )
  assert found.tolist() == [[11, 12, 13]]


def test_a_bad_id_names_source_sequence_and_offset(sources):
  for columns in ((0, 3), (1, 2), (1, 3)):
    with pytest.raises(
      ValueError,
      match=r"Source 'books', sequence 0, offset 2: token id 12 .*\[0, 12\)",
    ):
      gather.read_rows(
        _plan(_ROWS[:1]), sources=sources, columns=columns, vocab_size=12
      )
  with pytest.raises(
    ValueError, match=r"Source 'code', sequence 0, offset 3: token id 23"
  ):
    gather.read_rows(
      _plan(_ROWS), sources=sources, columns=(0, 3), vocab_size=23
    )


@pytest.mark.parametrize(
  "piece", [(0, 0, 1, 3, True), (0, 0, -1, 2, True), (0, 2, 0, 1, True)]
)
def test_a_piece_outside_its_sequence_is_refused(sources, piece):
  with pytest.raises(ValueError, match=rf"/a: .*sequence {piece[1]}"):
    gather.read_rows(
      _plan([[piece]]), sources=sources, columns=(0, 3), vocab_size=None
    )


def test_tokens_are_found_in_whole_rows(sources):
  splits, positions = gather.find_token(
    _plan([*_ROWS, [(0, 0, 0, 1, True), (0, 0, 0, 1, True)]]),
    sources=sources,
    token=10,
  )
  assert splits.tolist() == [0, 0, 0, 1, 3]
  assert positions.tolist() == [1, 0, 1]


def test_segments_are_the_slow_ones():
  rng = random.Random(0)
  for _ in range(50):
    rows = []
    for _ in range(rng.randint(0, 6)):
      pieces = [
        (
          0,
          rng.randrange(9),
          0,
          rng.randint(1, 5),
          i == 0 or rng.random() < 0.5,
        )
        for i in range(rng.randint(1, 5))
      ]
      rows.append(pieces)
    found = gather.segments(_plan(rows))
    for i, (begin, end) in enumerate(itertools.pairwise(found.row_splits)):
      begins = itertools.accumulate([0, *(piece[3] for piece in rows[i])])
      starts = [t for t, piece in zip(begins, rows[i]) if piece[4]]
      assert found.starts[begin:end].tolist() == starts
      assert found.lengths[i] == sum(piece[3] for piece in rows[i])
    assert len(found) == len(rows)


def test_row_fields_shift_labels_once():
  text = np.array([1, 2, 3], np.int32)
  full = _plan([[(0, 0, 0, 3, True)]])
  with_extra = gather.row_fields(text, full, 1)
  assert with_extra["tokens"].tolist() == [1, 2]
  assert with_extra["labels"].tolist() == [2, 3]
  without = gather.row_fields(text, full, 0)
  assert without["tokens"].tolist() == [1, 2, 3]
  assert without["labels"].tolist() == [2, 3, -100]
  # The row's end was padded: what has no token has no label.
  short = gather.row_fields(text, _plan([[(0, 0, 0, 2, True)]]), 1)
  assert short["tokens"].tolist() == [1, 2]
  assert short["labels"].tolist() == [2, -100]
  assert text.tolist() == [1, 2, 3]
