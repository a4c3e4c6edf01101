import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpgrain.fields import FieldOptions
from hpgrain.measured import MeasuredRecords
from hpgrain.measured_together import read_together
from hpgrain.online_samples import OnlineSamples
from hpgrain.packing import PackingOptions
from hpgrain.sources.by_index.in_memory import InMemoryRecords
from hpgrain.transforms.pretokenized import PretokenizedTransform

SIZE = 3


class Spied(PretokenizedTransform):
  """Notes how many records each call takes, in a list that many share."""

  def __init__(self, calls, max_seq_len=SIZE):
    super().__init__(max_seq_len=max_seq_len)
    self.calls = calls

  def __call__(self, records, place):
    self.calls.append(len(records))
    return super().__call__(records, place)


def measured(name, records, transform=None):
  return MeasuredRecords(
    InMemoryRecords(
      [{"input_ids": ids} for ids in records],
      name=name,
      identity={"name": name},
    ),
    transform or PretokenizedTransform(max_seq_len=SIZE),
  )


def inputs(examples):
  return [examples.example(i)[0].tolist() for i in range(len(examples))]


def test_examples_come_in_the_order_asked():
  a = measured("a", [[1, 2, 3, 4, 5, 6], [], [7, 8]])
  b = measured("b", [[10, 11], [12, 13, 14]])
  found = read_together(
    [b, a], [np.array([1, 0, 1], np.int64), np.array([2, 0], np.int64)]
  )
  assert inputs(found) == [[12, 13], [10], [12, 13], [7], [1, 2, 3]]
  assert found.record_splits.tolist() == [0, 1, 2, 3, 4, 5]


@settings(deadline=None)
@given(
  sources=st.lists(
    st.lists(st.lists(st.integers(0, 9), max_size=8), min_size=1, max_size=4),
    min_size=1,
    max_size=3,
  ),
  data=st.data(),
)
def test_it_gives_what_each_source_gives(sources, data):
  members = [measured(str(i), records) for i, records in enumerate(sources)]
  wanted = []
  for member in members:
    last = len(member.table().lengths) - 1
    numbers = st.lists(st.integers(0, last), max_size=5 if last >= 0 else 0)
    wanted.append(np.array(data.draw(numbers), np.int64))
  each = [inputs(m.read(w)) for m, w in zip(members, wanted)]
  assert inputs(read_together(members, wanted)) == [e for x in each for e in x]


def rows_of(members):
  samples = OnlineSamples(
    members,
    options=PackingOptions(budget=4),
    seed=0,
    weights=[1.0] * len(members),
    shuffle=False,
    epochs=1,
  )
  opened = samples.open_rows(np.arange(len(samples)))
  return opened.fields((0, 4), num_rows=len(samples), options=FieldOptions())


def test_sources_of_equal_transforms_take_one_call():
  calls, others = [], []
  records = [[1, 2], [3, 4], [5, 6]]
  members = [
    measured("a", records, Spied(calls)),
    measured("b", records, Spied(calls)),
    measured("c", records, Spied(others, max_seq_len=2)),
  ]
  for member in members:
    member.measure()
  calls.clear()
  others.clear()
  made = rows_of(members)["input_ids"]
  assert (calls, others) == ([6], [3])
  assert sorted(made[made > 0].tolist()) == [1, 1, 1, 3, 3, 3, 5, 5, 5]


def test_a_record_that_changed_is_named_with_its_source():
  records = [{"input_ids": [1, 2]}, {"input_ids": [3, 4]}]
  b = MeasuredRecords(
    InMemoryRecords(records, name="b", identity={"name": "b"}),
    PretokenizedTransform(max_seq_len=SIZE),
  )
  a = measured("a", [[1, 2], [3, 4]])
  for member in (a, b):
    member.measure()
  records[1]["input_ids"] = [3, 4, 5]
  with pytest.raises(
    ValueError, match=r"Source 'b': b, record 2 makes examples of \[2\]"
  ):
    read_together([a, b], [np.array([0, 1]), np.array([0, 1])])


def test_a_record_that_cannot_be_read_is_named():
  records = [{"input_ids": [1, 2]}]
  b = MeasuredRecords(
    InMemoryRecords(records, name="b", identity={"name": "b"}),
    PretokenizedTransform(max_seq_len=SIZE),
  )
  a = measured("a", [[1, 2]])
  for member in (a, b):
    member.measure()
  records[0]["input_ids"] = ["x"]
  with pytest.raises(ValueError, match=r"^b, record 1: its field 'input_ids'"):
    read_together([a, b], [np.array([0]), np.array([0])])
