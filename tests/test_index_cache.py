"""hpgrain/index_cache.py: what comes back, what may be asked for."""

import errno
import logging
import mmap
import os
import pickle
import threading
from pathlib import Path

import index_cache_worker as worker
import numpy as np
import pytest
from index_cache_worker import ARRAY, DOCUMENTS, get, names, warned

from hpgrain import index_cache_file
from hpgrain.index_cache import CacheEvent, IndexCache


def never():
  raise AssertionError("built again")


@pytest.fixture
def folder(tmp_path):
  return tmp_path / "cache"


@pytest.mark.parametrize(
  "mapped_bytes, base", [(0, mmap.mmap), (1 << 20, bytes)]
)
def test_arrays_come_back_read_only(folder, monkeypatch, mapped_bytes, base):
  # Files of fewer bytes are read, others mapped.
  monkeypatch.setattr(index_cache_file, "_MAPPED_BYTES", mapped_bytes)
  made = {
    "wide": np.array([[1, -2], [3, 1 << 40]], np.int64),
    "none": np.empty((0, 2), np.int32),
    "flags": np.array([True, False, True]),
    "one": np.array(2.5),
    "few": np.array([1, 65535], np.uint16),
  }
  arrays = {name: (array.dtype, array.shape) for name, array in made.items()}
  for build in (lambda: made, never):
    cache = IndexCache(folder)
    found = cache.get("stage_1", key={"n": 1}, arrays=arrays, build=build)
    assert list(found) == list(made)
    for name, array in found.items():
      np.testing.assert_array_equal(array, made[name], strict=True)
      assert not array.flags.writeable
      assert isinstance(array.base, base)
  assert made["wide"].flags.writeable


def test_an_event_says_what_was_done(folder):
  built, loaded = get(folder), get(folder)
  assert 0 < loaded.seconds < 10
  assert 0 < built.seconds < 10
  expected = CacheEvent("documents", folder / DOCUMENTS, True, 0.0, 80_000)
  for event, was_built in ((built, True), (loaded, False)):
    assert event == CacheEvent(
      expected.kind, expected.path, was_built, event.seconds, 80_000
    )


def test_each_answer_is_a_line_of_the_log(folder, caplog):
  caplog.set_level(logging.INFO, "hpgrain")
  get(folder)
  get(folder)
  get(None)
  lines = [record.getMessage() for record in caplog.records]
  assert [line.split(" in ")[0] for line in lines] == [
    "Index documents: built",
    "Index documents: loaded",
    "Index documents: built",
  ]
  assert lines[1].endswith(f" s, 0.1 MB, {folder / DOCUMENTS}")
  assert lines[2].endswith(" s, 0.1 MB, in memory")


def test_without_a_folder_arrays_are_built_in_memory(caplog):
  array = np.arange(3)
  cache = IndexCache(None)
  for _ in range(2):
    found = cache.get(
      "a",
      key={},
      arrays={"x": (array.dtype, (3,))},
      build=lambda: {"x": array},
    )
    assert found["x"].tolist() == [0, 1, 2]
    assert not found["x"].flags.writeable
  assert array.flags.writeable
  assert [(e.path, e.built, e.num_bytes) for e in cache.events] == [
    (None, True, 24),
    (None, True, 24),
  ]
  assert not warned(caplog)


def test_any_layout_and_byte_order_is_stored_as_one(folder):
  array = np.arange(6, dtype=">i4").reshape(2, 3).T
  for where in (folder, folder, None):
    found = IndexCache(where).get(
      "a",
      key={},
      arrays={"x": (np.dtype(np.int32), (3, 2))},
      build=lambda: {"x": array},
    )["x"]
    assert found.dtype == np.dtype("<i4")
    assert found.flags.c_contiguous
    assert found.tolist() == [[0, 3], [1, 4], [2, 5]]


def test_a_cache_can_be_pickled(folder):
  cache = IndexCache(folder)
  cache.get("a", key={}, arrays={}, build=dict)
  copy = pickle.loads(pickle.dumps(cache))
  assert (copy.folder, copy.events) == (folder, [])
  copy.get("a", key={}, arrays={}, build=never)


@pytest.mark.parametrize(
  "folder",
  [
    "gs://bucket/cache",
    "s3://bucket",
    "file:///tmp/cache",
    "/data/s3://bucket",
    Path("gs://bucket/cache"),
  ],
)
def test_object_storage_is_refused(folder):
  with pytest.raises(
    ValueError, match=r"is for folders of a file system, got.*leave it unset"
  ):
    IndexCache(folder)


@pytest.mark.parametrize("folder", ["", "  "])
def test_an_empty_name_is_refused(folder):
  with pytest.raises(ValueError, match=f"name of a folder, got '{folder}'"):
    IndexCache(folder)


