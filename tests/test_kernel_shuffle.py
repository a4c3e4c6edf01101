"""The C++ shuffle against NumPy's own and against its rule."""

import megatron_twins as slow
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_files import kernel_shuffle

from hpgrain import _kernels

ITEM_TYPES = (np.uint8, np.int16, np.uint32, np.float32, np.int64)


def assert_same_state(a, b):
  (_, key, position, *_), (_, other_key, other_position, *_) = (
    random_state.get_state(legacy=True) for random_state in (a, b)
  )
  assert position == other_position
  assert key.tolist() == other_key.tolist()


@given(
  st.integers(0, 2**32 - 1),
  st.integers(0, 700),
  st.integers(0, 1300) | st.sampled_from([2**12, 2**12 + 1, 2**16 + 1]),
  st.sampled_from(ITEM_TYPES),
)
def test_a_shuffle_is_numpys_and_leaves_its_state(seed, drawn, size, dtype):
  ours, numpys = (np.random.RandomState(seed) for _ in range(2))
  for random_state in (ours, numpys):
    random_state.randint(0, 2**32, size=drawn, dtype=np.uint32)
  array = np.arange(size).astype(dtype)
  expected = array.copy()
  kernel_shuffle(array, ours)
  numpys.shuffle(expected)
  assert array.tobytes() == expected.tobytes()
  assert_same_state(ours, numpys)


@given(st.integers(0, 2**32 - 1), st.integers(0, 200))
def test_a_shuffle_is_masked_rejection_over_words(seed, size):
  ours, twin = (np.random.RandomState(seed) for _ in range(2))
  array, expected = np.arange(size), np.arange(size)
  kernel_shuffle(array, ours)
  slow.shuffle(expected, twin)
  assert array.tolist() == expected.tolist()
  assert_same_state(ours, twin)


def test_a_shuffle_takes_items_of_any_meaning_and_address():
  array = np.array([b"ab", b"cd", b"ef", b"gh"], "S2")
  expected = array.copy()
  kernel_shuffle(array, np.random.RandomState(3))
  np.random.RandomState(3).shuffle(expected)
  assert array.tolist() == expected.tolist()
  odd = np.frombuffer(bytearray(1 + 4 * 50), np.int32, 50, 1)
  odd[:] = np.arange(50)
  plain = np.arange(50, dtype=np.int32)
  assert not odd.flags.aligned
  kernel_shuffle(odd, np.random.RandomState(3))
  np.random.RandomState(3).shuffle(plain)
  assert odd.tolist() == plain.tolist()


def _read_only(array):
  array.flags.writeable = False
  return array


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"position": -1}, r"position must lie in \[0, 624\], got -1"),
    ({"position": 625}, r"position must lie in \[0, 624\], got 625"),
    ({"key": np.zeros(623, np.uint32)}, "key must hold the 624 words .* 623"),
    ({"key": np.zeros(624, np.int32)}, "key must be a writeable array"),
    ({"key": np.zeros((1, 624), np.uint32)}, "key must be a writeable array"),
    (
      {"key": _read_only(np.zeros(624, np.uint32))},
      "key must be a writeable array",
    ),
    ({"array": np.zeros((2, 2))}, "array must have one dimension.* got 2"),
    ({"array": np.arange(8)[::2]}, "array must have one dimension, C-contig"),
    ({"array": _read_only(np.arange(8))}, "1 dimensions, read-only; shuffle a"),
    ({"array": np.zeros(3, complex)}, "cannot shuffle items of 16 bytes"),
    ({"array": np.zeros(3, "S3")}, "cannot shuffle items of 3 bytes"),
    ({"array": np.array([None, 1])}, "array holds Python objects"),
  ],
)
def test_a_shuffle_refuses_what_it_cannot_do(change, message):
  arguments = {
    "array": np.arange(8),
    "key": np.zeros(624, np.uint32),
    "position": 0,
  }
  with pytest.raises(ValueError, match=message):
    _kernels.shuffle(**{**arguments, **change})
