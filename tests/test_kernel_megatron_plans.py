"""Plans of Megatron's samples against a slice of a list of all tokens."""

import random

import megatron_twins as slow
import numpy as np
import pytest
import twins
from corpora import random_documents, write_pair
from hypothesis import given
from hypothesis import strategies as st
from kernel_files import corpora, token_file

from hpgrain import _kernels
from hpgrain.sources.indexed_reader import IndexedReader


def assert_plans_equal(got, expected):
  names = ("row_splits", "source", "sequence", "offset", "length", "boundary")
  for name, a, b in zip(names, got, expected, strict=True):
    assert a.dtype == b.dtype, name
    assert a.tolist() == b.tolist(), name


def mapped(array):
  """The array as a file might hold it: read-only, at an odd address."""
  data = b"." + array.tobytes()
  return np.frombuffer(data, array.dtype, array.size, 1).reshape(array.shape)


@given(
  corpora(max_sequences=9),
  st.integers(1, 9),
  st.sampled_from([0, 1]),
  st.data(),
)
def test_plans_equal_a_slice_of_all_tokens(corpus, seq_length, extra, data):
  drop_last = data.draw(st.booleans())
  dtype = data.draw(st.sampled_from([np.int32, np.int64]))
  shuffle_dtype = data.draw(st.sampled_from([np.uint32, np.int64, None]))
  count = len(corpus.sequences)
  # Also in stored order, where sequences of one document meet, and twice.
  document_index = data.draw(
    st.permutations(range(count))
    | st.permutations(list(range(count)) * 2)
    | st.sampled_from([list(range(count)) * epochs for epochs in (1, 2)])
  )
  options = {"seq_length": seq_length, "extra": extra}
  total = sum(len(corpus.sequences[d]) for d in document_index)
  num_samples = slow.num_samples(total, drop_last=drop_last, **options)
  sample_index = np.array(
    slow.sample_index(
      corpus.lengths, document_index, num_samples=num_samples, **options
    ),
    dtype,
  )
  samples = data.draw(st.permutations(range(num_samples)))
  shuffle_index = None
  if shuffle_dtype is None:
    samples = range(num_samples)
  else:
    shuffle_index = mapped(np.array(samples, shuffle_dtype))
  rows = []
  if num_samples:
    one = st.integers(0, num_samples - 1)
    rows = data.draw(st.lists(one, max_size=40))
  expected = [
    slow.sample_pieces(
      corpus, samples[row], document_index=document_index, **options
    )
    for row in rows
  ]
  got = _kernels.plan_samples(
    token_file(corpus),
    np.array(rows, np.int64),
    5,
    mapped(np.array(document_index, dtype)),
    mapped(sample_index),
    shuffle_index,
    seq_length,
    extra,
  )
  assert_plans_equal(got, twins.to_plan(expected, 5))
  outside = data.draw(st.sampled_from([-1, num_samples, 2**63 - 1, -(2**63)]))
  with pytest.raises(IndexError, match=f"row {outside} was asked for"):
    _kernels.plan_samples(
      token_file(corpus),
      np.array([outside]),
      5,
      np.array(document_index, dtype),
      sample_index,
      shuffle_index,
      seq_length,
      extra,
    )


def test_rows_of_a_real_pair_hold_its_tokens(tmp_path):
  documents = random_documents(
    random.Random(7), num_documents=60, vocab_size=1000
  )
  reader = IndexedReader(write_pair(tmp_path / "pair", documents))
  random_state = np.random.RandomState(11)
  document_index = np.tile(np.arange(len(reader), dtype=np.int32), 3)
  random_state.shuffle(document_index)
  tokens = np.concatenate([reader[int(d)] for d in document_index])
  num_samples = (len(tokens) - 1) // 16
  sample_index = _kernels.sample_index(
    reader.lengths, document_index, 16, 1, num_samples
  )
  shuffle_index = np.arange(num_samples, dtype=np.uint32)
  random_state.shuffle(shuffle_index)
  arrays = {
    "document_index": document_index,
    "sample_index": sample_index,
    "shuffle_index": shuffle_index,
  }
  for name, array in arrays.items():
    np.save(tmp_path / f"{name}.npy", array)
    arrays[name] = np.load(tmp_path / f"{name}.npy", mmap_mode="r")
  plan = _kernels.plan_samples(
    reader.token_file(),
    np.arange(num_samples),
    0,
    *arrays.values(),
    16,
    1,
  )
  out = np.full((num_samples, 17), -1, np.int32)
  bad = _kernels.gather(
    *plan[:5],
    np.zeros(1, np.int32),
    [reader.token_file()],
    0,
    17,
    0,
    1000,
    out,
  )
  assert bad == (-1, -1, 0)
  expected = [tokens[16 * j : 16 * j + 17] for j in shuffle_index]
  assert out.tolist() == np.stack(expected).tolist()


