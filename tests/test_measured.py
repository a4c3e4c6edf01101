"""hpgrain/measured.py: tables of lengths, and examples by number."""

import json
import pickle
import threading

import numpy as np
import pytest
from helpers_tokenizer import save_word_tokenizer
from hypothesis import given
from hypothesis import strategies as st
from measured_worker import Numbers, Spread

from hpgrain.examples import Examples
from hpgrain.index_cache import IndexCache
from hpgrain.measured import MeasuredRecords
from hpgrain.sources.by_index.formats import open_records
from hpgrain.sources.by_index.in_memory import InMemoryRecords
from hpgrain.transforms.counters import Counters
from hpgrain.transforms.make import make_transform
from hpgrain.transforms.pretokenized import PretokenizedTransform
from hpgrain.transforms.record_hooks import FilteredTransform

# Records of 5, 0, 1, 9 and 2 ids: 4, 0, 0, 8 and 1 positions.
IDS = [list(range(10 * r, 10 * r + n)) for r, n in enumerate((5, 0, 1, 9, 2))]


def source(ids=IDS, name="ids"):
  return InMemoryRecords([{"input_ids": i} for i in ids], name=name)


def measured(size, **options):
  return MeasuredRecords(
    source(), PretokenizedTransform(max_seq_len=size), **options
  )


def listed(examples):
  """Each example as (inputs, labels); every one has a record of its own."""
  assert examples.record_splits.tolist() == list(range(len(examples) + 1))
  return [
    tuple(column.tolist() for column in examples.example(e))
    for e in range(len(examples))
  ]


@pytest.mark.parametrize("chunk_records", [1, 2, 3, 100])
@pytest.mark.parametrize("folder", [False, True])
def test_a_record_makes_several_examples(tmp_path, chunk_records, *, folder):
  cache = IndexCache(tmp_path / "cache") if folder else None
  found = measured(3, cache=cache, chunk_records=chunk_records)
  first, count = found.examples(np.array([3, 0, 1, 4, 2]))
  assert first.tolist() == [2, 0, 2, 5, 2]
  assert count.tolist() == [3, 2, 0, 1, 0]
  lengths = found.lengths(np.arange(6))
  assert lengths.tolist() == [3, 1, 3, 3, 2, 1]
  assert (first.dtype, count.dtype) == (np.int64, np.int64)
  assert lengths.dtype == np.int32
  assert not found.one_to_one
  assert found.num_records == 5
  assert found.name == "ids"
  assert found.counters == {
    "records": 5,
    "examples": 6,
    "tokens_read": 13,
    "tokens": 13,
    "dropped": {"empty": 2},
    "tokens_dropped": {},
  }
  assert listed(found.read([4, 0, 5, 4])) == [
    ([36, 37], [37, 38]),
    ([0, 1, 2], [1, 2, 3]),
    ([40], [41]),
    ([36, 37], [37, 38]),
  ]
  assert [found.place(e) for e in (1, 2, 5)] == [
    "ids, record 1",
    "ids, record 4",
    "ids, record 5",
  ]


@pytest.mark.parametrize("folder", [False, True])
def test_records_are_their_own_examples_where_none_makes_several(
  tmp_path, *, folder
):
  cache = IndexCache(tmp_path / "cache") if folder else None
  found = measured(8, cache=cache, chunk_records=2)
  first, count = found.examples(np.array([3, 1]))
  assert (first.tolist(), count.tolist()) == ([3, 1], [1, 1])
  assert found.lengths(np.arange(5)).tolist() == [4, 0, 0, 8, 1]
  assert found.one_to_one
  assert listed(found.read([4, 1, 0])) == [
    ([40], [41]),
    ([], []),
    ([0, 1, 2, 3], [1, 2, 3, 4]),
  ]
  assert found.place(3) == "ids, record 4"


@pytest.mark.parametrize("folder", [False, True])
def test_a_source_without_a_record(tmp_path, *, folder):
  cache = IndexCache(tmp_path / "cache") if folder else None
  found = MeasuredRecords(
    source([]), PretokenizedTransform(max_seq_len=3), cache=cache
  )
  none = np.zeros(0, np.int64)
  assert found.num_records == 0
  assert [len(x) for x in found.examples(none)] == [0, 0]
  assert len(found.lengths(none)) == 0
  assert len(found.read(none)) == 0
  assert found.counters["records"] == 0
  assert found.one_to_one


