import json
import pickle

import numpy as np
import pytest
from helpers_examples import listed, place
from hypothesis import given
from hypothesis import strategies as st

from hpgrain.records import IGNORE_INDEX
from hpgrain.transforms.pretokenized import PretokenizedTransform

_NO = IGNORE_INDEX


def made(records, **options):
  transform = PretokenizedTransform(**{"max_seq_len": 3, **options})
  examples = transform(records, place)
  return listed(examples), transform.counters.as_dict()


def test_ids_are_cut_as_they_are():
  records = [
    {"input_ids": [5, 6, 7, 8, 9]},
    {"input_ids": []},
    {"input_ids": np.array([1, 2], np.uint16)},
  ]
  examples, counters = made(records)
  assert examples == [
    [([5, 6, 7], [6, 7, 8]), ([8], [9])],
    [],
    [([1], [2])],
  ]
  assert counters["dropped"] == {"empty": 1}
  assert counters["tokens"] == counters["tokens_read"] == 5
  examples, _ = made(records, labels_are_shifted=False)
  assert examples == [
    [([5, 6, 7], [5, 6, 7]), ([8, 9], [8, 9])],
    [],
    [([1, 2], [1, 2])],
  ]


def test_labels_that_are_shifted_are_taken_as_they_are():
  record = {"input_ids": [5, 6, 7, 8], "labels": [_NO, 7, 8, 4]}
  examples, _ = made([record])
  assert examples == [[([5, 6, 7], [_NO, 7, 8]), ([8], [4])]]


def test_labels_that_are_not_shifted_are_shifted_where_that_is_wanted():
  record = {"input_ids": [5, 6, 7, 8], "labels": [_NO, _NO, 7, 8]}
  examples, _ = made([record], records_are_shifted=False)
  assert examples == [[([5, 6, 7], [_NO, 7, 8])]]
  examples, _ = made([record], labels_are_shifted=False)
  assert examples == [[([5, 6, 7], [_NO, _NO, 7]), ([8], [8])]]


def test_labels_shifted_the_other_way_are_refused():
  same = {"input_ids": [5, 6, 7], "labels": [_NO, 6, 7]}
  following = {"input_ids": [5, 6, 7], "labels": [6, 7, 0]}
  with pytest.raises(
    ValueError,
    match=r"record 1: its labels are those of the same position.*"
    r"records_are_shifted=False",
  ):
    made([following, same])
  with pytest.raises(
    ValueError, match=r"those of the next position.*\.records_are_shifted=True"
  ):
    made([following], records_are_shifted=False)
  # Labels of a task of their own fit neither.
  other = {"input_ids": [5, 6, 7], "labels": [1, 2, 3]}
  assert made([other])[0] == [[([5, 6, 7], [1, 2, 3])]]
  with pytest.raises(ValueError, match="records_are_shifted=True goes with"):
    PretokenizedTransform(
      max_seq_len=3, labels_are_shifted=False, records_are_shifted=True
    )


def test_a_loss_mask_belongs_to_the_ids_or_to_the_labels_beside_it():
  ids = {"input_ids": [5, 6, 7, 8], "loss_mask": [1, 0, 1, True]}
  assert made([ids])[0] == [[([5, 6, 7], [_NO, 7, 8])]]
  beside = {**ids, "labels": [6, 7, 8, 9]}
  assert made([beside], max_seq_len=4)[0] == [[([5, 6, 7, 8], [6, _NO, 8, 9])]]


def test_weights_between_zero_and_one_come_along():
  records = [
    {"input_ids": [5, 6, 7], "loss_mask": [0, 0.5, 0]},
    {"input_ids": [5, 6]},
    {"input_ids": [5, 6], "labels": [6, _NO], "loss_mask": [0.25, 3]},
  ]
  examples, _ = made(records)
  assert examples == [
    [([5, 6], [6, _NO], [0.5, 0])],
    [([5], [6], [1])],
    [([5, 6], [6, _NO], [0.25, 0])],
  ]


