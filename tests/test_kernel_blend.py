"""Megatron's blend in C++: its golden arrays, its rule, its errors."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import blend_twins
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpgrain import _kernels

DATA = Path(__file__).parent / "data"
ISAS = ("scalar", "avx2", "avx512")


def _arrays() -> dict[str, np.ndarray]:
  with np.load(DATA / "megatron.npz") as arrays:
    return {
      name: arrays[name]
      for name in arrays.files
      if name.startswith(("raw/blend", "raw/exhaustive", "blend/"))
      and "/member" not in name
    }


GOLDEN = _arrays()
CASES = json.loads((DATA / "megatron.json").read_text())["blend"]


def _assert_golden(got, name):
  source, sample = got
  assert source.dtype == np.int16
  assert sample.dtype == np.int64
  np.testing.assert_array_equal(source, GOLDEN[f"{name}/dataset_index"])
  np.testing.assert_array_equal(sample, GOLDEN[f"{name}/dataset_sample_index"])


def _assert_twin(got, expected, num_sources=1):
  source, sample = got
  assert source.dtype == (np.int16 if num_sources <= 32767 else np.int32)
  assert sample.dtype == np.int64
  assert source.tolist() == expected[0]
  assert sample.tolist() == expected[1]


def _raw(kind, values):
  return sorted(
    name.removesuffix(f"/{values}")
    for name in GOLDEN
    if name.startswith(f"raw/{kind}") and name.endswith(f"/{values}")
  )


@pytest.mark.parametrize("name", _raw("blend", "weights"))
def test_blend_equals_megatron(name):
  weights = GOLDEN[f"{name}/weights"]
  size = len(GOLDEN[f"{name}/dataset_index"])
  _assert_golden(_kernels.blend_index(weights, size), name)


@pytest.mark.parametrize("name", _raw("exhaustive", "sizes"))
def test_exhaustive_blend_equals_megatron(name):
  sizes = GOLDEN[f"{name}/sizes"]
  _assert_golden(_kernels.exhaustive_blend_index(sizes), name)


@pytest.mark.parametrize("name", sorted(CASES))
def test_blend_of_datasets_equals_megatron(name):
  case = CASES[name]
  if case["size"] is None:
    sizes = np.array(case["member_lengths"], np.int64)
    _assert_golden(_kernels.exhaustive_blend_index(sizes), name)
  else:
    weights = blend_twins.normalize(case["weights"])
    _assert_golden(_kernels.blend_index(weights, case["size"]), name)


@pytest.mark.parametrize(
  ("weights", "expected"),
  [
    ([0.7, 0.3], [0, 1, 0, 0, 1, 0, 0, 1, 0, 0]),
    ([0.5, 0.3, 0.2], [0, 1, 2, 0, 1, 0, 2, 0, 1, 0]),
    ([1.0], [0, 0, 0, 0]),
    ([0.5, 0.5], [0, 1, 0, 1, 0, 1]),
    ([7.0, 3.0], [0, 0, 0, 0]),  # as they are: the first never catches up
  ],
)
def test_the_largest_lag_comes_first(weights, expected):
  source, sample = _kernels.blend_index(np.array(weights), len(expected))
  assert source.tolist() == expected
  for i in range(len(weights)):
    rows = sample[source == i]
    assert rows.tolist() == list(range(len(rows)))


def test_each_size_is_used_up():
  sizes = np.array([0, 2, 2, 0])
  source, sample = _kernels.exhaustive_blend_index(sizes)
  # At t = 2 nobody lags; the first has nothing to give.
  assert source.tolist() == [1, 2, 1, 2]
  assert sample.tolist() == [0, 0, 1, 1]


# Sources on either side of each number at which another loop takes over.
COUNTS = [1, 2, 3, 4, 5, 8, 9, 16, 17, 32, 33, 40, 41, 63, 64, 65, 150]


@st.composite
def weight_sets(draw):
  n = draw(st.sampled_from(COUNTS))
  weight = draw(
    st.sampled_from(
      [
        st.floats(0.01, 1),
        st.floats(1e-6, 1e6),
        st.floats(5e-324, 1.7e308),
        st.sampled_from([1e-6, 0.25, 0.25, 1.0]),
        st.floats(0, 1e-6).map(lambda x: 1 + x),
        st.just(1.0),
      ]
    )
  )
  weights = draw(st.lists(weight, min_size=n, max_size=n))
  if draw(st.booleans()) and np.isfinite(sum(weights)):
    normal = blend_twins.normalize(weights)
    if (normal > 0).all():
      return normal.tolist()
  return weights


@given(weights=weight_sets(), size=st.integers(0, 400))
def test_blend_equals_its_twin(weights, size):
  with np.errstate(over="ignore"):
    expected = blend_twins.blend_index(weights, size)
  _assert_twin(_kernels.blend_index(np.array(weights), size), expected)


@given(data=st.data())
def test_exhaustive_blend_equals_its_twin(data):
  n = data.draw(st.sampled_from(COUNTS))
  most = data.draw(st.sampled_from([1, 2, 3 if n > 50 else 30]))
  sizes = data.draw(st.lists(st.integers(0, most), min_size=n, max_size=n))
  _assert_twin(
    _kernels.exhaustive_blend_index(np.array(sizes, np.int64)),
    blend_twins.exhaustive_blend_index(sizes),
  )


def test_ids_are_wider_where_they_must_be():
  for n, dtype in ((32767, np.int16), (32768, np.int32)):
    weights = np.ones(n)
    weights[-1] = 2
    source, _ = _kernels.blend_index(weights, 2)
    assert source.dtype == dtype
    assert source.tolist() == [n - 1, 0]
    sizes = np.ones(n, np.int64)
    sizes[0] = 0
    source, sample = _kernels.exhaustive_blend_index(sizes)
    assert source.dtype == dtype
    assert source.tolist() == list(range(1, n))
    assert not sample.any()


def test_no_rows_are_empty_arrays():
  for source, sample in (
    _kernels.blend_index(np.ones(3), 0),
    _kernels.exhaustive_blend_index(np.zeros(3, np.int64)),
  ):
    assert (source.dtype, source.shape) == (np.int16, (0,))
    assert (sample.dtype, sample.shape) == (np.int64, (0,))


# The module by itself: a new process need not import the whole package.
_LOAD = f"""
import importlib.util
import numpy as np

