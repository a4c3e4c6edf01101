import io
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from etils import epath

from hpgrain import object_store
from hpgrain.object_errors import explained
from hpgrain.object_store import (
  as_path,
  exists,
  filesystem,
  get_file,
  holds,
  in_parallel,
  is_url,
  kind,
  list_files,
  open_reader,
  put_bytes,
  put_file,
  read_bytes,
  remove,
  size_and_version,
)


def test_urls_and_paths_join_alike(tmp_path):
  path = as_path("s3://bucket/dir/x_text_document")
  assert isinstance(path, epath.Path)
  assert str(path.parent / "y") == "s3://bucket/dir/y"
  assert str(path.with_name(f"{path.name}.bin")) == f"{path}.bin"
  assert as_path(tmp_path / "x") == tmp_path / "x"
  assert is_url(path)
  assert not is_url(tmp_path)


@pytest.mark.parametrize(
  ("url", "match"),
  [
    ("memory://a/b", "cannot be written to. Give a local path, or a URL that"),
    ("https://a/b", "begins with s3:// or gs://"),
    ("s3://bucket", "must name a bucket and something in it"),
    ("s3://bucket/", "must name a bucket and something in it"),
    ("gs:///x", "such as gs://bucket/folder"),
  ],
)
def test_urls_that_cannot_be_written_to(url, match):
  with pytest.raises(ValueError, match=match):
    as_path(url)


def test_put_and_read(bucket, tmp_path):
  url = f"{bucket}/d/x"
  assert not exists(url)
  assert kind(f"{bucket}/d") == "nothing"
  put_bytes(b"one", url)
  assert exists(url)
  assert kind(f"{bucket}/d") == "folder"
  assert not exists(f"{bucket}/d")
  assert read_bytes(url) == b"one"
  size, version = size_and_version(url)
  put_bytes(b"two", url)
  assert (size, 3) == (3, size_and_version(url)[0])
  assert size_and_version(url)[1] != version
  (tmp_path / "x").write_bytes(b"three")
  put_file(tmp_path / "x", url)
  get_file(url, tmp_path / "y")
  assert (tmp_path / "y").read_bytes() == b"three"
  put_bytes(b"", f"{bucket}/d/deep/z")
  put_bytes(b"", f"{bucket}/d")
  assert list_files(f"{bucket}/d") == {"x": 5}
  remove([url, url, f"{bucket}/d/none"])
  assert list_files(f"{bucket}/d") == {}
  assert read_bytes(f"{bucket}/d/deep/z") == b""


