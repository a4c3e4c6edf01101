"""Lists, columns and objects with a length."""

import pickle

import numpy as np
import pytest

from hpgrain.sources.by_index.in_memory import InMemoryRecords


class Squares:
  """Anything with a length and items by number."""

  def __len__(self):
    return 5

  def __getitem__(self, index):
    return {"n": index * index}


class Batched(Squares):
  """One that gives a batch at once."""

  def __init__(self):
    self.asked = []

  def __getitems__(self, indices):
    self.asked.append(indices)
    return [self[index] for index in indices]


@pytest.mark.parametrize(
  "data, column, expected",
  [
    ([{"a": 1}, {"a": 2}], None, [{"a": 2}, {"a": 1}, {"a": 2}]),
    (("x", "y"), "text", [{"text": "y"}, {"text": "x"}, {"text": "y"}]),
    ({"a": [1, 2], "b": "xy"}, None, [{"a": 2, "b": "y"}, {"a": 1, "b": "x"}]),
    (Squares(), None, [{"n": 1}, {"n": 0}]),
  ],
)
def test_records_of_each_form(data, column, expected):
  records = InMemoryRecords(data, name="it", column=column)
  assert records.read(np.array([1, 0, 1])[: len(expected)]) == expected
  again = pickle.loads(pickle.dumps(records))
  assert again.read([1]) == expected[:1]
  assert again.identity == records.identity


def test_arrays_are_columns():
  ids = np.arange(6, dtype=np.int32).reshape(3, 2)
  records = InMemoryRecords({"input_ids": ids}, name="it")
  first, second = records.read([2, 0])
  assert first["input_ids"].tolist() == [4, 5]
  assert second["input_ids"].dtype == np.int32
  assert records.place(2) == "it, record 3"


def test_a_batch_is_asked_for_at_once():
  data = Batched()
  records = InMemoryRecords(data, name="it")
  assert records.read(np.array([4, 2])) == [{"n": 16}, {"n": 4}]
  assert data.asked == [[4, 2]]
  # As Python's own integers, which is what such objects expect.
  assert [type(i) for i in data.asked[0]] == [int, int]


@pytest.mark.parametrize("data", [[], {"a": []}, ()])
def test_nothing_has_no_records(data):
  records = InMemoryRecords(data, name="it")
  assert len(records) == 0
  assert records.read(np.array([], np.int64)) == []
  assert records.identity["num_records"] == 0


def test_columns_have_one_length():
  with pytest.raises(ValueError, match="2 values under 'a' and 1 under 'b'"):
    InMemoryRecords({"a": [1, 2], "b": [1]}, name="it")
  with pytest.raises(ValueError, match="it has no columns"):
    InMemoryRecords({}, name="it")
  with pytest.raises(ValueError, match="column must be None, got 'text'"):
    InMemoryRecords({"a": [1]}, name="it", column="text")


def test_what_has_no_numbers_is_for_reading_in_turn():
  with pytest.raises(ValueError, match=r"it is a generator, which .*iterable"):
    InMemoryRecords((x for x in "ab"), name="it")


def test_an_item_that_is_no_mapping_is_named_and_not_shown():
  records = InMemoryRecords([{}, "secret"], name="it")
  with pytest.raises(
    ValueError, match=r"it, record 2 is a str, not a mapping .*column=\"text\""
  ) as error:
    records.read([0, 1])
  assert "secret" not in str(error.value)


def test_numbers_outside_are_refused():
  records = InMemoryRecords([{}], name="it")
  with pytest.raises(IndexError, match="it has 1 records, from 0; got 1"):
    records.read([1])
  with pytest.raises(IndexError, match="got row -1"):
    records.read([-1])


def test_identities_tell_data_apart():
  def identity(data, **options):
    return InMemoryRecords(data, name="it", **options).identity

  assert identity([{"a": 1}]) == identity([{"a": 1}])
  assert identity([{"a": 1}]) != identity([{"a": 2}])
  assert identity([{"a": 1}] * 2) != identity([{"a": 1}])
  assert identity({"a": [1]}) == identity([{"a": 1}])


def test_what_cannot_be_told_apart_is_told_by_the_caller():
  data = [{"a": object()}]
  with pytest.raises(TypeError, match="Give the source an identity"):
    _ = InMemoryRecords(data, name="it").identity
  records = InMemoryRecords(data, name="it", identity={"version": 3})
  assert records.cache_identity == {
    "format": "in_memory",
    "num_records": 1,
    "given": {"version": 3},
  }
