import concurrent.futures
import copy
import itertools
import pickle
import random
import struct
import time
from pathlib import Path

import grain
import numpy as np
import pytest
import reference
from corpora import random_documents, write_pair

from hpgrain import GPTSamples, IndexedReader, gather

# Five documents of one sequence each: tokens 10.. 14, 20 .. 22, and so on.
_DOCUMENTS = [
  [[10, 11, 12, 13, 14]],
  [[20, 21, 22]],
  [[]],
  [[30, 31, 32, 33]],
  [[40, 41, 42, 43, 44, 45]],
]


@pytest.fixture
def small(tmp_path):
  return write_pair(tmp_path / "a", _DOCUMENTS)


def _text(samples, rows):
  return samples.read(samples.plan_rows(rows))


def _starts(samples, rows):
  segments = samples.segments(samples.plan_rows(rows))
  return [
    segments.starts[begin:end].tolist()
    for begin, end in itertools.pairwise(segments.row_splits)
  ]


def _check(samples, expected, rows):
  """Compares rows and their segments with the slow reference."""
  width = samples.seq_length + samples.extra
  wanted = [expected.row(i) for i in rows]
  tokens = [row.tokens + [0] * (width - len(row.tokens)) for row in wanted]
  assert _text(samples, rows).tolist() == tokens
  assert _starts(samples, rows) == [row.starts for row in wanted]
  lengths = samples.segments(samples.plan_rows(rows)).lengths
  assert lengths.tolist() == [len(row.tokens) for row in wanted]


def test_rows_of_a_written_out_corpus(small):
  samples = GPTSamples(small, seq_length=4, seed=0, shuffle=False)
  assert len(samples) == 4
  assert _text(samples, range(4)).tolist() == [
    [10, 11, 12, 13, 14],
    [14, 20, 21, 22, 30],
    [30, 31, 32, 33, 40],
    [40, 41, 42, 43, 44],
  ]
  assert _starts(samples, range(4)) == [[0], [0, 1, 4], [0, 4], [0]]


def test_a_plan_is_the_pieces_of_each_row(small):
  samples = GPTSamples(small, seq_length=4, seed=0, shuffle=False)
  plan = samples.plan_rows([1, 3])
  assert plan.row_splits.tolist() == [0, 3, 4]
  assert plan.source.tolist() == [0, 0, 0, 0]
  assert plan.sequence.tolist() == [0, 1, 3, 4]
  assert plan.offset.tolist() == [4, 0, 0, 0]
  assert plan.length.tolist() == [1, 3, 1, 5]
  assert plan.boundary.tolist() == [True, True, True, True]
  dtypes = [getattr(plan, f).dtype for f in plan.__dataclass_fields__]
  assert dtypes == [np.int64, np.int32, np.int64, np.int64, np.int32, np.bool_]
  assert len(plan) == 2
  assert samples.plan_rows([1], source=7).source.tolist() == [7, 7, 7]


def test_boundaries_follow_documents_not_sequences(tmp_path):
  # Documents 0 and 2 have two sequences, document 1 none.
  prefix = write_pair(tmp_path / "a", [[[1, 2], [3]], [], [[4], [5, 6, 7]]])
  samples = GPTSamples(prefix, seq_length=6, seed=0, shuffle=False)
  plan = samples.plan(0)
  assert plan.sequence.tolist() == [0, 1, 2, 3]
  assert plan.length.tolist() == [2, 1, 1, 3]
  assert plan.boundary.tolist() == [True, False, True, False]
  assert _starts(samples, [0]) == [[0, 3]]


def test_a_row_holds_tokens_and_their_labels(small):
  samples = GPTSamples(small, seq_length=4, seed=0, shuffle=False)
  row = samples[1]
  assert row["tokens"].tolist() == [14, 20, 21, 22]
  assert row["labels"].tolist() == [20, 21, 22, 30]
  assert row["tokens"].dtype == row["labels"].dtype == np.int32


def test_without_an_extra_token_labels_are_rolled(small):
  samples = GPTSamples(
    small, seq_length=4, seed=0, shuffle=False, add_extra_token=False
  )
  assert len(samples) == 4
  row = samples[1]
  assert row["tokens"].tolist() == [14, 20, 21, 22]
  assert row["labels"].tolist() == [20, 21, 22, -100]
  assert _text(samples, [1]).shape == (1, 4)


