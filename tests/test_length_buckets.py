import pytest

from hpgrain.length_buckets import LengthBuckets, length_buckets
from hpgrain.packing import PackingOptions


def buckets(*asked, **options):
  return length_buckets(asked, PackingOptions(**{"budget": 8, **options}))


def test_a_batch_takes_the_smallest_that_holds_it():
  made = LengthBuckets((2, 4, 8), depends_on_rows=True)
  assert [made.choose(need) for need in (0, 2, 3, 8, 9)] == [2, 2, 4, 8, None]


@pytest.mark.parametrize(
  ("asked", "options", "positions", "depends"),
  [
    ((), {}, (8,), False),
    ((8,), {}, (8,), False),
    ((), {"packer": "pad"}, (8,), False),
    ((8, 4, 4), {"packer": "pad"}, (4, 8), True),
    ((9,), {"packer": "pad"}, (9,), False),
    ((4, 8), {"packer": "fixed", "examples_per_row": 2}, (4, 8), True),
    # Full rows have the budget, whatever smaller ones there are.
    ((4, 16), {"overlong": "own_row"}, (8, 16), True),
    ((8,), {"overlong": "own_row"}, (8,), True),
    # One that is longer than any bucket must be found, not cut.
    ((8,), {"overlong": "own_row", "packer": "pad"}, (8,), True),
    # Nothing is overlong where rows are cut anywhere.
    ((), {"overlong": "own_row", "packer": "concat"}, (8,), False),
  ],
)
def test_positions_that_a_batch_may_have(asked, options, positions, depends):
  assert buckets(*asked, **options) == LengthBuckets(positions, depends)


@pytest.mark.parametrize(
  ("asked", "options", "match"),
  [
    ((0,), {"packer": "pad"}, "entry of length_buckets must be at least 1"),
    ((4.5,), {"packer": "pad"}, r"must be an integer, got 4\.5"),
    (
      (6, 8),
      {"packer": "pad", "segment_multiple": 4},
      "multiple of segment_multiple = 4, got 6",
    ),
    ((4,), {"packer": "pad"}, r"must hold any row, 8 tokens, got \[4\]"),
    ((4,), {"overlong": "own_row"}, r"must hold any row, 8 tokens, got \[4\]"),
    ((), {"overlong": "own_row"}, "none. Give one above the budget of 8"),
    ((4, 8), {}, r"\[4, 8\] have no meaning with packer='best_fit'"),
    ((16,), {"packer": "concat", "overlong": "own_row"}, "have no meaning"),
  ],
)
def test_buckets_that_make_no_sense_are_refused(asked, options, match):
  with pytest.raises(ValueError, match=match):
    buckets(*asked, **options)
