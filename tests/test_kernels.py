"""The permutation and the blend in C++ against their slow twins."""

import collections
import itertools
import math

import numpy as np
import pytest
import twins
from hypothesis import given
from hypothesis import strategies as st

from hpgrain import _kernels

KEY = bytes(range(16))


def _int64(*values):
  return np.array(values, np.int64)


# Permutation


def test_permute_keeps_its_vectors():
  index = np.arange(10, dtype=np.int64)
  got = _kernels.permute(index, 10, KEY).tolist()
  assert got == [twins.permute(i, 10, KEY) for i in range(10)]
  assert got == [7, 6, 9, 2, 1, 3, 5, 0, 4, 8]


@pytest.mark.parametrize("size", [1, 2, 3, 255, 256, 257, 1000, 65537])
def test_permute_is_a_permutation(size):
  out = _kernels.permute(np.arange(size, dtype=np.int64), size, KEY)
  assert sorted(out.tolist()) == list(range(size))


@given(
  size=st.integers(1, 1 << 62)
  | st.integers(1, 70)
  | st.sampled_from([2**53, 2**53 + 1, 2**61, 2**61 + 1, 2**62]),
  data=st.data(),
  key=st.binary(min_size=16, max_size=16),
)
def test_permute_equals_its_twin(size, data, key):
  index = data.draw(st.lists(st.integers(0, size - 1), max_size=5))
  out = _kernels.permute(np.array(index, np.int64), size, key)
  assert out.tolist() == [twins.permute(i, size, key) for i in index]


def _chi_square_bound(degrees):
  """Chi-square's 1 - 1e-6 quantile, by Wilson and Hilferty."""
  z = 4.75
  return (
    degrees * (1 - 2 / (9 * degrees) + z * math.sqrt(2 / (9 * degrees))) ** 3
  )


@pytest.mark.parametrize("size", [2, 3, 4, 5, 6])
def test_all_orders_of_few_rows_are_equally_likely(size):
  orders = math.factorial(size)
  keys = 40 * orders
  index = np.arange(size, dtype=np.int64)
  counts = collections.Counter(
    tuple(
      _kernels.permute(
        index, size, twins.mix64(i + 1).to_bytes(8, "little") + bytes(8)
      ).tolist()
    )
    for i in range(keys)
  )
  expected = keys / orders
  chi = sum(
    (counts[order] - expected) ** 2 / expected
    for order in itertools.permutations(range(size))
  )
  assert chi < _chi_square_bound(orders - 1)
  # Nor suspiciously even.
  assert chi > (orders - 1) / 8 - 1


@pytest.mark.parametrize(
  ("index", "size", "key", "error", "message"),
  [
    ([0], 0, KEY, ValueError, "cannot permute 0 elements"),
    ([0], -1, KEY, ValueError, "cannot permute -1 elements"),
    ([0], 2**62 + 1, KEY, ValueError, "from 1 to 2\\*\\*62"),
    ([0, 5], 5, KEY, IndexError, r"index\[1\] is 5; .* takes 0 to 4"),
    ([-1], 5, KEY, IndexError, r"index\[0\] is -1"),
    ([0], 5, b"short", ValueError, "a key has 16 bytes, got 5"),
    ([[0]], 5, KEY, ValueError, "index must have one dimension, got 2"),
    ([0.5], 5, KEY, TypeError, "incompatible function arguments"),
  ],
)
def test_permute_refuses(index, size, key, error, message):
  with pytest.raises(error, match=message):
    _kernels.permute(np.array(index), size, key)


# Blend


@st.composite
def trees(draw, max_sources=9, max_weight=1 << 40):
  """Any binary tree over sources: pairs joined at random, the last is root."""
  num_sources = draw(st.integers(1, max_sources))
  items = [
    (~source, draw(st.integers(1, max_weight))) for source in range(num_sources)
  ]
  made = []
  while len(items) > 1:
    left = items.pop(draw(st.integers(0, len(items) - 1)))
    right = items.pop(draw(st.integers(0, len(items) - 1)))
    made.append((left, right))
    items.append((len(made) - 1, left[1] + right[1]))
  # The root was made last and must come first.
  number = {i: len(made) - 1 - i for i in range(len(made))}
  children = [
    [number.get(left[0], left[0]), number.get(right[0], right[0])]
    for left, right in reversed(made)
  ]
  weights = [[left[1], right[1]] for left, right in reversed(made)]
  return (
    np.array(children, np.int32).reshape(-1, 2),
    np.array(weights, np.uint64).reshape(-1, 2),
    num_sources,
  )


POSITIONS = st.lists(
  st.integers(0, 300)
  | st.integers(0, (1 << 63) - 1)
  | st.integers(-9, 9).map(lambda d: (1 << 51) + d)
  | st.integers(-9, 9).map(lambda d: (1 << 53) + d)
  | st.integers(0, 9).map(lambda d: (1 << 62) - d)
  | st.integers(1, 9).map(lambda d: (1 << 63) - d),
  max_size=20,
)


