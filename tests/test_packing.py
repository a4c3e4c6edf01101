import itertools

import numpy as np
import pytest

from hpgrain.packing import PackingOptions, pack_window, reordered


def rows_of(lengths, **options):
  """Each row as its pieces (example, offset, length)."""
  pieces, splits = pack_window(
    np.array(lengths, np.int32), PackingOptions(**options)
  )
  listed = list(
    zip(
      pieces.item.tolist(), pieces.offset.tolist(), pieces.length.tolist(),
      strict=True,
    )
  )  # fmt: skip
  return [listed[a:b] for a, b in itertools.pairwise(splits)]


@pytest.mark.parametrize(
  ("options", "match"),
  [
    ({"budget": 0}, "budget"),
    ({"packer": "worst_fit"}, "packer must be one of best_fit, .*'worst_fit'"),
    ({"plan_window": 0}, "plan_window"),
    ({"segment_multiple": 3}, "multiple of segment_multiple, got 10 and 3"),
    ({"segment_multiple": 2, "packer": "concat"}, "segment_multiple must be 1"),
    ({"max_items": -1}, "max_items"),
    ({"min_buffered": 0}, "min_buffered"),
    ({"overlong": "cut"}, "overlong must be one of error, .* got 'cut'"),
    ({"examples_per_row": 0}, "examples_per_row must be at least 1"),
    ({"examples_per_row": 2}, "must be 1 with 'best_fit', got 2"),
    (
      {"examples_per_row": 3, "packer": "fixed", "max_items": 2},
      "a row may hold 2 pieces",
    ),
    (
      {"examples_per_row": 11, "packer": "fixed"},
      "10 tokens has no room for 11 examples of 1 tokens",
    ),
    (
      {"examples_per_row": 3, "packer": "fixed", "segment_multiple": 5},
      "no room for 3 examples of 5 tokens",
    ),
  ],
)
def test_options_are_checked(options, match):
  with pytest.raises(ValueError, match=match):
    PackingOptions(**{"budget": 10, **options})


def test_an_example_may_have_its_share_of_a_row():
  assert PackingOptions(budget=10).example_limit == 10
  fixed = {"packer": "fixed", "examples_per_row": 3}
  assert PackingOptions(budget=11, **fixed).example_limit == 3
  assert (
    PackingOptions(budget=32, segment_multiple=4, **fixed).example_limit == 8
  )


def test_fixed_takes_so_many_as_they_come():
  assert rows_of(
    [2, 0, 3, 1, 4, 4], budget=8, packer="fixed", examples_per_row=2
  ) == [[(0, 0, 2), (2, 0, 3)], [(3, 0, 1), (4, 0, 4)], [(5, 0, 4)]]
  assert rows_of([2, 0, 3], budget=8, packer="pad") == [
    [(0, 0, 2)], [(2, 0, 3)],
  ]  # fmt: skip


@pytest.mark.parametrize(
  ("overlong", "expected"),
  [
    ("truncate", [[(0, 0, 2), (1, 0, 4)], [(2, 0, 1), (3, 0, 3)]]),
    ("drop", [[(0, 0, 2), (2, 0, 1)], [(3, 0, 3)]]),
    ("split", [[(0, 0, 2), (1, 0, 4)], [(1, 4, 2), (2, 0, 1)], [(3, 0, 3)]]),
    ("own_row", [[(0, 0, 2), (2, 0, 1)], [(1, 0, 6)], [(3, 0, 3)]]),
  ],
)
def test_fixed_and_examples_beyond_their_share(overlong, expected):
  rows = rows_of(
    [2, 6, 1, 3],
    budget=8,
    packer="fixed",
    examples_per_row=2,
    overlong=overlong,
  )
  assert rows == expected


def test_any_examples_of_a_fixed_number_fit_together():
  # Each takes 4 of the row's 12 tokens, whatever it holds.
  rows = rows_of(
    [5, 5],
    budget=12,
    packer="fixed",
    examples_per_row=2,
    segment_multiple=4,
    overlong="truncate",
  )
  assert rows == [[(0, 0, 4), (1, 0, 4)]]


def test_rows_in_another_order():
  splits, places = reordered(np.array([0, 2, 2, 5]), np.array([2, 0, 1, 2]))
  assert splits.tolist() == [0, 3, 5, 5, 8]
  assert places.tolist() == [2, 3, 4, 0, 1, 2, 3, 4]
  splits, places = reordered(np.array([0]), np.zeros(0, np.int64))
  assert splits.tolist() == [0] and places.tolist() == []
