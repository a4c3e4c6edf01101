import itertools
import os
import random

import grain
import numpy as np
import pytest
import reference
from corpora import random_records, write_pair

from hpgrain import IndexedReader, PrecutSamples
from hpgrain.indexed_dataset import build_indexed_text_dataset

# 9 ends a document. Records of 4 + 1 tokens.
_RECORDS = [
  [[1, 2, 9, 3, 4]],
  [[9, 9, 5, 9, 6]],
  [[7, 8, 7, 8, 9]],
]


@pytest.fixture
def records(tmp_path):
  return write_pair(tmp_path / "a", _RECORDS)


def _starts(samples, rows):
  segments = samples.segments(samples.plan_rows(rows))
  return [
    segments.starts[begin:end].tolist()
    for begin, end in itertools.pairwise(segments.row_splits)
  ]


def _boundaries(samples, rows):
  segments = samples.segments(samples.plan_rows(rows))
  return [
    segments.boundaries(row, samples.seq_length).tolist()
    for row in range(len(segments))
  ]


def test_a_record_is_a_row(records):
  samples = PrecutSamples(records, seq_length=4, seed=0, shuffle=False)
  assert len(samples) == 3
  plan = samples.plan_rows([2, 0])
  assert plan.sequence.tolist() == [2, 0]
  assert plan.offset.tolist() == [0, 0]
  assert plan.length.tolist() == [5, 5]
  assert samples.read(plan).tolist() == [[7, 8, 7, 8, 9], [1, 2, 9, 3, 4]]
  assert samples[1]["tokens"].tolist() == [9, 9, 5, 9]
  assert samples[1]["labels"].tolist() == [9, 5, 9, 6]


def test_segments_begin_after_each_end(records):
  samples = PrecutSamples(
    records, seq_length=4, seed=0, shuffle=False, eod_id=9
  )
  # Ends side by side make segments of one token; one at the end begins none.
  assert _starts(samples, range(3)) == [[0, 3], [0, 1, 2, 4], [0]]


def test_the_boundaries_of_the_contracts_example(tmp_path):
  prefix = write_pair(tmp_path / "a", [[[1, 9, 2, 3, 9, 4, 5, 6]]])
  samples = PrecutSamples(
    prefix, seq_length=8, seed=0, add_extra_token=False, eod_id=9
  )
  assert _boundaries(samples, [0]) == [[0, 2, 5, 8]]


def test_without_an_end_id_a_record_is_one_segment(records):
  samples = PrecutSamples(records, seq_length=4, seed=0)
  assert _starts(samples, range(3)) == [[0], [0], [0]]


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("extra", [True, False])
def test_rows_are_the_slow_references(tmp_path, shuffle, extra):
  rng = random.Random(f"{shuffle}{extra}")
  for trial in range(4):
    documents = random_records(rng, num_records=23, length=7)
    prefix = write_pair(tmp_path / f"r{trial}", documents)
    samples = PrecutSamples(
      prefix,
      seq_length=7 - extra,
      seed=trial,
      split="5,3,2",
      split_index=1,
      add_extra_token=extra,
      shuffle=shuffle,
      eod_id=0,
    )
    expected = reference.PreCut(
      reference.read_corpus(prefix),
      seed=trial,
      name=f"r{trial}",
      eod=0,
      bounds=reference.split_bounds("5,3,2", 23)[1],
      shuffle=shuffle,
    )
    assert len(samples) == expected.rows_per_epoch
    rows = [*range(25), *(rng.randrange(10**9) for _ in range(10))]
    wanted = [expected.row(i) for i in rows]
    tokens = samples.read(samples.plan_rows(rows))
    assert tokens.tolist() == [row.tokens for row in wanted]
    assert _starts(samples, rows) == [row.starts for row in wanted]


def test_many_tiny_epochs_in_one_batch(tmp_path):
  prefix = write_pair(tmp_path / "a", _RECORDS[:2])
  samples = PrecutSamples(prefix, seq_length=4, seed=0)
  sequence = samples.plan_rows(range(4000)).sequence
  assert (np.sort(sequence.reshape(-1, 2)) == [0, 1]).all()
  assert 900 < (sequence[::2] == 0).sum() < 1100


def test_a_window_of_a_row_is_that_part_of_it(records):
  samples = PrecutSamples(records, seq_length=4, seed=0)
  plans = samples.plan_rows(range(3))
  whole = samples.read(plans)
  for begin, end in itertools.combinations(range(5), 2):
    found = samples.read(plans, (begin, end))
    assert found.tolist() == whole[:, begin : end + 1].tolist()


def test_records_of_another_length_are_counted_and_three_named(tmp_path):
  documents = [[[1] * n] for n in (5, 4, 5, 6, 0, 5, 7)]
  prefix = write_pair(tmp_path / "a", documents)
  with pytest.raises(
    ValueError,
    match=(
      r"must have seq_length \+ extra = 5 tokens; record 1 has 4, record 3"
      r" has 6, record 4 has 0 and 1 more, of 7 records\..*skip_data_check"
    ),
  ):
    PrecutSamples(prefix, seq_length=4, seed=0)
  samples = PrecutSamples(
    prefix, seq_length=4, seed=0, shuffle=False, skip_data_check=True
  )
  assert samples[0]["tokens"].tolist() == [1, 1, 1, 1]
  # A longer record is read to the row's length, a shorter one is no row.
  assert samples[3]["tokens"].tolist() == [1, 1, 1, 1]
  with pytest.raises(ValueError, match=r"/a: .*sequence 1\b"):
    samples[1]


