"""Views of records: splits and shards, and what tells them apart."""

import pickle

import numpy as np
import pytest

from hpgrain.sources.by_index.in_memory import InMemoryRecords
from hpgrain.sources.records import (
  Spliced,
  record_numbers,
  shard_records,
  split_records,
)


def _records(count):
  return InMemoryRecords(list(range(count)), name="numbers", column="n")


def _values(records):
  return [record["n"] for record in records.read(np.arange(len(records)))]


def test_a_split_is_three_runs():
  train, valid, test = split_records(_records(1001), "969,30,1")
  assert [len(part) for part in (train, valid, test)] == [970, 30, 1]
  assert _values(valid) == list(range(970, 1000))
  assert _values(test) == [1000]
  assert train.name == "numbers"


def test_a_weight_of_zero_is_none_and_a_tiny_one_is_empty():
  train, valid, test = split_records(_records(17), "98,0,2")
  assert len(train) == 17
  assert valid is None
  assert len(test) == 0
  assert test.read(np.array([], np.int64)) == []


def test_a_view_reads_in_the_order_asked_for():
  view = Spliced(_records(10), 4, 8)
  assert [r["n"] for r in view.read([3, 0, 3])] == [7, 4, 7]
  assert view.place(0) == "numbers, record 5"
  again = pickle.loads(pickle.dumps(view))
  assert _values(again) == [4, 5, 6, 7]


@pytest.mark.parametrize("index", [4, -1])
def test_a_view_ends_where_it_says(index):
  with pytest.raises(IndexError, match=r"4 records, from 0; got 4|got row -1"):
    Spliced(_records(10), 4, 8).read([index])


@pytest.mark.parametrize("bounds", [(-1, 3), (3, 2), (0, 11)])
def test_bounds_outside_are_refused(bounds):
  with pytest.raises(ValueError, match=r"no range of the 10 records of numb"):
    Spliced(_records(10), *bounds)


def test_ranges_are_part_of_what_the_records_are():
  records = _records(10)
  train, valid, _ = split_records(records, "50,50")
  assert train.identity == {**records.identity, "ranges": [[0, 5]]}
  assert valid.cache_identity != train.cache_identity
  inner = shard_records(valid, num_shards=2, shard_id=1)
  assert _values(inner) == [7, 8, 9]
  assert inner.identity["ranges"] == [[5, 10], [2, 5]]


@pytest.mark.parametrize("num_records", [0, 1, 7, 12])
@pytest.mark.parametrize("num_shards", [1, 3, 12])
def test_shards_are_all_records_once(num_records, num_shards):
  shards = [
    shard_records(_records(num_records), num_shards=num_shards, shard_id=i)
    for i in range(num_shards)
  ]
  assert [value for shard in shards for value in _values(shard)] == list(
    range(num_records)
  )
  sizes = [len(shard) for shard in shards]
  assert max(sizes) - min(sizes) <= 1


def test_a_shard_that_is_not_there_is_refused():
  with pytest.raises(ValueError, match="shard_id must be at most 1, got 2"):
    shard_records(_records(3), num_shards=2, shard_id=2)


def test_numbers_are_checked():
  assert record_numbers([], num_records=0, name="x").dtype == np.int64
  assert record_numbers(
    np.array([2], np.uint8), num_records=3, name="x"
  ).tolist() == [2]
  with pytest.raises(IndexError, match="x has 3 records, from 0; got 3"):
    record_numbers([0, 3], num_records=3, name="x")
  with pytest.raises(TypeError, match="Rows are integers"):
    record_numbers([0.5], num_records=3, name="x")
