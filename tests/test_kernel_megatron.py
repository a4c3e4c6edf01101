"""Megatron's indices from the C++ kernels: golden ones, and against a twin."""

import json
from pathlib import Path

import megatron_twins as slow
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_files import kernel_shuffle

from hpgrain import _kernels

DATA = Path(__file__).parent / "data"
CASES = json.loads((DATA / "megatron.json").read_text())
ARRAYS = np.load(DATA / "megatron.npz")


def samples_of(lengths, document_index, *, seq_length, extra, num_samples):
  return _kernels.sample_index(
    lengths, document_index, seq_length, extra, num_samples
  )


# Which options the cases had is in their names.
def gpt_options(name):
  case = CASES["gpt"][name]
  return {
    "seq_length": case["config"]["sequence_length"],
    "extra": int("noextra" not in name),
    "drop_last": not ("keeplast" in name and name.endswith("valid")),
  }


@pytest.mark.parametrize("name", CASES["gpt"])
def test_golden_indices_come_out_bit_for_bit(name):
  case = CASES["gpt"][name]
  config = case["config"]
  kinds = ("document_index", "sample_index", "shuffle_index", "indices")
  golden = {kind: ARRAYS[f"{name}/{kind}"] for kind in kinds}
  lengths = ARRAYS[f"indexed/{config['dataset_path']}/lengths"]
  tokens = int(lengths[golden["indices"]].sum())
  assert tokens == case["tokens_per_epoch"]
  options = gpt_options(name)
  epochs, before, rows = slow.index_numbers(
    config["num_samples"], tokens=tokens, **options
  )
  assert (epochs, rows) == (case["num_epochs"], case["length"])
  documents, shuffled = slow.shuffled_indices(
    golden["indices"],
    epochs=epochs,
    before=before,
    rows=rows,
    seed=config["random_seed"],
    shuffle=kernel_shuffle,
  )
  samples = samples_of(
    lengths,
    golden["document_index"],
    seq_length=options["seq_length"],
    extra=options["extra"],
    num_samples=rows,
  )
  got = {
    "document_index": documents,
    "sample_index": samples,
    "shuffle_index": shuffled,
  }
  for kind, array in got.items():
    assert array.dtype == golden[kind].dtype, kind
    assert array.tolist() == golden[kind].tolist(), kind


@pytest.mark.parametrize("name", [n for n in CASES["raw"] if "sample" in n])
def test_golden_sample_indices_come_out_bit_for_bit(name):
  case = CASES["raw"][name]
  extra = int(name.endswith("_e1"))
  num_samples = slow.num_samples(
    case["epochs"] * case["tokens_per_epoch"],
    seq_length=case["seq"],
    extra=extra,
    drop_last="_d1_" in name,
  )
  got = samples_of(
    ARRAYS[f"{name}/sizes"],
    ARRAYS[f"{name}/doc"],
    seq_length=case["seq"],
    extra=extra,
    num_samples=num_samples,
  )
  golden = ARRAYS[f"{name}/out"]
  assert got.dtype == golden.dtype
  assert got.tolist() == golden.tolist()


@st.composite
def _documents(draw, largest):
  lengths = draw(st.lists(st.integers(0, largest), min_size=1, max_size=12))
  if draw(st.booleans()):
    lengths = [0, *lengths, 0, 0]
  document_index = draw(
    st.permutations(range(len(lengths)))
    | st.lists(st.integers(0, len(lengths) - 1), max_size=40)
  )
  return lengths, document_index


def _lay_as_in_a_file(values, dtype):
  """An array at an odd address."""
  array = np.array(values, dtype)
  return np.frombuffer(b"." + array.tobytes(), dtype, len(array), 1)


@given(
  _documents(9),
  st.integers(1, 12),
  st.sampled_from([0, 1]),
  st.booleans(),
  st.tuples(*[st.sampled_from([np.int32, np.int64])] * 2),
)
def test_a_sample_index_equals_the_twins(
  documents, seq_length, extra, drop_last, dtypes
):
  lengths, document_index = documents
  length_type, id_type = dtypes
  options = {"seq_length": seq_length, "extra": extra}
  total = sum(lengths[d] for d in document_index)
  rows = slow.num_samples(total, drop_last=drop_last, **options)
  got = samples_of(
    _lay_as_in_a_file(lengths, length_type),
    _lay_as_in_a_file(document_index, id_type),
    num_samples=rows,
    **options,
  )
  assert got.dtype == np.int32
  assert got.tolist() == slow.sample_index(
    lengths, document_index, num_samples=rows, **options
  )
  # One more than the tokens last for, kept or dropped.
  too_many = slow.num_samples(total, drop_last=False, **options) + 1
  with pytest.raises(ValueError, match=f"{too_many} samples of {seq_length}"):
    samples_of(
      np.array(lengths, np.int32),
      np.array(document_index, np.int32),
      num_samples=too_many,
      **options,
    )


