import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpgrain.mixes import SimpleMix, StableMix
from hpgrain.order import permutation_key, permute
from hpgrain.packed_windows import PackedWindows
from hpgrain.packing import PACKERS, PackingOptions
from tests.test_pack import concat_twin, decreasing_twin, first_fit_twin


class Records:
  """Records with the lengths of their examples written out."""

  def __init__(self, name, records):
    self.name = name
    self.num_records = len(records)
    self._first = np.cumsum([0, *map(len, records)])
    self._lengths = np.array([n for r in records for n in r], np.int32)

  def examples(self, records):
    first = self._first[records]
    return first, self._first[records + 1] - first

  def lengths(self, examples):
    return self._lengths[examples]

  def place(self, example):
    return f"example {example}"


def windows_of(*sources, mix=None, options=None, seed=0, **others):
  made = [Records(f"s{i}", records) for i, records in enumerate(sources)]
  options = PackingOptions(**{"budget": 10, **(options or {})})
  return PackedWindows(
    made, mix or StableMix(None), options, seed=seed, **others
  )


def pieces_of(rows):
  return [
    [
      (int(rows.source[i]), int(rows.example[i]), int(rows.offset[i]),
       int(rows.length[i]))
      for i in range(a, b)
    ]
    for a, b in zip(rows.row_splits[:-1], rows.row_splits[1:], strict=True)
  ]  # fmt: skip


