import json
import re
from pathlib import Path

import numpy as np
import pytest
from corpora import write_pair

from hpgrain import GPTSamples, MockSamples, index
from hpgrain.buckets import Buckets
from hpgrain.order import bucket_key, permutation_key, permute
from hpgrain.rearranged import rearranged_rows
from hpgrain.sources.by_index.in_memory import InMemoryRecords
from hpgrain.sources.in_turn.numbered import NumberedInTurn
from hpgrain.sources.in_turn.window_shuffle import Epochs
from hpgrain.splits import split_bounds

_DOC = (Path(__file__).parents[1] / "docs/orders.md").read_text("utf-8")


def _vectors(name):
  (block,) = re.findall(rf"```json {name}\n(.*?)```", _DOC, re.DOTALL)
  return json.loads(block)


def test_the_documents_blocks_are_all_checked():
  names = re.findall(r"```json (\w+)", _DOC)
  tests = Path(__file__).parent
  source = "".join(
    (tests / name).read_text("utf-8")
    for name in ("test_order.py", "test_packed_orders.py")
  )
  checked = re.findall(r'_vectors\("(\w+)"\)', source)
  assert sorted(names) == sorted(checked)


def test_keys_are_the_documents():
  for seed, name, epoch, expected in _vectors("key"):
    assert permutation_key(seed, name, epoch).hex() == expected


def test_splits_are_the_documents():
  for split, count, expected in _vectors("split"):
    found = [bounds and list(bounds) for bounds in split_bounds(split, count)]
    assert found == expected


def test_permutations_are_the_documents():
  for name, size, expected in _vectors("permute"):
    where = np.arange(len(expected))
    found = permute(where, size, key=permutation_key(*name))
    assert found.tolist() == expected


def test_offsets_are_the_documents(tmp_path):
  # One row of slack + 1 tokens, and as many left over as the slack.
  for (seed, name, epoch), slack, expected in _vectors("offset"):
    prefix = write_pair(tmp_path / "c", [[[7] * (2 * slack + 1)]])
    samples = GPTSamples(
      prefix,
      seq_length=slack + 1,
      seed=seed,
      name=name,
      add_extra_token=False,
    )
    assert len(samples) == 1
    assert samples.plan(epoch).offset.tolist() == [expected]


def test_spans_are_the_documents(tmp_path):
  lengths = (5, 3, 0, 4, 6)
  prefix = write_pair(tmp_path / "a", [[[7] * length] for length in lengths])
  begins = np.cumsum([0, *lengths])
  samples = GPTSamples(prefix, seq_length=4, seed=0)
  for row, expected in enumerate(_vectors("spans")):
    plan = samples.plan(row)
    begin = begins[plan.sequence[0]] + plan.offset[0]
    assert [begin, begin + plan.length.sum()] == expected


def test_mixed_documents_are_the_documents(tmp_path):
  documents = [[[0] * 5], [[0] * 3, []], [[0] * 4], [], [[0] * 6, [0] * 2]]
  prefix = write_pair(tmp_path / "a", documents)
  samples = GPTSamples(prefix, seq_length=4, seed=0, order="documents")
  for epoch, expected in enumerate(_vectors("documents")):
    document_index, _ = samples._order.epoch_index(epoch)
    assert document_index.tolist() == expected
  for row, expected in enumerate(_vectors("pieces")):
    plan = samples.plan(row)
    ends = plan.offset + plan.length
    pieces = zip(plan.sequence.tolist(), plan.offset.tolist(), ends.tolist())
    assert [list(piece) for piece in pieces] == expected


def test_bucket_keys_are_the_documents():
  for seed, name, epoch, bucket, expected in _vectors("bucket_key"):
    assert bucket_key(seed, name, epoch, bucket).hex() == expected


def test_buckets_are_the_documents():
  expected = _vectors("buckets")
  epoch, place = Buckets(11, 3, seed=0, name="a").map(range(len(expected)))
  assert np.stack([epoch, place], 1).tolist() == expected


def test_windows_of_what_is_read_in_turn_are_the_documents():
  expected = _vectors("windows")
  rows = [{"n": i} for i in range(10)]
  source = NumberedInTurn(InMemoryRecords(rows, name="it"))
  epochs = Epochs(source, seed=0, shuffle_buffer_size=4, epochs=2)
  found = [[row["n"] for row in epochs.read(10)] for _ in expected]
  assert found == expected


