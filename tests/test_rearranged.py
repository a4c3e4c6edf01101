import itertools
import pickle
import random

import grain
import numpy as np
import pytest
from corpora import random_documents, write_pair
from hypothesis import given
from hypothesis import strategies as st

from hpgrain import BlendSamples, GPTSamples, PrecutSamples
from hpgrain.lazy import LazySamples
from hpgrain.order import permutation_key, permute
from hpgrain.rearrange_map import rearranged_rows
from hpgrain.rearranged import RearrangedSamples

# Records of 4 + 1 tokens, told apart by their first.
_RECORDS = [[[10 + i, 1, 2, 3, 4]] for i in range(6)]


@pytest.fixture
def records(tmp_path):
  return write_pair(tmp_path / "a", _RECORDS)


def _in_order(prefix):
  return PrecutSamples(prefix, seq_length=4, seed=0, shuffle=False)


def _wrap(samples, *, order_map=None, permute_seed=None, wraps=False):
  if order_map is not None:
    order_map = np.array(order_map)
  return RearrangedSamples(
    samples, order_map=order_map, permute_seed=permute_seed, wraps=wraps
  )


def _blend(tmp_path, *, num=3, weights=(53, 30, 17)):
  rng = random.Random(num)
  members = []
  for i in range(num):
    documents = random_documents(rng, num_documents=4 + 2 * i, max_length=9)
    prefix = write_pair(tmp_path / f"s{i}", [*documents, [[7] * 9]])
    members.append(GPTSamples(prefix, seq_length=4, seed=1))
  return BlendSamples(members, weights=weights)


def _one(row, *, num_rows, order_map, permute_seed, wraps):
  """The row that stands at one place, as the definition reads."""
  places = num_rows if order_map is None else len(order_map)
  epoch, place = divmod(row, places)
  if permute_seed is not None:
    key = permutation_key(permute_seed, "cyclic", epoch)
    place = permute(place, places, key=key)
  if order_map is not None:
    place = int(order_map[place])
  return place if wraps else epoch * num_rows + place


@given(
  st.integers(1, 9),
  st.lists(st.integers(0, 8), max_size=12),
  st.none() | st.integers(0, 3),
  st.booleans(),
  st.lists(st.integers(0, 60) | st.integers(0, 1 << 55), max_size=12),
)
def test_every_row_is_the_definitions(num_rows, rows, seed, wraps, places):
  order_map = np.array([r % num_rows for r in rows], np.uint32)
  options = {
    "num_rows": num_rows,
    "order_map": order_map if rows else None,
    "permute_seed": seed,
    "wraps": wraps,
  }
  found = rearranged_rows(np.array(places, np.int64), **options)
  assert found.dtype == np.int64
  assert found.tolist() == [_one(place, **options) for place in places]


def test_a_map_says_which_row_stands_where(records):
  samples = _wrap(_in_order(records), order_map=[4, 0, 0, 2])
  assert len(samples) == samples.rows_per_epoch == 4
  assert samples.num_rows(3) == 12
  first = samples.read(samples.plan_rows(range(8)), (0, 1))[:, 0]
  assert first.tolist() == [14, 10, 10, 12] * 2
  assert samples[3]["tokens"].tolist() == [12, 1, 2, 3]
  assert samples.plan(1).sequence.tolist() == [0]


def test_epochs_go_on_or_begin_again(records):
  shuffled = PrecutSamples(records, seq_length=4, seed=3)
  order = shuffled.plan_rows(range(12)).sequence.tolist()
  assert order[:6] != order[6:]
  on = _wrap(shuffled, order_map=[5, 0])
  again = _wrap(shuffled, order_map=[5, 0], wraps=True)
  found = on.plan_rows(range(4)).sequence.tolist()
  assert found == [order[5], order[0], order[11], order[6]]
  found = again.plan_rows(range(4)).sequence.tolist()
  assert found == [order[5], order[0]] * 2
  whole = _wrap(shuffled, wraps=True).plan_rows(range(12)).sequence.tolist()
  assert whole == order[:6] * 2


def test_every_epoch_is_permuted_anew(records):
  samples = _wrap(_in_order(records), permute_seed=7, wraps=True)
  rows = samples.plan_rows(range(18)).sequence.reshape(3, 6)
  assert rows.tolist() == [
    [3, 1, 4, 0, 5, 2],
    [1, 0, 2, 4, 3, 5],
    [2, 1, 5, 4, 0, 3],
  ]
  assert (np.sort(rows) == np.arange(6)).all()
  other = _wrap(_in_order(records), permute_seed=8, wraps=True)
  assert other.plan_rows(range(18)).sequence.tolist() != rows.ravel().tolist()


def test_a_permutation_is_of_the_maps_places(records):
  samples = _wrap(
    _in_order(records), order_map=[5, 5, 1], permute_seed=0, wraps=True
  )
  rows = samples.plan_rows(range(30)).sequence.reshape(10, 3)
  assert (np.sort(rows) == [1, 5, 5]).all()
  assert len({tuple(row) for row in rows.tolist()}) > 1


