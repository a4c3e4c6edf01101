import itertools
from pathlib import Path

import jax
import numpy as np
import pytest

from hpgrain import attention, records
from hpgrain.fields import FieldOptions, make_fields
from hpgrain.ltor import LtorOptions, add_ltor_fields, ltor_fields

_FLAGS = ("reset_position_ids", "reset_attention_mask", "eod_mask_loss")
_ALL_FLAGS = [*itertools.product([False, True], repeat=3)]
_IGNORE = records.IGNORE_INDEX


@pytest.fixture(scope="module")
def golden():
  with np.load(Path(__file__).parent / "data/megatron.npz") as arrays:
    names = [n for n in arrays.files if n.startswith(("masks/", "items/"))]
    return {name: arrays[name] for name in names}


def _slow(tokens, labels, *, eod, num_tokens, flags):
  """Megatron's fields of a row, one end of a document after another."""
  reset_positions, reset_mask, mask_loss = flags
  length = len(tokens)
  masked = [[k > q for k in range(length)] for q in range(length)]
  loss = [float(label != _IGNORE) for label in labels]
  positions = [*range(length)]
  for end in range(num_tokens):
    if tokens[end] != eod:
      continue
    if mask_loss:
      loss[end] = 0.0
    for t in range(end + 1, length):
      if reset_mask:
        masked[t][: end + 1] = [True] * (end + 1)
      if reset_positions:
        positions[t] = t - end - 1
  return [masked], loss, positions


def _as_lists(fields):
  names = ("attention_mask", "loss_mask", "position_ids")
  assert [*fields] == [*names]
  return tuple(fields[name].tolist() for name in names)


def _cases(golden, prefix):
  return sorted(
    {name.rsplit("/", 1)[0] for name in golden if name.startswith(prefix)}
  )


def test_masks_are_megatrons(golden):
  cases = _cases(golden, "masks/")
  seen = set()
  for case in cases:
    number = int(case.rsplit("_", 1)[1])
    flags = {flag: bool(number >> i & 1) for i, flag in enumerate(_FLAGS)}
    seen.add(number)
    tokens = golden[f"{case}/tokens"]
    fields = ltor_fields(tokens, np.roll(tokens, -1), eod_id=0, **flags)
    for name, expected in (
      ("attention_mask", golden[f"{case}/attention"]),
      ("loss_mask", golden[f"{case}/loss"]),
      ("position_ids", golden[f"{case}/position"]),
    ):
      assert fields[name].shape == expected.shape
      assert (fields[name] == expected).all(), (case, name)
  assert seen == set(range(8)) and len(cases) >= 32


def test_items_are_megatrons(golden):
  cases = _cases(golden, "items/")
  for case in cases:
    words = case.split("/")[1].split("_")
    flags = {flag: word[2] == "1" for flag, word in zip(_FLAGS, words)}
    tokens, labels = golden[f"{case}/tokens"], golden[f"{case}/labels"]
    fields = ltor_fields(tokens, labels, eod_id=0, **flags)
    expected = {
      name: golden[f"{case}/{name}"]
      for name in ("loss_mask", "position_ids", "attention_mask")
    }
    if case.endswith("/None"):
      # What fills up a batch is row 0 without loss.
      first = case.replace("/None", "/0")
      assert (tokens == golden[f"{first}/tokens"]).all()
      assert not expected.pop("loss_mask").any()
    mask = np.packbits(fields["attention_mask"])
    assert (mask == expected.pop("attention_mask")).all(), case
    for name, array in expected.items():
      assert (fields[name] == array).all(), (case, name)
  assert len(cases) >= 42


@pytest.mark.parametrize("flags", _ALL_FLAGS)
def test_fields_have_their_dtypes_and_shapes(flags):
  fields = ltor_fields(
    np.array([4, 0, 5], np.int32),
    np.array([0, 5, 6], np.int32),
    eod_id=0,
    **dict(zip(_FLAGS, flags)),
  )
  mask, loss, positions = fields.values()
  assert mask.dtype == bool and mask.shape == (1, 3, 3)
  assert loss.dtype == np.float32 and loss.shape == (3,)
  assert positions.dtype == np.int32 and positions.shape == (3,)


def test_a_row_written_out():
  tokens = np.array([4, 5, 0, 6, 0, 7], np.int32)
  labels = np.array([5, 0, 6, 0, 7, 8], np.int32)
  fields = ltor_fields(tokens, labels, eod_id=0, **dict.fromkeys(_FLAGS, True))
  assert fields["position_ids"].tolist() == [0, 1, 2, 0, 1, 0]
  assert fields["loss_mask"].tolist() == [1, 1, 0, 1, 0, 1]
  assert fields["attention_mask"][0].astype(int).tolist() == [
    [0, 1, 1, 1, 1, 1],
    [0, 0, 1, 1, 1, 1],
    [0, 0, 0, 1, 1, 1],
    [1, 1, 1, 0, 1, 1],
    [1, 1, 1, 0, 0, 1],
    [1, 1, 1, 1, 1, 0],
  ]


