import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpgrain import pack

LENGTHS = [3, 9, 4, 2, 12, 1, 5, 5]


def rows_of(packed, lengths=LENGTHS):
  return [[lengths[i] for i in packed.row(r)] for r in range(len(packed))]


# The rules, an example at a time.


def oldest_first(lengths, *, ready, choose, arrived, final):
  waiting, rows, seen = [], [], 0
  while seen < arrived:
    if lengths[seen]:
      waiting.append(seen)
    seen += 1
  told = arrived
  while True:
    while not ready(waiting) and seen < len(lengths):
      if lengths[seen]:
        waiting.append(seen)
      seen += 1
    if not waiting or not (ready(waiting) or final):
      return rows, told
    row = [waiting.pop(0)]
    choose(row, waiting)
    rows.append(sorted(row))
    told = seen


def first_fit_twin(
  lengths, *, budget, min_buffered, max_items=0, arrived=0, final=True
):
  def ready(waiting):
    total = sum(lengths[i] for i in waiting)
    return len(waiting) >= min_buffered and total >= budget

  def choose(row, waiting):
    for item in list(waiting):
      used = sum(lengths[i] for i in row)
      full = max_items and len(row) == max_items
      if not full and used + lengths[item] <= budget:
        row.append(item)
        waiting.remove(item)

  return oldest_first(
    lengths, ready=ready, choose=choose, arrived=arrived, final=final
  )


def best_fit_twin(
  lengths, *, budget, window, max_items=0, arrived=0, final=True
):
  def choose(row, waiting):
    while not max_items or len(row) < max_items:
      room = budget - sum(lengths[i] for i in row)
      fitting = [i for i in waiting if lengths[i] <= room]
      if not fitting:
        return
      item = max(fitting, key=lambda i: (lengths[i], -i))
      row.append(item)
      waiting.remove(item)

  return oldest_first(
    lengths,
    ready=lambda waiting: len(waiting) >= window,
    choose=choose,
    arrived=arrived,
    final=final,
  )


def decreasing_twin(lengths, *, budget, max_items=0):
  rows = []
  for item in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
    if not lengths[item]:
      continue
    rooms = [
      (budget - sum(lengths[i] for i in row), r)
      for r, row in enumerate(rows)
      if not max_items or len(row) < max_items
    ]
    fitting = [(room, r) for room, r in rooms if room >= lengths[item]]
    if fitting:
      rows[min(fitting)[1]].append(item)
    else:
      rows.append([item])
  return [sorted(row) for row in rows]


def concat_twin(lengths, *, budget, max_items=0):
  rows, row, used = [], [], 0
  for item, length in enumerate(lengths):
    offset = 0
    while offset < length:
      if used == budget or (max_items and len(row) == max_items):
        rows.append(row)
        row, used = [], 0
      count = min(length - offset, budget - used)
      row.append((item, offset, count))
      offset += count
      used += count
  return [*rows, row] if row else rows


def fixed_twin(lengths, *, examples_per_row, arrived=0, final=True):
  def choose(row, waiting):
    while len(row) < examples_per_row and waiting:
      row.append(waiting.pop(0))

  return oldest_first(
    lengths,
    ready=lambda waiting: len(waiting) >= examples_per_row,
    choose=choose,
    arrived=arrived,
    final=final,
  )


def listed(packed):
  return [packed.row(r).tolist() for r in range(len(packed))]


def cut(pieces, splits):
  whole = list(
    zip(pieces.item.tolist(), pieces.offset.tolist(), pieces.length.tolist())
  )
  return [whole[a:b] for a, b in itertools.pairwise(splits)]


def test_first_fit_is_the_references():
  packed = pack.first_fit(LENGTHS, budget=10, min_buffered=3)
  assert rows_of(packed) == [[3, 4], [9], [2, 1], [12], [5, 5]]
  assert packed.arrived == 8


def test_first_fit_waits_for_the_budget_too():
  packed = pack.first_fit([1, 1, 1, 8, 1], budget=10, min_buffered=2)
  # Two wait early on, but ten tokens only with the 8, which then does not fit.
  assert listed(packed) == [[0, 1, 2], [3, 4]]