@given(trees(), POSITIONS)
def test_blend_equals_its_twin(tree, positions):
  source, k = _kernels.BlendTree(*tree).locate(np.array(positions, np.int64))
  assert (source.dtype, k.dtype) == (np.int32, np.int64)
  assert list(zip(source.tolist(), k.tolist(), strict=True)) == [
    twins.blend_locate(*tree[:2], position) for position in positions
  ]


@given(trees(max_sources=3, max_weight=(1 << 61) + 7), POSITIONS)
def test_blend_is_exact_with_huge_weights(tree, positions):
  source, k = _kernels.BlendTree(*tree).locate(np.array(positions, np.int64))
  assert list(zip(source.tolist(), k.tolist(), strict=True)) == [
    twins.blend_locate(*tree[:2], position) for position in positions
  ]


@given(
  total=st.integers(2, 1 << 40),
  data=st.data(),
)
def test_blend_is_exact_where_a_quotient_is_nearly_whole(total, data):
  """Positions at which n*L/T + 1/2 lies within a hair of an integer."""
  left = data.draw(st.integers(1, total - 1))
  quotient = data.draw(st.integers(0, (1 << 51) * left // total - 2))
  n = ((2 * quotient - 1) * total) // (2 * left)
  positions = [p for p in range(n - 2, n + 3) if p >= 0]
  children = np.array([[~0, ~1]], np.int32)
  weights = np.array([[left, total - left]], np.uint64)
  source, k = _kernels.BlendTree(children, weights, 2).locate(
    np.array(positions, np.int64)
  )
  assert list(zip(source.tolist(), k.tolist(), strict=True)) == [
    twins.blend_locate(children, weights, p) for p in positions
  ]


@given(trees(max_weight=20))
def test_blend_numbers_each_sources_rows_in_turn(tree):
  blend = _kernels.BlendTree(*tree)
  source, k = blend.locate(np.arange(200, dtype=np.int64))
  seen = [0] * tree[2]
  for position, (s, row) in enumerate(zip(source, k, strict=True)):
    assert blend.counts(position).tolist() == seen
    assert row == seen[s]
    seen[s] += 1


def test_blend_of_seven_and_three():
  tree = _kernels.BlendTree(
    np.array([[~1, ~0]], np.int32), np.array([[3, 7]], np.uint64), 2
  )
  source, k = tree.locate(np.arange(10, dtype=np.int64))
  assert source.tolist() == [0, 1, 0, 0, 1, 0, 0, 0, 1, 0]
  assert k.tolist() == [0, 0, 1, 2, 1, 3, 4, 5, 2, 6]
  assert tree.counts(10).tolist() == [7, 3]
  assert tree.num_sources == 2


def test_blend_of_one_source_has_no_node():
  tree = _kernels.BlendTree(
    np.zeros((0, 2), np.int32), np.zeros((0, 2), np.uint64), 1
  )
  source, k = tree.locate(_int64(0, 5, 2**63 - 1))
  assert (source.tolist(), k.tolist()) == ([0, 0, 0], [0, 5, 2**63 - 1])
  assert tree.counts(9).tolist() == [9]


@pytest.mark.parametrize(
  ("children", "weights", "sources", "message"),
  [
    ([[~0, ~1]], [[0, 1]], 2, "node 0 has the weights 0 and 1"),
    ([[~0, ~1]], [[2**63 - 1, 1]], 2, "sum below 2\\*\\*63"),
    ([[~0, ~1]], [[2**64 - 1, 2**64 - 1]], 2, "sum below 2\\*\\*63"),
    ([[~0, ~1]], [[1, 1]], 3, "a blend tree over 3 sources has 2 nodes"),
    ([[~0, ~0]], [[1, 1]], 2, "node 0 has the child -1"),
    ([[~0, ~2]], [[1, 1]], 2, "node 0 has the child -3"),
    ([[~0, 1], [~1, 5]], [[1, 1]] * 2, 3, "node 1 has the child 5"),
    ([[~0, 0], [~1, ~2]], [[1, 1]] * 2, 3, "node 0 has the child 0"),
    ([[~0, ~1], [1, ~2]], [[1, 1]] * 2, 3, "only 1 of 2 nodes"),
    ([[-(2**31), ~1]], [[1, 1]], 2, "has the child -2147483648"),
    ([], [], 0, "a blend of 0 sources"),
    ([], [], -(2**63), "a blend of -9223372036854775808 sources"),
  ],
)
def test_blend_refuses_what_is_no_tree(children, weights, sources, message):
  with pytest.raises(ValueError, match=message):
    _kernels.BlendTree(
      np.array(children, np.int32).reshape(-1, 2),
      np.array(weights, np.uint64).reshape(-1, 2),
      sources,
    )


def test_blend_refuses_other_shapes():
  with pytest.raises(ValueError, match=r"children must have the shape"):
    _kernels.BlendTree(np.zeros(2, np.int32), np.ones((1, 2), np.uint64), 2)


def test_blend_refuses_negative_positions():
  tree = _kernels.BlendTree(
    np.array([[~0, ~1]], np.int32), np.array([[1, 1]], np.uint64), 2
  )
  with pytest.raises(IndexError, match=r"positions\[1\] is -3"):
    tree.locate(_int64(0, -3))
  with pytest.raises(IndexError, match="position is -1"):
    tree.counts(-1)
