import numpy as np
import pytest
from helpers_examples import place

from hpgrain.examples import Examples
from hpgrain.transforms.counters import Counters
from hpgrain.transforms.pretokenized import PretokenizedTransform
from hpgrain.transforms.record_hooks import FilteredTransform

NOTHING = Examples(
  np.zeros(4, np.int64),
  np.zeros(1, np.int64),
  np.zeros(0, np.int32),
  np.zeros(0, np.int32),
)


def test_numbers_of_records_and_of_all_add_up_alike():
  counters = Counters()
  counters.add(
    NOTHING,
    dropped={"empty": np.array([True, False, True]), "odd": 0},
    tokens_dropped={"cut": np.array([3, 0, 4])},
  )
  counters.add(NOTHING, dropped={"empty": 1}, tokens_dropped={"cut": 2})
  assert counters.as_dict() == {
    "records": 6,
    "examples": 0,
    "tokens_read": 9,
    "tokens": 0,
    "dropped": {"empty": 3},
    "tokens_dropped": {"cut": 9},
  }


def test_what_is_left_out_is_known_by_group_of_records():
  records = [
    {"input_ids": [1, 2, 3]},
    {"input_ids": []},
    {"input_ids": [9, 9], "labels": [-100, -100]},
    {"input_ids": [7, 7]},
    {"input_ids": []},
  ]
  transform = FilteredTransform(
    PretokenizedTransform(max_seq_len=4, labels_are_shifted=False),
    lambda record: record["input_ids"] != [7, 7],
    name="no sevens",
  )
  groups = np.array([0, 1, 1, 0, 1])
  with transform.counters.left_out(groups) as left:
    transform(records, place)
  assert left.dropped == {
    0: {"filtered": 1},
    1: {"empty": 2, "no_label": 1},
  }
  assert left.tokens_dropped == {1: {"no_label": 2}}
  # Nothing more is added after it.
  transform(records, place)
  assert left.dropped[0] == {"filtered": 1}
  assert transform.counters.as_dict()["dropped"] == {
    "empty": 4, "filtered": 2, "no_label": 2,
  }  # fmt: skip


def test_a_sum_can_be_of_one_group_alone():
  counters = Counters()
  with counters.left_out(np.array([1, 1, 1])) as left:
    counters.add(NOTHING, dropped={"empty": 3}, tokens_dropped={})
  assert left.dropped == {1: {"empty": 3}}
  with (
    counters.left_out(np.array([0, 1, 1])),
    pytest.raises(ValueError, match=r"left out 3 \(empty\) of records of sev"),
  ):
    counters.add(NOTHING, dropped={"empty": 3}, tokens_dropped={})
