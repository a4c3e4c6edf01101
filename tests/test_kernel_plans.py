"""Row plans of the C++ kernels against a slice of a list of all tokens."""

import numpy as np
import pytest
import twins
from hypothesis import given
from hypothesis import strategies as st
from kernel_files import corpora, token_file

from hpgrain import _kernels

KEY = bytes(range(16))


def _int64(*values):
  return np.array(values, np.int64)


def stable_rows(corpus, **options):
  """StableRows over a split, its numbers counted from the lists."""
  options = {"extra": 1, "shuffle": True, "keep_last": False, **options}
  first = options.setdefault("first", 0)
  last = options.setdefault("last", len(corpus.sequences))
  starts = options.pop("starts", None)
  total = sum(map(len, corpus.sequences[first:last]))
  cuts = max(total - options["extra"], 0)
  rows = cuts // options["seq_length"]
  if options["keep_last"]:
    rows = -(-cuts // options["seq_length"])
  return options, _kernels.StableRows(
    first,
    last,
    options["seq_length"],
    options["extra"],
    rows,
    total,
    options["shuffle"],
    options["keep_last"],
    starts,
  )


def key_of(epoch):
  return bytes((31 * epoch + 7 * i) % 256 for i in range(16))


class Keys(dict):
  def __missing__(self, epoch):
    return key_of(epoch)


def plan(rows, file, wanted, source=0):
  """Plans as GPTSamples does, with key_of for every epoch up to the last."""
  wanted = np.array(wanted, np.int64)
  got = rows.plan(file, wanted, source)
  if got is None:
    keys = [(epoch, key_of(epoch)) for epoch in range(max(wanted) + 1)]
    got = rows.plan(file, wanted, source, keys)
  return got


def assert_plans_equal(got, expected):
  names = ("row_splits", "source", "sequence", "offset", "length", "boundary")
  for name, a, b in zip(names, got, expected, strict=True):
    assert a.dtype == b.dtype, name
    assert a.tolist() == b.tolist(), name


@given(corpora(), st.data())
def test_stable_rows_equal_a_slice_of_all_tokens(corpus, data):
  seq_length = data.draw(st.integers(1, 9))
  extra = data.draw(st.sampled_from([0, 1]))
  shuffle, keep_last, use_starts = data.draw(st.tuples(*[st.booleans()] * 3))
  count = len(corpus.sequences)
  first = data.draw(st.integers(0, count))
  last = data.draw(st.integers(first, count))
  starts = None
  if use_starts:
    lengths = corpus.lengths[first:last]
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
  options, rows = stable_rows(
    corpus,
    first=first,
    last=last,
    seq_length=seq_length,
    extra=extra,
    shuffle=shuffle,
    keep_last=keep_last,
    starts=starts,
  )
  file = token_file(corpus)
  total = sum(map(len, corpus.sequences[first:last]))
  cuts = total - extra
  if (-(-cuts // seq_length) if keep_last else cuts // seq_length) <= 0:
    with pytest.raises(ValueError, match="hold no row"):
      rows.plan(file, _int64(0), 0)
    return
  wanted = data.draw(st.lists(st.integers(0, 60), max_size=6))
  expected = twins.to_plan(
    [twins.stable_row(corpus, r, keys=Keys(), **options) for r in wanted], 3
  )
  assert_plans_equal(plan(rows, file, wanted, source=3), expected)


def test_stable_rows_of_a_few_documents():
  # Documents: one of two sequences, an empty one, one of one, one of one.
  corpus = twins.Corpus(
    [[1, 2, 3], [4, 5], [], [6, 7], [8, 9, 10]], [0, 2, 2, 4, 5], 8
  )
  options, rows = stable_rows(corpus, seq_length=4, shuffle=False)
  splits, source, sequence, offset, length, boundary = plan(
    rows, token_file(corpus), [0, 1], source=7
  )
  assert splits.tolist() == [0, 2, 5]
  assert source.tolist() == [7] * 5
  assert sequence.tolist() == [0, 1, 1, 3, 4]
  assert offset.tolist() == [0, 0, 1, 0, 0]
  assert length.tolist() == [3, 2, 1, 2, 2]
  # Sequences 2 and 3 are one document, which begins at 2.
  assert boundary.tolist() == [True, False, True, True, True]
  assert options["last"] == 5


def test_later_epochs_are_offset_inside_the_slack():
  corpus = twins.Corpus([list(range(10))], [0, 1], 4)
  options, rows = stable_rows(corpus, seq_length=4, shuffle=False)
  file = token_file(corpus)
  slack = 10 - 1 - 2 * 4
  offsets = [twins.epoch_offset(key_of(e), slack) for e in range(20)]
  assert set(offsets) == {0, 1}
  firsts = plan(rows, file, np.arange(0, 40, 2))[3]
  assert firsts.tolist() == [0, *offsets[1:]]
  assert options["keep_last"] is False


def test_a_batch_may_span_many_epochs():
  corpus = twins.Corpus([[1, 2, 3]], [0, 1], 8)
  options, rows = stable_rows(corpus, seq_length=1)
  wanted = range(0, 400, 2)
  got = plan(rows, token_file(corpus), wanted)
  expected = [
    twins.stable_row(corpus, r, keys=Keys(), **options) for r in wanted
  ]
  assert_plans_equal(got, twins.to_plan(expected))


def test_keys_are_asked_for_once_and_old_ones_let_go():
  corpus = twins.Corpus([[1, 2, 3]], [0, 1], 8)
  _, rows = stable_rows(corpus, seq_length=1)
  file = token_file(corpus)
  keys = [(epoch, key_of(epoch)) for epoch in range(40)]
  assert rows.plan(file, _int64(0, 1), 0) is None
  assert rows.plan(file, _int64(0, 1), 0, keys[:1]) is not None
  assert rows.plan(file, _int64(0, 1), 0) is not None
  assert rows.plan(file, _int64(1, 2, 4), 0, keys[1:2]) is None
  # Forty epochs at once are planned, though few are kept.
  assert rows.plan(file, np.arange(80), 0, keys) is not None
  assert rows.plan(file, _int64(0), 0) is None
  assert rows.plan(file, _int64(78), 0) is not None


def test_no_key_is_needed_without_shuffle_in_the_first_epoch():
  corpus = twins.Corpus([[1, 2, 3]], [0, 1], 8)
  _, rows = stable_rows(corpus, seq_length=1, shuffle=False)
  file = token_file(corpus)
  assert rows.plan(file, _int64(0, 1), 0) is not None
  assert rows.plan(file, _int64(0, 1, 2), 0) is None


def _many(count, rng, code=8):
  """Lengths that no interpolation guesses: long runs of short and empty."""
  lengths = np.where(
    np.arange(count) // 500 % 2,
    rng.integers(0, 3, count),
    rng.integers(0, 90, count),
  ).astype(np.int32)
  itemsize = np.dtype(twins.DTYPES[code]).itemsize
  ends = np.cumsum(lengths, dtype=np.int64)
  return lengths, (ends - lengths) * itemsize, ends


@pytest.mark.parametrize("use_starts", [False, True])
def test_sequences_are_found_among_many(use_starts):
  rng = np.random.default_rng(5)
  count = 20_000
  lengths, pointers, ends = _many(count, rng)
  # Every third document is empty, every other has one or two sequences.
  inner = np.sort(rng.integers(0, count, count // 2))
  documents = np.concatenate([[0], inner, [count]]).astype(np.int64)
  file = _kernels.TokenFile(
    lengths, pointers, documents, 8, np.zeros(2 * ends[-1], np.uint8)
  )
  total = int(ends[-1])
  num_rows = (total - 1) // 64
  starts = np.concatenate([[0], ends]) if use_starts else None
  rows = _kernels.StableRows(
    0, count, 64, 1, num_rows, total, False, False, starts
  )
  splits, _, sequence, offset, length, boundary = rows.plan(
    file, np.arange(num_rows, dtype=np.int64), 0
  )
  token = np.arange(num_rows * 64)
  owner = np.searchsorted(ends, token, side="right")
  # Each row's 65 tokens, from the pieces.
  piece_row = np.repeat(np.arange(num_rows), np.diff(splits))
  flat = np.repeat(sequence, length).reshape(num_rows, 65)
  assert (flat[:, :64].ravel() == owner).all()
  at = ends[sequence] - lengths[sequence] + offset
  row_begin = np.concatenate([[0], np.cumsum(length)])[:-1]
  assert (at == piece_row * 64 + row_begin - piece_row * 65).all()
  document = np.searchsorted(documents, sequence, side="right")
  change = np.concatenate([[True], np.diff(document) > 0])
  change[splits[:-1]] = True
  assert (boundary == change).all()


DAMAGED = twins.Corpus([[1, 2, 3], [4, 5], [6, 7], [8, 9]], [0, 1, 2, 3, 4], 8)


@pytest.mark.parametrize(
  ("name", "place", "value", "message"),
  [
    ("pointers", 1, 8, "sequence 0 begins at byte 0 and has 3 tokens of 2"),
    ("pointers", 3, 12, "sequence 2 begins at byte 10 .* begins at byte 12"),
    ("pointers", 3, 16, "sequence 2 begins at byte 10 .* begins at byte 16"),
    ("pointers", 2, 9, "sequence [12] begins at byte"),
    ("pointers", 0, 4, "sequence [0123] "),
    ("pointers", 0, -(2**63), "sequence 0 begins at byte -9223372036854775808"),
    ("pointers", 0, 2**63 - 1, "sequence 0 begins at byte 9223372036854775807"),
    ("lengths", 1, 3, "sequence 1 begins at byte 6 and has 3 tokens"),
    ("lengths", 2, -1, "sequence 2 "),
    ("lengths", 0, 2**31 - 1, "sequence 0 begins at byte 0 and has 2147483647"),
    ("lengths", 3, 1, "sequence 3 (ends|should hold)"),
  ],
)
def test_sequences_not_back_to_back_are_named(name, place, value, message):
  array = getattr(DAMAGED, name).copy()
  array[place] = value
  _, rows = stable_rows(DAMAGED, seq_length=2, shuffle=False)
  with pytest.raises(ValueError, match=message):
    plan(rows, token_file(DAMAGED, **{name: array}), range(4))


@given(
  st.sampled_from(["pointers", "lengths", "document_indices"]),
  st.lists(
    st.tuples(
      st.integers(0, 5),
      st.sampled_from([-(2**63), -1, 0, 1, 2**31 - 1, 2**40, 2**63 - 1])
      | st.integers(-20, 40),
    ),
    min_size=1,
    max_size=4,
  ),
)
def test_a_damaged_index_never_crashes(name, changes):
  corpus = twins.Corpus(
    [[1, 2, 3], [], [4, 5], [6, 7], [8, 9]], [0, 1, 2, 3, 4, 5], 8
  )
  array = np.array(getattr(corpus, name))
  for place, value in changes:
    array = array.astype(np.int64)
    array[place % len(array)] = value
  if name == "lengths":
    array = array.astype(np.int32)
  file = token_file(corpus, **{name: array})
  _, rows = stable_rows(corpus, seq_length=3, shuffle=False)
  try:
    made = plan(rows, file, range(2))
    out = np.zeros((2, 4), np.int32)
    _kernels.gather(*made[:5], np.zeros(1, np.int32), [file], 0, 4, 0, 100, out)
  except (ValueError, IndexError):
    return
  # What passes the checks is right.
  assert out.tolist() == [[1, 2, 3, 4], [4, 5, 6, 7]]


def test_starts_are_compared_with_the_lengths():
  _, rows = stable_rows(
    DAMAGED, seq_length=2, shuffle=False, starts=_int64(0, 3, 6, 7, 9)
  )
  with pytest.raises(ValueError, match=r"sequence 1 has 2 .* starts give it 3"):
    plan(rows, token_file(DAMAGED), range(4))


def test_starts_serve_sequences_that_lie_apart():
  pointers = DAMAGED.pointers + _int64(0, 100, 40, 2)
  _, rows = stable_rows(
    DAMAGED, seq_length=4, shuffle=False, starts=_int64(0, 3, 5, 7, 9)
  )
  got = plan(rows, token_file(DAMAGED, pointers=pointers), [1])
  assert got[2].tolist() == [1, 2, 3]
  assert got[3].tolist() == [1, 0, 0]
  assert got[4].tolist() == [1, 2, 2]


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"first_sequence": -1}, r"the sequences \[-1, 4\) are no range"),
    ({"last_sequence": -1}, r"the sequences \[0, -1\) are no range"),
    ({"seq_length": 0}, "a row of 0 \\+ 1 tokens"),
    ({"extra": -1}, "a row of 2 \\+ -1 tokens"),
    ({"seq_length": 2**31 - 1}, "the row below 2\\*\\*31"),
    ({"rows_per_epoch": 5}, "5 rows of 2 \\+ 1 tokens do not fit into 9"),
    ({"rows_per_epoch": 2**62}, "do not fit into 9 tokens"),
    ({"rows_per_epoch": -1}, "-1 rows an epoch"),
    ({"num_tokens": -1}, "an epoch of -1 tokens"),
    ({"num_tokens": 2**63 - 1}, "both must be from 0 to 2\\*\\*62"),
    ({"starts": _int64(0, 9)}, "starts must hold 5 values from 0 to 9"),
    ({"starts": _int64()}, "starts must hold 5 values .* got 0"),
    ({"starts": _int64(1, 3, 5, 7, 9)}, "got 5 values from 1 to 9"),
  ],
)
def test_stable_rows_refuse_numbers_that_contradict(change, message):
  arguments = {
    "first_sequence": 0,
    "last_sequence": 4,
    "seq_length": 2,
    "extra": 1,
    "rows_per_epoch": 4,
    "num_tokens": 9,
    "shuffle": True,
    "keep_last": False,
  }
  with pytest.raises(ValueError, match=message):
    _kernels.StableRows(**{**arguments, **change})


def test_stable_rows_refuse_a_negative_row_and_another_file():
  _, rows = stable_rows(DAMAGED, seq_length=2)
  small = token_file(twins.Corpus([[1, 2]], [0, 1], 8))
  with pytest.raises(IndexError, match="Rows count from 0, got row -2"):
    rows.plan(token_file(DAMAGED), _int64(-2), 0)
  with pytest.raises(ValueError, match=r"\[0, 4\) were asked for.* holds 1"):
    plan(rows, small, [0])
  with pytest.raises(ValueError, match="epoch -1 added"):
    rows.plan(token_file(DAMAGED), _int64(0), 0, [(-1, KEY)])
  with pytest.raises(ValueError, match="file is None"):
    rows.plan(None, _int64(0), 0)
