"""Hugging Face datasets by index, without a hub."""

import json

import datasets
import numpy as np
import pytest
from table_checks import check_reading

from hpgrain.sources.by_index.hugging_face import (
  HuggingFaceRecords,
  open_hugging_face,
)

_ROWS = [{"text": f"text {i}", "ids": [i, i]} for i in range(10)]


@pytest.fixture
def files(tmp_path):
  """A folder with a train and a test file of JSON Lines."""
  folder = tmp_path / "data"
  folder.mkdir()
  for name, rows in (("train", _ROWS), ("test", _ROWS[:3])):
    (folder / f"{name}.jsonl").write_text(
      "".join(json.dumps(row) + "\n" for row in rows)
    )
  return folder


def test_a_dataset_in_memory():
  records = HuggingFaceRecords(datasets.Dataset.from_list(_ROWS), name="it")
  check_reading(records, _ROWS)
  assert records.place(3) == "it, record 4"
  assert records.identity["num_records"] == 10
  assert records.cache_identity["fingerprint"]


def test_an_empty_dataset():
  empty = datasets.Dataset.from_dict({"text": []})
  records = HuggingFaceRecords(empty, name="it")
  assert len(records) == 0
  assert records.read(np.array([], np.int64)) == []
  assert records.identity["num_records"] == 0


def test_a_selection_and_a_format_are_kept():
  dataset = (
    datasets.Dataset.from_list(_ROWS).select([7, 2]).with_format("numpy")
  )
  records = HuggingFaceRecords(dataset, name="it")
  first, second = records.read([0, 1])
  assert (first["text"], second["text"]) == ("text 7", "text 2")
  assert first["ids"].tolist() == [7, 7]
  assert len(records) == 2


def test_other_rows_are_other_data():
  def identity(rows):
    dataset = datasets.Dataset.from_list(rows)
    return HuggingFaceRecords(dataset, name="it").identity

  assert identity(_ROWS) == identity(_ROWS)
  assert identity(_ROWS[:-1]) != identity(_ROWS)
  assert identity([*_ROWS[:-1], _ROWS[0]]) != identity(_ROWS)


def test_files_are_loaded_and_cached(files, tmp_path):
  options = {
    "data_files": str(files / "train.jsonl"),
    "cache_dir": str(tmp_path / "cache"),
  }
  first = open_hugging_face("json", **options)
  check_reading(first, _ROWS)
  assert first.name == "json"
  made = {
    path: path.stat().st_mtime_ns
    for path in (tmp_path / "cache").rglob("*.arrow")
  }
  assert made
  again = open_hugging_face("json", name="mine", **options)
  assert again.name == "mine"
  assert again.cache_identity == first.cache_identity
  assert made == {path: path.stat().st_mtime_ns for path in made}


def test_files_that_changed_are_read_anew(files, tmp_path):
  def texts():
    cache = str(tmp_path / "cache")
    records = open_hugging_face(str(files), cache_dir=cache, split="test")
    assert records.name == "data"
    return [row["text"] for row in records.read([0, 1, 2])]

  assert texts() == ["text 0", "text 1", "text 2"]
  path = files / "test.jsonl"
  path.write_text(path.read_text().replace("text 1", "TEXT 1"))
  assert texts() == ["text 0", "TEXT 1", "text 2"]


def test_splits_of_a_folder(files, tmp_path):
  def opened(split):
    cache = str(tmp_path / "cache")
    return open_hugging_face(str(files), split=split, cache_dir=cache)

  assert len(opened("train")) == 10
  assert opened("test").read([2]) == _ROWS[2:3]
  assert opened("train[:20%]").read([1]) == _ROWS[1:2]
  assert len(opened("train+test")) == 13
  # A part of no row.
  assert len(opened("test[:1%]")) == 0
  with pytest.raises(
    ValueError,
    match=r"no split 'tran'. There are: train, test. Did you mean 'train'\?",
  ):
    opened("tran")
  with pytest.raises(ValueError, match=r"split 'train\[' of .* cannot be read"):
    opened("train[")


def test_several_splits_are_refused(files):
  both = datasets.DatasetDict({"train": datasets.Dataset.from_list(_ROWS)})
  with pytest.raises(ValueError, match=r"has the splits 'train'. Give one of"):
    HuggingFaceRecords(both, name="it")


def test_a_stream_is_for_reading_in_turn():
  stream = datasets.Dataset.from_list(_ROWS).to_iterable_dataset()
  with pytest.raises(ValueError, match=r"IterableDataset, whose rows have no"):
    HuggingFaceRecords(stream, name="it")
