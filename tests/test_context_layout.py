"""Which positions of a row each context-parallel rank holds."""

import itertools

import numpy as np
import pytest
import reference_layouts as reference
from hypothesis import given
from hypothesis import strategies as st

from hpgrain.context_layout import (
  LAYOUTS,
  ROW_ORDER,
  ContextLayout,
  Rooms,
  Run,
)

FIXED = ("contiguous", "zigzag", "striped")


def rooms_of(rows):
  """Rooms of rows that are lists of lengths."""
  splits = np.cumsum([0, *(len(row) for row in rows)])
  return Rooms(splits, np.array([x for row in rows for x in row], np.int64))


@pytest.mark.parametrize(
  ("name", "ranks", "expected"),
  [
    ("contiguous", 2, [0, 1, 2, 3, 4, 5, 6, 7]),
    ("zigzag", 1, [0, 1, 2, 3, 4, 5, 6, 7]),
    ("zigzag", 2, [0, 1, 6, 7, 2, 3, 4, 5]),
    ("zigzag", 4, [0, 7, 1, 6, 2, 5, 3, 4]),
    ("striped", 1, [0, 1, 2, 3, 4, 5, 6, 7]),
    ("striped", 2, [0, 2, 4, 6, 1, 3, 5, 7]),
    ("striped", 4, [0, 4, 1, 5, 2, 6, 3, 7]),
    ("striped", 8, [0, 1, 2, 3, 4, 5, 6, 7]),
  ],
)
def test_orders_written_out(name, ranks, expected):
  layout = ContextLayout(name, ranks)
  order = layout.order(8)
  assert order.tolist() == expected and order.dtype == np.int32
  # Of fixed orders rows make no difference.
  rows = layout.order_of_rows(rooms_of([[8], [3, 5]]), 8)
  assert rows.tolist() == [expected, expected] and rows.dtype == np.int32
  assert reference.order(name, ranks, 8) == expected


def test_zigzag_over_three_ranks():
  assert ContextLayout("zigzag", 3).order(12).tolist() == [
    0, 1, 10, 11,
    2, 3, 8, 9,
    4, 5, 6, 7,
  ]  # fmt: skip


def test_every_document_has_a_zigzag_of_its_own():
  layout = ContextLayout("document_zigzag", 2, 4)
  order = layout.order_of_rows(rooms_of([[4, 4], [8], [4, 0, 4]]), 8)
  assert order.tolist() == [
    [0, 3, 4, 7, 1, 2, 5, 6],
    [0, 1, 6, 7, 2, 3, 4, 5],
    [0, 3, 4, 7, 1, 2, 5, 6],
  ]
  assert order.dtype == np.int32
  assert layout.order_of_rows(rooms_of([]), 8).shape == (0, 8)


@pytest.mark.parametrize(
  ("name", "ranks", "slots", "expected"),
  [
    ("contiguous", 2, (2, 6), [Run(2, 4, 1)]),
    ("zigzag", 2, (0, 4), [Run(0, 2, 1), Run(6, 2, 1)]),
    # The last rank's chunks are neighbours.
    ("zigzag", 2, (4, 8), [Run(2, 4, 1)]),
    ("zigzag", 4, (6, 8), [Run(3, 2, 1)]),
    # Within a chunk, across two, and across ranks.
    ("zigzag", 2, (1, 2), [Run(1, 1, 1)]),
    ("zigzag", 2, (1, 3), [Run(1, 1, 1), Run(6, 1, 1)]),
    ("zigzag", 2, (3, 6), [Run(7, 1, 1), Run(2, 2, 1)]),
    ("zigzag", 2, (0, 8), [Run(0, 2, 1), Run(6, 2, 1), Run(2, 4, 1)]),
    ("striped", 2, (0, 4), [Run(0, 4, 2)]),
    ("striped", 2, (5, 7), [Run(3, 2, 2)]),
    ("striped", 2, (3, 6), [Run(6, 1, 2), Run(1, 2, 2)]),
    ("striped", 4, (2, 4), [Run(1, 2, 4)]),
    ("striped", 1, (2, 4), [Run(2, 2, 1)]),
  ],
)
def test_runs_of_slots(name, ranks, slots, expected):
  layout = ContextLayout(name, ranks)
  assert list(layout.runs(slots, 8)) == expected


def test_zigzag_halves_cut_by_tensor_parallel_ranks():
  # Two cp ranks of 12 slots over three tp ranks: a part of 4 cuts a chunk.
  layout = ContextLayout("zigzag", 2)
  assert [layout.runs((b, b + 4), 24) for b in (0, 4, 8)] == [
    (Run(0, 4, 1),),
    (Run(4, 2, 1), Run(18, 2, 1)),
    (Run(20, 4, 1),),
  ]


