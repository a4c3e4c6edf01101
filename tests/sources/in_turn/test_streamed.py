"""Streamed datasets of Hugging Face in turn, without a hub."""

import json
import logging
import pickle

import datasets
import pytest
from in_turn_checks import check_in_turn, read_all

from hpgrain import log
from hpgrain.sources.in_turn.hugging_face import open_hugging_face_in_turn
from hpgrain.sources.in_turn.streamed import stream_in_turn

_ROWS = [{"text": f"text {i}", "n": i} for i in range(11)]


def stream(num_shards):
  dataset = datasets.Dataset.from_list(_ROWS)
  return dataset.to_iterable_dataset(num_shards=num_shards)


def test_all_of_it_is_one_shard_without_a_word():
  expected = [(row, f"it, record {i + 1}") for i, row in enumerate(_ROWS)]
  check_in_turn(stream_in_turn(stream(3), name="it"), expected)


def test_shards_one_after_another():
  # Of 4, 4 and 3 rows.
  expected = [
    (row, f"it, shard {i // 4 + 1}, record {i % 4 + 1}")
    for i, row in enumerate(_ROWS)
  ]
  source = stream_in_turn(stream(3), name="it", by_shard=True)
  check_in_turn(source, expected)
  reader = source.open()
  reader.read(7)
  assert reader.cursor() == [1, 3]


def test_shards_before_the_cursor_are_not_asked_for():
  asked = []

  def rows(shards):
    for shard in shards:
      asked.append(shard)
      yield from ({"n": 10 * shard + i} for i in range(3))

  dataset = datasets.IterableDataset.from_generator(
    rows, gen_kwargs={"shards": [0, 1, 2]}
  )
  source = stream_in_turn(dataset, name="it", by_shard=True)
  assert asked == []
  reader = source.open([1, 2])
  assert reader.cursor() == [1, 2]
  assert asked == []
  assert reader.read(1).records() == [{"n": 12}]
  assert asked == [1]
  assert reader.read(9).records() == [{"n": n} for n in (20, 21, 22)]
  assert asked == [1, 2]


def test_a_place_inside_a_shard_is_said_once(caplog, monkeypatch):
  monkeypatch.setattr(log, "_said", set())
  source = stream_in_turn(stream(2), name="it", by_shard=True)
  with caplog.at_level(logging.WARNING, "hpgrain"):
    source.open([1, 0]).read(1)
    assert caplog.messages == []
    for _ in range(2):
      source.open([1, 3]).read(1)
  assert caplog.messages == [
    "it cannot be entered in the middle of a shard: the first 3 records of"
    " shard 2 are read again and dropped."
  ]


def double(row):
  return {"m": 2 * row["n"]}


def is_odd(row):
  return row["n"] % 2 == 1


def test_a_stream_that_maps_filters_and_shuffles():
  dataset = stream(1).map(double).filter(is_odd).shuffle(seed=1, buffer_size=3)
  expected = list(dataset)
  assert len(expected) == 5
  check_in_turn(
    stream_in_turn(dataset, name="it"),
    [(row, f"it, record {i + 1}") for i, row in enumerate(expected)],
  )


def test_rows_without_known_columns_keep_their_own():
  dataset = datasets.IterableDataset.from_generator(
    lambda: iter([{"a": 1}, {"b": "x"}, {"a": None}])
  )
  found = stream_in_turn(dataset, name="it").open().read(9).records()
  assert found == [{"a": 1}, {"b": "x"}, {"a": None}]


def test_what_is_no_stream_is_refused():
  rows = datasets.Dataset.from_list(_ROWS)
  with pytest.raises(ValueError, match="it is a Dataset, not a streamed"):
    stream_in_turn(rows, name="it")
  splits = datasets.IterableDatasetDict({"train": stream(1)})
  with pytest.raises(ValueError, match=r"it has the splits 'train'. Give one"):
    stream_in_turn(splits, name="it")
  tables = stream_in_turn(stream(1).with_format("arrow"), name="it")
  with pytest.raises(ValueError, match=r"gives a Table for rows. Give"):
    tables.open().read(1)


def test_a_cursor_of_other_data_is_refused():
  source = stream_in_turn(stream(2), name="it", by_shard=True)
  with pytest.raises(ValueError, match="it has fewer than the 9 records that"):
    source.open([0, 9]).read(1)
  with pytest.raises(ValueError, match="it has 2 shards; the cursor is of sh"):
    source.open([3, 0]).read(1)
  with pytest.raises(ValueError, match="it has cursors of 2 whole numbers"):
    source.open([1])


@pytest.fixture
def folder(tmp_path):
  """Two files of train, of 7 and 4 rows, and one of test."""
  made = tmp_path / "mine"
  made.mkdir()
  parts = {"train-0": _ROWS[:7], "train-1": _ROWS[7:], "test": _ROWS[:2]}
  for name, rows in parts.items():
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (made / f"{name}.jsonl").write_text(text)
  return made


def open_folder(folder, split="train", **options):
  cache = str(folder.parent / "cache")
  return open_hugging_face_in_turn(
    str(folder), split=split, cache_dir=cache, **options
  )


def test_files_of_a_folder_are_shards(folder):
  source = open_folder(folder)
  assert source.name == "mine"
  expected = [
    (row, f"mine, shard {1 + (i > 6)}, record {i % 7 + 1}")
    for i, row in enumerate(_ROWS)
  ]
  check_in_turn(source, expected)


def test_splits_of_a_stream(folder):
  def rows(split):
    return [row for row, _ in read_all(open_folder(folder, split).open())]

  assert rows("test") == _ROWS[:2]
  assert rows("test+train") == [*_ROWS[:2], *_ROWS]
  assert sorted(row["n"] for row in rows("all")) == [0, 0, 1, 1, *range(2, 11)]
  with pytest.raises(ValueError, match="A stream has no part of a split, got"):
    open_folder(folder, "train[:50%]")
  with pytest.raises(ValueError, match=r"mine has no split 'trian'. There are"):
    open_folder(folder, "trian")


def test_a_copy_is_the_same_and_other_files_are_not(folder):
  def identity(split="train"):
    return open_folder(folder, split).identity

  first = identity()
  assert identity() == first
  assert identity("test") != first
  file = folder / "train-0.jsonl"
  text = file.read_text()
  file.write_text(text.replace("text 3", "TEXT 3"))
  assert identity() != first
  file.write_text(text)
  assert identity() == first
  folder.rename(folder.with_name("moved"))
  moved = open_folder(folder.with_name("moved"))
  assert moved.identity == first


def test_nothing_is_read_before_the_first_read(folder, monkeypatch):
  def refuse(*arguments, **options):
    raise AssertionError("the stream was opened")

  monkeypatch.setattr(datasets.DatasetBuilder, "as_streaming_dataset", refuse)
  source = pickle.loads(pickle.dumps(open_folder(folder)))
  reader = source.open([1, 2])
  assert reader.cursor() == [1, 2]
  with pytest.raises(ValueError, match=r"cannot load .*: the stream was"):
    reader.read(1)
