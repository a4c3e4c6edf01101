"""hpgrain/kept_tokens.py: examples that are made once and then read."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from index_cache_worker import names
from measured_worker import Numbers, Spread

from hpgrain.index_cache import IndexCache
from hpgrain.measured import MeasuredRecords
from hpgrain.records import IGNORE_INDEX
from hpgrain.sources.by_index.in_memory import InMemoryRecords
from hpgrain.sources.indexed import IndexedReader, IndexedWriter
from hpgrain.transforms.pretokenized import PretokenizedTransform


def kept(folder, transform, *, num_records=20, **options):
  return MeasuredRecords(
    Numbers(num_records),
    transform,
    cache=IndexCache(folder),
    keep_tokens=True,
    chunk_records=8,
    **options,
  )


def columns(examples):
  """All that examples are."""
  return [
    None if array is None else (array.dtype.str, array.tolist())
    for array in (
      examples.record_splits,
      examples.example_splits,
      examples.input_ids,
      examples.labels,
      examples.weights,
    )
  ]


@pytest.mark.parametrize("counts", [(1,), (1, 0), (2, 0, 1)])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_transform_is_called_once_in_all_runs(tmp_path, counts, weighted):
  asked = [3, 0, 3, 4]
  spread = {"counts": counts, "sizes": (2, 1, 3), "weighted": weighted}
  made = MeasuredRecords(Numbers(20), Spread(**spread)).read(asked)
  for run in range(2):
    transform = Spread(**spread)
    found = kept(tmp_path, transform)
    found.measure()
    assert bool(transform.seen) == (run == 0)
    transform.seen = []
    for _ in range(2):
      assert columns(found.read(asked)) == columns(made)
    assert columns(found.read([])) == columns(
      MeasuredRecords(Numbers(20), Spread(**spread)).read([])
    )
    copy = pickle.loads(pickle.dumps(found))
    copy.transform.seen = transform.seen
    assert columns(copy.read(asked)) == columns(made)
    assert transform.seen == []


def test_the_pairs_are_tokenized_corpora(tmp_path):
  records = InMemoryRecords(
    [
      {"input_ids": [5, 6, 7]},
      {"input_ids": []},
      {"input_ids": [8, 9, 10], "loss_mask": [0, 1, 0.5]},
    ],
    name="ids",
  )
  found = MeasuredRecords(
    records,
    PretokenizedTransform(max_seq_len=4),
    cache=IndexCache(tmp_path),
    keep_tokens=True,
    chunk_records=1,
  )
  found.measure()
  read = {}
  for path in tmp_path.glob("kept_*.idx"):
    reader = IndexedReader(str(path.with_suffix("")))
    name = path.name.split("-")[0]
    read[name] = (reader.dtype.name, [reader[i].tolist() for i in range(3)])
    assert reader.num_documents == 3
    reader.verify()
  # A chunk without weights of its own counts its labels 1 each.
  assert read == {
    "kept_ids": ("int32", [[5, 6], [], [8, 9]]),
    "kept_labels": ("int32", [[6, 7], [], [9, 10]]),
    "kept_weights": ("float32", [[1.0, 1.0], [], [1.0, 0.5]]),
  }
  assert {name.split("-")[1].split(".")[0] for name in names(tmp_path)
          if name.startswith("kept")} == {
    next(tmp_path.glob("kept_ids*.idx")).stem.split("-")[1]
  }  # fmt: skip


def test_labels_that_are_ignored_count_nothing(tmp_path):
  """Batch by batch weights are there or not; together they are, for all."""
  records = InMemoryRecords(
    [
      {"input_ids": [1, 2, 3], "loss_mask": [1, 0, 1]},
      {"input_ids": [4, 5, 6], "loss_mask": [1, 0.25, 1]},
    ],
    name="ids",
  )
  found = MeasuredRecords(
    records,
    PretokenizedTransform(max_seq_len=4),
    cache=IndexCache(tmp_path),
    keep_tokens=True,
    chunk_records=1,
  )
  read = found.read([0, 1])
  assert read.labels.tolist() == [IGNORE_INDEX, 3, 5, 6]
  assert read.weights.tolist() == [0, 1, 0.25, 1]


@settings(max_examples=10)
@given(
  counts=st.lists(st.integers(0, 3), min_size=1, max_size=4),
  sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4),
  weighted=st.booleans(),
  num_records=st.integers(0, 30),
)
def test_what_is_kept_is_what_is_made(
  tmp_path_factory, counts, sizes, weighted, num_records
):
  spread = {"counts": counts, "sizes": sizes, "weighted": weighted}
  transform = Spread(**spread)
  found = kept(
    tmp_path_factory.mktemp("kept"), transform, num_records=num_records
  )
  first, count = found.examples(np.arange(num_records))
  asked = np.arange((first + count).max(initial=0))
  transform.seen = []
  made = MeasuredRecords(Numbers(num_records), Spread(**spread)).read(asked)
  assert columns(found.read(asked))[:-1] == columns(made)[:-1]
  if len(made.input_ids):
    assert columns(found.read(asked)) == columns(made)
  assert transform.seen == []


def test_a_table_without_tokens_gets_them(tmp_path):
  MeasuredRecords(Numbers(20), Spread(), cache=IndexCache(tmp_path)).measure()
  first, second = Spread(), Spread()
  for transform, calls in ((first, 3), (second, 0)):
    found = kept(tmp_path, transform)
    found.measure()
    assert len(transform.seen) == calls
  assert found.read([4]).input_ids.tolist() == [4, 4]
  assert second.seen == []


def test_a_table_with_tokens_serves_one_without(tmp_path):
  kept(tmp_path, Spread()).measure()
  transform = Spread()
  found = MeasuredRecords(Numbers(20), transform, cache=IndexCache(tmp_path))
  found.measure()
  assert transform.seen == []
  found.read([0])
  assert transform.seen == [0]


def test_while_another_process_writes_them_examples_are_made(tmp_path, caplog):
  kept(tmp_path / "other", Spread()).measure()
  (ids,) = (tmp_path / "other").glob("kept_ids-*.idx")
  folder = tmp_path / "cache"
  folder.mkdir()
  transform = Spread()
  found = kept(folder, transform)
  # In another folder the same data have the same name.
  with IndexedWriter(folder / ids.stem, dtype=np.int32) as other:
    found.measure()
    transform.seen = []
    assert found.read([4, 2]).input_ids.tolist() == [4, 4, 2, 2]
    assert transform.seen == [2]
    for number in range(20):
      other.add_document([number] * 2)
  for path in (tmp_path / "other").glob("kept_labels-*"):
    path.rename(folder / path.name)
  transform.seen = []
  assert found.read([4, 2]).input_ids.tolist() == [4, 4, 2, 2]
  assert transform.seen == []
  assert not caplog.records


def test_tokens_of_other_lengths_are_refused(tmp_path):
  kept(tmp_path, Spread()).measure()
  (ids,) = tmp_path.glob("kept_ids-*.idx")
  with IndexedWriter(ids.with_suffix(""), dtype=np.int32) as other:
    for number in range(20):
      other.add_document([number] * (3 if number == 7 else 2))
  with pytest.raises(
    ValueError,
    match=r"numbers, record 8 makes .* \[3\] .* measured to make \[2\]",
  ):
    kept(tmp_path, Spread()).read([3, 7])


def test_they_need_a_folder():
  for cache in (None, IndexCache(None)):
    with pytest.raises(ValueError, match="keep_tokens=True keeps examples in"):
      MeasuredRecords(Numbers(3), Spread(), cache=cache, keep_tokens=True)


def test_blocks_of_a_chunk_follow_one_another(tmp_path, monkeypatch):
  """However many batches a chunk is read in."""
  monkeypatch.setattr("hpgrain.lengths_scan._FIRST_BATCH", 1)
  monkeypatch.setattr("hpgrain.lengths_scan._BATCH_RECORDS", 2)
  transform = Spread((2,), (1, 2), weighted=True)
  found = kept(tmp_path, transform)
  made = MeasuredRecords(Numbers(20), Spread((2,), (1, 2), weighted=True)).read(
    np.arange(40)
  )
  assert columns(found.read(np.arange(40))) == columns(made)
  assert len(transform.seen) > 10