@pytest.mark.parametrize("extra", [True, False])
@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize(
  "reading", list(itertools.product([True, False], [True, False]))
)
def test_rows_are_the_slow_references(
  tmp_path, extra, drop_last, shuffle, reading
):
  contiguous, mmap = reading
  rng = random.Random(f"{extra}{drop_last}{shuffle}{contiguous}{mmap}")
  for trial, dtype in enumerate(("uint16", "int32", "uint8", "int64")):
    documents = random_documents(rng, num_documents=30)
    prefix = write_pair(tmp_path / f"c{trial}", documents, dtype=dtype)
    corpus = reference.read_corpus(prefix)
    split = rng.choice(["1,0,0", "3,1,1", "1,1,1"])
    split_index = rng.randrange(3 if split != "1,0,0" else 1)
    count = len(corpus.sequences)
    samples = GPTSamples(
      IndexedReader(prefix, mmap=mmap),
      seq_length=rng.randint(1, 12),
      seed=rng.randrange(100),
      split=split,
      split_index=split_index,
      add_extra_token=extra,
      drop_last=drop_last,
      shuffle=shuffle,
      contiguous=contiguous,
    )
    expected = reference.GPT(
      corpus,
      seq_length=samples.seq_length,
      seed=samples._seed,
      name=f"c{trial}",
      bounds=reference.split_bounds(split, count)[split_index],
      extra=int(extra),
      shuffle=shuffle,
      keep_last=not drop_last,
    )
    assert len(samples) == samples.rows_per_epoch == expected.rows_per_epoch
    many = 3 * len(samples) + 2
    _check(samples, expected, range(many))
    _check(samples, expected, [rng.randrange(10**9) for _ in range(20)])


def test_any_window_of_a_row_is_that_part_of_it(small):
  for extra in (True, False):
    samples = GPTSamples(small, seq_length=5, seed=3, add_extra_token=extra)
    plans = samples.plan_rows(range(6))
    whole = samples.read(plans)
    for begin, end in itertools.combinations(range(6), 2):
      found = samples.read(plans, (begin, end))
      assert found.tolist() == whole[:, begin : end + 1].tolist()
      assert found.shape[1] == min(end + 1, 5 + extra) - begin


def test_keep_last_pads_the_last_row(small):
  samples = GPTSamples(
    small, seq_length=5, seed=0, shuffle=False, drop_last=False
  )
  # 18 tokens: three whole rows and one of two tokens and the extra one.
  assert len(samples) == 4
  assert _text(samples, [3]).tolist() == [[43, 44, 45, 0, 0, 0]]
  segments = samples.segments(samples.plan(3))
  assert segments.lengths.tolist() == [3]
  # The next epoch begins at the beginning again.
  assert _text(samples, [4]).tolist() == _text(samples, [0]).tolist()


def test_keep_last_adds_no_row_for_a_token_without_label(tmp_path):
  # 9 tokens are two rows of 4 + 1; nothing is left to predict.
  prefix = write_pair(tmp_path / "a", [[list(range(9))]])
  assert len(GPTSamples(prefix, seq_length=4, seed=0, drop_last=False)) == 2
  for name, tokens, rows in (("b", 10, 3), ("c", 1, 0), ("d", 2, 1)):
    prefix = write_pair(tmp_path / name, [[list(range(tokens))]])
    samples = GPTSamples(prefix, seq_length=4, seed=0, drop_last=False)
    assert len(samples) == rows, tokens


def test_every_token_is_reached_over_the_epochs(small):
  samples = GPTSamples(small, seq_length=4, seed=0)
  first = _text(samples, range(4))
  assert 45 not in first
  reached = set(_text(samples, range(40)).ravel().tolist())
  assert reached == {t for (sequence,) in _DOCUMENTS for t in sequence}


def test_rows_depend_on_seed_and_name_alone(small, tmp_path):
  moved = write_pair(tmp_path / "elsewhere", _DOCUMENTS)

  def rows(prefix, **options):
    options = {"seed": 0, **options}
    samples = GPTSamples(prefix, seq_length=1, **options)
    return _text(samples, range(60)).tolist()

  expected = rows(small)
  assert rows(moved, name="a") == expected
  assert rows(small, seed=1) != expected
  assert rows(small, name="b") != expected
  assert rows(moved) != expected