spec = importlib.util.spec_from_file_location("_kernels", {_kernels.__file__!r})
_kernels = importlib.util.module_from_spec(spec)
spec.loader.exec_module(_kernels)
"""

_DIGEST = """
import hashlib

digest = hashlib.sha256()
for n in (1, 2, 5, 12, 30, 60, 100, 300):
  weights = 1 / np.arange(1.0, n + 1)
  for array in (
    *_kernels.blend_index(weights / weights.sum(), 500),
    *_kernels.blend_index(np.full(n, 1 / n), 500),
    *_kernels.exhaustive_blend_index(np.arange(n) % 7),
  ):
    digest.update(array.tobytes())
"""


def _python(isa, code):
  return subprocess.run(
    [sys.executable, "-c", _LOAD + code],
    env={**os.environ, "HPGRAIN_ISA": isa},
    capture_output=True,
    text=True,
    check=False,
  )


def _expected_digest():
  digest = hashlib.sha256()
  for n in (1, 2, 5, 12, 30, 60, 100, 300):
    weights = 1 / np.arange(1.0, n + 1)
    for source, sample in (
      blend_twins.blend_index(weights / weights.sum(), 500),
      blend_twins.blend_index(np.full(n, 1 / n), 500),
      blend_twins.exhaustive_blend_index([i % 7 for i in range(n)]),
    ):
      digest.update(np.array(source, np.int16).tobytes())
      digest.update(np.array(sample, np.int64).tobytes())
  return digest.hexdigest()


def test_every_instruction_set_gives_the_same_rows():
  expected = _expected_digest()
  code = f"{_DIGEST}\nprint(_kernels.isa(), digest.hexdigest())"
  used = []
  for isa in ISAS:
    done = _python(isa, code)
    if done.returncode == 0:
      assert done.stdout.split() == [isa, expected]
      used.append(isa)
    else:
      assert f'HPGRAIN_ISA is "{isa}"; this machine has scalar' in done.stderr
  assert used[:1] == ["scalar"]
  # With none asked for, the widest.
  assert _python("", code).stdout.split() == [used[-1], expected]


def test_an_unknown_instruction_set_is_refused_where_it_is_needed():
  code = """
print(_kernels.permute(np.arange(1), 1, bytes(16)).tolist())
for call in (_kernels.isa, lambda: _kernels.blend_index(np.ones(1), 1)):
  try:
    call()
  except ValueError as error:
    print(error)
"""
  done = _python("avx3", code)
  assert done.returncode == 0, done.stderr
  lines = done.stdout.splitlines()
  assert lines[0] == "[0]"
  assert len(lines) == 3
  for line in lines[1:]:
    assert line.startswith('HPGRAIN_ISA is "avx3"; this machine has scalar')
    assert line.endswith("Unset it to take the widest.")


@pytest.mark.parametrize(
  ("weights", "size", "message"),
  [
    ([], 1, "a blend of 0 weights; there must be from 1 to"),
    ([1, 0], 1, "the weight of source 1 is 0; weights must be finite and abo"),
    ([-0.5, 1], 1, "the weight of source 0 is -0.5"),
    ([1, float("nan")], 1, "the weight of source 1 is nan"),
    ([1, 1, float("inf")], 1, "the weight of source 2 is inf"),
    ([1], -1, "a blend of -1 rows; there must be 0 or more"),
    ([[1]], 1, "weights must have one dimension, got 2"),
  ],
)
def test_blend_refuses(weights, size, message):
  with pytest.raises(ValueError, match=message):
    _kernels.blend_index(np.array(weights, np.float64), size)


@pytest.mark.parametrize(
  ("sizes", "message"),
  [
    ([], "a blend of 0 sizes; there must be from 1 to"),
    ([3, -1], "the size of source 1 is -1; sizes must be 0 or more"),
    ([2**62, 0, 1], r"sources 0 to 2 sum to more than 2\*\*62 rows"),
    ([2**63 - 1], r"sources 0 to 0 sum to more than 2\*\*62 rows"),
    ([[1]], "sizes must have one dimension, got 2"),
  ],
)
def test_exhaustive_blend_refuses(sizes, message):
  with pytest.raises(ValueError, match=message):
    _kernels.exhaustive_blend_index(np.array(sizes, np.int64))


@pytest.mark.parametrize("size", [2**50, 2**59, 2**60, 2**62])
def test_too_many_rows_are_a_memory_error(size):
  with pytest.raises(MemoryError, match=r"(?i)alloc"):
    _kernels.blend_index(np.ones(2), size)
  with pytest.raises(MemoryError, match=r"(?i)alloc"):
    _kernels.exhaustive_blend_index(np.array([size - 1, 1]))
