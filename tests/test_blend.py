import itertools
import random
from fractions import Fraction

import numpy as np
import pytest
from reference import Tree

from hpgrain.blend import InOrder, Repeated, RoundRobin, StableBlend

_SETS = [
  [1],
  [1, 1],
  [7, 3],
  [0.8, *[0.01] * 20],
  [0.9, *[1e-4] * 1000],
  [1e-9, 1],
  [0.1, 0.2, 0.3, 0.4],
  [2**60, 2**30, 2**61],
]


def _random_weights(rng):
  count = rng.randint(1, 40)
  kind = rng.random()
  if kind < 0.3:
    return [rng.randint(1, 20) for _ in range(count)]
  if kind < 0.6:
    return [rng.random() + 1e-6 for _ in range(count)]
  return [10 ** rng.uniform(-4, 4) for _ in range(count)]


@pytest.mark.parametrize("weights", [w for w in _SETS if len(w) < 100])
def test_locate_is_the_tree_of_exact_integers(weights):
  tree = Tree(weights)
  rng = random.Random(len(weights))
  positions = [*range(50), *(rng.randrange(2**50) for _ in range(50))]
  source, k = StableBlend(weights).locate(np.array(positions))
  assert source.dtype == np.int32 and k.dtype == np.int64
  assert list(zip(source.tolist(), k.tolist())) == [
    tree.locate(g) for g in positions
  ]


def test_locate_is_the_tree_for_random_weights():
  rng = random.Random(0)
  for _ in range(30):
    weights = _random_weights(rng)
    positions = [rng.randrange(2 ** rng.randint(1, 61)) for _ in range(40)]
    source, k = StableBlend(weights).locate(np.array(positions))
    tree = Tree(weights)
    expected = [tree.locate(g) for g in positions]
    assert list(zip(source.tolist(), k.tolist())) == expected, weights


def test_each_source_stays_near_its_share_at_every_prefix():
  rng = random.Random(1)
  for weights in _SETS + [_random_weights(rng) for _ in range(60)]:
    num = 3000
    source, k = StableBlend(weights).locate(np.arange(num))
    hit = source[None, :] == np.arange(len(weights))[:, None]
    counts = np.cumsum(hit, axis=1)
    shares = np.array(weights) / sum(weights)
    ideal = shares[:, None] * np.arange(1, num + 1)[None, :]
    assert np.abs(counts - ideal).max() <= 1.5, weights
    # A source's rows come in order, none left out.
    assert (k == counts[source, np.arange(num)] - 1).all()


def test_the_unit_of_weights_does_not_matter():
  for group in (
    ([7, 3], [0.7, 0.3], [70, 30], [7e200, 3e200]),
    ([1, 2, 5], [0.125, 0.25, 0.625], [3, 6, 15]),
  ):
    found = [StableBlend(w).locate(np.arange(10_000)) for w in group]
    for source, k in found[1:]:
      assert (source == found[0][0]).all() and (k == found[0][1]).all()


def test_fractions_and_numpy_numbers_are_weights():
  expected = StableBlend([1, 2]).locate(np.arange(100))
  for weights in ([Fraction(1, 3), Fraction(2, 3)], np.array([1.0, 2.0])):
    found = StableBlend(weights).locate(np.arange(100))
    np.testing.assert_array_equal(found, expected)


def test_position_undoes_locate():
  rng = random.Random(2)
  for _ in range(40):
    blend = StableBlend(_random_weights(rng))
    positions = [*range(40), *(rng.randrange(2**55) for _ in range(20))]
    source, k = blend.locate(np.array(positions))
    found = [blend.position(int(s), int(i)) for s, i in zip(source, k)]
    assert found == positions


def test_counts_are_those_of_the_rows():
  rng = random.Random(3)
  for _ in range(20):
    weights = _random_weights(rng)
    blend = StableBlend(weights)
    position = rng.randrange(3000)
    source, _ = blend.locate(np.arange(position))
    expected = np.bincount(source, minlength=len(weights))
    assert blend.counts(position).tolist() == expected.tolist()


def test_one_source_gets_every_row():
  source, k = StableBlend([0.3]).locate(np.array([0, 1, 2**40]))
  assert source.tolist() == [0, 0, 0]
  assert k.tolist() == [0, 1, 2**40]
  assert StableBlend([0.3]).position(0, 9) == 9