def test_asking_in_any_order_or_grouping_gives_the_same_rows(small):
  samples = GPTSamples(small, seq_length=3, seed=0)
  rows = [100, 3, 3, 0, 57, 5, 4]
  together = _text(samples, rows).tolist()
  fresh = GPTSamples(small, seq_length=3, seed=0)
  for row, expected in reversed(list(zip(rows, together))):
    assert _text(fresh, [row]).tolist() == [expected]


def test_many_tiny_epochs_in_one_batch(tmp_path):
  # One row an epoch: a batch needs the keys of 5,000 epochs at once.
  prefix = write_pair(tmp_path / "a", [[[1, 2, 3, 4, 5, 6, 7]]])
  samples = GPTSamples(prefix, seq_length=4, seed=0)
  assert len(samples) == 1
  corpus = reference.read_corpus(prefix)
  expected = reference.GPT(corpus, seq_length=4, seed=0, name="a")
  began = time.monotonic()
  found = _text(samples, range(5000)).tolist()
  assert time.monotonic() - began < 10
  assert found == [expected.row(i).tokens for i in range(5000)]


def _write_with_gaps(prefix: Path, sequences, gap: int) -> str:
  """Sequences that do not lie back to back: `gap` bytes before each."""
  lengths = [len(sequence) for sequence in sequences]
  data, pointers = b"", []
  for i, sequence in enumerate(sequences):
    # Opening checks the first pointer.
    data += b"\xff" * (gap if i else 0)
    pointers.append(len(data))
    data += struct.pack(f"<{len(sequence)}H", *sequence)
  count = len(sequences)
  Path(f"{prefix}.bin").write_bytes(data)
  Path(f"{prefix}.idx").write_bytes(
    b"MMIDIDX\0\0"
    + struct.pack("<QBQQ", 1, 8, count, count + 1)
    + struct.pack(f"<{count}i", *lengths)
    + struct.pack(f"<{count}q", *pointers)
    + struct.pack(f"<{count + 1}q", *range(count + 1))
  )
  return str(prefix)


def test_sequences_apart_are_named_or_read_with_their_lengths(tmp_path):
  sequences = [[10, 11, 12], [20, 21], [30, 31, 32, 33]]
  prefix = _write_with_gaps(tmp_path / "gaps", sequences, gap=6)
  samples = GPTSamples(prefix, seq_length=4, seed=0, shuffle=False)
  with pytest.raises(
    ValueError,
    match=rf"{prefix}.idx: .*sequence 0.*contiguous=False.*verify",
  ):
    samples.plan(0)
  samples = GPTSamples(
    prefix, seq_length=4, seed=0, shuffle=False, contiguous=False
  )
  assert samples.num_tokens == 9
  assert _text(samples, [0, 1]).tolist() == [
    [10, 11, 12, 20, 21],
    [21, 30, 31, 32, 33],
  ]


@pytest.mark.parametrize(
  "documents, options, message",
  [
    # 3 sequences of 4 of 18 tokens are needed for one row of 8 + 1 tokens.
    (
      _DOCUMENTS,
      {"seq_length": 8, "split": "1,9,0"},
      r"Source 'a', split train of '1,9,0': its 0 sequences hold T = 0"
      r" tokens, a row needs S \+ x = 9\. The smallest share that works is 4"
      r" of its 5 sequences \(0\.8 of the whole\)",
    ),
    (
      _DOCUMENTS,
      {"seq_length": 7, "split": "4,1,0", "split_index": 1},
      r"split valid of '4,1,0': its 1 sequences hold T = 6 tokens, a row needs"
      r" S \+ x = 8\. The smallest share that works is 2 of its 5 sequences",
    ),
    (
      _DOCUMENTS,
      {"seq_length": 18},
      r"T = 18 tokens, a row needs S \+ x = 19\. No share",
    ),
    ([[[]]], {"seq_length": 1}, r"its 1 sequences hold T = 0 tokens"),
    ([], {"seq_length": 1}, r"its 0 sequences hold T = 0 tokens"),
  ],
)
def test_a_split_too_small_names_the_least_share(
  tmp_path, documents, options, message
):
  prefix = write_pair(tmp_path / "a", documents)
  samples = GPTSamples(prefix, seed=0, **options)
  assert len(samples) == 0
  with pytest.raises(ValueError, match=message):
    samples.plan(0)