@given(
  spread=st.fixed_dictionaries(
    {
      "counts": st.lists(st.integers(0, 3), min_size=1, max_size=5),
      "sizes": st.lists(st.integers(1, 4), min_size=1, max_size=5),
      "weighted": st.booleans(),
    }
  ),
  num_records=st.integers(1, 40),
  chunk_records=st.integers(1, 50),
  data=st.data(),
)
def test_examples_are_those_of_the_whole_source(
  spread, num_records, chunk_records, data
):
  whole = Spread(**spread)(np.arange(num_records), lambda i: "")
  found = MeasuredRecords(
    Numbers(num_records), Spread(**spread), chunk_records=chunk_records
  )
  first, count = found.examples(np.arange(num_records))
  # Of each example of the source, its number in the table.
  numbers = np.concatenate(
    [np.arange(a, a + n) for a, n in zip(first, count, strict=True)]
  )
  numbers = numbers[found.lengths(numbers) > 0]
  assert (
    found.lengths(numbers).tolist() == np.diff(whole.example_splits).tolist()
  )
  if not len(whole):
    return
  asked = np.array(
    data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=9)), np.int64
  )
  read = found.read(numbers[asked])
  assert listed(read) == [
    tuple(x.tolist() for x in whole.example(e)) for e in asked
  ]
  assert (read.weights is None) == (not spread["weighted"])
  if spread["weighted"]:
    assert read.weights.tolist() == [
      weight
      for e in asked
      for weight in whole.weights[slice(*whole.example_splits[e : e + 2])]
    ]


def test_records_are_read_once_each_and_in_one_call():
  class Spied(Numbers):
    calls = ()

    def read(self, indices):
      self.calls = (*self.calls, indices.tolist())
      return super().read(indices)

  records = Spied(5)
  transform = Spread((2,), (1,))
  found = MeasuredRecords(records, transform)
  found.measure()
  records.calls, transform.seen = (), []
  found.read([9, 0, 1, 9, 8])
  assert records.calls == ([0, 4],)
  assert transform.seen == [0]


def test_nothing_is_read_before_lengths_are_asked_for():
  transform = Spread()
  found = MeasuredRecords(Numbers(3), transform)
  assert found.num_records == 3
  assert found.identity == {
    "records": {"format": "numbers"},
    "transform": transform.identity,
  }
  assert not transform.seen
  found.measure()
  found.measure()
  assert transform.seen == [0]


def test_counters_are_of_the_scan_alone():
  transform = Spread((1, 0), (2,))
  transform(np.arange(7), lambda i: "")
  found = MeasuredRecords(Numbers(5), transform)
  counters = found.counters
  found.read([0, 2, 4])
  assert found.counters == counters == {
    "records": 5,
    "examples": 3,
    "tokens_read": 8,
    "tokens": 6,
    "dropped": {"empty": 2},
    "tokens_dropped": {"odd": 2},
  }  # fmt: skip
  # Others are counted on as ever.
  assert transform.counters.as_dict()["records"] == 7 + 5 + 3


