"""hpgrain/lengths_table.py, and the counters of a scan."""

import numpy as np

from hpgrain.examples import Examples
from hpgrain.lengths_table import LengthsTable, filled_examples, own_lengths
from hpgrain.scan_counters import merge_counters, scan_counters
from hpgrain.transforms.counters import Counters

# The picture of the module.
SEVERAL = LengthsTable(
  lengths=np.array([7, 4, 9, 1, 2, 3], np.int32),
  first_example=np.array([0, 2, 2, 3, 6]),
)
ONE = LengthsTable(np.array([7, 0, 9, 1], np.int32), None)


def lists(pair):
  return [array.tolist() for array in pair]


def test_examples_of_records():
  records = np.array([3, 0, 1, 3])
  assert lists(SEVERAL.examples(records)) == [[3, 0, 2, 3], [3, 2, 0, 3]]
  assert lists(ONE.examples(records)) == [[3, 0, 1, 3], [1, 1, 1, 1]]


def test_records_of_examples():
  examples = np.array([5, 0, 1, 2, 3])
  assert SEVERAL.records_of(examples).tolist() == [3, 0, 0, 2, 3]
  assert ONE.records_of(np.array([3, 0])).tolist() == [3, 0]


def test_examples_that_have_a_position():
  records = np.array([2, 1, 0])
  assert lists(SEVERAL.filled(records)) == [[0, 2, 2], [9, 7, 4]]
  assert lists(ONE.filled(records)) == [[0, 2], [9, 7]]
  assert lists(filled_examples(np.array([2, 1]), np.array([0, 5, 6]))) == [
    [0, 1],
    [5, 6],
  ]


def test_the_one_example_of_each_record():
  own = own_lengths(np.array([1, 0, 0, 1], np.uint8), np.array([5, 6]))
  assert (own.tolist(), own.dtype) == ([5, 0, 0, 6], np.int32)


def test_counters_of_parts_add_up():
  none = np.zeros(0, np.int32)
  made = Examples(
    np.array([0, 1, 1, 2]),
    np.array([0, 2, 5]),
    np.zeros(5, np.int32),
    np.zeros(5, np.int32),
  )
  empty = Examples(np.zeros(2, np.int64), np.zeros(1, np.int64), none, none)
  counters = Counters()
  with counters.recorded() as recorded:
    counters.add(made, dropped={"empty": 1}, tokens_dropped={})
  part = scan_counters(made, recorded)
  with counters.recorded() as recorded:
    counters.add(empty, dropped={"b": 1}, tokens_dropped={"b": 7})
  other = scan_counters(empty, recorded)
  assert merge_counters([part, other, part]) == {
    "records": 7,
    "examples": 4,
    "tokens_read": 17,
    "tokens": 10,
    "dropped": {"b": 1, "empty": 2},
    "tokens_dropped": {"b": 7},
  }
  # As the transform's own, which have one part once.
  assert counters.as_dict() == merge_counters([part, other])
  assert merge_counters([merge_counters([part, other])]) == counters.as_dict()
