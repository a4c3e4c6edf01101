import pickle
import sys

import grain
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpgrain.examples import Examples
from hpgrain.fields import FieldOptions
from hpgrain.measured import MeasuredRecords
from hpgrain.online_samples import OnlineSamples
from hpgrain.packing import PACKERS, PackingOptions
from hpgrain.records import IGNORE_INDEX
from hpgrain.sources.by_index.in_memory import InMemoryRecords
from hpgrain.transforms.pretokenized import PretokenizedTransform


class Member:
  """Records as lists of their examples; a label is its id and one half."""

  def __init__(self, name, records, weight=None):
    self.name = name
    self.num_records = len(records)
    self.examples_of = [example for record in records for example in record]
    self._first = np.cumsum([0, *map(len, records)])
    self._weight = weight
    self.reads = []
    self.asked = self.measured = 0

  @property
  def identity(self):
    return {"name": self.name}

  def measure(self):
    self.measured += 1

  def examples(self, records):
    self.asked += 1
    first = self._first[records]
    return first, self._first[records + 1] - first

  def lengths(self, examples):
    return np.array([len(self.examples_of[e]) for e in examples], np.int32)

  def place(self, example):
    return f"example {example}"

  def read(self, examples):
    self.reads.append(examples.tolist())
    ids = [np.array(self.examples_of[e], np.int32) for e in examples]
    splits = np.cumsum([0, *map(len, ids)]).astype(np.int64)
    joined = np.concatenate([np.zeros(0, np.int32), *ids])
    weights = None
    if self._weight is not None:
      weights = np.full(len(joined), self._weight, np.float32)
    return Examples(
      np.arange(len(ids) + 1), splits, joined, 2 * joined, weights
    )


_OPTIONS = (
  "packer", "overlong", "plan_window", "segment_multiple", "max_items",
  "min_buffered", "examples_per_row",
)  # fmt: skip


def samples_of(*members, budget=8, seed=0, **others):
  options = {name: others.pop(name) for name in _OPTIONS if name in others}
  return OnlineSamples(
    members, options=PackingOptions(budget=budget, **options), seed=seed,
    **others,
  )  # fmt: skip


def fields_of(samples, rows, window=None, num_rows=None, **options):
  made = samples.open_rows(rows).fields(
    window or (0, samples.seq_length),
    num_rows=num_rows or len(rows),
    options=FieldOptions(**options),
  )
  return {name: values.tolist() for name, values in made.items()}


def test_a_row_of_records():
  member = Member("a", [[[1, 2, 3]], [], [[4], [], [5, 6]]])
  samples = samples_of(member, shuffle=False, epochs=1)
  assert len(samples) == samples.num_rows(1) == 1
  assert fields_of(samples, [0], num_rows=2) == {
    "input_ids": [[1, 2, 3, 4, 5, 6, 0, 0], [0] * 8],
    "labels": [[2, 4, 6, 8, 10, 12, -100, -100], [-100] * 8],
    "position_ids": [list(range(8))] * 2,
    "segment_ids": [[1, 1, 1, 2, 3, 3, 0, 0], [0] * 8],
    "loss_mask": [[1.0] * 6 + [0.0] * 2, [0.0] * 8],
  }
  row = samples[0]
  assert row["tokens"].tolist() == [1, 2, 3, 4, 5, 6]
  assert row["labels"].tolist() == [2, 4, 6, 8, 10, 12]
  assert row["tokens"].dtype == row["labels"].dtype == np.int32
  assert row.keys() == {"tokens", "labels"}


def test_a_source_that_weighs_its_labels_beside_one_that_does_not():
  samples = samples_of(
    Member("a", [[[1, 2]]]),
    Member("b", [[[3]]], weight=0.5),
    shuffle=False,
    epochs=1,
  )
  fields = fields_of(samples, [0])
  assert fields["input_ids"] == [[1, 2, 3, 0, 0, 0, 0, 0]]
  assert fields["loss_mask"] == [[1.0, 1.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0]]
  assert samples[0]["dataset_id"].tolist() == [0, 0, 1]
  assert samples[0]["dataset_id"].dtype == np.int32