def test_an_example_without_a_label_is_dropped_and_counted():
  record = {"input_ids": [5, 6, 7, 8, 9], "loss_mask": [1, 0, 0, 0, 1]}
  examples, counters = made([record, {"input_ids": [1, 2]}], max_seq_len=2)
  assert examples == [[([7, 8], [_NO, 9])], [([1], [2])]]
  assert counters == {
    "records": 2,
    "examples": 2,
    "tokens_read": 5,
    "tokens": 3,
    "dropped": {"no_label": 1},
    "tokens_dropped": {"no_label": 2},
  }


@pytest.mark.parametrize(
  "record, message",
  [
    ({"text": "a"}, "it has no field 'input_ids'"),
    ({"input_ids": "5"}, "'input_ids' must be a list of numbers, got str"),
    ({"input_ids": [[5]]}, "must be a list of numbers, got list of 2"),
    ({"input_ids": [[5], []]}, "must be a list of numbers"),
    ({"input_ids": [5.0]}, "must hold integers, got dtype float64"),
    ({"input_ids": [True]}, "must hold integers, got dtype bool"),
    ({"input_ids": [5, 10]}, r"has 10 at position 1; ids lie in \[0, 10\)"),
    ({"input_ids": [-1]}, "has -1 at position 0"),
    ({"input_ids": [5, _NO]}, "has -100 at position 1"),
    ({"input_ids": [5], "labels": [6, 7]}, "must have one length, got 1 and 2"),
    ({"input_ids": [5], "labels": [10]}, "'labels' has 10 at position 0"),
    ({"input_ids": [5], "loss_mask": []}, "must have one length, got 1 and 0"),
    ({"input_ids": [5], "loss_mask": [-1]}, "weights of at least 0, got -1"),
    ({"input_ids": [5], "loss_mask": ["a"]}, "'loss_mask' must hold numbers"),
    (
      {"input_ids": [5, 6], "loss_mask": [1, float("nan")]},
      "weights of at least 0, got nan at position 1",
    ),
  ],
)
def test_what_is_wrong_is_named_with_its_place(record, message):
  with pytest.raises(ValueError, match=f"file.jsonl, record 1: .*{message}"):
    made([{"input_ids": [1, 2]}, record], vocab_size=10)


def test_an_id_that_is_no_int32_is_refused_without_a_vocabulary():
  with pytest.raises(ValueError, match="has 4294967296 at position 1"):
    made([{"input_ids": [1, 2**32]}])


@given(
  records=st.lists(
    st.tuples(
      st.lists(st.integers(0, 9), max_size=8),
      st.booleans(),
      st.booleans(),
      st.randoms(use_true_random=False),
    ),
    max_size=5,
  ),
  size=st.integers(1, 4),
  shifted=st.booleans(),
  cut=st.integers(0, 5),
)
def test_records_are_taken_as_defined(records, size, shifted, cut):
  batch, expected = [], []
  for ids, has_labels, has_mask, random in records:
    record = {"input_ids": ids}
    labels = [x if random.random() < 0.7 else _NO for x in ids]
    mask = [random.random() < 0.7 for _ in ids]
    if has_labels:
      record["labels"] = labels
    else:
      labels = ids
    if has_mask:
      record["loss_mask"] = mask
      labels = [x if on else _NO for x, on in zip(labels, mask)]
    batch.append(record)
    inputs = ids
    if shifted:
      inputs, labels = ids[:-1], labels[1:]
    windows = [
      (inputs[s : s + size], labels[s : s + size])
      for s in range(0, len(inputs), size)
    ]
    expected.append([w for w in windows if any(x != _NO for x in w[1])])
  options = {
    "max_seq_len": size,
    "labels_are_shifted": shifted,
    "records_are_shifted": False,
  }
  assert made(batch, **options)[0] == expected
  parts = made(batch[:cut], **options)[0] + made(batch[cut:], **options)[0]
  assert parts == expected


def test_a_pickle_gives_the_same():
  transform = PretokenizedTransform(max_seq_len=3, vocab_size=10)
  copy = pickle.loads(pickle.dumps(transform))
  records = [{"input_ids": [5, 6, 7, 8, 9]}]
  assert listed(copy(records, place)) == listed(transform(records, place))
  assert copy.identity == transform.identity
  assert json.dumps(transform.identity) != json.dumps(
    PretokenizedTransform(max_seq_len=4).identity
  )