# Lengths 3, 0, 2, 4; documents of one sequence, but sequences 2 and 3 are one.
CORPUS = twins.Corpus(
  [[1, 2, 3], [], [4, 5], [6, 7, 8, 9]], [0, 1, 2, 4], dtype_code=8
)


def small(**changes):
  """Two samples of 3 + 1 tokens over sequences 2, 3, 1, 0."""
  arguments = {
    "file": token_file(CORPUS),
    "rows": np.array([0, 1]),
    "source": 0,
    "document_index": np.array([2, 3, 1, 0], np.int32),
    "sample_index": np.array([[0, 0], [1, 1], [3, 0]], np.int32),
    "shuffle_index": np.array([1, 0], np.uint32),
    "seq_length": 3,
    "extra": 1,
  }
  return _kernels.plan_samples(**{**arguments, **changes})


def test_a_few_samples():
  splits, source, sequence, offset, length, boundary = small()
  assert splits.tolist() == [0, 2, 4]
  assert source.tolist() == [0, 0, 0, 0]
  assert sequence.tolist() == [3, 0, 2, 3]
  assert offset.tolist() == [1, 0, 0, 0]
  assert length.tolist() == [3, 1, 2, 2]
  # Sequence 3 goes on with the document of sequence 2, right after it.
  assert boundary.tolist() == [True, True, True, False]


def test_megatrons_end_in_an_empty_document_reads_the_same():
  # The short end before an empty last document, as Megatron writes it.
  _, _, sequence, _, length, _ = small(
    document_index=np.array([2, 3, 1], np.int32),
    sample_index=np.array([[0, 0], [1, 1], [2, -1]], np.int32),
  )
  assert sequence.tolist() == [3, 2, 3]
  assert length.tolist() == [3, 2, 2]


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"rows": np.array([0, 2])}, "row 2 was asked for; the index has 2 rows"),
    ({"rows": np.array([-1])}, "row -1 was asked for"),
    (
      {
        "rows": np.array([0]),
        "sample_index": np.zeros((1, 2), np.int32),
        "shuffle_index": None,
      },
      "row 0 was asked for; the index has 0",
    ),
  ],
)
def test_rows_outside_are_refused(change, message):
  with pytest.raises(IndexError, match=message):
    small(**change)


def _samples(*entries):
  return np.array(entries, np.int64)


