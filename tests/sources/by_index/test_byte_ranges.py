"""Ranges of files: in the order asked for, in few reads, of files unchanged."""

import os
import threading
from pathlib import Path

import fsspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpgrain.sources.by_index import byte_ranges
from hpgrain.sources.by_index.byte_ranges import ByteRanges
from hpgrain.tools.readers.files import size_and_version
from hpgrain.tools.readers.records import InputFile


def _file(path, data):
  if "://" in str(path):
    fsspec.filesystem("memory").pipe_file(path.split("://")[1], data)
  else:
    path.write_bytes(data)
  return InputFile(str(path), "json", "", *size_and_version(str(path)))


def _read(ranges, *asked):
  file, start, stop = np.array(asked, np.int64).reshape(-1, 3).T
  return ranges.read(file, start, stop)


@pytest.fixture
def reads(monkeypatch):
  """The (bytes, offset) of each read."""
  found = []
  pread = os.pread

  def spy(fd, size, offset):
    found.append((size, offset))
    return pread(fd, size, offset)

  monkeypatch.setattr(byte_ranges.os, "pread", spy)
  return found


def test_neighbours_are_read_at_once(tmp_path, reads):
  a = _file(tmp_path / "a", b"0123456789" + b"x" * 9000 + b"abc")
  b = _file(tmp_path / "b", b"ABCDEF")
  ranges = ByteRanges([a, b])
  found = _read(
    ranges, (1, 2, 4), (0, 5, 8), (0, 9010, 9013), (0, 1, 3), (0, 5, 8)
  )
  assert found == [b"CD", b"567", b"abc", b"12", b"567"]
  assert reads == [(7, 1), (3, 9010), (2, 2)]


def test_nothing_is_read_for_nothing(tmp_path, reads):
  ranges = ByteRanges([_file(tmp_path / "a", b"")])
  assert _read(ranges) == []
  assert reads == []


def test_a_read_is_not_larger_than_it_should_be(tmp_path, reads, monkeypatch):
  monkeypatch.setattr(byte_ranges, "_READ_BYTES", 4)
  ranges = ByteRanges([_file(tmp_path / "a", b"0123456789")])
  found = _read(ranges, (0, 0, 2), (0, 2, 4), (0, 4, 9), (0, 9, 10))
  assert found == [b"01", b"23", b"45678", b"9"]
  assert reads == [(4, 0), (5, 4), (1, 9)]


def test_a_read_that_gives_less_goes_on(tmp_path, monkeypatch):
  pread = os.pread
  monkeypatch.setattr(
    byte_ranges.os, "pread", lambda fd, size, at: pread(fd, min(size, 3), at)
  )
  ranges = ByteRanges([_file(tmp_path / "a", b"0123456789")])
  assert _read(ranges, (0, 1, 10)) == [b"123456789"]


@given(
  st.lists(st.binary(max_size=20), min_size=1, max_size=4),
  st.data(),
  st.sampled_from([0, 1, 5]),
)
def test_equal_to_slices(tmp_path_factory, contents, data, gap):
  folder = tmp_path_factory.mktemp("ranges")
  files = [
    _file(folder / str(i), content) for i, content in enumerate(contents)
  ]
  asked = []
  for _ in range(data.draw(st.integers(0, 8))):
    number = data.draw(st.integers(0, len(files) - 1))
    cuts = st.integers(0, len(contents[number]))
    start, stop = sorted([data.draw(cuts), data.draw(cuts)])
    # Records do not overlap, unless they are the same.
    if not any(
      n == number and (a, b) != (start, stop) and a < stop and start < b
      for n, a, b in asked
    ):
      asked.append((number, start, stop))
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(byte_ranges, "_GAP", gap)
    found = _read(ByteRanges(files), *asked)
  assert found == [contents[n][a:b] for n, a, b in asked]


def test_a_changed_file_is_refused(tmp_path):
  file = _file(tmp_path / "a", b"0123")
  ranges = ByteRanges([file])
  assert _read(ranges, (0, 0, 1)) == [b"0"]
  with (tmp_path / "a").open("ab") as stream:
    stream.write(b"4")
  with pytest.raises(ValueError, match="a was written again since"):
    _read(ranges, (0, 0, 1))
  with pytest.raises(ValueError, match="a was written again since"):
    _read(ByteRanges([file]), (0, 0, 1))


def test_a_file_replaced_while_open_is_the_old_one(tmp_path):
  file = _file(tmp_path / "a", b"0123")
  ranges = ByteRanges([file])
  assert _read(ranges, (0, 0, 1)) == [b"0"]
  (tmp_path / "b").write_bytes(b"abcd")
  (tmp_path / "b").replace(tmp_path / "a")
  assert _read(ranges, (0, 1, 2)) == [b"1"]


def test_a_file_that_is_gone_is_named(tmp_path):
  file = _file(tmp_path / "a", b"0123")
  (tmp_path / "a").unlink()
  with pytest.raises(FileNotFoundError, match="a is gone"):
    _read(ByteRanges([file]), (0, 0, 1))


def _open_files():
  return len(list(Path("/proc/self/fd").iterdir()))


def test_few_files_are_held_open(tmp_path, monkeypatch):
  monkeypatch.setattr(byte_ranges, "_OPEN_FILES", 2)
  files = [_file(tmp_path / str(i), b"%d" % i) for i in range(9)]
  ranges = ByteRanges(files)
  before = _open_files()
  for _ in range(2):
    asked = [(i, 0, 1) for i in range(9)]
    assert _read(ranges, *asked) == [b"%d" % i for i in range(9)]
  assert _open_files() <= before + 2


def test_threads_share_it(tmp_path, monkeypatch):
  monkeypatch.setattr(byte_ranges, "_OPEN_FILES", 1)
  files = [_file(tmp_path / str(i), b"%d" % i * 50) for i in range(5)]
  ranges = ByteRanges(files)
  wrong = []

  def work():
    for i in range(200):
      if _read(ranges, (i % 5, 0, 50)) != [b"%d" % (i % 5) * 50]:
        wrong.append(i)

  threads = [threading.Thread(target=work) for _ in range(4)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert wrong == []


def test_objects_of_a_store_are_read(monkeypatch):
  file = _file("memory://hpgrain-ranges/a", b"0123456789")
  ranges = ByteRanges([file])
  assert _read(ranges, (0, 5, 8), (0, 0, 2)) == [b"567", b"01"]
  monkeypatch.setattr(byte_ranges, "_REMOTE_GAP", 1)
  assert _read(ranges, (0, 5, 8), (0, 0, 2)) == [b"567", b"01"]
  fsspec.filesystem("memory").pipe_file("hpgrain-ranges/a", b"01")
  with pytest.raises(ValueError, match="a was written again"):
    _read(ranges, (0, 0, 5))
  with pytest.raises(ValueError, match="a was written again"):
    _read(ByteRanges([file]), (0, 0, 1))
  fsspec.filesystem("memory").rm("hpgrain-ranges", recursive=True)
  with pytest.raises(FileNotFoundError, match="a is gone"):
    _read(ByteRanges([file]), (0, 0, 1))