@pytest.mark.parametrize("flags", _ALL_FLAGS)
def test_padding_that_looks_like_an_end_is_none(flags):
  # Id 0 ends a document and pads a row. Three tokens, then padding; and two
  # tokens without a label behind them, of which the second has none.
  for tokens, labels, num_tokens in (
    ([4, 0, 5, 0, 0], [0, 5, _IGNORE, _IGNORE, _IGNORE], 3),
    ([4, 5, 0, 0, 0], [5, 0, _IGNORE, _IGNORE, _IGNORE], 3),
    ([0, 0, 0, 0, 0], [_IGNORE] * 5, 1),
    ([0, 4, 0, 5, 0], [4, 0, 5, 0, _IGNORE], 5),
  ):
    fields = ltor_fields(
      np.array(tokens), np.array(labels), eod_id=0, **dict(zip(_FLAGS, flags))
    )
    assert _as_lists(fields) == _slow(
      tokens, labels, eod=0, num_tokens=num_tokens, flags=flags
    )


@pytest.mark.parametrize("flags", _ALL_FLAGS)
def test_a_batchs_masks_are_the_rows(flags):
  rng = np.random.default_rng(0)
  options = FieldOptions(
    eod_id=0, mask_boundary_labels=False, **dict(zip(_FLAGS, flags))
  )
  text = rng.integers(0, 4, (12, 10), dtype=np.int32)
  # Rows of 1 to 10 tokens. A short row's last token is no end: of that one
  # Megatron's padding would see nothing, see the next test.
  lengths = np.array([*range(1, 10), 10, 10, 10])
  for row, length in enumerate(lengths):
    if length < 10:
      text[row, length - 1] = 3
    text[row, length:] = records.PAD_ID
  starts = [
    [0, *(t + 1 for t in range(length - 1) if text[row, t] == 0)]
    for row, length in enumerate(lengths)
  ]
  fields = make_fields(
    text,
    records.Segments(
      np.cumsum([0, *map(len, starts)]), np.concatenate(starts), lengths
    ),
    window=(0, 9),
    seq_length=9,
    num_rows=12,
    options=options,
  )
  masks = jax.jit(attention.ltor_attention_mask)(fields["segment_ids"])
  assert masks.shape == (12, 1, 9, 9) and masks.dtype == bool
  for row, length in enumerate(lengths):
    labels = np.where(np.arange(9) < length - 1, text[row, 1:], _IGNORE)
    expected = ltor_fields(
      text[row, :-1], labels, eod_id=0, **dict(zip(_FLAGS, flags))
    )
    assert (masks[row] == expected["attention_mask"]).all(), row
    # The other two are what a batch has anyway.
    assert (fields["loss_mask"][row] == expected["loss_mask"]).all(), row
    real = slice(min(length, 9))
    found = fields["position_ids"][row, real]
    assert (found == expected["position_ids"][real]).all(), row


def test_a_row_of_padding_has_the_causal_mask():
  masks = attention.ltor_attention_mask(np.zeros((2, 4), np.int32))
  assert (masks == ~np.tril(np.ones((4, 4), bool))).all()


def test_padding_sees_the_last_document():
  masks = attention.ltor_attention_mask(np.array([[1, 2, 2, 0, 0]], np.int32))
  assert masks[0, 0].astype(int).tolist() == [
    [0, 1, 1, 1, 1],
    [1, 0, 1, 1, 1],
    [1, 0, 0, 1, 1],
    [1, 0, 0, 0, 1],
    [1, 0, 0, 0, 0],
  ]


def test_no_switch_needs_no_id():
  off = dict.fromkeys(_FLAGS, False)
  tokens, labels = np.array([0, 0]), np.array([0, _IGNORE])
  fields = ltor_fields(tokens, labels, eod_id=None, **off)
  assert _as_lists(fields) == (
    [[[False, True], [False, False]]],
    [1, 0],
    [0, 1],
  )
  for flag in _FLAGS:
    with pytest.raises(ValueError, match=f"{flag} needs the end-of-document"):
      ltor_fields(tokens, labels, eod_id=None, **{**off, flag: True})


def test_fields_are_added_to_a_row():
  row = {"tokens": np.array([3, 0, 4]), "labels": np.array([0, 4, 5])}
  options = LtorOptions(
    eod_id=0,
    reset_position_ids=True,
    reset_attention_mask=False,
    eod_mask_loss=True,
  )
  added = add_ltor_fields({**row, "dataset_id": 1}, options)
  assert [*added] == [
    "tokens",
    "labels",
    "dataset_id",
    "attention_mask",
    "loss_mask",
    "position_ids",
  ]
  assert added["tokens"] is row["tokens"]
  assert added["position_ids"].tolist() == [0, 1, 0]
  assert added["loss_mask"].tolist() == [1, 0, 1]
  assert not added["attention_mask"][0, 2].any()


def test_other_shapes_are_refused():
  off = dict.fromkeys(_FLAGS, False)
  for tokens, labels in (([1, 2], [1]), ([[1, 2]], [[1, 2]])):
    with pytest.raises(ValueError, match="the labels of one row"):
      ltor_fields(np.array(tokens), np.array(labels), eod_id=0, **off)