def test_examples_are_made_once_and_only_when_a_field_is_asked_for():
  member = Member("a", [[[1] * 5], [[2] * 5], [[3] * 6]])
  samples = samples_of(member, packer="concat", shuffle=False, epochs=1)
  assert not member.reads and not member.asked
  rows = samples.open_rows([1, 0])
  assert member.asked and not member.reads
  options = FieldOptions()
  whole = rows.fields((0, 8), num_rows=2, options=options)
  assert whole["input_ids"].tolist() == [
    [2, 2, 3, 3, 3, 3, 3, 3], [1, 1, 1, 1, 1, 2, 2, 2],
  ]  # fmt: skip
  for window in ((0, 3), (3, 8), (8, 8)):
    part = rows.fields(window, num_rows=2, options=options)
    for name, values in part.items():
      assert values.tolist() == whole[name][:, slice(*window)].tolist(), name
  # The one that is in both rows is asked for once.
  assert member.reads == [[0, 1, 2]]


def test_an_order_without_end_is_not_packed_to_be_counted():
  member = Member("a", [[[1] * 5]] * 4)
  samples = samples_of(member, plan_window=3)
  assert len(samples) == sys.maxsize
  assert not member.asked
  assert samples.has_row()
  with pytest.raises(ValueError, match="These rows never end, not after 2"):
    samples.num_rows(2)
  assert samples.rows_per_epoch == 4
  assert samples[100]["tokens"].tolist() == [1] * 5
  samples.measure()
  assert member.measured == 1


def test_rows_of_some_epochs():
  samples = samples_of(Member("a", [[[1] * 5]] * 4), epochs=3)
  assert len(samples) == samples.num_rows(3) == 12
  assert samples.rows_per_epoch == 4
  with pytest.raises(ValueError, match="rows end after 3 epochs, not after 2"):
    samples.num_rows(2)
  with pytest.raises(IndexError, match="There are 12 rows, got row 12"):
    samples.plan(12)
  assert not samples_of(Member("a", [[[]]]), epochs=1).has_row()


def test_reports_count_records():
  samples = samples_of(
    Member("a", [[[1] * 8]] * 3),
    Member("b", [[[2] * 8]]),
    weights=[3, 1],
    plan_window=4,
    epochs=1,
  )
  assert samples.rows_per_source(len(samples)).tolist() == [3, 1]
  assert [member.rows_per_pass for member in samples.members] == [3.0, 1.0]
  assert [source.name for source in samples.sources] == ["a", "b"]
  counters = samples.counters(4)
  assert counters["padded"] == 0
  assert counters["sources"]["a"]["tokens"] == 24


def test_rows_are_found_from_a_place():
  documents = [[[i] * (1 + i % 7)] for i in range(40)]
  samples = samples_of(Member("a", documents), plan_window=16)
  expected = [samples[i]["tokens"].tolist() for i in range(60)]
  for row in (0, 13, 33, 59):
    member = Member("a", documents)
    other = pickle.loads(pickle.dumps(samples_of(member, plan_window=16)))
    other.seek(*samples.place(row))
    assert other[row]["tokens"].tolist() == expected[row]
    assert other.place(row) == samples.place(row)
    # Nothing before its window was packed.
    assert other.sources[0].asked == 1
    assert other[0]["tokens"].tolist() == expected[0]


def test_a_source_of_another_name_has_another_order():
  ids = [[[1]]]
  a, z = (
    samples_of(Member(name, ids)).unique_identifiers for name in ("a", "z")
  )
  assert a != z