def test_best_fit_takes_the_oldest_then_the_longest():
  lengths = [2, 3, 7, 8, 1, 5]
  packed = pack.best_fit(lengths, budget=10, window=4)
  # 2 with 8; then 3 with 7; then 1 and 5.
  assert listed(packed) == [[0, 3], [1, 2], [4, 5]]


def test_the_older_of_two_alike_comes_first():
  packed = pack.best_fit([4, 5, 5, 5], budget=10, window=4)
  assert listed(packed) == [[0, 1], [2, 3]]


def test_decreasing_fills_the_fullest_row():
  lengths = [5, 6, 4, 7, 3, 5]
  packed = pack.best_fit_decreasing(lengths, budget=10)
  # 7, 6, 5+5, 4 with 6, 3 with 7.
  assert listed(packed) == [[3, 4], [1, 2], [0, 5]]


def test_fixed_takes_examples_as_they_come():
  packed = pack.fixed(LENGTHS, examples_per_row=3)
  assert rows_of(packed) == [[3, 9, 4], [2, 12, 1], [5, 5]]
  assert packed.arrived == 8
  packed = pack.fixed(LENGTHS, examples_per_row=3, final=False)
  assert rows_of(packed) == [[3, 9, 4], [2, 12, 1]]
  assert packed.arrived == 6


def test_an_empty_example_goes_nowhere():
  for packed in (
    pack.first_fit([0, 2, 0], budget=4, min_buffered=1),
    pack.best_fit([0, 2, 0], budget=4),
    pack.best_fit_decreasing([0, 2, 0], budget=4),
    pack.fixed([0, 2, 0], examples_per_row=2),
  ):
    assert listed(packed) == [[1]]
  assert listed(pack.best_fit([], budget=4)) == []
  assert listed(pack.best_fit([0, 0], budget=4)) == []


def test_concat_cuts_anywhere():
  pieces, splits = pack.concat([3, 0, 5, 1], budget=4)
  assert cut(pieces, splits) == [
    [(0, 0, 3), (2, 0, 1)],
    [(2, 1, 4)],
    [(3, 0, 1)],
  ]
  pieces, splits = pack.concat([1, 1, 1, 5], budget=4, max_items=2)
  assert cut(pieces, splits) == [
    [(0, 0, 1), (1, 0, 1)],
    [(2, 0, 1), (3, 0, 3)],
    [(3, 3, 2)],
  ]
  pieces, splits = pack.concat([0], budget=4)
  assert cut(pieces, splits) == []


def test_overlong():
  def done(policy):
    pieces = pack.overlong([2, 9, 0, 4], budget=4, policy=policy)
    return list(zip(pieces.item, pieces.offset, pieces.length))

  split = [(0, 0, 2), (1, 0, 4), (1, 4, 4), (1, 8, 1), (2, 0, 0), (3, 0, 4)]
  assert done("split") == split
  assert done("truncate") == [(0, 0, 2), (1, 0, 4), (2, 0, 0), (3, 0, 4)]
  assert done("drop") == [(0, 0, 2), (1, 0, 0), (2, 0, 0), (3, 0, 4)]
  assert done("own_row") == [(0, 0, 2), (1, 0, 9), (2, 0, 0), (3, 0, 4)]
  with pytest.raises(ValueError, match=r"1 of 4 examples .* example 1, has 9"):
    done("error")
  with pytest.raises(ValueError, match=r"one of error, split, .* got 'cut'"):
    done("cut")
  fits = pack.overlong([4, 1], budget=4, policy="error")
  assert fits.length.tolist() == [4, 1]


lengths_lists = st.lists(st.integers(0, 12), max_size=60)
limits = {"budget": st.integers(1, 20), "max_items": st.integers(0, 4)}


@settings(max_examples=200, deadline=None)
@given(lengths=lengths_lists, arrived=st.integers(0, 60), **limits)
def test_packers_follow_the_rules(lengths, arrived, budget, max_items):
  arrived = min(arrived, len(lengths))
  common = {"budget": budget, "max_items": max_items}
  for final in (False, True):
    for size in (1, 3, 8):
      options = {**common, "arrived": arrived, "final": final}
      packed = pack.first_fit(lengths, min_buffered=size, **options)
      expected = first_fit_twin(lengths, min_buffered=size, **options)
      assert (listed(packed), packed.arrived) == expected
      packed = pack.best_fit(lengths, window=size, **options)
      expected = best_fit_twin(lengths, window=size, **options)
      assert (listed(packed), packed.arrived) == expected
      del options["budget"], options["max_items"]
      packed = pack.fixed(lengths, examples_per_row=size, **options)
      expected = fixed_twin(lengths, examples_per_row=size, **options)
      assert (listed(packed), packed.arrived) == expected
  packed = pack.best_fit_decreasing(lengths, **common)
  assert listed(packed) == decreasing_twin(lengths, **common)
  assert cut(*pack.concat(lengths, **common)) == concat_twin(lengths, **common)


