import pickle

import numpy as np
import pytest
from corpora import write_pair

from hpgrain import GPTSamples
from hpgrain.index_cache import IndexCache


def _samples(prefix, **options):
  given = {"seq_length": 4, "seed": 0, "order": "documents", **options}
  return GPTSamples(prefix, **given)


@pytest.mark.parametrize(
  "documents, boundaries",
  [
    # One document throughout, with empty sequences between its others.
    ([[[1, 2], [3, 4, 5]]], [True, False]),
    ([[[1, 2], [], [3, 4, 5]]], [True, False]),
    ([[[], [1, 2], [], [], [3, 4, 5], []]], [True, False]),
  ],
)
def test_a_documents_sequences_are_one_segment(tmp_path, documents, boundaries):
  samples = _samples(write_pair(tmp_path / "a", documents))
  plan = samples.plan(0)
  assert plan.boundary.tolist() == boundaries
  assert samples.read(plan).tolist() == [[1, 2, 3, 4, 5]]
  assert samples.segments(plan).starts.tolist() == [0]


@pytest.mark.parametrize("between", [[], [[]], [[[]]], [[], [[]], []]])
def test_documents_are_segments_whatever_is_empty_between(tmp_path, between):
  documents = [[[1, 2], []], *between, [[], [3, 4, 5]]]
  prefix = write_pair(tmp_path / "a", documents)
  seen = set()
  for seed in range(20):
    samples = _samples(prefix, seed=seed)
    plan = samples.plan(0)
    (row,) = samples.read(plan).tolist()
    seen.add(tuple(row))
    assert plan.boundary.tolist() == [True, True]
    start = 2 if row[0] == 1 else 3
    assert samples.segments(plan).starts.tolist() == [0, start]
  assert seen == {(1, 2, 3, 4, 5), (3, 4, 5, 1, 2)}


def test_every_epoch_reads_every_document_once_in_another_order(tmp_path):
  documents = [[[i, i, i, i]] for i in range(1, 26)]
  samples = _samples(
    write_pair(tmp_path / "a", documents), add_extra_token=False
  )
  orders = []
  for epoch in range(4):
    rows = samples.plan_rows(np.arange(25 * epoch, 25 * (epoch + 1)))
    orders.append(tuple(samples.read(rows)[:, 0].tolist()))
    assert sorted(orders[-1]) == [*range(1, 26)]
  assert len(set(orders)) == 4


def test_a_batch_may_reach_over_epochs_in_any_order(tmp_path):
  documents = [[[i] * (i % 7)] for i in range(1, 60)]
  samples = _samples(write_pair(tmp_path / "a", documents))
  rows = np.random.default_rng(0).permutation(5 * len(samples))
  together = samples.read(samples.plan_rows(rows))
  alone = [samples.read(samples.plan(int(row)))[0] for row in rows]
  np.testing.assert_array_equal(together, alone)


def test_copies_and_caches_give_the_same_rows(tmp_path):
  documents = [[[i] * (i % 7)] for i in range(1, 60)]
  prefix = write_pair(tmp_path / "a", documents)
  rows = np.arange(100)
  expected = _samples(prefix)
  expected = expected.read(expected.plan_rows(rows))
  for _ in range(2):
    cache = IndexCache(tmp_path / "cache")
    samples = _samples(prefix, cache=cache)
    found = samples.read(samples.plan_rows(rows))
    np.testing.assert_array_equal(found, expected)
  assert {event.kind: event.built for event in cache.events} == {
    "epoch_documents": False,
    "epoch_samples": False,
  }
  copy = pickle.loads(pickle.dumps(samples))
  np.testing.assert_array_equal(copy.read(copy.plan_rows(rows)), expected)


def test_files_are_mapped_once_where_epochs_alternate(tmp_path):
  documents = [[[i] * 5] for i in range(1, 30)]
  cache = IndexCache(tmp_path / "cache")
  samples = _samples(write_pair(tmp_path / "a", documents), cache=cache)
  length = len(samples)
  for _ in range(5):
    samples.plan_rows([0, length])
  assert len(cache.events) == 4


def test_without_shuffling_documents_are_as_they_are_stored(tmp_path):
  documents = [[[i] * 5] for i in range(1, 30)]
  prefix = write_pair(tmp_path / "a", documents)
  found, stored = (
    GPTSamples(prefix, seq_length=4, seed=0, order=order, shuffle=False)
    for order in ("documents", "stable")
  )
  rows = np.arange(len(stored))
  np.testing.assert_array_equal(
    found.read(found.plan_rows(rows)), stored.read(stored.plan_rows(rows))
  )


def test_lengths_that_contradict_the_pointers_are_named(tmp_path):
  prefix = write_pair(tmp_path / "a", [[[i] * 5] for i in range(1, 30)])
  path = tmp_path / "a.idx"
  content = bytearray(path.read_bytes())
  # The length of the third sequence; its neighbours' places say 5.
  content[34 + 4 * 2] = 6
  path.write_bytes(content)
  for order in ("documents", "megatron"):
    samples = _samples(prefix, order=order)
    with pytest.raises(
      ValueError, match=r"a\.idx: the lengths .* add up to 146 .* to 145"
    ):
      samples.plan(0)