def test_the_cyclic_sampler_is_the_documents():
  expected = _vectors("cyclic")
  rows = rearranged_rows(
    range(len(expected)),
    num_rows=5,
    order_map=None,
    permute_seed=0,
    wraps=True,
  )
  assert rows.tolist() == expected


def test_blends_are_the_documents():
  for weights, expected in _vectors("blend"):
    source, k = index.StableBlend(weights).locate(np.arange(len(expected)))
    assert source.tolist() == expected
    for i in set(expected):
      assert k[source == i].tolist() == list(range(expected.count(i)))


def test_far_blend_rows_are_the_documents():
  for weights, g, source, k in _vectors("locate"):
    found = index.StableBlend(weights).locate(np.array([g]))
    assert [int(found[0][0]), int(found[1][0])] == [source, k]


def test_mock_rows_are_the_documents():
  for seed, split, vocab_size, row, expected in _vectors("mock"):
    samples = MockSamples(
      seq_length=4,
      seed=seed,
      vocab_size=vocab_size,
      split_index=("train", "valid", "test").index(split),
    )
    assert samples.read(samples.plan(row))[0].tolist() == expected


def test_a_key_tells_seed_name_and_epoch_apart():
  keys = {
    permutation_key(seed, name, epoch)
    for seed in (0, 1, 11)
    for name in ("a", "1", "1,a")
    for epoch in (0, 1, 11)
  }
  assert len(keys) == 27


def test_numpy_seeds_give_the_key_of_their_value():
  assert permutation_key(np.int64(3), "a", np.int64(2)) == permutation_key(
    3, "a", 2
  )


@pytest.mark.parametrize("size", [1, 2, 7, 255, 256, 257, 1000])
def test_a_permutation_reaches_every_index_once(size):
  found = permute(np.arange(size), size, key=permutation_key(5, "x", 0))
  assert sorted(found.tolist()) == list(range(size))


def test_permute_keeps_the_form_of_its_argument():
  key = permutation_key(0, "a", 0)
  assert permute(0, 5, key=key) == 3
  assert isinstance(permute(0, 5, key=key), int)
  assert permute([0, 1], 5, key=key).tolist() == [3, 4]
  assert permute(np.array([[0], [1]]), 5, key=key).tolist() == [[3], [4]]
  assert permute(np.empty(0, np.int64), 5, key=key).shape == (0,)
  assert permute(np.arange(10)[::5], 10, key=key).tolist() == [7, 3]


def test_permute_refuses_what_it_cannot_permute():
  key = permutation_key(0, "a", 0)
  with pytest.raises(IndexError, match="5"):
    permute(5, 5, key=key)
  with pytest.raises(IndexError, match="-1"):
    permute(-1, 5, key=key)
  with pytest.raises(ValueError, match="size"):
    permute(0, 0, key=key)
  with pytest.raises(ValueError, match="16"):
    permute(0, 5, key=b"short")


@pytest.mark.parametrize(
  "index", [1.7, 2.0, "2", True, None, [0, 1.5], np.array([1.0]), [True]]
)
def test_permute_refuses_what_is_no_integer(index):
  with pytest.raises(
    ValueError, match=re.escape(f"permute takes integers, got {index!r} of")
  ):
    permute(index, 5, key=permutation_key(0, "a", 0))


def test_sizes_seeds_and_epochs_are_integers():
  with pytest.raises(ValueError, match=r"^size must be an integer, got 5\.0\."):
    permute(1, 5.0, key=permutation_key(0, "a", 0))
  for value in (1.9, "7", True, None):
    got = re.escape(f"must be an integer, got {value!r}.")
    with pytest.raises(ValueError, match=f"^seed {got}"):
      permutation_key(value, "a", 0)
    with pytest.raises(ValueError, match=f"^epoch {got}"):
      permutation_key(0, "a", value)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int32, np.uint64])
def test_permute_takes_any_integers(dtype):
  key = permutation_key(0, "a", 0)
  assert permute(dtype(1), 5, key=key) == permute(1, 5, key=key) == 4
  found = permute(np.array([0, 1], dtype), 5, key=key)
  assert found.tolist() == [3, 4] and found.dtype == np.int64


def test_the_public_index_module_has_the_functions():
  assert index.permute is permute
  assert index.permutation_key is permutation_key
  assert index.split_bounds("1", 3) == [(0, 3), None, None]