def test_the_first_of_many_creates(bucket, tmp_path):
  won, lost = [], []
  start = threading.Barrier(8)

  def create(number):
    path = tmp_path / f"{number}"
    path.write_text(f"{number}")
    start.wait()
    try:
      put_file(path, f"{bucket}/x", create=True)
    except FileExistsError:
      lost.append(number)
    else:
      won.append(number)

  threads = [threading.Thread(target=create, args=(i,)) for i in range(8)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert len(won) == 1
  assert len(lost) == 7
  assert read_bytes(f"{bucket}/x") == f"{won[0]}".encode()
  with pytest.raises(FileExistsError, match=f"{bucket}/x"):
    put_bytes(b"", f"{bucket}/x", create=True)


def test_a_large_object_goes_in_parts(bucket, tmp_path, monkeypatch):
  monkeypatch.setattr(object_store, "_PART_BYTES", 5 << 20)
  local = tmp_path / "x"
  data = np.random.default_rng(0).bytes(11 << 20)
  local.write_bytes(data)
  put_file(local, f"{bucket}/x", create=True)
  # An entity tag of parts ends with their number.
  assert size_and_version(f"{bucket}/x")[1].endswith('-3"')
  with pytest.raises(FileExistsError):
    put_file(local, f"{bucket}/x", create=True)
  assert holds(f"{bucket}/x", local)
  get_file(f"{bucket}/x", tmp_path / "y")
  assert (tmp_path / "y").read_bytes() == data
  local.write_bytes(data[:-1] + b"!")
  assert not holds(f"{bucket}/x", local)
  local.write_bytes(data[:-1])
  assert not holds(f"{bucket}/x", local)
  assert not holds(f"{bucket}/y", local)


def test_a_store_that_says_conflict_is_asked_again(
  bucket, monkeypatch, tmp_path
):
  """As S3 does to one of two that create one object at the same moment."""
  system, _ = filesystem(f"{bucket}/x")
  real, answers = system.pipe_file, ["ConditionalRequestConflict"] * 2

  class ClientError(Exception):
    pass

  def pipe_file(*args, **kwargs):
    if answers:
      raise OSError("no") from ClientError(answers.pop())
    return real(*args, **kwargs)

  monkeypatch.setattr(object_store.time, "sleep", lambda seconds: None)
  monkeypatch.setattr(system, "pipe_file", pipe_file)
  put_bytes(b"1", f"{bucket}/x", create=True)
  assert read_bytes(f"{bucket}/x") == b"1"
  # Another store's words for what is there already.
  answers.append("SomethingElse")
  with pytest.raises(FileExistsError, match="another process wrote it"):
    put_bytes(b"1", f"{bucket}/x", create=True)
  answers.append("SomethingElse")
  with pytest.raises(OSError, match=r"no: 's3://.*/y'"):
    put_bytes(b"1", f"{bucket}/y", create=True)


def test_what_is_not_there(bucket):
  with pytest.raises(FileNotFoundError, match=rf"no such object: '{bucket}/x'"):
    read_bytes(f"{bucket}/x")
  missing = "s3://no-bucket-of-this-name/x"
  for call in (read_bytes, exists, kind, list_files, size_and_version):
    with pytest.raises(FileNotFoundError, match=f"such bucket.*{missing}"):
      call(missing)
  with pytest.raises(FileNotFoundError, match=f"such bucket.*{missing}"):
    put_bytes(b"", missing, create=True)
  with pytest.raises(FileNotFoundError, match="none/of/this'"):
    put_file(Path("none/of/this"), f"{bucket}/x")


@pytest.mark.parametrize(
  ("variables", "match"),
  [
    (
      {"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None},
      r"Unable to locate credentials.*s3://bucket/x",
    ),
    (
      {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"},
      r"cannot be used \(EndpointConnectionError.*network.*s3://bucket/x",
    ),
  ],
)
@pytest.mark.usefixtures("s3")
def test_a_store_that_cannot_be_used(monkeypatch, tmp_path, variables, match):
  monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
  monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
  monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
  monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
  for name, value in variables.items():
    if value is None:
      monkeypatch.delenv(name)
    else:
      monkeypatch.setenv(name, value)
  import s3fs

  # What was opened before keeps its settings.
  monkeypatch.setattr(s3fs.S3FileSystem, "_cache", {})
  monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
  with pytest.raises(OSError, match=match):
    kind("s3://bucket/x")


def test_errors_name_the_url_and_keep_their_kind():
  with pytest.raises(
    PermissionError, match=r"Forbidden\).*credentials.*s3://a"
  ):
    with explained("s3://a/b"):
      raise PermissionError("Forbidden")
  with pytest.raises(OSError, match=r"Slow down.*s3://a/b") as caught:
    with explained("s3://a/b"):
      raise OSError(16, "Slow down")
  assert caught.value.errno == 16
  # Not the store's: ours to mend, or a local file's.
  with pytest.raises(TypeError, match="mistake"):
    with explained("s3://a/b"):
      raise TypeError("mistake")
  with pytest.raises(FileNotFoundError) as caught:
    with explained("s3://a/b"):
      open("/none/x")  # noqa: PTH123
  assert caught.value.filename == "/none/x"


def test_a_missing_package_is_named(monkeypatch):
  monkeypatch.setitem(sys.modules, "s3fs", None)
  monkeypatch.setitem(sys.modules, "fsspec", None)
  with pytest.raises(ValueError, match=r"pip install 'hpgrain\[s3\]'"):
    filesystem("s3://a/b")
  with pytest.raises(ValueError, match=r"pip install 'hpgrain\[gcs\]'"):
    filesystem("gs://a/b")


def test_ranges_are_read_and_not_whole_objects(bucket, monkeypatch):
  data = np.random.default_rng(0).bytes(1 << 20)
  put_bytes(data, f"{bucket}/x")
  system, _ = filesystem(f"{bucket}/x")
  real, ranges = system.cat_file, []

  def cat_file(name, *, start, end):
    ranges.append((start, end))
    return real(name, start=start, end=end)

  monkeypatch.setattr(system, "cat_file", cat_file)
  with open_reader(f"{bucket}/x") as reader:
    assert reader.read(4) == data[:4]
    reader.seek(1000)
    assert reader.read(100) == data[1000:1100]
    assert ranges == [(0, 4), (1000, 1100)]
    # In order: ever larger, so that requests stay few.
    assert reader.read(100) == data[1100:1200]
    assert reader.read(300) == data[1200:1500]
    assert reader.read(1) == data[1500:1501]
    assert ranges[2:] == [(1100, 1500), (1500, 3100)]
    reader.seek(-2, io.SEEK_END)
    assert reader.read(10) == data[-2:]
    assert reader.read(10) == b""
    assert reader.tell() == len(data)
  ranges.clear()
  with open_reader(f"{bucket}/x") as reader:
    blocks = iter(lambda: reader.read(1000), b"")
    assert b"".join(blocks) == data
  assert len(ranges) < 10


def test_reading_any_places_gives_the_bytes(bucket):
  random = np.random.default_rng(1)
  data = random.bytes(10_000)
  put_bytes(data, f"{bucket}/x")
  with open_reader(f"{bucket}/x") as reader:
    for _ in range(80):
      if random.random() < 0.3:
        reader.seek(int(random.integers(0, 10_100)))
      at, size = reader.tell(), int(random.integers(0, 700))
      assert reader.read(size) == data[at : at + size]
    reader.seek(5)
    assert reader.read() == data[5:]
    buffer = bytearray(7)
    reader.seek(9_995)
    assert reader.readinto(buffer) == 5
    assert buffer == data[-5:] + b"\0\0"


def test_an_object_that_shrinks_is_an_error(bucket):
  put_bytes(b"x" * 100, f"{bucket}/x")
  with open_reader(f"{bucket}/x") as reader:
    reader.read(10)
    put_bytes(b"x" * 20, f"{bucket}/x")
    with pytest.raises(OSError, match=f"shorter than it was.*{bucket}/x"):
      reader.read(80)


def test_calls_in_parallel_keep_their_order_and_raise():
  assert list(in_parallel(lambda n: n * 2, range(50))) == list(range(0, 100, 2))
  with pytest.raises(ZeroDivisionError):
    list(in_parallel(lambda n: 1 / n, [1, 0]))