def test_the_least_share_works(tmp_path):
  prefix = write_pair(tmp_path / "a", _DOCUMENTS)
  for share, rows in ((3, 0), (4, 1)):
    samples = GPTSamples(
      prefix, seq_length=8, seed=0, split=f"{share},{5 - share},0"
    )
    assert len(samples) == rows


@pytest.mark.parametrize(
  "options, message",
  [
    ({"order": "random"}, r"order must be one of 'stable', .* got 'random'"),
    (
      {"order": "megatron", "shuffle": False},
      r"shuffled always, got shuffle=F",
    ),
    ({"order": "megatron", "seed": -1}, r"from 0 to 4294967295, got -1"),
    ({"order": "megatron", "seed": 2**32}, r"from 0 to .* got 4294967296"),
    ({"order": "megatron", "num_samples": -1}, r"at least 0, got -1"),
    ({"data_sharding": 0}, r"data_sharding must be at least 1, got 0"),
    ({"num_samples": 5}, r"num_samples must be None .* got 5"),
    ({"seq_length": 0}, r"seq_length must be at least 1, got 0"),
    ({"vocab_size": 0}, r"vocab_size must be at least 1, got 0"),
    ({"seq_length": True}, r"seq_length must be an integer, got True"),
    ({"seq_length": "8"}, r"seq_length must be an integer, got '8'"),
    ({"seed": 1.9}, r"seed must be an integer, got 1\.9"),
    ({"split_index": 3}, r"split_index is 0 .* got 3"),
    ({"split": "1,0,1", "split_index": 1}, r"gives valid no weight"),
    ({"split": "-1"}, r"cannot be negative"),
  ],
)
def test_illegal_arguments_are_refused(small, options, message):
  with pytest.raises(ValueError, match=message):
    GPTSamples(small, **{"seq_length": 4, "seed": 0, **options})


def test_negative_rows_are_no_rows(small):
  samples = GPTSamples(small, seq_length=4, seed=0)
  with pytest.raises(IndexError, match="count from 0, got row -2"):
    samples.plan_rows([0, -2])
  with pytest.raises(IndexError, match="got row -1"):
    samples[-1]


@pytest.mark.parametrize("window", [(0, 5), (-1, 2), (2, 2), (3, 1)])
def test_a_window_outside_the_row_is_refused(small, window):
  samples = GPTSamples(small, seq_length=4, seed=0)
  with pytest.raises(ValueError, match=r"0 <= begin < end <= 4, got \("):
    samples.read(samples.plan(0), window)


def test_an_id_outside_the_vocabulary_names_its_place(small):
  samples = GPTSamples(
    small, seq_length=4, seed=0, shuffle=False, vocab_size=45
  )
  assert _text(samples, range(4)).max() == 44
  assert _text(samples, range(3)).max() == 40
  samples = GPTSamples(
    small, seq_length=4, seed=0, shuffle=False, vocab_size=32
  )
  message = (
    r"Source 'a', sequence 3, offset 2: token id 32 lies outside the"
    r" vocabulary \[0, 32\)"
  )
  with pytest.raises(ValueError, match=message):
    _text(samples, [1, 2])
  # The second of two pieces, and a window that begins inside of it.
  with pytest.raises(ValueError, match=message):
    samples.read(samples.plan_rows([1, 2]), (1, 3))
  # Only what is read is looked at.
  samples.read(samples.plan_rows([1, 2]), (0, 1))


@pytest.mark.parametrize(
  "dtype, token", [("int32", -5), ("int64", 2**40), ("int64", 2**31)]
)
def test_an_id_that_no_int32_holds_is_never_wrapped(tmp_path, dtype, token):
  prefix = write_pair(tmp_path / "a", [[[1, 2, token, 4]]], dtype=dtype)
  samples = GPTSamples(prefix, seq_length=3, seed=0)
  with pytest.raises(
    ValueError, match=rf"offset 2: token id {token} .*\[0, 2147483648\)"
  ):
    samples[0]


