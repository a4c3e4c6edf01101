import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_packed_windows import Records

from hpgrain.packed_rows import Pass, RowPlanner
from hpgrain.packing import PackingOptions


def planner(*lengths, epochs=1, length_buckets=(), **options):
  """Of records of one example each, in one source."""
  return RowPlanner(
    [Records("a", [[n] for n in lengths])],
    options=PackingOptions(**{"budget": 10, **options}),
    seed=0,
    weights=None,
    shuffle=False,
    epochs=epochs,
    length_buckets=length_buckets,
  )


def listed(plans):
  return {name: values.tolist() for name, values in vars(plans).items()}


def test_rows_are_planned_in_any_order():
  # Windows of two records: rows 0 and 1 in the first one, row 2 in the second.
  plans = planner(7, 8, 3, 6, plan_window=2).plan_rows([2, 0, 2, 1])
  assert listed(plans) == {
    "row_splits": [0, 2, 3, 5, 6],
    "source": [0] * 6,
    "example": [2, 3, 1, 2, 3, 0],
    "offset": [0] * 6,
    "length": [3, 6, 8, 3, 6, 7],
    "start": [0, 3, 0, 0, 3, 0],
  }
  none = planner(7).plan_rows([])
  assert len(none) == 0 and listed(none)["row_splits"] == [0]
  dtypes = [values.dtype for values in vars(none).values()]
  assert dtypes == [values.dtype for values in vars(plans).values()]


def test_pieces_begin_at_multiples():
  plans = planner(3, 5, 2, budget=16, segment_multiple=4).plan_rows([0])
  assert listed(plans)["start"] == [0, 4, 12]


@settings(max_examples=60, deadline=None)
@given(
  lengths=st.lists(st.integers(0, 10), min_size=1, max_size=20),
  plan_window=st.integers(1, 7),
  data=st.data(),
)
def test_rows_together_are_each_row_by_itself(lengths, plan_window, data):
  made = planner(*lengths, plan_window=plan_window)
  num_rows = made.num_rows(1)
  rows = data.draw(
    st.lists(st.integers(0, num_rows - 1), max_size=9) if num_rows else
    st.just([])
  )  # fmt: skip
  together = made.plan_rows(np.array(rows, np.int64))
  for place, row in enumerate(rows):
    part = slice(*together.row_splits[place : place + 2])
    alone = made.plan_rows([row])
    for name, values in listed(alone).items():
      if name != "row_splits":
        assert getattr(together, name)[part].tolist() == values, name


def test_what_one_pass_is():
  assert planner(7, 0, 3).passes == (Pass(3.0),)
  made = planner(7, 0, 3, epochs=None)
  assert made.rows_per_epoch() == 1
  with pytest.raises(ValueError, match="never end, not after 1"):
    made.num_rows(1)


def test_a_row_beyond_every_bucket_is_named():
  made = planner(12, 3, overlong="own_row", length_buckets=(11,))
  assert made.row_positions([1]) == 10
  with pytest.raises(ValueError, match=r"'a', example 0: .* needs 12 pos"):
    made.row_positions([0, 1])
