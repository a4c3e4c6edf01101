"""The batch fields in C++ against a loop over positions."""

import itertools

import numpy as np
import pytest
import twins
from hypothesis import given
from hypothesis import strategies as st

from hpgrain import _kernels

NAMES = ("input_ids", "labels", "position_ids", "segment_ids", "loss_mask")


def _outputs(rows, width):
  out = {name: np.full((rows, width), -7, np.int32) for name in NAMES}
  out["loss_mask"] = np.full((rows, width), -7, np.float32)
  return out


def make(rows, *, window, seq_length, width=None, extra_rows=0, **options):
  """Fields of rows (tokens, starts), by the kernel."""
  begin, end = window
  options = {
    "shifted": True,
    "mask_boundary": True,
    "eod_id": -1,
    "reset_position": False,
    "reset_attention": True,
    **options,
  }
  width = end - begin + 1 if width is None else width
  tokens = np.full((len(rows), width), 77, np.int32)
  for r, (text, _) in enumerate(rows):
    part = text[begin : begin + width]
    tokens[r, : len(part)] = part
  out = _outputs(len(rows) + extra_rows, end - begin)
  starts = [start for _, row_starts in rows for start in row_starts]
  _kernels.make_fields(
    tokens,
    begin,
    end,
    seq_length,
    np.cumsum([0] + [len(s) for _, s in rows], dtype=np.int64),
    np.array(starts, np.int64),
    np.array([len(text) for text, _ in rows], np.int64),
    *options.values(),
    *out.values(),
  )
  return out, options


@st.composite
def segmented_rows(draw, longest):
  length = draw(st.integers(0, longest))
  text = draw(st.lists(st.integers(0, 5), min_size=length, max_size=length))
  starts = draw(st.sets(st.integers(0, max(length - 1, 0)), max_size=6))
  return text, sorted({0, *starts}) if length else []


@given(
  st.integers(1, 9),
  st.sampled_from([0, 1]),
  st.data(),
)
def test_fields_equal_their_twin(seq_length, extra, data):
  end = data.draw(st.integers(0, seq_length))
  begin = data.draw(st.integers(0, end))
  row = segmented_rows(seq_length + extra)
  rows = data.draw(st.lists(row, max_size=4))
  flags = data.draw(st.tuples(*[st.booleans()] * 4))
  names = ("shifted", "mask_boundary", "reset_position", "reset_attention")
  chosen = dict(zip(names, flags, strict=True))
  width = end - begin + 1
  if not chosen["shifted"] or (not extra and end == seq_length):
    width -= data.draw(st.integers(0, 1))
  out, options = make(
    rows,
    window=(begin, end),
    seq_length=seq_length,
    width=width,
    **{**chosen, "eod_id": data.draw(st.sampled_from([-1, 0, 3]))},
  )
  expected = [
    twins.fields(
      text, starts, window=(begin, end), seq_length=seq_length, **options
    )
    for text, starts in rows
  ]
  for name in NAMES:
    assert out[name].tolist() == [row[name] for row in expected], name


def test_windows_put_together_are_the_row():
  row = ([1, 2, 3, 4, 5, 6, 7, 8, 9], [0, 3, 4, 8])
  for flags in itertools.product([False, True], repeat=3):
    options = dict(
      zip(
        ("mask_boundary", "reset_position", "reset_attention"),
        flags,
        strict=True,
      )
    )
    whole, _ = make([row], window=(0, 8), seq_length=8, **options)
    parts = [
      make([row], window=(i, i + 2), seq_length=8, **options)[0]
      for i in range(0, 8, 2)
    ]
    for name in NAMES:
      joined = np.concatenate([part[name] for part in parts], axis=1)
      assert joined.tolist() == whole[name].tolist()


def test_fields_of_two_documents():
  out, _ = make(
    [([10, 11, 12, 13, 14], [0, 3])],
    window=(0, 4),
    seq_length=4,
    reset_position=True,
    eod_id=11,
  )
  assert out["input_ids"].tolist() == [[10, 11, 12, 13]]
  assert out["labels"].tolist() == [[11, 12, -100, 14]]
  assert out["position_ids"].tolist() == [[0, 1, 2, 0]]
  assert out["segment_ids"].tolist() == [[1, 1, 1, 2]]
  assert out["loss_mask"].tolist() == [[1.0, 0.0, 0.0, 1.0]]


