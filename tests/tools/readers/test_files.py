"""Files that change are refused, files read stay, objects are files too."""

import hashlib
import os

import pytest
from reading import texts, write

from hpgrain.tools.inputs import find_inputs, read_unit, units

DATA = b"".join(b'{"text": "%d"}\n' % i for i in range(100))


def change_size(path):
  write(path, DATA + b"\n")


def change_time(path):
  os.utime(path, ns=(1, 1))


@pytest.mark.parametrize(
  ("change", "message"),
  [
    (change_size, "it had 1490 bytes at first, then 1491"),
    (change_time, "it was written again"),
  ],
)
@pytest.mark.parametrize("when", ["before units", "before", "during"])
def test_file_that_changes_is_refused(tmp_path, change, message, when):
  path = write(tmp_path / "x.jsonl", DATA)
  files = find_inputs(path)
  if when == "before units":
    change(path)
    with pytest.raises(ValueError, match=f"changed while it was.*{message}"):
      units(files)
    return
  (unit,) = units(files)
  if when == "before":
    change(path)
  records = read_unit(unit, ["text"])
  with pytest.raises(ValueError, match=f"changed while it was read: {message}"):
    for number, _ in enumerate(records):
      if when == "during" and number == 50:
        change(path)


def test_file_that_is_gone_is_an_error(tmp_path):
  path = write(tmp_path / "x.jsonl", DATA)
  (unit,) = units(find_inputs(path))
  path.unlink()
  with pytest.raises(FileNotFoundError, match=r"x\.jsonl"):
    list(read_unit(unit, ["text"]))


def test_reading_stops_where_it_is_told_to(tmp_path):
  path = write(tmp_path / "x.jsonl", DATA)
  (unit,) = units(find_inputs(path))
  records = read_unit(unit, ["text"])
  assert next(records).texts == ("0",)
  # Not read to the end, so not looked at again either.
  change_time(path)
  records.close()


def test_input_is_not_changed(tmp_path):
  path = write(tmp_path / "x.jsonl", DATA)
  path.chmod(0o400)
  before = path.stat().st_mtime_ns
  texts(path, unit_bytes=100)
  assert path.stat().st_mtime_ns == before
  assert hashlib.sha256(path.read_bytes()).digest() == (
    hashlib.sha256(DATA).digest()
  )
  assert list(tmp_path.iterdir()) == [path]


@pytest.fixture
def bucket():
  fsspec = pytest.importorskip("fsspec")
  system = fsspec.filesystem("memory")
  system.pipe(
    {
      "/bucket/d/b.jsonl": DATA,
      "/bucket/d/a.jsonl": b'{"text": "first"}',
      "/bucket/d/deep/c.jsonl": b'{"text": "deep"}',
    }
  )
  yield system
  system.rm("/bucket", recursive=True)


def names(pattern, **options):
  return [file.path for file in find_inputs(pattern, **options)]


@pytest.mark.usefixtures("bucket")
def test_objects_are_found_and_read_like_files():
  both = ["memory://bucket/d/a.jsonl", "memory://bucket/d/b.jsonl"]
  assert names("memory://bucket/d") == both
  assert names("memory://bucket/d/*.jsonl") == both
  assert names("memory://bucket/*/b*") == both[1:]
  assert names("memory://bucket/d/a.jsonl") == both[:1]
  assert names("memory://bucket/d", recursive=True) == [
    *both,
    "memory://bucket/d/deep/c.jsonl",
  ]
  found = texts("memory://bucket/d", unit_bytes=100)
  assert found == ["first", *map(str, range(100))]


@pytest.mark.usefixtures("bucket")
def test_missing_objects_are_refused():
  with pytest.raises(FileNotFoundError, match="memory://no does not exist"):
    find_inputs("memory://no")
  with pytest.raises(FileNotFoundError, match="No file matches"):
    find_inputs("memory://bucket/*.csv")
  with pytest.raises(ValueError, match="wildcard in the bucket's name"):
    find_inputs("memory://b*/x.jsonl")
  with pytest.raises(ValueError, match="cannot be used"):
    find_inputs("hdfs3nothing://bucket/x.jsonl")


def test_object_that_changes_is_refused(bucket):
  (unit,) = units(find_inputs("memory://bucket/d/a.jsonl"))
  bucket.pipe("/bucket/d/a.jsonl", b"{}")
  with pytest.raises(ValueError, match="changed while it was read"):
    list(read_unit(unit, ["text"]))
