import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from test_packed_windows import windows_of

from hpgrain.packing import PACKERS
from hpgrain.packing_counters import PackingCounters


def test_every_token_is_read_and_kept_or_dropped():
  windows = windows_of(
    [[12, 3], [0], [25]],
    [[4]],
    options={"plan_window": 4, "overlong": "truncate"},
    shuffle=False,
    epochs=1,
  )
  counters = PackingCounters(windows)
  assert windows.num_rows == 3
  assert counters.as_dict(3) == {
    "rows": 3,
    "padded": 30 - 27,
    "sources": {
      "s0": {
        "records": 3,
        "tokens_read": 40,
        "tokens": 23,
        "tokens_dropped": {"overlong": 17},
      },
      "s1": {
        "records": 1, "tokens_read": 4, "tokens": 4, "tokens_dropped": {},
      },
    },
  }  # fmt: skip
  # Before the end of the window nothing is known to be left out.
  first = counters.as_dict(1)
  assert first["sources"]["s0"]["tokens_dropped"] == {}
  assert first["sources"]["s0"]["tokens"] == 10
  assert first["padded"] == 0
  assert counters.as_dict(0)["padded"] == 0


def test_a_row_beyond_the_budget_has_no_padding():
  windows = windows_of(
    [[12], [3]], options={"overlong": "own_row"}, shuffle=False, epochs=1
  )
  assert PackingCounters(windows).as_dict(2)["padded"] == 7


@settings(max_examples=60, deadline=None)
@given(
  records=st.lists(
    st.lists(st.lists(st.integers(0, 14), max_size=3), min_size=1, max_size=9),
    min_size=1,
    max_size=3,
  ),
  packer=st.sampled_from(PACKERS),
  overlong=st.sampled_from(["split", "truncate", "drop", "own_row"]),
  plan_window=st.integers(1, 9),
  epochs=st.integers(1, 3),
)
def test_counters_add_up(records, packer, overlong, plan_window, epochs):
  windows = windows_of(
    *records,
    options={
      "packer": packer, "overlong": overlong, "plan_window": plan_window,
    },
    epochs=epochs,
  )  # fmt: skip
  counters = PackingCounters(windows)
  limit = windows.options.example_limit
  lost = {
    "truncate": lambda n: max(n - limit, 0),
    "drop": lambda n: n if n > limit else 0,
  }.get(overlong, lambda n: 0)
  if packer == "concat":
    lost = lambda n: 0  # noqa: E731
  num_rows = windows.num_rows
  # In any order, so that none depends on what was counted before.
  for rows in (num_rows, 0, num_rows // 2, num_rows):
    made = counters.as_dict(rows)
    kept = sum(source["tokens"] for source in made["sources"].values())
    used = np.array(
      [
        sum(
          windows.window(w).length[
            slice(*windows.window(w).row_splits[r : r + 2])
          ]
        )
        for row in range(rows)
        for w in [windows.find(row)]
        for r in [row - windows.first_row(w)]
      ],
      np.int64,
    )
    assert kept == used.sum()
    assert made["padded"] == np.maximum(10 - used, 0).sum()
    for source in made["sources"].values():
      dropped = sum(source["tokens_dropped"].values())
      assert source["tokens_read"] == source["tokens"] + dropped
  for i, source in enumerate(records):
    lengths = [n for record in source for n in record]
    counted = made["sources"][f"s{i}"]
    assert counted["records"] == epochs * len(source)
    assert counted["tokens_read"] == epochs * sum(lengths)
    assert counted["tokens_dropped"] == (
      {"overlong": epochs * sum(map(lost, lengths))}
      if sum(map(lost, lengths))
      else {}
    )
