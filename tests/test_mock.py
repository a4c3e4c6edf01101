import itertools

import grain
import pytest
import reference

from hpgrain import MockSamples


def _samples(**options):
  options = {"seq_length": 6, "seed": 3, "vocab_size": 50, **options}
  return MockSamples(**options)


@pytest.mark.parametrize("extra", [True, False])
@pytest.mark.parametrize("split_index", [0, 1, 2])
def test_rows_are_the_slow_references(split_index, extra):
  samples = _samples(split_index=split_index, add_extra_token=extra)
  expected = reference.Mock(
    seq_length=6,
    seed=3,
    split_name=reference.SPLIT_NAMES[split_index],
    vocab_size=50,
    extra=int(extra),
  )
  rows = [0, 1, 2, 999, 2**39]
  found = samples.read(samples.plan_rows(rows))
  assert found.tolist() == [expected.row(i).tokens for i in rows]
  assert found.dtype.name == "int32"


def test_a_window_of_a_row_is_that_part_of_it():
  samples = _samples()
  plans = samples.plan_rows([5, 0])
  whole = samples.read(plans)
  for begin, end in itertools.combinations(range(7), 2):
    found = samples.read(plans, (begin, end))
    assert found.tolist() == whole[:, begin : end + 1].tolist()


def test_a_row_is_one_document():
  samples = _samples()
  plan = samples.plan_rows([4, 7])
  assert plan.sequence.tolist() == [4, 7]
  assert plan.row_splits.tolist() == [0, 1, 2]
  segments = samples.segments(plan)
  assert segments.starts.tolist() == [0, 0]
  assert segments.lengths.tolist() == [7, 7]


def test_rows_differ_by_seed_split_and_row():
  rows = {
    tuple(_samples(seed=seed, split_index=split)[row]["tokens"].tolist())
    for seed in range(3)
    for split in range(3)
    for row in range(3)
  }
  assert len(rows) == 27


def test_ids_lie_in_the_vocabulary():
  samples = _samples(seq_length=1000, vocab_size=2)
  found = samples.read(samples.plan_rows(range(20)))
  assert set(found.ravel().tolist()) == {0, 1}
  assert 0.45 < found.mean() < 0.55
  assert not _samples(vocab_size=1)[0]["tokens"].any()
  top = _samples(seq_length=1000, vocab_size=1 << 31)
  assert 0 <= top.read(top.plan(0)).min()


def test_a_row_holds_tokens_and_their_labels():
  row = _samples()[3]
  text = _samples().read(_samples().plan(3))[0].tolist()
  assert row["tokens"].tolist() == text[:-1]
  assert row["labels"].tolist() == text[1:]


@pytest.mark.parametrize(
  "options, message",
  [
    ({"seq_length": 0}, "seq_length must be at least 1, got 0"),
    ({"vocab_size": 0}, "vocab_size must be at least 1, got 0"),
    ({"vocab_size": 2**31 + 1}, r"got 2147483649"),
    ({"split_index": 3}, "split_index is 0, 1 or 2, got 3"),
  ],
)
def test_illegal_arguments_are_refused(options, message):
  with pytest.raises(ValueError, match=message):
    _samples(**options)


def test_negative_rows_are_no_rows():
  with pytest.raises(IndexError, match="got row -1"):
    _samples()[-1]


def test_identity_holds_what_decides_the_rows():
  expected = _samples().unique_identifiers
  assert _samples().unique_identifiers == expected
  for options in (
    {"seed": 4},
    {"vocab_size": 51},
    {"seq_length": 7},
    {"split_index": 1},
    {"add_extra_token": False},
  ):
    assert _samples(**options).unique_identifiers != expected


def test_rows_compose_with_grain():
  rows = _samples()[:4].map(lambda row: row["tokens"])
  assert rows.batch(2)[1].shape == (2, 6)
  grain.experimental.assert_equal_output_after_checkpoint(
    rows.to_iter_dataset()
  )