def test_what_is_not_order_is_the_samples_own(tmp_path):
  blend = _blend(tmp_path)
  samples = _wrap(blend, order_map=[3, 1, 2])
  assert (samples.seq_length, samples.extra) == (4, 1)
  assert samples.vocab_size is None
  assert samples.sources == blend.sources
  assert samples.members == blend.members
  plans, own = samples.plan_rows([0, 2]), blend.plan_rows([3, 2])
  for name in vars(own):
    assert getattr(plans, name).tolist() == getattr(own, name).tolist()
  assert (samples.read(plans, (1, 3)) == blend.read(own, (1, 3))).all()
  segments, own_segments = samples.segments(plans), blend.segments(own)
  assert segments.starts.tolist() == own_segments.starts.tolist()
  for name, value in blend[3].items():
    assert (samples[0][name] == value).all()


def test_megatrons_order_keeps_its_number_of_rows(tmp_path):
  prefix = write_pair(tmp_path / "a", [[[1] * 30], [[2] * 11]])

  def megatron(num_samples):
    return GPTSamples(
      prefix, seq_length=4, seed=0, order="megatron", num_samples=num_samples
    )

  samples = _wrap(megatron(25), permute_seed=3, wraps=True, order_map=[9, 2])
  assert samples.num_samples == 25
  assert samples.rows_per_pass == megatron(25).rows_per_pass
  more = samples.with_num_samples(45)
  assert more.num_samples == 45
  expected = _wrap(megatron(45), permute_seed=3, wraps=True, order_map=[9, 2])
  assert more.unique_identifiers == expected.unique_identifiers
  assert more.unique_identifiers != samples.unique_identifiers
  found = more.plan_rows(range(6)).sequence
  assert found.tolist() == expected.plan_rows(range(6)).sequence.tolist()


@pytest.mark.parametrize(("wraps", "expected"), [(True, 1), (False, 3)])
def test_indices_are_built_for_the_epochs_that_are_read(
  records, monkeypatch, wraps, expected
):
  built = []
  plain = _in_order(records)
  monkeypatch.setattr(plain, "build_index", built.append)
  _wrap(plain, wraps=wraps).build_index(3)
  assert built == [expected]


def test_only_a_blend_has_members(records):
  assert not hasattr(_wrap(_in_order(records)), "members")


def test_nothing_is_looked_at_before_it_must_be(records):
  opened = []

  def build():
    opened.append(1)
    return _in_order(records)

  samples = _wrap(LazySamples(build, "a"), order_map=[6])
  samples.map(lambda row: row)
  assert not opened
  # Nor is the map found wrong before.
  with pytest.raises(ValueError, match=r"row 6 at place 0.* \[0, 6\)"):
    len(samples)
  assert opened == [1]


@pytest.mark.parametrize(
  ("order_map", "message"),
  [
    ([0, 5, 6, 7], r"^data_rearrange_map has row 6 at place 2; .* \[0, 6\)"),
    ([0, -1], r"^data_rearrange_map has row -1 at place 1; .* \[0, 6\)"),
    (np.array([2**64 - 1], np.uint64), r"has row 18446744073709551615 at"),
    ([0.0, 1.0], r"has shape \(2,\) and dtype float64; it must be integers"),
    ([True, False], r"has shape \(2,\) and dtype bool; it must be integers"),
    ([[0, 1]], r"has shape \(1, 2\) and dtype int64; .* one dimension"),
    (np.zeros(0, np.int64), "data_rearrange_map is empty: no row"),
  ],
)
def test_a_map_that_does_not_fit_is_refused(records, order_map, message):
  samples = _wrap(_in_order(records), order_map=order_map)
  for look in (
    len,
    lambda samples: samples[0],
    lambda samples: samples.plan_rows([0]),
    lambda samples: samples.unique_identifiers,
    lambda samples: samples.num_rows(1),
  ):
    with pytest.raises(ValueError, match=message):
      look(samples)


def test_samples_without_rows_say_why(records):
  empty = PrecutSamples(
    records, seq_length=4, seed=0, split="99,1,0", split_index=1
  )
  samples = _wrap(empty, order_map=[0])
  assert len(samples) == samples.num_rows(2) == 0
  with pytest.raises(ValueError, match="holds none of its 6 records"):
    samples.plan_rows([3])


def test_illegal_rows_are_refused(records):
  samples = _wrap(_in_order(records), order_map=[1])
  for look in (samples.plan, samples.__getitem__):
    with pytest.raises(IndexError, match="got row -1"):
      look(-1)
  # Row 2^60 of a map of one place would be row 6 * 2^60 of the samples.
  with pytest.raises(IndexError, match=r"end at 2\^62, got a row of epoch 115"):
    samples.plan(1 << 60)
  again = _wrap(_in_order(records), order_map=[1], wraps=True)
  assert again.plan(1 << 60).sequence.tolist() == [1]
  with pytest.raises(ValueError, match="permute_seed must be an integer"):
    _wrap(_in_order(records), permute_seed="1")