def rows_twin(windows, index, records, *, seed, shuffle):
  """The rows of a window from the definition, a position at a time."""
  options = windows.options
  begin = index * options.plan_window
  end = begin + options.plan_window
  if windows.order.end is not None:
    end = min(end, windows.order.end)
  examples = []
  for position in range(begin, end):
    source, k = (int(x[0]) for x in windows.order._pattern.locate(
      np.array([position])))  # fmt: skip
    epoch, record = divmod(k, len(records[source]))
    if shuffle:
      key = permutation_key(seed, f"s{source}", epoch)
      record = permute(record, len(records[source]), key=key)
    first = sum(map(len, records[source][:record]))
    for number, length in enumerate(records[source][record]):
      examples.append((source, first + number, length))
  budget, multiple = options.budget, options.segment_multiple
  limit = budget // options.examples_per_row // multiple * multiple
  parts = []
  for source, example, length in examples:
    if length > limit and options.overlong == "drop":
      continue
    if options.packer == "concat" or options.overlong == "own_row":
      parts.append((source, example, 0, length))
      continue
    offset = 0
    while offset < length:
      count = min(limit, length - offset)
      parts.append((source, example, offset, count))
      offset += count
      if options.overlong == "truncate":
        break
  lengths = [length for *_, length in parts]
  if options.packer == "concat":
    rows = [
      [
        (parts[item][0], parts[item][1], offset, count)
        for item, offset, count in row
      ]
      for row in concat_twin(
        lengths, budget=budget, max_items=options.max_items
      )
    ]
  else:
    room = [-(-length // multiple) * multiple for length in lengths]
    if options.packer in ("pad", "fixed"):
      packed, row = [], []
      for i, length in enumerate(room):
        if length > limit:
          packed.append([i])
        elif length:
          row = row if row and len(row) < options.examples_per_row else []
          packed += [] if row else [row]
          row.append(i)
    elif options.packer == "best_fit":
      packed = decreasing_twin(room, budget=budget, max_items=options.max_items)
    else:
      packed, _ = first_fit_twin(
        room,
        budget=budget,
        max_items=options.max_items,
        min_buffered=options.min_buffered,
      )
    rows = [[parts[i] for i in row] for row in packed]
  if shuffle and len(rows) > 1:
    key = permutation_key(seed, "rows of window", index)
    order = permute(np.arange(len(rows)), len(rows), key=key)
    rows = [rows[i] for i in order]
  return rows


def test_a_window_is_packed_then_its_rows_are_permuted():
  windows = windows_of(
    [[2], [3], [7], [8], [1], [5]],
    options={"plan_window": 4},
    shuffle=False,
    epochs=1,
  )
  # Best-fit-decreasing: 8 with 2, 7 with 3; then what is left.
  assert pieces_of(windows.window(0)) == [
    [(0, 0, 0, 2), (0, 3, 0, 8)],
    [(0, 1, 0, 3), (0, 2, 0, 7)],
  ]
  assert pieces_of(windows.window(1)) == [[(0, 4, 0, 1), (0, 5, 0, 5)]]
  assert windows.num_windows == 2
  assert windows.num_rows == 3
  assert [windows.find(row) for row in (0, 1, 2)] == [0, 0, 1]
  with pytest.raises(IndexError, match="3 rows, got row 3"):
    windows.find(3)
  with pytest.raises(IndexError, match="2 windows, got window 2"):
    windows.window(2)


def test_windows_know_no_epochs():
  windows = windows_of(
    [[4], [5], [6]], options={"plan_window": 4, "packer": "pad"}, shuffle=False
  )
  examples = [row[0][1] for row in pieces_of(windows.window(1))]
  assert examples == [1, 2, 0, 1]
  assert windows.num_windows is None and windows.num_rows is None


def test_a_piece_says_whether_its_example_ends_with_it():
  windows = windows_of(
    [[12], [3]],
    options={"packer": "concat", "plan_window": 2},
    shuffle=False,
    epochs=1,
  )
  rows = windows.window(0)
  assert pieces_of(rows) == [[(0, 0, 0, 10)], [(0, 0, 10, 2), (0, 1, 0, 3)]]
  assert rows.ends.tolist() == [False, True, True]
  cut = windows_of(
    [[12]],
    options={"overlong": "truncate", "plan_window": 1},
    shuffle=False,
    epochs=1,
  )
  assert cut.window(0).ends.tolist() == [False]


def test_overlong_is_an_error_unless_said():
  with pytest.raises(ValueError, match="'s0', example 1: an example has 11"):
    windows_of([[1], [11]], shuffle=False, epochs=1).window(0)


def test_records_without_examples_and_empty_ones():
  windows = windows_of(
    [[], [0], [3, 0, 4], []], options={"plan_window": 4}, epochs=1
  )
  (row,) = pieces_of(windows.window(0))
  assert sorted(row) == [(0, 1, 0, 3), (0, 3, 0, 4)]


def test_an_endless_order_without_a_row_says_so():
  windows = windows_of([[0], [0]], options={"plan_window": 1})
  assert not windows.has_row()
  with pytest.raises(ValueError, match="No record of 's0' makes a row"):
    windows.find(0)
  # A rare source is the only one, and comes late.
  mix = StableMix([1, 1e-3])
  options = {"plan_window": 8}
  windows = windows_of([[0]], [[], [5]], mix=mix, options=options)
  assert windows.has_row()
  assert windows.find(0) > 9
  # All are too long to be kept.
  windows = windows_of([[11]], options={"overlong": "drop", "plan_window": 1})
  assert not windows.has_row()
  windows = windows_of([[11]], options={"overlong": "split", "plan_window": 1})
  assert windows.has_row()


def test_a_finite_order_without_a_row():
  # It ends with the first source, before the second one's turn.
  mix = StableMix([1, 1e-3])
  windows = windows_of([[0]], [[5]], mix=mix, epochs=1)
  assert not windows.has_row()
  assert windows.num_rows == 0
  assert windows_of([[0]], [[5]], epochs=1).has_row()
  with pytest.raises(IndexError, match="0 rows, got row 0"):
    windows.find(0)


def test_an_endless_order_is_asked_for_a_row_at_little_cost(monkeypatch):
  windows = windows_of([[5]] * 10, options={"plan_window": 2})
  monkeypatch.setattr(PackedWindows, "_pack", None)
  assert windows.has_row()


def test_a_source_without_a_record():
  assert windows_of([], [[2]], epochs=1).num_rows == 1
  with pytest.raises(ValueError, match="Source 's0' has no record"):
    windows_of([], [[2]], mix=StableMix([1, 1]))
  with pytest.raises(ValueError, match="Source 's0' has no record"):
    windows_of([], [])


def test_a_window_is_sought_without_those_before_it(monkeypatch):
  def make():
    return windows_of([[4], [5], [6]], options={"plan_window": 2})

  windows = make()
  places = [windows.place(row) for row in range(12)]
  other = make()
  packed = []
  pack_window = PackedWindows._pack
  monkeypatch.setattr(
    PackedWindows,
    "_pack",
    lambda self, index: packed.append(index) or pack_window(self, index),
  )
  other.seek(*places[11])
  assert other.find(11) == places[11][0]
  assert packed == [places[11][0]]
  # What lies before is still found.
  assert [other.place(row) for row in range(12)] == places


def test_the_end_has_a_place():
  windows = windows_of([[4], [5], [6]], options={"plan_window": 2}, epochs=1)
  assert windows.place(windows.num_rows) == (2, windows.num_rows)
  assert windows.place(99) == (2, windows.num_rows)
  with pytest.raises(IndexError, match="count from 0, got row -1"):
    windows.find(-1)


def test_records_before_a_row():
  windows = windows_of(
    [[9], [8], [9]],
    [[9], [9]],
    mix=SimpleMix("intra"),
    options={"plan_window": 3},
    shuffle=False,
    epochs=1,
  )
  counts = [windows.records_before(row).tolist() for row in range(6)]
  assert counts == [[0, 0], [1, 0], [2, 0], [3, 0], [3, 1], [3, 2]]


def test_a_record_of_several_examples_is_counted_once():
  windows = windows_of(
    [[6, 0, 6], [0], [12]],
    options={"plan_window": 3, "overlong": "split"},
    shuffle=False,
    epochs=1,
  )
  # The longest first; the record without a token counts with its window.
  assert [[n for *_, n in row] for row in pieces_of(windows.window(0))] == [
    [10], [6, 2], [6],
  ]  # fmt: skip
  counts = [int(windows.records_before(row)[0]) for row in range(4)]
  assert counts == [0, 1, 2, 3]


records_lists = st.lists(
  st.lists(st.integers(0, 14), max_size=3), min_size=1, max_size=12
)


@settings(max_examples=150, deadline=None)
@given(
  records=st.lists(records_lists, min_size=1, max_size=3),
  options=st.fixed_dictionaries(
    {
      "packer": st.sampled_from(PACKERS),
      "plan_window": st.integers(1, 9),
      "overlong": st.sampled_from(["split", "truncate", "drop", "own_row"]),
      "segment_multiple": st.sampled_from([1, 2, 5]),
      "max_items": st.integers(0, 3),
      "min_buffered": st.integers(1, 4),
    }
  ),
  weighted=st.booleans(),
  shuffle=st.booleans(),
  epochs=st.sampled_from([None, 1, 2]),
  seed=st.integers(0, 9),
)
def test_windows_follow_the_definition(  # noqa: PLR0917
  records, options, weighted, shuffle, epochs, seed
):
  if options["packer"] == "fixed":
    options["examples_per_row"] = 2
    options["max_items"] = 0
  if options["packer"] == "concat":
    options["segment_multiple"] = 1
    options["overlong"] = "own_row"
  mix = StableMix([i + 1 for i in range(len(records))] if weighted else None)
  windows = windows_of(
    *records,
    mix=mix,
    options=options,
    seed=seed,
    shuffle=shuffle,
    epochs=epochs,
  )
  count = 3 if windows.num_windows is None else windows.num_windows
  first = 0
  for index in range(count):
    expected = rows_twin(windows, index, records, seed=seed, shuffle=shuffle)
    assert pieces_of(windows.window(index)) == expected
    assert windows.first_row(index) == first
    for row in range(len(expected)):
      assert windows.find(first + row) == index
    first += len(expected)
  # As another process has them, from whatever window on.
  other = pickle.loads(pickle.dumps(windows))
  assert pieces_of(other.window(count - 1)) == pieces_of(
    windows.window(count - 1)
  )