@given(
  _documents(2**40),
  st.integers(2**28, 2**31 - 2),
  st.booleans(),
  st.booleans(),
)
def test_lengths_beyond_int32_make_an_int64_index(
  documents, seq_length, has_extra, drop_last
):
  lengths, document_index = documents
  lengths[0] = 2**31 + 5
  options = {"seq_length": seq_length, "extra": int(has_extra)}
  total = sum(lengths[d] for d in document_index)
  rows = slow.num_samples(total, drop_last=drop_last, **options)
  got = samples_of(
    np.array(lengths),
    np.array(document_index, np.int32),
    num_samples=rows,
    **options,
  )
  assert got.dtype == np.int64
  assert got.tolist() == slow.sample_index(
    lengths, document_index, num_samples=rows, **options
  )


def test_a_sample_index_of_a_few_documents():
  lengths = np.array([5, 3, 4, 6], np.int32)
  document_index = np.array([2, 0, 3, 1], np.int32)
  whole = [[0, 0], [1, 0], [1, 4], [2, 3], [3, 1]]

  def made(documents, extra, num_samples):
    return samples_of(
      lengths, documents, seq_length=4, extra=extra, num_samples=num_samples
    ).tolist()

  assert made(document_index, 1, 4) == whole
  assert made(document_index, 1, 5) == [*whole, [3, 2]]
  assert made(document_index, 0, 4) == [[0, 0], [0, 4], [1, 4], [2, 3], [3, 1]]
  assert made(document_index, 1, 0) == [[0, 0]]
  assert made(document_index[:0], 0, 0) == [[0, 0]]


def test_a_short_end_lies_in_the_last_document_with_tokens():
  got = samples_of(
    np.array([3, 0, 2], np.int32),
    np.array([1, 0, 2, 1, 1], np.int32),
    seq_length=3,
    extra=1,
    num_samples=2,
  )
  assert got.tolist() == [[0, 0], [2, 0], [2, 1]]


@pytest.mark.parametrize(
  ("change", "message"),
  [
    (
      {"document_index": np.array([0, 4, 1], np.int32)},
      r"document_index\[1\] is 4, but there are 4 lengths",
    ),
    (
      {"document_index": np.array([0, 1, -1])},
      r"document_index\[2\] is -1, but there are 4 lengths",
    ),
    (
      {"lengths": np.array([5, 3, -4, 6], np.int32)},
      r"lengths\[2\] is -4 \(document_index\[0\]\)",
    ),
    (
      {"lengths": np.array([5, 3, -(2**63), 2**63 - 1])},
      r"lengths\[2\] is -9223372036854775808",
    ),
    ({"num_samples": 6}, "4 documents hold 18 tokens, .* sample 4 of 6 samp"),
    ({"num_samples": 2**40}, "1099511627776 samples .* more than 4 documents"),
    ({"num_samples": 2**63 - 1}, "samples of 4 [+] 1 tokens are more than"),
    ({"num_samples": -1}, "num_samples is -1"),
    ({"seq_length": 0}, "a sample of 0 [+] 1 tokens; seq_length must be at"),
    ({"seq_length": 2**31 - 1}, "the sample below 2[*]{2}31"),
    ({"extra": 2}, "extra 0 or 1"),
    ({"extra": -1}, "extra 0 or 1"),
    ({"lengths": np.zeros(4, np.uint16)}, "lengths must be .* got uint16"),
    ({"lengths": np.arange(8)[::2]}, "lengths must be a C-contiguous array"),
    (
      {"document_index": np.zeros((2, 2), np.int32)},
      "document_index must be .* with 1 dimension, got int32 with 2",
    ),
    (
      {"document_index": np.zeros(4, ">i4")},
      "document_index must be .* got >i4",
    ),
  ],
)
def test_a_sample_index_refuses_what_no_walk_has(change, message):
  arguments = {
    "lengths": np.array([5, 3, 4, 6], np.int32),
    "document_index": np.array([2, 0, 3, 1], np.int32),
    "seq_length": 4,
    "extra": 1,
    "num_samples": 4,
  }
  with pytest.raises(ValueError, match=message):
    _kernels.sample_index(**{**arguments, **change})
