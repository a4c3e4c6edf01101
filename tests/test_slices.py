"""The fields of the slots that devices hold, and what is read for them."""

import numpy as np
import pytest
import reference_layouts as reference

from hpgrain.context_layout import LAYOUTS, ContextLayout
from hpgrain.fields import FieldOptions, empty_fields, fill_padding
from hpgrain.packed_fields import PackedPlans, starts
from hpgrain.slices import Slices

NAMES = ("input_ids", "labels", "position_ids", "segment_ids", "loss_mask")


def plans_of(rows, multiple):
  """Rows of segments of such lengths."""
  row_splits = np.cumsum([0, *map(len, rows)]).astype(np.int64)
  length = np.array([x for row in rows for x in row], np.int32)
  zeros = np.zeros(len(length), np.int64)
  return PackedPlans(
    row_splits=row_splits,
    source=zeros.astype(np.int32),
    example=zeros,
    offset=zeros,
    length=length,
    start=starts(row_splits, length, multiple=multiple),
  )


class FakeRows:
  """Rows whose ids say where they stand; notes which windows are read."""

  def __init__(self, rows, *, length, multiple=1):
    self.rows, self.length, self.multiple = rows, length, multiple
    self.plans = plans_of(rows, multiple)
    self.read = []

  def fields(self, window, *, num_rows, options):
    self.read.append(window)
    fields = empty_fields(num_rows, window[1] - window[0], options.dtypes)
    fill_padding(fields, window, 0)
    for row, lengths in enumerate(self.rows):
      ids = reference.segment_ids(lengths, self.multiple, self.length)
      at = slice(*window)
      fields["segment_ids"][row] = ids[at]
      fields["input_ids"][row] = [100 * row + p for p in range(*window)]
      fields["labels"][row] = [100 * row + p + 1 for p in range(*window)]
      fields["loss_mask"][row] = [p / 2 for p in range(*window)]
    return fields


class FakePartlyReadRows(FakeRows):
  """Notes of which ranks rows are read."""

  def fields_of_ranks(
    self, context, ranks, *, num_positions, num_rows, options
  ):
    made = self.fields((0, num_positions), num_rows=num_rows, options=options)
    self.read[-1] = (context.name, sorted(ranks))
    return made


def slices_of(opened, context, windows, *, length, num_rows):
  return Slices(
    opened,
    context=context,
    num_positions=length,
    num_rows=num_rows,
    windows=windows,
    options=FieldOptions(),
  )


def cut(length, parts):
  width = length // parts
  return [(i * width, (i + 1) * width) for i in range(parts)]


@pytest.mark.parametrize(
  ("name", "ids", "segments"),
  [
    ("contiguous", [0, 1, 2, 3, 4, 5, 6, 7], [1, 1, 1, 0, 2, 2, 2, 2]),
    ("zigzag", [0, 1, 6, 7, 2, 3, 4, 5], [1, 1, 2, 2, 1, 0, 2, 2]),
    ("striped", [0, 2, 4, 6, 1, 3, 5, 7], [1, 1, 2, 2, 1, 0, 2, 2]),
    ("document_zigzag", [0, 3, 4, 7, 1, 2, 5, 6], [1, 0, 2, 2, 1, 1, 2, 2]),
  ],
)
def test_two_ranks_written_out(name, ids, segments):
  rows = FakeRows([[3, 4]], length=8, multiple=4)
  context = ContextLayout(name, 2, 4)
  windows = [(0, 4), (4, 8)]
  slices = slices_of(rows, context, windows, length=8, num_rows=2)
  parts = [slices.fields(window) for window in windows]
  made = {name: np.concatenate([p[name] for p in parts], 1) for name in NAMES}
  # A row of padding is one room.
  padding = reference.order(name, 2, 8, [8])
  assert made["input_ids"].tolist() == [ids, [0] * 8]
  assert made["labels"].tolist() == [[i + 1 for i in ids], [-100] * 8]
  assert made["position_ids"].tolist() == [ids, padding]
  assert made["segment_ids"].tolist() == [segments, [0] * 8]
  assert made["loss_mask"].tolist() == [[i / 2 for i in ids], [0.0] * 8]


@pytest.mark.parametrize("parts_a_rank", [1, 2, 3])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("name", LAYOUTS)
def test_slices_together_are_the_definition_s_row(name, ranks, parts_a_rank):
  multiple, length = 2 * ranks, 12 * ranks
  rows = [[multiple - 1, 2 * multiple], [3 * multiple], [], [length]]
  context = ContextLayout(name, ranks, multiple)
  windows = cut(length, ranks * parts_a_rank)
  opened = FakeRows(rows, length=length, multiple=multiple)
  whole = opened.fields((0, length), num_rows=5, options=FieldOptions())
  want = reference.in_slots(whole, name, ranks, multiple=multiple)
  # Of all devices, and of each by itself.
  together = slices_of(opened, context, windows, length=length, num_rows=5)
  for window in windows:
    alone = slices_of(opened, context, [window], length=length, num_rows=5)
    for slices in (together, alone):
      fields = slices.fields(window)
      assert list(fields) == list(NAMES)
      for field, values in fields.items():
        np.testing.assert_array_equal(values, want[field][:, slice(*window)])
        assert values.dtype == want[field].dtype


