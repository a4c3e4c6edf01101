import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from listed_records import BAD, Listed

from hpgrain.blend import StableBlend
from hpgrain.blended_records import BlendedRecords, make_blend
from hpgrain.sources.in_turn.window_shuffle import Epochs


def blended(records, *, weights=None, epochs=1, buffer=None):
  sources = [Listed(f"s{i}", rows) for i, rows in enumerate(records)]
  return BlendedRecords(
    [
      Epochs(s, seed=0, shuffle_buffer_size=buffer, epochs=epochs)
      for s in sources
    ],
    names=[s.name for s in sources],
    weights=weights,
  )


def numbered(block):
  """{blended record: record}, those that were not wanted None."""
  found = {}
  for part in block.parts:
    for number, record in zip(part.number.tolist(), part.records, strict=True):
      found[number] = record
  return dict(sorted(found.items()))


def read_all(order, size):
  found = {}
  while block := order.read(size):
    found |= numbered(block)
  return found


def test_weights_say_who_gives_a_record():
  order = blended([["a0", "a1", "a2", "a3"], ["b0", "b1"]], weights=[2, 1])
  source, k = StableBlend([2, 1]).locate(np.arange(6))
  expected = {g: f"{'ab'[source[g]]}{k[g]}" for g in range(6)}
  block = order.read(4)
  assert (block.begin, block.end) == (0, 4)
  assert numbered(block) == {g: expected[g] for g in range(4)}
  assert numbered(order.read(4)) == {g: expected[g] for g in (4, 5)}
  assert order.ended
  assert len(order.read(4)) == 0


def test_records_that_are_not_wanted_are_not_made():
  source = Listed("a", ["a0", "a1", "a2", "a3", "a4", "a5"])
  order = BlendedRecords(
    [Epochs(source, seed=0, shuffle_buffer_size=None, epochs=1)],
    names=["a"],
    weights=None,
  )
  # Of stream 0 from record 3 on, of stream 1 none.
  block = order.read(6, first=np.array([3, 99]))
  assert numbered(block) == {
    0: None, 1: None, 2: None, 3: None, 4: "a4", 5: None,
  }  # fmt: skip
  assert source.taken == 1


@given(
  sizes=st.lists(st.integers(1, 6), min_size=1, max_size=4),
  data=st.data(),
  epochs=st.integers(1, 2),
  blocks=st.lists(st.integers(1, 7), min_size=1, max_size=5),
)
def test_blocks_change_nothing_and_it_ends_before_an_epoch_too_many(
  sizes, data, epochs, blocks
):
  weights = [data.draw(st.sampled_from([1e-6, 0.3, 1, 2.5])) for _ in sizes]
  records = [[f"{i}:{r}" for r in range(n)] for i, n in enumerate(sizes)]
  expected = {}
  for g in range(100):
    (source,), (k,) = StableBlend(weights).locate(np.array([g]))
    if k >= sizes[source] * epochs:
      break
    expected[g] = f"{source}:{k % sizes[source]}"
  order = blended(records, weights=weights, epochs=epochs)
  found = {}
  for size in blocks:
    found |= numbered(order.read(size))
  found |= read_all(order, 3)
  assert found == expected


@given(cut=st.integers(0, 9), buffer=st.sampled_from([None, 1, 3]))
def test_it_goes_on_from_any_position(cut, buffer):
  records = [[f"{i}{r}" for r in range(4)] for i in range(3)]
  options = {"weights": [1, 2, 3], "epochs": None, "buffer": buffer}
  whole = blended(records, **options)
  before = numbered(whole.read(cut)) if cut else {}
  place = json.loads(json.dumps(whole.position()))
  after = numbered(whole.read(20))
  other = blended(records, **options)
  other.read(11)
  other.seek(*place)
  assert numbered(other.read(20)) == after
  assert whole.position() == other.position()
  assert list(before) == list(range(cut))


def test_what_lies_behind_the_end_may_be_broken():
  weights = [1, 1]
  # b0 a0 or a0 b0, ...: the source of two ends the blend.
  good = ["b0", "b1", "b2", *[BAD] * 20]
  order = blended([["a0", "a1"], good], weights=weights)
  found = read_all(order, 16)
  assert set(found.values()) <= {"a0", "a1", "b0", "b1", "b2"}
  assert found == read_all(
    blended([["a0", "a1"], good[:3]], weights=weights), 1
  )
  order = blended([["a0", "a1"], ["b0", BAD]], weights=weights)
  with pytest.raises(ValueError, match="s1, record 1 is broken"):
    order.read(16)


def test_a_source_of_a_blend_has_a_record():
  order = blended([["a0"], []], weights=[3, 1])
  with pytest.raises(ValueError, match="Source 's1' has no record to draw"):
    order.read(9)
  assert len(blended([[]]).read(9)) == 0
  with pytest.raises(ValueError, match="s0 has no record in epoch 0"):
    blended([[]], epochs=None).read(9)


def test_several_sources_have_weights():
  assert make_blend(1, None) is make_blend(1, [3]) is None
  with pytest.raises(ValueError, match="2 sources that are read in turn need"):
    make_blend(2, None)
  with pytest.raises(ValueError, match="one weight a source, got 1"):
    make_blend(2, [1])
  with pytest.raises(ValueError, match="weights must be positive"):
    make_blend(1, [-1])
  with pytest.raises(
    ValueError, match="positions of 1 sources, and there are 2"
  ):
    blended([["a"], ["b"]], weights=[1, 1]).seek(0, [[0, 0, 0]])