def test_identity_says_what_decides_the_order(records):
  plain = _in_order(records)

  def identity(order_map=None, **options):
    return _wrap(plain, order_map=order_map, **options).unique_identifiers

  swap = [1, 0, 2, 3, 4, 5]
  found = [
    identity(),
    identity(wraps=True),
    identity(permute_seed=0),
    identity(permute_seed=1),
    identity(swap),
    identity([2, *swap[1:]]),
    identity([*swap, 0]),
    plain.unique_identifiers,
  ]
  for one, other in itertools.combinations(found, 2):
    assert one != other
  # It is the rows that count, not what holds them.
  assert identity(np.array(swap, np.uint8)) == identity(swap)
  assert found[4]["data_rearrange_map"] == "d9dd8dc88ce9a42203c610892a9c1e1e"
  assert found[3]["sampler_seed"] == 1 and "sampler_seed" not in found[0]
  assert found[2]["sampler"] == "cyclic" and found[0]["sampler"] != "cyclic"
  assert found[0].items() > plain.unique_identifiers.items()
  settings = _wrap(plain, order_map=swap).settings
  assert settings == {
    **plain.settings,
    "sampler": "sequential",
    "sampler_wraps": False,
    "data_rearrange_map": found[4]["data_rearrange_map"],
  }


def _maps(size):
  rng = np.random.default_rng(0)
  return {
    "none": None,
    "each once": rng.permutation(size),
    "some": rng.integers(0, size, size // 2 + 1),
    "some, as many": rng.integers(0, size, size),
    "each, and some again": np.append(rng.permutation(size), [0, 0, 0]),
  }


@pytest.mark.parametrize(
  "which",
  ["none", "each once", "some", "some, as many", "each, and some again"],
)
@pytest.mark.parametrize(
  "sampler",
  [
    {"wraps": wraps, "permute_seed": seed}
    for wraps in (True, False)
    for seed in (None, 3)
  ],
)
@pytest.mark.parametrize("weights", [None, (53, 30, 17)])
def test_rows_are_counted_as_they_are_planned(
  tmp_path, monkeypatch, which, sampler, weights
):
  # So that counting takes several goes.
  monkeypatch.setattr("hpgrain.rearranged._PLANNED", 7)
  blend = _blend(tmp_path, weights=weights)
  samples = _wrap(blend, order_map=_maps(len(blend))[which], **sampler)
  plans = samples.plan_rows(range(4 * len(samples)))
  source = plans.source[plans.row_splits[:-1]]
  end = 3 * len(samples) + 5
  # Growing, as a log asks, then anywhere.
  asked = [0, 1, 9, 9, len(samples), len(samples) + 4, end, 2, end, end + 1]
  for num_rows in asked:
    counts = samples.rows_per_source(num_rows)
    assert counts.dtype == np.int64
    expected = np.bincount(source[:num_rows], minlength=3)
    assert counts.tolist() == expected.tolist(), num_rows
    counts += 1  # What is handed out is the caller's.


def test_counting_goes_on_from_where_it_was(tmp_path, monkeypatch):
  blend = _blend(tmp_path)
  size = len(blend)
  asked = []
  samples = _wrap(blend, permute_seed=0, wraps=True)
  plan_rows = samples.plan_rows
  monkeypatch.setattr(
    samples, "plan_rows", lambda rows: asked.extend(rows) or plan_rows(rows)
  )
  samples.rows_per_source(1000 * size + 3)
  samples.rows_per_source(1000 * size + 5)
  samples.rows_per_source(1000 * size + 5)
  assert asked == [1000 * size + k for k in range(5)]
  # Whole epochs that take each row once need no look at all.
  samples.rows_per_source(2000 * size)
  assert len(asked) == 5


def test_one_source_needs_no_counting(records, monkeypatch):
  samples = _wrap(_in_order(records), order_map=[1, 2], permute_seed=0)
  monkeypatch.setattr(samples, "plan_rows", None)
  assert samples.rows_per_source(10**15).tolist() == [10**15]
  with pytest.raises(ValueError, match="num_rows must be at least 0, got -1"):
    samples.rows_per_source(-1)


def test_copies_read_the_same_rows(tmp_path):
  samples = _wrap(_blend(tmp_path), order_map=[4, 1, 0], permute_seed=2)
  expected = samples.plan_rows(range(20))
  for copy in (samples, pickle.loads(pickle.dumps(samples))):
    plans = pickle.loads(pickle.dumps(copy)).plan_rows(range(20))
    assert plans.sequence.tolist() == expected.sequence.tolist()
    assert plans.offset.tolist() == expected.offset.tolist()


def test_rows_compose_with_grain(records):
  samples = _wrap(_in_order(records), order_map=[3, 1, 2])
  firsts = samples.map(lambda row: row["tokens"][0])
  assert [int(first) for first in firsts[1:]] == [11, 12]
  assert firsts.batch(3)[0].tolist() == [13, 11, 12]
  grain.experimental.assert_equal_output_after_checkpoint(
    firsts.to_iter_dataset()
  )
