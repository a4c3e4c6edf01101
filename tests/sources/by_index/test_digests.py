"""Digests: the same for copies, others for other data."""

import os

import numpy as np
import pytest

from hpgrain.sources.by_index.digests import (
  files_digest,
  records_digest,
  sampled_records,
  versions_digest,
)
from hpgrain.tools.readers.files import size_and_version
from hpgrain.tools.readers.records import InputFile


def _file(path, data):
  path.write_bytes(data)
  return InputFile(str(path), "json", "", *size_and_version(str(path)))


def test_copies_are_the_same_data(tmp_path):
  a, b = [_file(tmp_path / name, b"x" * 300_000) for name in "ab"]
  os.utime(b.path, ns=(5, 5))
  b = InputFile(b.path, "json", "", *size_and_version(b.path))
  assert files_digest([a]) == files_digest([b])
  assert versions_digest([a]) != versions_digest([b])


def test_files_are_told_apart(tmp_path):
  ab, c = _file(tmp_path / "1", b"ab"), _file(tmp_path / "2", b"c")
  a, bc = _file(tmp_path / "3", b"a"), _file(tmp_path / "4", b"bc")
  empty = _file(tmp_path / "5", b"")
  lists = [[], [ab], [c], [ab, c], [a, bc], [c, ab], [empty], [empty, empty]]
  assert len({files_digest(files) for files in lists}) == len(lists)


@pytest.mark.parametrize("place", [0, 299_999])
def test_first_and_last_bytes_of_a_long_file_count(tmp_path, place):
  data = bytearray(300_000)
  before = files_digest([_file(tmp_path / "a", data)])
  data[place] = 1
  assert files_digest([_file(tmp_path / "b", data)]) != before


def test_many_files_are_sampled_too(tmp_path):
  files = [_file(tmp_path / str(i), b"%d" % i * 5000) for i in range(600)]
  digest = files_digest(files)
  files[300] = _file(tmp_path / "300", b"x" * 15000)
  assert files_digest(files) != digest


def test_sampled_are_the_first_and_the_last():
  assert sampled_records(0).tolist() == []
  assert sampled_records(1).tolist() == [0]
  assert sampled_records(3).tolist() == [0, 1, 2]
  many = sampled_records(10**10)
  assert (len(many), many[0], many[-1]) == (64, 0, 10**10 - 1)


def test_records_are_told_apart():
  records = [
    {},
    {"a": None},
    {"a": 1},
    {"a": 1.0},
    {"a": True},
    {"a": "1"},
    {"a": b"1"},
    {"a": [1]},
    {"a": ["1"]},
    {"a": {}},
    {"a": []},
    {"a": "\ud800"},
    {"a": "b", "c": ""},
    {"a": "", "b": ""},
    {"a": np.array([1, 2], np.int32)},
    {"a": np.array([1, 2], np.int64)},
    {"a": np.array([[1, 2]], np.int64)},
    {"a": np.array(["x", 1], object)},
  ]
  assert len({records_digest([r], 1) for r in records}) == len(records)
  assert records_digest([], 0) != records_digest([], 1)
  assert records_digest([{"a": np.int64(1)}], 1) == records_digest(
    [{"a": 1}], 1
  )
  assert records_digest([{"a": (1,)}], 1) == records_digest([{"a": [1]}], 1)


def test_a_digest_stays_the_same_between_versions():
  record = {"text": "\u00e9", "ids": np.array([1, 2], np.int32), "n": [1, None]}
  assert records_digest([record], 7) == "7c2ade5b401443261f7f568208dd53d4"


def test_what_cannot_be_told_apart_is_refused():
  with pytest.raises(TypeError, match="holds a object, which cannot be told"):
    records_digest([{"a": [object()]}], 1)