@pytest.mark.parametrize("name", LAYOUTS)
def test_rows_of_padding_alone(name):
  context = ContextLayout(name, 2, 4)
  slices = slices_of(None, context, [(4, 8)], length=8, num_rows=2)
  fields = slices.fields((4, 8))
  order = reference.order(name, 2, 8, [8])[4:]
  assert fields["position_ids"].tolist() == [order, order]
  assert not fields["segment_ids"].any() and not fields["loss_mask"].any()
  assert (fields["labels"] == -100).all()


@pytest.mark.parametrize("name", LAYOUTS)
def test_no_row_at_all(name):
  # A worker may have none of the rows of a batch.
  opened = FakeRows([], length=8, multiple=4)
  context = ContextLayout(name, 2, 4)
  slices = slices_of(opened, context, [(0, 4)], length=8, num_rows=0)
  assert {v.shape for v in slices.fields((0, 4)).values()} == {(0, 4)}


@pytest.mark.parametrize(
  ("name", "ranks", "windows", "read"),
  [
    # Each window as it is.
    ("contiguous", 2, [(0, 8), (8, 16)], [(0, 8), (8, 16)]),
    ("zigzag", 1, [(0, 16)], [(0, 16)]),
    # Exactly two, of a rank; the last one's are one.
    ("zigzag", 2, [(0, 8)], [(0, 4), (12, 16)]),
    ("zigzag", 2, [(8, 16)], [(4, 12)]),
    ("zigzag", 4, [(4, 8)], [(2, 4), (12, 14)]),
    # Ranks side by side have their chunks side by side.
    ("zigzag", 4, [(0, 4), (4, 8)], [(0, 4), (12, 16)]),
    ("zigzag", 2, [(0, 8), (8, 16)], [(0, 16)]),
    # Two that do not touch.
    ("zigzag", 4, [(0, 4), (8, 12)], [(0, 2), (14, 16), (4, 6), (10, 12)]),
    ("zigzag", 2, [(0, 3), (8, 12)], [(0, 3), (4, 8)]),
    # Tensor-parallel parts of a rank.
    ("zigzag", 2, [(0, 4)], [(0, 4)]),
    ("zigzag", 2, [(2, 6)], [(2, 4), (12, 14)]),
    # All between the first position and the last.
    ("striped", 2, [(0, 8)], [(0, 15)]),
    ("striped", 4, [(12, 16)], [(3, 16)]),
    ("striped", 2, [(0, 8), (8, 16)], [(0, 16)]),
    ("striped", 2, [(0, 4)], [(0, 7)]),
    ("striped", 2, [(4, 8), (12, 16)], [(8, 16)]),
    ("striped", 2, [(0, 8), (8, 10)], [(0, 15)]),
    ("document_zigzag", 2, [(0, 8)], [(0, 16)]),
  ],
)
def test_which_windows_are_read(name, ranks, windows, read):
  opened = FakeRows([[16]], length=16, multiple=8)
  context = ContextLayout(name, ranks, 8)
  slices = slices_of(opened, context, windows, length=16, num_rows=1)
  for window in windows:
    slices.fields(window)
  assert opened.read == read


def test_rows_that_can_be_read_in_part_are():
  context = ContextLayout("document_zigzag", 4, 8)

  def read(windows):
    opened = FakePartlyReadRows([[3, 8]], length=16, multiple=8)
    slices = slices_of(opened, context, windows, length=16, num_rows=1)
    for window in windows:
      slices.fields(window)
    return opened.read

  assert read([(0, 4)]) == [("document_zigzag", [0])]
  # Parts of a rank count as the rank, each once.
  assert read([(4, 6), (6, 8), (12, 14)]) == [("document_zigzag", [1, 3])]
  # With all of them nothing is left out.
  assert read(cut(16, 4)) == [(0, 16)]


@pytest.mark.parametrize("name", LAYOUTS)
def test_fields_are_nobody_else_s(name):
  opened = FakeRows([[16]], length=16, multiple=8)
  context = ContextLayout(name, 2, 8)
  windows = [(0, 8), (8, 16)]
  slices = slices_of(opened, context, windows, length=16, num_rows=1)
  first = slices.fields((0, 8))
  kept = {field: values.copy() for field, values in first.items()}
  for window in windows:
    for values in slices.fields(window).values():
      values[...] = 77
  for field, values in first.items():
    np.testing.assert_array_equal(values, kept[field])
    assert values.flags.c_contiguous and values.ctypes.data % 64 == 0