def test_rows_compose_with_grain(small):
  samples = GPTSamples(small, seq_length=4, seed=0, shuffle=False)
  doubled = samples.map(lambda row: {"twice": 2 * row["tokens"]}).batch(2)
  assert doubled[0]["twice"].tolist() == [
    [20, 22, 24, 26],
    [28, 40, 42, 44],
  ]
  assert len(doubled) == 2
  kept = [row["tokens"][0] for row in samples[1:3]]
  assert kept == [14, 30]
  shuffled = samples.seed(1).shuffle().map(lambda row: int(row["tokens"][0]))
  assert sorted(shuffled[i] for i in range(4)) == [10, 14, 30, 40]


def test_a_grain_iterator_over_rows_goes_on_after_restore(small):
  samples = GPTSamples(small, seq_length=4, seed=0)
  grain.experimental.assert_equal_output_after_checkpoint(
    samples.map(lambda row: row["tokens"]).to_iter_dataset()
  )


def test_identity_is_content_not_place(small, tmp_path):
  moved = write_pair(tmp_path / "b", _DOCUMENTS)
  other = write_pair(tmp_path / "c", _DOCUMENTS[:-1])

  def identity(prefix, **options):
    options = {"seq_length": 4, "seed": 0, "name": "a", **options}
    return GPTSamples(prefix, **options).unique_identifiers

  expected = identity(small)
  assert identity(moved) == expected
  assert identity(other) != expected
  for options in (
    {"seed": 1},
    {"seq_length": 5},
    {"name": "z"},
    {"add_extra_token": False},
    {"drop_last": False},
    {"shuffle": False},
    {"split": "2,1,0"},
    {"split": "1,1,0", "split_index": 1},
  ):
    assert identity(small, **options) != expected, options


def test_rows_per_source_are_all_its_own(small):
  samples = GPTSamples(small, seq_length=4, seed=0)
  assert samples.rows_per_source(7).tolist() == [7]
  assert samples.num_rows(3) == 12


def test_window_columns_add_the_label():
  assert gather.window_columns((2, 4), 8, 1) == (2, 5)
  assert gather.window_columns((4, 8), 8, 1) == (4, 9)
  assert gather.window_columns((4, 8), 8, 0) == (4, 8)
  assert gather.window_columns(None, 8, 1) == (0, 9)


def test_rows_that_are_no_integers_are_refused(small):
  samples = GPTSamples(small, seq_length=4, seed=0)
  with pytest.raises(TypeError, match="float"):
    samples[1.5]
  with pytest.raises(TypeError, match="Rows are integers"):
    samples.plan_rows(np.array([1.0]))
  with pytest.raises(IndexError, match=r"Rows end at 2\^62"):
    samples[2**63 - 1]


def test_a_kept_tail_has_labels_where_tokens_follow(tmp_path):
  prefix = write_pair(tmp_path / "a", [[[5, 6, 7, 8, 9, 3, 4]]])
  samples = GPTSamples(
    prefix, seq_length=4, seed=0, shuffle=False, drop_last=False
  )
  assert samples[1]["tokens"].tolist() == [9, 3, 4, 0]
  assert samples[1]["labels"].tolist() == [3, 4, -100, -100]


def test_threads_may_read_any_epochs_at_once(small):
  samples = GPTSamples(small, seq_length=2, seed=0)
  rows = np.random.default_rng(0).integers(0, 900 * len(samples), (24, 40))
  alone = [samples.read(samples.plan_rows(part)) for part in rows]
  shared = GPTSamples(small, seq_length=2, seed=0)
  with concurrent.futures.ThreadPoolExecutor(16) as pool:
    together = pool.map(lambda part: shared.read(shared.plan_rows(part)), rows)
  for expected, got in zip(alone, together):
    np.testing.assert_array_equal(got, expected)


def test_copies_read_the_same_rows(small):
  samples = GPTSamples(small, seq_length=4, seed=0)
  for other in (pickle.loads(pickle.dumps(samples)), copy.deepcopy(samples)):
    np.testing.assert_array_equal(
      _text(other, range(9)), _text(samples, range(9))
    )
  apart = GPTSamples(small, seq_length=4, seed=0, contiguous=False)
  other = pickle.loads(pickle.dumps(apart))
  np.testing.assert_array_equal(
    _text(other, range(9)), _text(samples, range(9))
  )