@settings(max_examples=100, deadline=None)
@given(
  lengths=lengths_lists,
  cuts=st.lists(st.integers(1, 9), min_size=1, max_size=9),
  size=st.integers(1, 8),
  **limits,
)
def test_rows_do_not_depend_on_how_lengths_arrive(
  lengths, cuts, size, budget, max_items
):
  common = {"budget": budget, "max_items": max_items}
  for packer, name in (
    (pack.first_fit, "min_buffered"),
    (pack.best_fit, "window"),
    (pack.fixed, "examples_per_row"),
  ):
    if packer is pack.fixed:
      common = {}
    whole = packer(lengths, **{name: size}, **common)
    rows, waiting, arrived, given_up_to = [], [], 0, 0
    turn = 0
    while given_up_to < len(lengths) or not turn:
      more = range(given_up_to, given_up_to + cuts[turn % len(cuts)])
      turn += 1
      more = [i for i in more if i < len(lengths)]
      given_up_to += len(more)
      places = waiting + more
      packed = packer(
        [lengths[i] for i in places],
        arrived=arrived,
        final=given_up_to == len(lengths),
        **{name: size},
        **common,
      )
      rows += [[places[i] for i in row] for row in listed(packed)]
      used = set(packed.items.tolist())
      left = [i for i in range(len(places)) if i not in used]
      arrived = sum(1 for i in left if i < packed.arrived)
      waiting = [places[i] for i in left]
    assert rows == listed(whole)


@pytest.mark.parametrize(
  "packer",
  [pack.first_fit, pack.best_fit, pack.best_fit_decreasing, pack.concat],
)
def test_what_is_out_of_range_is_refused(packer):
  with pytest.raises(ValueError, match="budget must be at least 1, got 0"):
    packer([1], budget=0)
  with pytest.raises(ValueError, match="max_items must be at least 0, got -1"):
    packer([1], budget=1, max_items=-1)
  with pytest.raises(ValueError, match="Example 1 has a length of -2"):
    packer([1, -2], budget=1)
  with pytest.raises(ValueError, match="integers of one dimension"):
    packer([[1]], budget=1)
  with pytest.raises(ValueError, match="integers of one dimension"):
    packer([1.5], budget=1)
  with pytest.raises(ValueError, match="A length is 2147483648"):
    packer([2**31], budget=1)


def test_arguments_of_one_packer():
  with pytest.raises(ValueError, match="window must be at least 1, got 0"):
    pack.best_fit([1], budget=1, window=0)
  with pytest.raises(ValueError, match="min_buffered must be at least 1"):
    pack.first_fit([1], budget=1, min_buffered=0)
  with pytest.raises(ValueError, match=r"arrived must lie in \[0, 1\], got 2"):
    pack.best_fit([1], budget=1, arrived=2)
  with pytest.raises(ValueError, match="examples_per_row must be at least 1"):
    pack.fixed([1], examples_per_row=0)
  with pytest.raises(ValueError, match=r"arrived must lie in \[0, 1\], got 2"):
    pack.fixed([1], examples_per_row=1, arrived=2)
  with pytest.raises(ValueError, match="Example 1 has a length of -2"):
    pack.fixed([1, -2], examples_per_row=1)


def test_lengths_and_budgets_as_large_as_they_get():
  most = 2**31 - 1
  packed = pack.best_fit([most, most, 1], budget=2**40, window=2)
  assert listed(packed) == [[0, 1], [2]]
  packed = pack.best_fit_decreasing([most, most, 1], budget=2**62)
  assert listed(packed) == [[0, 1, 2]]
  pieces, splits = pack.concat([most, most], budget=2**62)
  assert cut(pieces, splits) == [[(0, 0, most), (1, 0, most)]]
  assert pieces.offset.dtype == np.int64