def test_what_decides_rows_is_in_the_identity():
  def identity(**others):
    return samples_of(Member("a", [[[1]]]), **others).unique_identifiers

  plain = identity()
  assert plain == {
    "kind": "online",
    "order": "stable",
    "shuffle": True,
    "seed": 0,
    "seq_length": 8,
    "weights": None,
    "simple_blend": "no",
    "sources": [{"name": "a"}],
    "packing": {
      "packer": "best_fit",
      "plan_window": 16384,
      "overlong": "error",
      "segment_multiple": 1,
      "max_segments": 0,
      "epochs": None,
    },
  }
  for others in (
    {"seed": 1}, {"shuffle": False}, {"budget": 9}, {"epochs": 1},
    {"overlong": "split"}, {"plan_window": 3}, {"segment_multiple": 2},
    {"max_items": 3}, {"packer": "concat"}, {"weights": [1]},
    {"packer": "first_fit"},
  ):  # fmt: skip
    assert identity(**others) != plain, others
  # Padding decides nothing, and neither does what a packer does not look at.
  assert identity(min_buffered=3, vocab_size=9, length_buckets=(8,)) == plain
  first_fit = identity(packer="first_fit")
  assert identity(packer="first_fit", min_buffered=3) != first_fit
  fixed = identity(packer="fixed")
  assert identity(packer="fixed", examples_per_row=2) != fixed


def test_positions_of_a_batch():
  member = Member("a", [[[1] * n] for n in (2, 3, 6, 8)])
  common = {"shuffle": False, "epochs": 1}
  samples = samples_of(member, packer="pad", length_buckets=(8, 3, 6), **common)
  assert samples.length_buckets == (3, 6, 8)
  needs = [([0], 3), ([0, 1], 3), ([2, 0], 6), ([0, 3], 8), ([], 3)]
  for rows, positions in needs:
    assert samples.row_positions(rows) == positions
  # A row that is filled up has the budget, without a look at it.
  member.asked = 0
  assert samples_of(member, **common).row_positions([0]) == 8
  assert not member.asked
  samples = samples_of(
    member, budget=6, overlong="own_row", length_buckets=(6, 10), **common
  )
  sizes = [len(samples[i]["tokens"]) for i in range(len(samples))]
  assert sizes == [8, 6, 5]
  assert [samples.row_positions([i]) for i in range(3)] == [10, 6, 6]
  fields = fields_of(samples, [0], window=(0, 10))
  assert fields["segment_ids"] == [[1] * 8 + [0] * 2]
  samples = samples_of(
    member, budget=6, overlong="own_row", length_buckets=(7,), **common
  )
  with pytest.raises(
    ValueError,
    match=r"'a', example 3: a row of its own needs 8 positions, .* is 7\.",
  ):
    samples.row_positions([1, 0])


def test_what_is_wrong_is_said():
  member = Member("a", [[[1, 2, 3]], [[4, 9]]])
  with pytest.raises(ValueError, match="need at least one source, got none"):
    samples_of()
  with pytest.raises(ValueError, match="Sources 0 and 1 are both named 'a'"):
    samples_of(member, member)
  with pytest.raises(ValueError, match="got 2 weights for 1 sources"):
    samples_of(member, weights=[1, 2])
  with pytest.raises(ValueError, match="seed must be an integer"):
    samples_of(member, seed=0.5)
  with pytest.raises(ValueError, match="Source 'b' has no record"):
    samples_of(Member("b", []))
  with pytest.raises(
    ValueError,
    match=r"'a', example 0: an example has 3 .* one of 2; .* 1 of the 2",
  ):
    samples_of(member, budget=2, shuffle=False, epochs=1).plan(0)
  with pytest.raises(
    ValueError, match=r"'a', example 1, offset 1: token id 9 .* \[0, 9\)"
  ):
    _ = samples_of(member, vocab_size=9, epochs=1)[0]
  with pytest.raises(
    ValueError, match=r"'a', example 1, offset 1: label 18 .* \[0, 10\)"
  ):
    _ = samples_of(member, vocab_size=10, epochs=1)[0]


