import itertools
import pickle

import grain
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_online_samples import Member, samples_of

from hpgrain.balance import BalancedSamples, balanced_order, row_costs
from hpgrain.fields import FieldOptions


def test_shares_cost_alike():
  order = balanced_order(np.array([9, 1, 8, 2]), shares=2)
  assert order.tolist() == [0, 1, 2, 3]
  order = balanced_order(np.array([9, 8, 2, 1]), shares=2)
  assert order.tolist() == [0, 3, 1, 2]
  # Of rows that are alike the earlier goes to the earlier share.
  order = balanced_order(np.array([5, 5, 5, 5]), shares=2)
  assert order.tolist() == [0, 2, 1, 3]
  # The first share is full with two rows, though it costs least.
  order = balanced_order(np.array([1, 0, 0, 0]), shares=2)
  assert order.tolist() == [0, 3, 1, 2]
  assert balanced_order(np.array([3, 4]), shares=1).tolist() == [0, 1]


def test_a_block_that_is_not_full():
  # Shares of two rows: two in the first one, one in the second.
  order = balanced_order(np.array([9, 8, 2]), shares=3, rows=6)
  assert order.tolist() == [0, 2, 1]
  assert balanced_order(np.zeros(0, np.int64), shares=2, rows=4).tolist() == []


@settings(max_examples=100, deadline=None)
@given(
  costs=st.lists(st.integers(0, 99), max_size=24),
  shares=st.integers(1, 4),
  spare=st.integers(0, 12),
)
def test_an_order_is_a_permutation(costs, shares, spare):
  rows = -(-(len(costs) + spare) // shares) * shares
  order = balanced_order(np.array(costs, np.int64), shares=shares, rows=rows)
  assert sorted(order.tolist()) == list(range(len(costs)))
  each = rows // shares
  for begin in range(0, len(costs), max(each, 1)):
    share = order[begin : begin + each].tolist()
    assert share == sorted(share)


def balanced(documents, *, shares, rows, epochs=None, **others):
  inner = samples_of(Member("a", documents), epochs=epochs, **others)
  return inner, BalancedSamples(inner, shares=shares, rows=rows)


_DOCUMENTS = [[[10 * i + j for j in range(1 + i % 5)]] for i in range(23)]


def test_blocks_hold_the_same_rows_in_another_order():
  inner, outer = balanced(_DOCUMENTS, shares=2, rows=4, epochs=1, plan_window=6)
  assert len(outer) == len(inner) == outer.num_rows(1) > 8
  assert len(outer) % 4, "the last block is not full"
  rows = outer.rows(range(len(outer)))
  assert rows.tolist() != list(range(len(outer)))
  for begin in range(0, len(outer), 4):
    block = sorted(rows[begin : begin + 4].tolist())
    assert block == list(range(begin, min(begin + 4, len(outer))))
  for row, of in enumerate(rows.tolist()):
    assert outer[row]["tokens"].tolist() == inner[of]["tokens"].tolist()
  options = FieldOptions()
  asked = [5, 1, 4]
  made = outer.open_rows(asked).fields((2, 7), num_rows=4, options=options)
  expected = inner.open_rows(rows[asked]).fields(
    (2, 7), num_rows=4, options=options
  )
  for name, values in made.items():
    assert values.tolist() == expected[name].tolist(), name
  for row in (len(outer), len(outer) + 9):
    with pytest.raises(IndexError, match=f"There are {len(outer)} rows, got"):
      outer.plan(row)


def test_balanced_rows_are_a_grain_dataset():
  _, outer = balanced(_DOCUMENTS, shares=2, rows=4, epochs=1)
  tokens = [row["tokens"].tolist() for row in outer]
  assert [row["tokens"].tolist() for row in outer[1:3]] == tokens[1:3]
  grain.experimental.assert_equal_output_after_checkpoint(
    outer.to_iter_dataset()
  )


def test_a_block_is_found_from_its_place():
  _, outer = balanced(_DOCUMENTS, shares=2, rows=4, plan_window=6)
  expected = outer.rows(range(40)).tolist()
  for row in (0, 7, 21, 39):
    _, other = balanced(_DOCUMENTS, shares=2, rows=4, plan_window=6)
    other = pickle.loads(pickle.dumps(other))
    other.seek(*outer.place(row))
    assert other.place(row) == outer.place(row)
    begin = row // 4 * 4
    assert other.rows(range(begin, 40)).tolist() == expected[begin:]


def test_what_balanced_rows_say_of_themselves():
  inner, outer = balanced(
    _DOCUMENTS,
    shares=2,
    rows=4,
    packer="pad",
    length_buckets=(3, 8),
    vocab_size=999,
  )
  assert outer.unique_identifiers == inner.unique_identifiers | {
    "balance": {"balance_shares": 2, "balance_rows": 4}
  }
  assert outer.seq_length == 8 and outer.vocab_size == 999
  assert outer.sources == inner.sources and outer.members == inner.members
  assert outer.length_buckets == (3, 8)
  # Among the rows that stand there, not those of these numbers.
  for row in range(12):
    need = len(outer[row]["tokens"])
    assert outer.row_positions([row]) == (3 if need <= 3 else 8)
  assert outer.rows_per_source(8).tolist() == [8]
  assert outer.counters(8) == inner.counters(8)
  assert outer.has_row() and outer.rows_per_epoch == 23
  outer.measure()
  assert inner.sources[0].measured == 1


def test_rows_must_divide():
  with pytest.raises(ValueError, match="multiple of balance_shares, got 6 and"):
    balanced(_DOCUMENTS, shares=4, rows=6)
  with pytest.raises(ValueError, match="balance_shares must be at least 1"):
    balanced(_DOCUMENTS, shares=0, rows=6)


def test_the_costliest_share_is_near_the_mean():
  """What it is for: a step waits for the share that costs most."""
  rng = np.random.default_rng(0)
  lengths = np.clip(rng.lognormal(6, 1.2, 4000), 1, 4096).astype(int)
  documents = [[[1] * n] for n in lengths]
  inner, outer = balanced(
    documents, shares=8, rows=64, budget=4096, epochs=1, plan_window=4096
  )

  def unevenness(samples):
    blocks = range(0, len(samples) // 64 * 64, 64)
    ratios = []
    for begin in blocks:
      costs = row_costs(samples.plan_rows(range(begin, begin + 64)))
      shares = costs.reshape(8, 8).sum(1)
      ratios.append(shares.max() / shares.mean())
    return np.mean(ratios)

  before, after = unevenness(inner), unevenness(outer)
  print(f"costliest share over the mean: {before:.3f}, balanced {after:.4f}")
  assert before > 1.2
  assert after < 1.02


def test_costs_are_squares_of_pieces():
  samples = samples_of(
    Member("a", [[[1] * n] for n in (3, 8, 5)]), epochs=1, shuffle=False
  )
  plans = samples.plan_rows([0, 1])
  assert [p.tolist() for p in (plans.row_splits, plans.length)] == [
    [0, 1, 3], [8, 3, 5],
  ]  # fmt: skip
  assert row_costs(plans).tolist() == [64, 34]
  assert list(itertools.pairwise(plans.row_splits)) == [(0, 1), (1, 3)]