@pytest.mark.parametrize(
  ("change", "message"),
  [
    (
      {"shuffle_index": np.array([1, 2], np.uint32)},
      "row 1 is sample 2, of which there are 2",
    ),
    ({"shuffle_index": np.array([-1, 0])}, "row 0 is sample -1, of which"),
    (
      {"document_index": np.array([2, 4, 1, 0])},
      "place 1 of document_index is sequence 4, of which the file has 4",
    ),
    (
      {"document_index": np.array([-(2**63), 3, 1, 0])},
      "is sequence -9223372036854775808, of which the file has 4",
    ),
    (
      {"sample_index": _samples([0, 0], [1, 1], [4, 0])},
      "which lies from place 1 to 4 of document_index, which holds 4",
    ),
    (
      {"sample_index": _samples([0, 0], [1, 1], [0, 0])},
      "which lies from place 1 to 0 of",
    ),
    ({"sample_index": _samples([-1, 0], [1, 1], [3, 0])}, "from place -1 to"),
    (
      {"sample_index": _samples([0, 0], [1, 5], [3, 0])},
      "reads sequence 3 of 4 tokens from 5 to its end",
    ),
    (
      {"sample_index": _samples([0, -1], [1, 1], [3, 0])},
      "reads sequence 2 of 2 tokens from -1 to its end",
    ),
    (
      {"sample_index": _samples([0, 0], [1, 1], [3, 3])},
      "reads sequence 0 of 3 tokens from 0 to 3 [+] 1",
    ),
    (
      {"sample_index": _samples([0, 0], [1, 1], [3, 2**63 - 1])},
      "from 0 to 9223372036854775807 [+] 1",
    ),
    (
      {"sample_index": _samples([0, 0], [1, 1], [3, -(2**63)])},
      "from 0 to -9223372036854775808 [+] 1",
    ),
    (
      {"sample_index": _samples([0, 0], [1, 1], [3, 1])},
      "sample 1, which has 5 or more tokens, not 3 [+] 1",
    ),
    # Only the last sample may be short, and it has a token to predict.
    (
      {
        "rows": np.array([1]),
        "sample_index": _samples([0, 0], [1, 0], [3, 0]),
      },
      "row 1 is sample 0, which has 3 tokens, not 3 [+] 1",
    ),
    (
      {"sample_index": _samples([0, 0], [1, 1], [1, 1])},
      "row 0 is sample 1, which has 1 tokens, not 3 [+] 1",
    ),
  ],
)
def test_an_index_of_another_corpus_is_refused(change, message):
  with pytest.raises(
    ValueError, match=f"the index does not fit the corpus: .*{message}"
  ):
    small(**change)


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"file": None}, "file is None"),
    ({"rows": np.zeros((1, 1), np.int64)}, "rows must have one dimension"),
    ({"seq_length": 0}, "a row of 0 [+] 1 tokens; seq_length must be at least"),
    ({"seq_length": 2**31 - 1}, "the row below 2[*]{2}31"),
    ({"extra": 2}, "extra 0 or 1"),
    ({"extra": -1}, "extra 0 or 1"),
    (
      {"shuffle_index": np.zeros(3, np.uint32)},
      "shuffle_index holds 3 rows, sample_index 2 samples",
    ),
    ({"shuffle_index": np.zeros(0, np.uint32)}, "shuffle_index holds 0 rows"),
    ({"shuffle_index": np.zeros(2, np.int32)}, "shuffle_index .* got int32"),
    ({"sample_index": np.zeros((0, 2), np.int32)}, "one entry or more, got no"),
    ({"sample_index": np.zeros((3, 3), np.int32)}, "got 3 columns"),
    ({"sample_index": np.zeros(6, np.int32)}, "with 2 dimensions, got int32"),
    (
      {"sample_index": np.zeros((3, 2), np.int32, order="F")},
      "sample_index must be a C-contiguous array",
    ),
    ({"document_index": np.zeros(4, np.uint32)}, "document_index .* uint32"),
  ],
)
def test_arguments_that_are_no_index_are_refused(change, message):
  with pytest.raises(ValueError, match=message):
    small(**change)


def test_a_negative_length_in_the_file_is_refused():
  lengths = CORPUS.lengths
  lengths[2] = -1
  with pytest.raises(ValueError, match="reads sequence 2 of -1 tokens"):
    small(file=token_file(CORPUS, lengths=lengths))


@given(
  st.sampled_from(["document_index", "sample_index", "shuffle_index"]),
  st.lists(
    st.tuples(
      st.integers(0, 5),
      st.sampled_from([-(2**63), -1, 0, 1, 2**31 - 1, 2**40, 2**63 - 1])
      | st.integers(-3, 6),
    ),
    min_size=1,
    max_size=4,
  ),
)
def test_a_damaged_index_never_crashes(name, changes):
  array = {
    "document_index": np.array([2, 3, 1, 0]),
    "sample_index": _samples([0, 0], [1, 1], [3, 0]),
    "shuffle_index": np.array([1, 0]),
  }[name]
  for place, value in changes:
    array.flat[place % array.size] = value
  try:
    splits, _, sequence, offset, length, _ = small(**{name: array})
  except ValueError:
    return
  # What passes the checks lies inside the file.
  assert splits[-1] == len(sequence)
  assert (offset >= 0).all()
  assert (length > 0).all()
  assert (offset + length <= CORPUS.lengths[sequence]).all()
  assert set(np.add.reduceat(length, splits[:-1])) <= {2, 3, 4}
