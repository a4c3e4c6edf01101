import pickle

import pytest
from helpers_examples import listed, place

from hpgrain.transforms.keyed_random import sample_generator
from hpgrain.transforms.pretokenized import PretokenizedTransform
from hpgrain.transforms.record_hooks import FilteredTransform, RecordChange
from hpgrain.transforms.transform import refuse_several

RECORDS = [{"input_ids": ids} for ids in ([1, 2], [3, 4, 5], [6], [7, 8, 9])]


def is_long(record):
  return len(record["input_ids"]) > 2


def filtered(keep=is_long, **options):
  transform = PretokenizedTransform(max_seq_len=1, vocab_size=9, **options)
  return FilteredTransform(transform, keep, name="long")


def test_what_is_filtered_out_keeps_its_number_and_is_counted():
  transform = filtered()
  records = RECORDS[:3]
  assert listed(transform(records, place)) == [
    [],
    [([3], [4]), ([4], [5])],
    [],
  ]
  counters = transform.counters.as_dict()
  assert counters["records"] == 3
  assert counters["dropped"] == {"filtered": 2}
  assert listed(filtered(lambda _: False)(records, place)) == [[], [], []]
  assert listed(pickle.loads(pickle.dumps(transform))(records, place))[1]


def test_places_are_those_of_the_whole_batch():
  with pytest.raises(ValueError, match="record 3: its field 'input_ids' has 9"):
    filtered()(RECORDS, place)
  with pytest.raises(
    ValueError, match="record 0: the filter 'long' must give True or False"
  ):
    filtered(lambda record: 1)(RECORDS, place)


def test_a_filter_has_a_name():
  transform = filtered()
  assert transform.identity["filter"] == "long"
  assert transform.identity["of"]["transform"] == "pretokenized"
  assert transform.one_to_one is False
  for keep, name in ((is_long, ""), ("long", "long")):
    with pytest.raises(ValueError, match="a function of a record, and a name"):
      FilteredTransform(PretokenizedTransform(max_seq_len=1), keep, name=name)


def with_bits(record, generator):
  return {"bits": int(generator.bit_generator.random_raw()), **record}


def test_a_changed_record_has_random_numbers_of_its_own():
  change = RecordChange(with_bits, "bits").of(seed=1, source="a")
  made = pickle.loads(pickle.dumps(change))(RECORDS[:2], [5, 7], 3)
  assert [record["bits"] for record in made] == [
    int(sample_generator(1, "a", number, 3).bit_generator.random_raw())
    for number in (5, 7)
  ]
  assert made == [
    *change(RECORDS[:1], [5], 3),
    *change(RECORDS[1:2], [7], 3),
  ]


@pytest.mark.parametrize("change, name", [(3, "a"), (with_bits, "")])
def test_a_change_is_a_function_with_a_name(change, name):
  with pytest.raises(ValueError, match="A change is a function of a record"):
    RecordChange(change, name)


def test_the_fixed_path_takes_one_example_a_record():
  transform = PretokenizedTransform(max_seq_len=1)
  refuse_several(transform(RECORDS[:1], place), place)
  with pytest.raises(
    ValueError, match=r"record 1 gives 2 examples.*type='dynamic'"
  ):
    refuse_several(transform(RECORDS, place), place)
