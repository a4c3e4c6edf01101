import itertools

import numpy as np
import pytest
import twins

from hpgrain.fields import FieldOptions, make_fields, make_padding
from hpgrain.records import BATCH_DTYPES, Segments

_X = -100


def _make(
  rows,
  starts,
  *,
  seq_length,
  extra=1,
  window=None,
  num_rows=None,
  **options,
):
  """Fields of rows written as lists, short ones padded as they are read."""
  window = window or (0, seq_length)
  end = min(window[1] + 1, seq_length + extra)
  tokens = np.zeros((len(rows), end - window[0]), np.int32)
  for i, row in enumerate(rows):
    part = row[window[0] : end]
    tokens[i, : len(part)] = part
  segments = Segments(
    row_splits=np.cumsum([0] + [len(s) for s in starts], dtype=np.int64),
    starts=np.array([t for s in starts for t in s], np.int64),
    lengths=np.array([len(row) for row in rows], np.int64),
  )
  fields = make_fields(
    tokens,
    segments,
    window=window,
    seq_length=seq_length,
    num_rows=num_rows or len(rows),
    options=FieldOptions(**options),
  )
  assert list(fields) == list(BATCH_DTYPES)
  for name, dtype in BATCH_DTYPES.items():
    assert fields[name].dtype == dtype
  return {name: values.tolist() for name, values in fields.items()}


# Documents "11 12 9", "21 22" and the beginning of "31": 9 ends one.
_ROW = [11, 12, 9, 21, 22, 31]
_STARTS = [0, 3, 5]


def test_fields_of_a_row():
  assert _make([_ROW], [_STARTS], seq_length=5) == {
    "input_ids": [[11, 12, 9, 21, 22]],
    "labels": [[12, 9, _X, 22, _X]],
    "position_ids": [[0, 1, 2, 3, 4]],
    "segment_ids": [[1, 1, 1, 2, 2]],
    "loss_mask": [[1, 1, 0, 1, 0]],
  }


@pytest.mark.parametrize(
  "options, changed",
  [
    (
      {"mask_boundary_labels": False},
      {"labels": [[12, 9, 21, 22, 31]], "loss_mask": [[1, 1, 1, 1, 1]]},
    ),
    (
      {"eod_mask_loss": True, "eod_id": 9, "mask_boundary_labels": False},
      {"labels": [[12, 9, 21, 22, 31]], "loss_mask": [[1, 1, 0, 1, 1]]},
    ),
    # The label may be the end of a document; only the input counts.
    ({"eod_mask_loss": True, "eod_id": 12}, {"loss_mask": [[1, 0, 0, 1, 0]]}),
    ({"eod_id": 12}, {}),
    ({"reset_position_ids": True}, {"position_ids": [[0, 1, 2, 0, 1]]}),
    ({"reset_attention_mask": False}, {"segment_ids": [[1, 1, 1, 1, 1]]}),
    (
      {"reset_position_ids": True, "reset_attention_mask": False},
      {
        "position_ids": [[0, 1, 2, 0, 1]],
        "segment_ids": [[1, 1, 1, 1, 1]],
      },
    ),
    (
      {"labels_are_shifted": False},
      {"labels": [[11, 12, 9, 21, 22]], "loss_mask": [[1, 1, 1, 1, 1]]},
    ),
    (
      {"labels_are_shifted": False, "eod_mask_loss": True, "eod_id": 9},
      {"labels": [[11, 12, 9, 21, 22]], "loss_mask": [[1, 1, 0, 1, 1]]},
    ),
  ],
)
def test_an_option_changes_its_fields_alone(options, changed):
  expected = _make([_ROW], [_STARTS], seq_length=5) | changed
  assert _make([_ROW], [_STARTS], seq_length=5, **options) == expected