def test_a_name_becomes_an_absolute_path(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  assert IndexCache("a/b").folder == Path.cwd() / "a" / "b"
  assert IndexCache("c:/a").folder == Path.cwd() / "c:" / "a"
  monkeypatch.setenv("HOME", "/home/me")
  assert IndexCache("~/a").folder == Path("/home/me/a")
  with pytest.raises(ValueError, match=r"'~no-such-user/a' cannot be found"):
    IndexCache("~no-such-user/a")


@pytest.mark.parametrize(
  "built, message",
  [
    ({}, r"a: built \[\], promised \['x'\]"),
    ({"x": [1], "y": [1]}, r"a: built \['x', 'y'\], promised \['x'\]"),
    ({"x": [1, 2]}, r"a: built x as int64\[2\], promised int64\[1\]"),
    ({"x": [1.0]}, r"a: built x as float64\[1\], promised int64\[1\]"),
  ],
)
@pytest.mark.parametrize("cached", [True, False])
def test_what_was_promised_must_be_built(folder, *, built, message, cached):
  with pytest.raises(RuntimeError, match=message):
    IndexCache(folder if cached else None).get(
      "a",
      key={},
      arrays={"x": (np.dtype(np.int64), (1,))},
      build=lambda: {name: np.array(value) for name, value in built.items()},
    )
  assert names(folder) == []


@pytest.mark.parametrize("kind", ["", "../a", "A", "a-b", "a\n"])
def test_a_kind_must_fit_a_file_name(folder, kind):
  with pytest.raises(RuntimeError, match="cannot be the beginning of a file"):
    IndexCache(folder).get(kind, key={}, arrays={}, build=never)


def test_a_key_must_be_json(folder):
  for key, error in (
    ({"x": float("nan")}, pytest.raises(ValueError, match="not JSON compl")),
    ({"x": np.int64(1)}, pytest.raises(TypeError, match="not JSON serial")),
  ):
    with error:
      IndexCache(folder).get("a", key=key, arrays={}, build=never)


def test_what_is_not_plain_numbers_is_not_stored(folder):
  arrays = {"x": (np.dtype(object), (1,))}
  with pytest.raises(RuntimeError, match="a: x cannot be stored as object"):
    IndexCache(folder).get("a", key={}, arrays=arrays, build=never)


@pytest.mark.parametrize(
  "error", [ValueError("no"), OSError(errno.ENOSPC, "no"), KeyboardInterrupt()]
)
def test_errors_of_build_pass_through(folder, caplog, error):
  def fail():
    raise error

  with pytest.raises(type(error)) as caught:
    get(folder, build=fail)
  assert caught.value is error
  assert names(folder) == []
  assert not warned(caplog)
  assert get(folder).built


def test_nothing_is_written_that_came_while_it_was_built(folder, monkeypatch):
  def build():
    get(folder)
    monkeypatch.setattr(os, "write", None)
    return {"a": ARRAY}

  event = get(folder, build=build)
  assert (event.built, event.path) == (True, folder / DOCUMENTS)


def run_threads(*targets):
  threads = [threading.Thread(target=target) for target in targets]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join(timeout=60)
  assert not any(thread.is_alive() for thread in threads)


def test_threads_that_ask_for_one_entry_build_it_once(folder):
  cache, found = IndexCache(folder), []
  calls = []

  def build():
    calls.append(1)
    # Time for the others to come, which they do not need to.
    threading.Event().wait(0.1)
    return {"a": ARRAY}

  def ask():
    found.append(
      cache.get(
        "documents",
        key=worker.KEY,
        arrays={"a": (ARRAY.dtype, ARRAY.shape)},
        build=build,
      )["a"]
    )

  run_threads(*[ask] * 4)
  assert calls == [1]
  assert sorted(event.built for event in cache.events) == [False] * 3 + [True]
  assert all((array == ARRAY).all() for array in found)


def test_threads_that_ask_for_different_entries_do_not_wait(folder):
  cache = IndexCache(folder)
  inside = threading.Barrier(2, timeout=30)

  def ask(kind):
    def build():
      inside.wait()
      return {}

    return lambda: cache.get(kind, key={}, arrays={}, build=build)

  run_threads(ask("a"), ask("b"))
  assert sorted(event.kind for event in cache.events) == ["a", "b"]


def test_what_is_kept_is_found_and_nothing_is_built(folder):
  arrays = {"a": (ARRAY.dtype, ARRAY.shape)}
  cache = IndexCache(folder)
  assert cache.find("documents", key=worker.KEY, arrays=arrays) is None
  assert not folder.exists()
  get(folder)
  found = cache.find("documents", key=worker.KEY, arrays=arrays)
  assert found["a"].tolist() == ARRAY.tolist()
  assert not found["a"].flags.writeable
  assert cache.find("documents", key={}, arrays=arrays) is None
  assert cache.events == []
  nowhere = IndexCache(None)
  assert nowhere.find("documents", key=worker.KEY, arrays=arrays) is None


def test_what_may_not_be_looked_at_is_not_found(folder, caplog):
  folder.parent.joinpath("file").touch()
  cache = IndexCache(folder.parent / "file" / "cache")
  with worker.Intruder(1, _denied):
    found = cache.find(
      "documents", key=worker.KEY, arrays={"a": (ARRAY.dtype, ARRAY.shape)}
    )
  assert found is None
  (said,) = warned(caplog)
  assert f"{cache.folder} cannot be used (Permission denied)" in said


def _denied(name, real, *args, **kwargs):
  raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