def test_rows_are_a_grain_dataset():
  member = Member("a", [[[i] * 3] for i in range(1, 9)])
  samples = samples_of(member, epochs=1, plan_window=3)
  tokens = [row["tokens"].tolist() for row in samples]
  assert [row["tokens"].tolist() for row in samples[1:3]] == tokens[1:3]
  grain.experimental.assert_equal_output_after_checkpoint(
    samples.to_iter_dataset()
  )
  endless = samples_of(member)
  assert [len(row["tokens"]) for row in endless[:4]] == [6] * 4


def test_rows_of_measured_records():
  records = InMemoryRecords(
    [{"input_ids": list(range(i, i + 1 + i % 9))} for i in range(1, 60)],
    name="numbers",
  )
  member = MeasuredRecords(records, PretokenizedTransform(max_seq_len=5))
  samples = samples_of(member, epochs=2, plan_window=20, seed=3)
  found = []
  for row in range(len(samples)):
    fields = fields_of(samples, [row])
    for id, label, segment in zip(
      *(fields[name][0] for name in ("input_ids", "labels", "segment_ids")),
      strict=True,
    ):
      assert label == (id + 1 if segment else IGNORE_INDEX)
      found += [id] if segment else []
  expected = 2 * [
    id for i in range(1, 60) for id in range(i, i + i % 9)
  ]  # fmt: skip
  assert sorted(found) == sorted(expected)
  # What a transform left out and what packing did add up for each source.
  counters = samples.counters(len(samples))["sources"]["numbers"]
  assert counters["tokens"] == len(expected) == 2 * member.counters["tokens"]


examples_lists = st.lists(
  st.lists(
    st.lists(st.integers(1, 99), max_size=12), max_size=3
  ),
  min_size=1,
  max_size=9,
)  # fmt: skip


@settings(max_examples=50, deadline=None)
@given(
  records=st.lists(examples_lists, min_size=1, max_size=3),
  packer=st.sampled_from(PACKERS),
  overlong=st.sampled_from(["split", "own_row"]),
  segment_multiple=st.sampled_from([1, 2]),
  plan_window=st.integers(1, 9),
  epochs=st.integers(1, 2),
  shuffle=st.booleans(),
  cut=st.integers(0, 16),
)
def test_every_token_is_in_a_row_with_its_label(  # noqa: PLR0917
  records, packer, overlong, segment_multiple, plan_window, epochs, shuffle, cut
):
  members = [Member(f"s{i}", source) for i, source in enumerate(records)]
  own_row = overlong == "own_row" and packer != "concat"
  samples = samples_of(
    *members,
    packer=packer,
    overlong=overlong,
    segment_multiple=1 if packer == "concat" else segment_multiple,
    plan_window=plan_window,
    epochs=epochs,
    shuffle=shuffle,
    length_buckets=(8, 16) if own_row else (),
  )
  rows = range(len(samples))
  expected = sorted(
    epochs * [id for m in members for e in m.examples_of for id in e]
  )
  assert len(samples) or not expected
  width = samples.row_positions(rows)
  fields = fields_of(samples, rows, window=(0, width))
  found = []
  for row in rows:
    ids, labels, segments = (
      fields[name][row] for name in ("input_ids", "labels", "segment_ids")
    )
    filled = [p for p in range(width) if segments[p]]
    assert all(labels[p] == 2 * ids[p] for p in filled)
    unpadded = samples[row]
    assert unpadded["tokens"].tolist() == [ids[p] for p in filled]
    assert unpadded["labels"].tolist() == [labels[p] for p in filled]
    found += [ids[p] for p in filled]
  assert sorted(found) == expected
  cut = min(cut, width)
  for window in ((0, cut), (cut, width)):
    part = fields_of(samples, rows, window=window)
    for name, values in part.items():
      assert values == [row[slice(*window)] for row in fields[name]], name
