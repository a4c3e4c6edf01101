import json
from pathlib import Path

import pytest

from hpgrain.splits import parse_split, split_bounds

_CASES = json.loads((Path(__file__).parent / "data/splits.json").read_text())


@pytest.mark.parametrize("split", _CASES)
def test_bounds_are_megatrons(split):
  case = _CASES[split]
  assert list(parse_split(split)) == case["vector"]
  for count, expected in case["bounds"]:
    bounds = [span if span is None else list(span) for span in expected]
    found = split_bounds(split, count)
    assert [s if s is None else list(s) for s in found] == bounds, count


@pytest.mark.parametrize(
  "split, count, expected",
  [
    ("98, 1, 1", 1000, [(0, 980), (980, 990), (990, 1000)]),
    ("98, 1, 1", 17, [(0, 17), (17, 17), (17, 17)]),
    ("969,30,1", 1001, [(0, 970), (970, 1000), (1000, 1001)]),
    ("1", 5, [(0, 5), None, None]),
    ("0,1,0", 5, [None, (0, 5), None]),
    # 0.5 and 1.5 are halves: both go to the even number.
    ("1,1", 1, [(0, 0), (0, 1), None]),
    ("1,1", 3, [(0, 2), (2, 3), None]),
    (".5;.25;.25", 4, [(0, 2), (2, 3), (3, 4)]),
    ("1,1,1", 0, [(0, 0), (0, 0), (0, 0)]),
  ],
)
def test_bounds_of_written_out_splits(split, count, expected):
  assert split_bounds(split, count) == expected


@pytest.mark.parametrize(
  "split, message",
  [
    ("-1,2,3", r"cannot be negative, got '-1,2,3'; write for example"),
    ("1,2,3,4", r"at most three weights .* got 4 in '1,2,3,4'"),
    ("1..2,3", r"'1..2,3' holds something that is not a number"),
    ("0,0,0", r"positive sum, got '0,0,0'"),
    ("", r"positive sum, got ''"),
    ("all", r"positive sum, got 'all'"),
    ("9" * 400, r"more than a float holds, got '9999.*only their proportions"),
    ("1," + "9" * 400, r"more than a float holds, got '1,9999"),
    (98, r"A split is a string such as .* got 98\."),
  ],
)
def test_splits_that_cannot_be_read_are_refused(split, message):
  with pytest.raises(ValueError, match=message):
    split_bounds(split, 10)


def test_a_negative_count_is_refused():
  with pytest.raises(ValueError, match="at least 0, got -1"):
    split_bounds("1", -1)