@pytest.mark.parametrize(
  "counts",
  [
    [1],
    [3, 1, 2],
    [0, 4, 0, 3],
    [1, 10_000],
    [10, 10, 10],
    # Scaled to 2^40, these would lose or win a row by their end.
    [2**42 + 1, 2**41 + 3],
    [2**45 + 1, 12_345_678_901, 7],
    [2**45, 1],
  ],
)
def test_from_counts_takes_each_sources_rows_once(counts):
  blend = StableBlend.from_counts(counts)
  total = sum(counts)
  assert blend.num_sources == len(counts)
  assert blend.counts(total).tolist() == counts
  if total < 20_000:
    source, k = blend.locate(np.arange(total))
    found = sorted(zip(source.tolist(), k.tolist()))
    assert found == [(i, j) for i, n in enumerate(counts) for j in range(n)]


def test_from_counts_is_a_blend_by_weights():
  expected = StableBlend([30, 10, 60]).locate(np.arange(100))
  found = StableBlend.from_counts([30, 10, 60]).locate(np.arange(100))
  np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
  "weights, message",
  [
    ([], "at least one weight, got none"),
    ([1, 0], r"source 1 has 0\. Leave a source out"),
    ([-1, 2], "source 0 has -1"),
    ([1.0, float("nan")], "source 1 has nan"),
    ([1.0, float("inf")], "source 1 has inf"),
    ([1.0, 1e-13], r"Source 1 has weight 1e-13, less than 2\^-41 of the sum"),
  ],
)
def test_weights_that_give_no_share_are_refused(weights, message):
  with pytest.raises(ValueError, match=message):
    StableBlend(weights)


def test_the_least_weight_that_counts_is_half_of_a_step():
  # 2^-41 of the sum is a half, which goes to the even number: nothing.
  half = 2.0**-41 / (1 - 2.0**-41)
  with pytest.raises(ValueError, match="would round to nothing"):
    StableBlend([1.0, half])
  source, _ = StableBlend([1.0, half * 1.001]).locate(np.arange(100))
  assert not source.any()


def test_a_negative_position_is_refused():
  with pytest.raises(IndexError, match="-1"):
    StableBlend([1, 2]).locate(np.array([-1]))


def _round_robin(sizes):
  return [
    (i, k) for k in range(max(sizes)) for i, n in enumerate(sizes) if k < n
  ]


def _in_order(sizes):
  return [(i, k) for i, n in enumerate(sizes) for k in range(n)]


_SIZES = [[1], [3, 1, 2], [2, 2], [0, 3], [3, 0], [5, 0, 0, 5, 1, 2], [1, 9, 4]]


@pytest.mark.parametrize("sizes", _SIZES)
@pytest.mark.parametrize(
  "kind, plain", [(RoundRobin, _round_robin), (InOrder, _in_order)]
)
def test_simple_blends_are_the_plain_lists(kind, plain, sizes):
  pattern, expected = kind(sizes), plain(sizes)
  source, k = pattern.locate(np.arange(len(expected)))
  assert list(zip(source.tolist(), k.tolist())) == expected
  assert source.dtype == np.int32
  # Any rows, in any order, alone.
  for g in reversed(range(len(expected))):
    source, k = pattern.locate(np.array([g]))
    assert (int(source[0]), int(k[0])) == expected[g]
  for n in range(len(expected) + 1):
    counts = [sum(i == s for i, _ in expected[:n]) for s in range(len(sizes))]
    assert pattern.counts(n).tolist() == counts


@pytest.mark.parametrize("sizes", _SIZES)
@pytest.mark.parametrize(
  "kind, plain", [(RoundRobin, _round_robin), (InOrder, _in_order)]
)
def test_repeated_goes_on_with_each_source(kind, plain, sizes):
  epoch = plain(sizes)
  expected = [
    (i, e * sizes[i] + k) for e, (i, k) in itertools.product(range(3), epoch)
  ]
  repeated = Repeated(kind(sizes), sizes)
  source, k = repeated.locate(np.arange(len(expected)))
  assert list(zip(source.tolist(), k.tolist())) == expected
  for n in range(len(expected) + 1):
    counts = [sum(i == s for i, _ in expected[:n]) for s in range(len(sizes))]
    assert repeated.counts(n).tolist() == counts


def test_repeated_stable_blend_holds_each_row_once_an_epoch():
  sizes = [5, 0, 3]
  repeated = Repeated(StableBlend.from_counts(sizes), sizes)
  source, k = repeated.locate(np.arange(16))
  for e in range(2):
    rows = slice(8 * e, 8 * e + 8)
    found = sorted(zip(source[rows].tolist(), k[rows].tolist()))
    assert found == [
      (i, e * n + j) for i, n in enumerate(sizes) for j in range(n)
    ]