def test_without_an_extra_token_the_last_label_is_ignored():
  assert _make([[11, 12, 21]], [[0, 2]], seq_length=3, extra=0) == {
    "input_ids": [[11, 12, 21]],
    "labels": [[12, _X, _X]],
    "position_ids": [[0, 1, 2]],
    "segment_ids": [[1, 1, 2]],
    "loss_mask": [[1, 0, 0]],
  }


def test_a_short_row_is_padded():
  assert _make([[11, 12, 21]], [[0, 2]], seq_length=5) == {
    "input_ids": [[11, 12, 21, 0, 0]],
    "labels": [[12, _X, _X, _X, _X]],
    "position_ids": [[0, 1, 2, 3, 4]],
    "segment_ids": [[1, 1, 2, 0, 0]],
    "loss_mask": [[1, 0, 0, 0, 0]],
  }
  reset = _make(
    [[11, 12, 21]],
    [[0, 2]],
    seq_length=5,
    reset_position_ids=True,
    reset_attention_mask=False,
  )
  assert reset["position_ids"] == [[0, 1, 0, 0, 1]]
  assert reset["segment_ids"] == [[1, 1, 1, 0, 0]]
  unshifted = _make(
    [[11, 12, 21]], [[0, 2]], seq_length=5, labels_are_shifted=False
  )
  assert unshifted["labels"] == [[11, 12, 21, _X, _X]]
  assert unshifted["loss_mask"] == [[1, 1, 1, 0, 0]]


def test_a_row_one_token_short_has_no_last_label():
  fields = _make([[1, 2, 3]], [[0]], seq_length=3)
  assert fields["labels"] == [[2, 3, _X]]
  assert fields["segment_ids"] == [[1, 1, 1]]


def test_a_token_of_id_0_is_no_padding():
  fields = _make([[0, 0, 0, 0]], [[0]], seq_length=3)
  assert fields["labels"] == [[0, 0, 0]]
  assert fields["loss_mask"] == [[1, 1, 1]]
  assert fields["segment_ids"] == [[1, 1, 1]]


def test_sources_are_those_of_the_rows_and_none_at_padding():
  def make(window, sources):
    fields = make_fields(
      np.array([[1, 2, 3, 4], [5, 6, 0, 0]], np.int32)[
        :, window[0] : window[1] + 1
      ],
      Segments(
        np.array([0, 2, 3]), np.array([0, 1, 0]), np.array([4, 2], np.int64)
      ),
      window=window,
      seq_length=3,
      num_rows=3,
      options=FieldOptions(source_ids=True),
      row_sources=sources,
    )
    assert list(fields) == [*BATCH_DTYPES, "source_ids"]
    assert fields["source_ids"].dtype == np.int32
    segments = fields["segment_ids"]
    assert ((segments == 0) == (fields["source_ids"] == -1)).all()
    return fields["source_ids"].tolist()

  sources = np.array([2, 0], np.int32)
  assert make((0, 3), sources) == [[2, 2, 2], [0, 0, -1], [-1, -1, -1]]
  assert make((1, 3), sources) == [[2, 2], [0, -1], [-1, -1]]
  assert make((2, 3), sources) == [[2], [-1], [-1]]
  assert make((0, 2), None) == [[0, 0], [0, 0], [-1, -1]]
  padding = make_padding((0, 2), 1, FieldOptions(source_ids=True))
  assert padding["source_ids"].tolist() == [[-1, -1]]


def test_other_fields_are_the_same_beside_the_sources():
  arguments = dict(window=(0, 3), seq_length=3, num_rows=2)
  tokens = np.array([[1, 2, 3, 4]], np.int32)
  segments = Segments(np.array([0, 2]), np.array([0, 2]), np.array([4]))
  plain, more = (
    make_fields(
      tokens, segments, options=FieldOptions(source_ids=on), **arguments
    )
    for on in (False, True)
  )
  assert list(plain) == list(BATCH_DTYPES)
  for name, values in plain.items():
    np.testing.assert_array_equal(more[name], values)
  for values in more.values():
    assert values.ctypes.data % 64 == 0