def test_spans_of_runs():
  assert Run(2, 4, 1).span == (2, 6)
  assert Run(3, 2, 4).span == (3, 8)
  assert Run(3, 1, 4).span == (3, 4)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_what_positions_must_be_a_multiple_of(ranks):
  multiples = {
    name: ContextLayout(name, ranks, 24).multiple for name in LAYOUTS
  }
  assert multiples == {
    "contiguous": ranks,
    "zigzag": 2 * ranks if ranks > 1 else 1,
    "striped": ranks,
    "document_zigzag": 2 * ranks if ranks > 1 else 1,
  }


def test_which_layouts_permute_and_which_look_at_rows():
  permute = [n for n in LAYOUTS if not ContextLayout(n, 2, 4).is_identity]
  assert permute == ["zigzag", "striped", "document_zigzag"]
  look = [n for n in LAYOUTS if ContextLayout(n, 2, 4).depends_on_rows]
  assert look == ["document_zigzag"]
  for name in LAYOUTS:
    alone = ContextLayout(name, 1)
    assert alone.is_identity and not alone.depends_on_rows
  assert ROW_ORDER.is_identity


def test_errors_say_what_is_allowed():
  with pytest.raises(ValueError, match=r"one of \('contiguous', .*'zigzak'"):
    ContextLayout("zigzak")
  with pytest.raises(ValueError, match="at least 1, got 0 and 1"):
    ContextLayout("zigzag", 0)
  with pytest.raises(ValueError, match="at least 1, got 2 and 0"):
    ContextLayout("zigzag", 2, 0)
  with pytest.raises(
    ValueError, match=r"segment_multiple .* multiple of 4, got"
  ):
    ContextLayout("document_zigzag", 2, 6)
  with pytest.raises(ValueError, match=r"6 positions .* 2 ranks .* of 4\."):
    ContextLayout("zigzag", 2).order(6)
  with pytest.raises(ValueError, match=r"7 positions .* 2 ranks .* of 2\."):
    ContextLayout("contiguous", 2).check(7)
  for slots in ((0, 9), (-1, 4), (4, 4), (5, 4)):
    with pytest.raises(ValueError, match="0 <= begin < end <= 8, got"):
      ContextLayout("striped", 2).runs(slots, 8)
  documents = ContextLayout("document_zigzag", 2, 4)
  with pytest.raises(
    ValueError, match="depend on the row: see `order_of_rows`"
  ):
    documents.order(8)
  with pytest.raises(ValueError, match=r"multiples of 4 that .* sums \[8\]"):
    documents.order_of_rows(rooms_of([[2, 6]]), 8)
  with pytest.raises(ValueError, match=r"the 8 positions .* sums \[8, 4\]"):
    documents.order_of_rows(rooms_of([[4, 4], [4]]), 8)
  with pytest.raises(ValueError, match=r"10 positions .* multiple of 4"):
    documents.order_of_rows(rooms_of([[4, 6]]), 10)


@st.composite
def layouts(draw, names=LAYOUTS):
  ranks = draw(st.sampled_from((1, 2, 3, 4, 8)))
  name = draw(st.sampled_from(names))
  return ContextLayout(name, ranks, 2 * ranks * draw(st.integers(1, 3)))


@given(layout=layouts(FIXED), times=st.integers(1, 5), data=st.data())
def test_orders_and_runs_follow_the_definition(layout, times, data):
  length = layout.multiple * times
  expected = reference.order(layout.name, layout.num_ranks, length)
  assert layout.order(length).tolist() == expected
  begin = data.draw(st.integers(0, length - 1))
  end = data.draw(st.integers(begin + 1, length))
  runs = layout.runs((begin, end), length)
  positions = [
    run.first + i * run.step for run in runs for i in range(run.count)
  ]
  assert positions == expected[begin:end]
  for run in runs:
    held = [run.first + i * run.step for i in range(run.count)]
    assert run.span == (held[0], held[-1] + 1)
  # No two could be one.
  for one, other in itertools.pairwise(runs):
    assert layout.name == "striped" or one.span[1] != other.first


@given(layout=layouts(), data=st.data())
def test_orders_of_rows_follow_the_definition(layout, data):
  step = layout.multiple
  length = step * data.draw(st.integers(1, 8))
  rows = []
  for _ in range(data.draw(st.integers(0, 3))):
    rooms, left = [], length // step
    while left:
      rooms.append(data.draw(st.integers(0, left)))
      left -= rooms[-1]
    rows.append([room * step for room in rooms])
  order = layout.order_of_rows(rooms_of(rows), length)
  assert order.shape == (len(rows), length)
  for row, rooms in enumerate(rows):
    expected = reference.order(layout.name, layout.num_ranks, length, rooms)
    assert order[row].tolist() == expected