def test_a_document_that_begins_with_the_extra_token_masks_the_last_label():
  out, _ = make([([1, 2, 3], [0, 2])], window=(0, 2), seq_length=2)
  assert out["labels"].tolist() == [[2, -100]]
  assert out["segment_ids"].tolist() == [[1, 1]]


def test_padding_has_no_segment_and_no_loss():
  out, _ = make(
    [([5, 6], [0])], window=(0, 5), seq_length=5, reset_position=True
  )
  assert out["input_ids"].tolist() == [[5, 6, 0, 0, 0]]
  assert out["labels"].tolist() == [[6, -100, -100, -100, -100]]
  assert out["position_ids"].tolist() == [[0, 1, 0, 1, 2]]
  assert out["segment_ids"].tolist() == [[1, 1, 0, 0, 0]]
  assert out["loss_mask"].tolist() == [[1, 0, 0, 0, 0]]


def test_rows_past_the_tokens_are_left_alone():
  out, _ = make([([5, 6], [0])], window=(0, 1), seq_length=1, extra_rows=1)
  for name in NAMES:
    assert out[name][1].tolist() == [-7]


GOOD = {
  "tokens": np.array([[1, 2, 3]], np.int32),
  "begin": 0,
  "end": 2,
  "seq_length": 2,
  "row_splits": np.array([0, 1]),
  "starts": np.array([0]),
  "lengths": np.array([3]),
  "labels_are_shifted": True,
  "mask_boundary_labels": True,
  "eod_id": -1,
  "reset_position_ids": False,
  "reset_attention_mask": True,
}


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"tokens": np.zeros((1, 4), np.int32)}, "tokens have 4 columns"),
    ({"tokens": np.zeros((1, 1), np.int32)}, "takes 2 or 3"),
    ({"tokens": np.zeros(3, np.int32)}, "tokens must have two dimensions"),
    ({"tokens": np.zeros((1, 2), np.int32)}, "has a token at position 2"),
    ({"begin": -1}, r"the window \[-1, 2\)"),
    ({"begin": -(2**63)}, "no range of positions"),
    ({"begin": 3}, r"the window \[3, 2\)"),
    ({"end": 2**63 - 1}, "of 9223372036854775807 columns"),
    ({"seq_length": -1}, "rows of -1 positions"),
    ({"row_splits": np.array([0, 2])}, "segments must describe the 1 rows"),
    ({"row_splits": np.array([0, 0])}, "row_splits from 0 to 1"),
    ({"row_splits": np.zeros(0, np.int64)}, "got 0 row_splits"),
    ({"lengths": np.array([3, 3])}, "and 2 lengths"),
    ({"lengths": np.array([-1])}, "row 0 has -1 tokens"),
    ({"starts": np.array([1])}, "the first must begin at position 0"),
    (
      {"starts": np.array([0, 2, 2]), "row_splits": np.array([0, 3])},
      "must rise; 2 comes before 2",
    ),
    ({"labels": np.zeros((0, 2), np.int32)}, "labels must be a writeable"),
    ({"labels": np.zeros((1, 3), np.int32)}, "1 rows or more of 2 columns"),
    ({"loss_mask": np.zeros((1, 2), np.float64)}, "array of float32"),
  ],
)
def test_fields_refuse_what_does_not_fit(change, message):
  with pytest.raises(ValueError, match=message):
    _kernels.make_fields(**{**GOOD, **_outputs(1, 2), **change})


def test_fields_refuse_row_splits_that_fall():
  arrays = {
    "tokens": np.zeros((3, 3), np.int32),
    "row_splits": np.array([0, 9, 0, 1]),
    "lengths": np.array([1, 1, 1]),
  }
  with pytest.raises(ValueError, match="row_splits must not fall; row 0"):
    _kernels.make_fields(**{**GOOD, **_outputs(3, 2), **arrays})