def test_rows_beyond_the_data_are_padding():
  fields = _make([[1, 2, 3, 4]], [[0]], seq_length=3, num_rows=3)
  for row in (1, 2):
    assert {name: values[row] for name, values in fields.items()} == {
      "input_ids": [0, 0, 0],
      "labels": [_X, _X, _X],
      "position_ids": [0, 1, 2],
      "segment_ids": [0, 0, 0],
      "loss_mask": [0, 0, 0],
    }
  assert fields["input_ids"][0] == [1, 2, 3]
  padding = make_padding((1, 3), 2, FieldOptions())
  assert {name: v.tolist() for name, v in padding.items()} == {
    "input_ids": [[0, 0], [0, 0]],
    "labels": [[_X, _X], [_X, _X]],
    "position_ids": [[1, 2], [1, 2]],
    "segment_ids": [[0, 0], [0, 0]],
    "loss_mask": [[0, 0], [0, 0]],
  }
  for name, dtype in BATCH_DTYPES.items():
    assert padding[name].dtype == dtype


_FLAGS = [
  dict(zip(("mask", "position", "attention"), values))
  for values in itertools.product([True, False], repeat=3)
]


@pytest.mark.parametrize("flags", _FLAGS)
@pytest.mark.parametrize("eod_mask", [True, False])
@pytest.mark.parametrize("extra", [0, 1])
def test_any_window_is_that_part_of_the_row(flags, eod_mask, extra):
  rng = np.random.default_rng(3)
  seq_length = 7
  rows, starts = [], []
  for _ in range(20):
    length = int(rng.integers(1, seq_length + extra + 1))
    rows.append(rng.integers(0, 5, length).tolist())
    later = [t for t in range(1, length) if rng.random() < 0.4]
    starts.append([0, *later])
  options = {
    "mask_boundary_labels": flags["mask"],
    "reset_position_ids": flags["position"],
    "reset_attention_mask": flags["attention"],
    "eod_mask_loss": eod_mask,
    "eod_id": 2,
  }
  for window in itertools.combinations(range(seq_length + 1), 2):
    found = _make(
      rows,
      starts,
      seq_length=seq_length,
      extra=extra,
      window=window,
      **options,
    )
    for i, (row, begins) in enumerate(zip(rows, starts)):
      expected = twins.fields(
        row,
        begins,
        window=window,
        seq_length=seq_length,
        shifted=True,
        mask_boundary=flags["mask"],
        eod_id=2 if eod_mask else -1,
        reset_position=flags["position"],
        reset_attention=flags["attention"],
      )
      assert {name: found[name][i] for name in found} == expected


def test_fields_are_fresh_arrays():
  tokens = np.array([[1, 2, 3]], np.int32)
  segments = Segments(*(np.array(a, np.int64) for a in ([0, 1], [0], [3])))
  arguments = dict(
    window=(0, 2), seq_length=2, num_rows=1, options=FieldOptions()
  )
  first = make_fields(tokens, segments, **arguments)
  second = make_fields(tokens, segments, **arguments)
  arrays = [*first.values(), *second.values(), tokens]
  for a, b in itertools.combinations(arrays, 2):
    assert not np.shares_memory(a, b)


def test_masking_the_end_of_documents_needs_its_id():
  with pytest.raises(ValueError, match=r"eod_mask_loss needs the end.*eod_id"):
    FieldOptions(eod_mask_loss=True)


def test_the_module_makes_no_array_of_positions_squared():
  # The largest mask a test could notice is made here from 64k positions.
  rows = 1
  positions = 1 << 16
  tokens = np.ones((rows, positions + 1), np.int32)
  segments = Segments(
    np.array([0, 1]), np.zeros(1, np.int64), np.array([positions + 1])
  )
  fields = make_fields(
    tokens,
    segments,
    window=(0, positions),
    seq_length=positions,
    num_rows=rows,
    options=FieldOptions(),
  )
  assert sum(field.nbytes for field in fields.values()) == 20 * positions