def test_two_scans_by_one_transform_count_apart():
  """In two threads, of which each waits for the other in every call."""
  barrier = threading.Barrier(2, timeout=20)
  transform = Spread((1,), (1,), log=lambda records: barrier.wait())
  sources = [
    MeasuredRecords(Numbers(n), transform, chunk_records=n // 2)
    for n in (10, 20)
  ]
  threads = [threading.Thread(target=s.measure) for s in sources]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert [s.counters["tokens_read"] for s in sources] == [15, 30]


def test_a_transform_may_count_nothing():
  class Plain:
    one_to_one = True
    counters = Counters()

    @property
    def identity(self):
      return {"transform": "plain"}

    def __call__(self, records, place):
      n = len(records)
      ids = np.zeros(n, np.int32)
      return Examples(np.arange(n + 1), np.arange(n + 1), ids, ids)

  assert MeasuredRecords(Numbers(3), Plain()).counters == {
    "records": 3,
    "examples": 3,
    "tokens_read": 3,
    "tokens": 3,
    "dropped": {},
    "tokens_dropped": {},
  }


def test_the_table_is_found_at_the_next_start(tmp_path):
  first, second = Spread((1, 2)), Spread((1, 2))
  lengths = []
  for transform in (first, second):
    found = MeasuredRecords(
      Numbers(50), transform, cache=IndexCache(tmp_path), chunk_records=7
    )
    found.measure()
    lengths.append(found.lengths(np.arange(75)).tolist())
    counters = found.counters
  assert first.seen
  assert second.seen == []
  assert lengths[0] == lengths[1] == [2] * 75
  assert counters["tokens_dropped"] == {"odd": 25}
  assert sorted(p.name.split("-")[0] for p in tmp_path.iterdir()) == [
    "measured_lengths",
    "measured_sizes",
  ]


def test_another_source_or_transform_has_a_table_of_its_own(tmp_path):
  cache = IndexCache(tmp_path)
  lengths = []
  for records, transform in (
    (Numbers(4), Spread((1,), (2,))),
    (Numbers(4, version=2), Spread((1,), (2,))),
    (Numbers(4), Spread((1,), (3,))),
    (Numbers(5), Spread((1,), (2,))),
  ):
    found = MeasuredRecords(records, transform, cache=cache)
    lengths.append(found.lengths(np.arange(len(records))).tolist())
    assert transform.seen == [0]
  assert lengths == [[2] * 4, [2] * 4, [3] * 4, [2] * 5]


def test_a_file_that_was_written_again_is_measured_again(tmp_path):
  path = tmp_path / "ids.jsonl"
  transform = PretokenizedTransform(max_seq_len=8)
  for ids in ([1, 2, 3], [1, 2, 3, 4, 5], [1, 2, 3, 4, 5]):
    path.write_text(f"{json.dumps({'input_ids': ids})}\n", "utf-8")
    found = MeasuredRecords(
      open_records(str(path)), transform, cache=IndexCache(tmp_path / "cache")
    )
    assert found.lengths(np.array([0])).tolist() == [len(ids) - 1]
    assert "ids.jsonl" not in json.dumps(found.identity)
  assert transform.counters.as_dict()["records"] == 3


def test_where_a_table_is_does_not_depend_on_the_chunks(tmp_path):
  seen = []
  for chunk_records in (2, 3):
    transform = Spread()
    MeasuredRecords(
      Numbers(9),
      transform,
      cache=IndexCache(tmp_path),
      chunk_records=chunk_records,
    ).measure()
    seen.append(len(transform.seen))
  assert seen == [5, 0]


@pytest.mark.parametrize(
  ("size", "message"),
  [
    (8, r"makes examples of \[2\] positions, but was measured to make \[4\]"),
    (2, r"examples of \[2\] positions, but was measured to make \[2, 2\]"),
  ],
)
def test_data_that_changed_under_a_table_are_refused(tmp_path, size, message):
  data = [{"input_ids": ids} for ids in ([7, 8], [1, 2, 3, 4, 5], [])]
  records = InMemoryRecords(data, name="ids", identity={"version": 1})
  found = MeasuredRecords(
    records, PretokenizedTransform(max_seq_len=size), cache=IndexCache(tmp_path)
  )
  found.measure()
  data[1] = {"input_ids": [1, 2, 3]}
  assert listed(found.read([0])) == [([7], [8])]
  with pytest.raises(ValueError, match=message) as caught:
    found.read([1, 0])
  text = str(caught.value)
  assert text.startswith("Source 'ids': ids, record 2 makes")
  assert f"remove measured_* and kept_* from {tmp_path}" in text


def test_a_record_that_made_none_and_now_makes_one_is_refused():
  data = [{"input_ids": [1, 2, 3]}, {"input_ids": []}]
  records = InMemoryRecords(data, name="ids", identity={"version": 1})
  found = MeasuredRecords(records, PretokenizedTransform(max_seq_len=8))
  found.measure()
  data[1] = {"input_ids": [1, 2, 3, 4]}
  with pytest.raises(
    ValueError,
    match=r"record 2 makes .* \[3\] .* measured to make \[\]",
  ):
    found.read([0, 1])


@pytest.mark.parametrize(
  ("asked", "error", "message"),
  [
    ([6], IndexError, "'ids' has 6 examples, from 0; got 6"),
    ([-1], IndexError, "count from 0, got row -1"),
    ([0.5], TypeError, "Rows are integers"),
  ],
)
def test_examples_that_are_not_there(asked, error, message):
  with pytest.raises(error, match=message):
    measured(3).read(asked)


def test_a_bad_record_is_named(tmp_path):
  path = tmp_path / "ids.jsonl"
  lines = ['{"input_ids": [1, 2]}'] * 20
  lines[12] = '{"input_ids": "a secret"}'
  path.write_text("\n".join(lines), "utf-8")
  cache = IndexCache(tmp_path / "cache")
  found = MeasuredRecords(
    open_records(str(path)),
    PretokenizedTransform(max_seq_len=4),
    cache=cache,
    chunk_records=3,
  )
  for _ in range(2):
    with pytest.raises(ValueError, match=r"ids\.jsonl, record 13") as caught:
      found.measure()
    assert "secret" not in str(caught.value)
  lines[12] = lines[0]
  path.write_text("\n".join(lines), "utf-8")
  found = MeasuredRecords(
    open_records(str(path)), PretokenizedTransform(max_seq_len=4), cache=cache
  )
  assert found.lengths(np.arange(20)).tolist() == [1] * 20


@pytest.mark.parametrize("kept_before", [False, True])
def test_several_examples_of_a_record_may_be_refused(tmp_path, kept_before):
  cache = IndexCache(tmp_path)
  if kept_before:
    measured(4, cache=cache).measure()
  assert measured(8, cache=cache, one_example_each=True).one_to_one
  with pytest.raises(
    ValueError,
    match=r"ids, record 4 gives 2 examples, but dataloader\.type='fixed'",
  ):
    measured(4, cache=cache, one_example_each=True).measure()


def test_a_transform_that_leaves_records_out_is_refused():
  class Short(Spread):
    def __call__(self, records, place):
      return super().__call__(records[1:], place)

  with pytest.raises(
    ValueError, match=r"'numbers': the transform of 5 records .* those of 4"
  ):
    MeasuredRecords(Numbers(5), Short()).measure()


@pytest.mark.parametrize("chunk_records", [0, -1, 1.5])
def test_chunks_hold_records(chunk_records):
  with pytest.raises(ValueError, match="chunk_records must be"):
    measured(3, chunk_records=chunk_records)


@pytest.mark.parametrize("folder", [False, True])
def test_a_copy_in_another_process_reads_the_same(tmp_path, *, folder):
  """It brings a table that is in no file, and finds another."""
  found = MeasuredRecords(
    Numbers(3000),
    Spread((2,), (3, 1)),
    cache=IndexCache(tmp_path) if folder else None,
  )
  before = pickle.loads(pickle.dumps(found))
  found.measure()
  text = pickle.dumps(found)
  copy = pickle.loads(text)
  assert (len(text) > 4 * 6000) == (not folder)
  for other in (before, copy):
    other.transform.seen = []
    assert other.lengths(np.arange(6000)).tolist() == [3, 1, 1, 3] * 1500
    assert listed(other.read([5, 0])) == listed(found.read([5, 0]))
  assert len(copy.transform.seen) == 1


def test_threads_measure_once():
  transform = Spread()
  transform.seconds = 0.02
  found = MeasuredRecords(Numbers(10), transform, chunk_records=5)
  lengths = []
  threads = [
    threading.Thread(
      target=lambda: lengths.append(found.lengths(np.arange(10)).tolist())
    )
    for _ in range(4)
  ]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert lengths == [[2] * 10] * 4
  assert transform.seen == [0, 5]


def test_texts_are_measured_as_they_are_tokenized(tmp_path):
  """Another tokenizer, filter or length of examples: another table."""
  words = save_word_tokenizer(tmp_path / "words", eos_token="<eos>")
  other = save_word_tokenizer(tmp_path / "other", eos_token="<eos>", size=9)
  texts = ["a b c", " ", "d", "a b c d e", "e d"]
  path = tmp_path / "texts.jsonl"
  path.write_text(
    "".join(f"{json.dumps({'text': text})}\n" for text in texts), "utf-8"
  )
  records = open_records(str(path))

  def keep(record):
    return record["text"] != "d"

  def made(folder, size):
    return make_transform(
      "plaintext", tokenizer=folder, max_seq_len=size, backend="huggingface"
    )

  filtered = FilteredTransform(made(words, 3), keep, name="no d")
  cache = IndexCache(tmp_path / "cache")
  lengths = []
  for transform in (made(words, 3), made(words, 8), made(other, 3), filtered):
    found = MeasuredRecords(records, transform, cache=cache, chunk_records=2)
    count = found.examples(np.arange(5))[1].sum()
    lengths.append(found.lengths(np.arange(count)).tolist())
    # What the transform itself counted, which nothing else has used.
    assert found.counters == transform.counters.as_dict()
    assert found.counters["records"] == 5
  assert lengths == [
    [3, 1, 3, 2, 2],
    [3, 0, 1, 5, 2],
    [3, 1, 3, 2, 2],
    [3, 3, 2, 2],
  ]
  found = MeasuredRecords(records, filtered, cache=cache)
  # "a b c" | "a b c" "d e" | "e d", and <eos> after each.
  assert listed(found.read([3, 2])) == [([7, 6], [6, 0]), ([6, 7], [7, 0])]
  assert found.counters["dropped"] == {"empty": 1, "filtered": 1}
  assert found.place(3) == f"{path}, record 5, byte 68"