def test_three_offenders_are_all_named(tmp_path):
  prefix = write_pair(tmp_path / "a", [[[1] * 3]] * 3)
  with pytest.raises(
    ValueError, match="record 1 has 3, record 2 has 3, of 3 records"
  ):
    PrecutSamples(prefix, seq_length=4, seed=0)


def test_padding_inside_a_record_is_named_when_it_is_read(records):
  samples = PrecutSamples(
    records, seq_length=4, seed=0, shuffle=False, pad_id=5
  )
  assert samples[0]["tokens"].tolist() == [1, 2, 9, 3]
  message = r"Source 'a', record 1, offset 2: pad id 5\. Pre-cut records"
  with pytest.raises(ValueError, match=message):
    samples[1]
  with pytest.raises(ValueError, match=message):
    samples.read(samples.plan_rows([0, 1]), (1, 3))
  samples.read(samples.plan_rows([0, 1]), (0, 1))


def test_an_id_outside_the_vocabulary_names_its_place(records):
  samples = PrecutSamples(
    records, seq_length=4, seed=0, shuffle=False, vocab_size=9
  )
  with pytest.raises(
    ValueError, match=r"Source 'a', sequence 0, offset 2: token id 9"
  ):
    samples[0]


def test_a_split_without_records_says_what_would_do(records):
  samples = PrecutSamples(
    records, seq_length=4, seed=0, split="9,1,0", split_index=1
  )
  assert len(samples) == 0
  with pytest.raises(
    ValueError,
    match=r"'a': split 1 of '9,1,0' holds none of its 3 records.*0\.333333",
  ):
    samples.plan(0)


def test_illegal_arguments_are_refused(records):
  with pytest.raises(ValueError, match="seq_length must be at least 1, got -1"):
    PrecutSamples(records, seq_length=-1, seed=0)
  samples = PrecutSamples(records, seq_length=4, seed=0)
  with pytest.raises(IndexError, match="got row -1"):
    samples[-1]


def test_identity_is_content_not_place(records, tmp_path):
  moved = write_pair(tmp_path / "b", _RECORDS)

  def identity(prefix, **options):
    options = {"seq_length": 4, "seed": 0, "name": "a", **options}
    return PrecutSamples(prefix, **options).unique_identifiers

  expected = identity(records)
  assert identity(moved) == expected
  for options in (
    {"seed": 1},
    {"eod_id": 9},
    {"split": "1,1,0"},
    {"shuffle": False},
    {"name": "b"},
  ):
    assert identity(records, **options) != expected, options


def test_rows_compose_with_grain(records):
  samples = PrecutSamples(records, seq_length=4, seed=0, shuffle=False)
  pairs = samples.map(lambda row: row["tokens"]).batch(2)
  assert pairs[0].tolist() == [[1, 2, 9, 3], [9, 9, 5, 9]]
  assert samples[1:][0]["tokens"].tolist() == [9, 9, 5, 9]
  grain.experimental.assert_equal_output_after_checkpoint(
    samples.map(lambda row: row["tokens"]).to_iter_dataset()
  )


def test_a_lone_extra_token_may_begin_a_segment(records):
  # Record 1 ends "9 6": the 6 is a label only, of a document of its own.
  samples = PrecutSamples(
    records, seq_length=4, seed=0, shuffle=False, eod_id=9
  )
  assert _starts(samples, [1]) == [[0, 1, 2, 4]]
  assert _boundaries(samples, [1]) == [[0, 1, 2, 4]]


def test_splits_are_of_records(tmp_path):
  prefix = write_pair(tmp_path / "a", [[[i] * 5] for i in range(10)])
  train, valid, test = build_indexed_text_dataset(
    data_path=prefix,
    seed=0,
    seq_length=4,
    split="7,2,1",
    is_dataset_from_mr=True,
  )
  parts = [
    sorted(int(part[i]["tokens"][0]) for i in range(len(part)))
    for part in (train, valid, test)
  ]
  assert parts == [[0, 1, 2, 3, 4, 5, 6], [7, 8], [9]]


def test_a_file_cut_short_after_opening_is_named(tmp_path):
  prefix = write_pair(tmp_path / "a", [[[1, 9, 2, 3, 4]]] * 3)
  reader = IndexedReader(prefix, mmap=False)
  samples = PrecutSamples(reader, seq_length=4, seed=0, shuffle=False, eod_id=9)
  plans = samples.plan_rows([2])
  os.truncate(f"{prefix}.bin", 24)
  for look in (samples.read, samples.segments):
    with pytest.raises(OSError, match=r"/a: .*cut short after it was opened"):
      look(plans)
