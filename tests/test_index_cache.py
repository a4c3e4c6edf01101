"""hpgrain/index_cache*.py: what comes back, what counts, what can go wrong."""

import errno
import fcntl
import json
import logging
import mmap
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import index_cache_worker as worker
import numpy as np
import pytest
from index_cache_worker import ARRAY, Intruder, entry, get, names

from hpgrain import index_cache_file, index_cache_folder
from hpgrain.index_cache import CacheEvent, IndexCache

DOCUMENTS = entry().name
DAY = 24 * 3600


def never():
  raise AssertionError("built again")


def partial(kind="documents", machine=None):
  """The name of a temporary file."""
  machine = index_cache_folder._machine() if machine is None else machine
  return f"{entry(kind).name}.{machine}{16 * 'a'}.partial"


def start(command, folder, *before):
  return subprocess.Popen(
    [*before, sys.executable, worker.__file__, command, str(folder)],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
  )


def finish(process, line="\n"):
  out, _ = process.communicate(line, timeout=100)
  assert process.returncode == 0
  return json.loads(out.splitlines()[-1])


def warnings(caplog):
  return [
    record.getMessage()
    for record in caplog.records
    if record.name.startswith("hpgrain") and record.levelno >= logging.WARNING
  ]


@pytest.fixture
def folder(tmp_path):
  return tmp_path / "cache"


# What comes back.


def test_arrays_come_back_mapped_and_read_only(folder):
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
      assert isinstance(array.base, mmap.mmap)
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
  assert not warnings(caplog)


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


# The file.


def test_the_file_is_as_described(folder):
  IndexCache(folder).get(
    "a",
    key={"seed": 1, "name": "é"},
    arrays={"x": (np.dtype("u2"), (3,)), "y": (np.dtype("i8"), (1, 1))},
    build=lambda: {"x": np.array([1, 2, 258], "u2"), "y": np.array([[-1]])},
  )
  text = (
    rb'{"arrays":{"x":{"dtype":"<u2","offset":0,"shape":[3]},'
    rb'"y":{"dtype":"<i8","offset":64,"shape":[1,1]}},"data_bytes":72,'
    rb'"key":{"name":"\u00e9","seed":1},"kind":"a"}'
  )
  assert len(text) == 161
  assert names(folder) == ["a-efffe64debb070e15c4ade6feb3bd9cb.hpgrain"]
  assert (folder / names(folder)[0]).read_bytes() == (
    b"HPGRAIN\0\1\0\0\0"
    + b"\xa1\0\0\0"
    + text
    + bytes(15)
    + b"\1\0\2\0\2\1"
    + bytes(58)
    + b"\xff" * 8
  )


def test_the_mask_of_the_user_decides_who_may_read(folder):
  before = os.umask(0o027)
  try:
    get(folder)
  finally:
    os.umask(before)
  assert (folder / DOCUMENTS).stat().st_mode & 0o777 == 0o640
  assert folder.stat().st_mode & 0o777 == 0o750


def test_nothing_is_made_before_there_is_something_to_write(tmp_path):
  folder = tmp_path / "a" / "b"
  IndexCache(folder)
  assert names(tmp_path) == []
  get(folder)
  assert names(folder) == [DOCUMENTS]


def test_opening_costs_the_same_for_any_size(folder):
  huge = index_cache_file.describe(
    "huge", key={}, arrays={"x": (np.dtype(np.int64), (10**10,))}
  )
  folder.mkdir()
  with (folder / huge.name).open("wb") as file:
    file.write(huge.head)
    file.truncate(huge.file_bytes)
  cache = IndexCache(folder)
  found = cache.get(
    "huge",
    key={},
    arrays={"x": (np.dtype(np.int64), (10**10,))},
    build=never,
  )
  assert found["x"][-1] == 0
  assert cache.events[0].seconds < 0.1


# What counts.


@pytest.mark.parametrize(
  "kind, key",
  [
    ("b", {"seed": 1, "split": [1, 2]}),
    ("a", {"seed": 2, "split": [1, 2]}),
    ("a", {"seed": "1", "split": [1, 2]}),
    ("a", {"seed": 1.0, "split": [1, 2]}),
    ("a", {"seed": True, "split": [1, 2]}),
    ("a", {"seed": 1, "split": [2, 1]}),
    ("a", {"seed": 1, "split": [[1], 2]}),
    ("a", {"seed": 1}),
    ("a", {"seed": 1, "split": [1, 2], "more": None}),
  ],
)
def test_another_key_is_another_entry(folder, kind, key):
  def ask(kind, key, value):
    return IndexCache(folder).get(
      kind,
      key=key,
      arrays={"x": (np.dtype(np.int64), (1,))},
      build=lambda: {"x": np.array([value])},
    )

  assert ask("a", {"seed": 1, "split": [1, 2]}, 1)["x"] == [1]
  assert ask(kind, key, 2)["x"] == [2]
  # The order of keys and the kind of sequence are not part of a key.
  assert ask("a", {"split": (1, 2), "seed": 1}, 3)["x"] == [1]


def test_a_file_of_another_version_is_not_looked_at(folder, monkeypatch):
  get(folder)
  monkeypatch.setattr(index_cache_file, "_VERSION", 2)
  assert get(folder).built
  assert len(names(folder)) == 2


def damage(path, how):
  data = path.read_bytes()
  other = path.parent / "other"
  if how == "directory":
    path.unlink()
    path.mkdir()
  elif how == "pipe":
    path.unlink()
    os.mkfifo(path)
  elif how == "foreign":
    get(other, kind="samples")
    path.write_bytes((other / entry("samples").name).read_bytes())
    shutil.rmtree(other)
  elif how == "another dtype":
    get(other, array=ARRAY.astype(np.uint64))
    path.write_bytes((other / DOCUMENTS).read_bytes())
    shutil.rmtree(other)
  else:
    path.write_bytes(
      {
        "empty": b"",
        "short by a byte": data[:-1],
        "nothing but the head": data[: len(entry().head)],
        "half a head": data[:100],
        "long by a byte": data + b"\0",
        "another magic": b"x" + data[1:],
        "zeros": bytes(len(data)),
      }[how]
    )


DAMAGE = [
  ("empty", "it has 0 bytes instead of 80192"),
  ("short by a byte", "it has 80191 bytes"),
  ("nothing but the head", "it has 192 bytes"),
  ("half a head", "it has 100 bytes"),
  ("long by a byte", "it has 80193 bytes"),
  ("another magic", "it begins otherwise than it should"),
  ("zeros", "it begins otherwise than it should"),
  ("foreign", "it begins otherwise than it should"),
  ("another dtype", "it begins otherwise than it should"),
  ("pipe", "it is not a regular file"),
]


@pytest.mark.parametrize("how, reason", DAMAGE)
def test_a_damaged_file_is_said_once_and_replaced(folder, caplog, how, reason):
  get(folder)
  damage(folder / DOCUMENTS, how)
  event = get(folder)
  assert event.built
  assert event.path == folder / DOCUMENTS
  (said,) = warnings(caplog)
  assert said.startswith(
    f"{folder / DOCUMENTS} is damaged or foreign ({reason}"
  )
  assert not get(folder).built
  assert names(folder) == [DOCUMENTS]
  assert len(warnings(caplog)) == 1


def test_a_folder_under_the_name_is_left_alone(folder, caplog):
  get(folder)
  damage(folder / DOCUMENTS, "directory")
  assert get(folder).path is None
  assert [said.split(" ")[-1] for said in warnings(caplog)] == [
    "possible.",
    "silently.",
  ]
  assert names(folder) == [DOCUMENTS]


def test_a_link_to_nowhere_is_replaced(folder, caplog):
  folder.mkdir()
  (folder / DOCUMENTS).symlink_to("nowhere")
  assert get(folder).path == folder / DOCUMENTS
  assert not get(folder).built
  assert not warnings(caplog)


def test_no_byte_of_the_head_may_differ(folder):
  get(folder)
  path = folder / DOCUMENTS
  data = path.read_bytes()
  for place in range(len(entry().head)):
    changed = bytearray(data)
    changed[place] ^= 1
    path.write_bytes(changed)
    with pytest.raises(ValueError, match="begins otherwise"):
      index_cache_file.read(path, entry())


# Arguments.


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
  assert not warnings(caplog)
  assert get(folder).built


# Failures of the folder.


def failing(number):
  def act(name, real, *args, **kwargs):
    raise OSError(number, os.strerror(number))

  return act


@pytest.mark.parametrize(
  "number",
  [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EACCES],
  ids=lambda number: errno.errorcode[number],
)
@pytest.mark.parametrize("damaged", [False, True])
def test_any_call_may_fail(tmp_path, monkeypatch, caplog, *, number, damaged):
  monkeypatch.setattr(index_cache_file, "_CHUNK_BYTES", worker.CHUNK_BYTES)
  harmless, called = set(), []
  for n in range(1, 100):
    folder = tmp_path / str(n)
    if damaged:
      folder.mkdir()
      (folder / DOCUMENTS).touch()
    caplog.clear()
    with Intruder(n, failing(number)) as intruder:
      event = get(folder)
    if intruder.called is None:
      break
    called.append(intruder.called)
    # Nothing but the file, whole or as it was, and a temporary name that
    # could not be removed.
    if intruder.called != "unlink":
      assert set(names(folder)) <= {DOCUMENTS}
    said = [text for text in warnings(caplog) if "damaged" not in text]
    if event.path is None:
      (text,) = said
      assert text.startswith(f"The index cache {folder} cannot be used (")
      assert os.strerror(number) in text
    else:
      assert not said
      harmless.add(intruder.called)
    found = get(folder)
    assert found.path == folder / DOCUMENTS
    if event.path is not None:
      assert not found.built
  assert {"open", "flock", "write", "fsync", "link", "unlink"} <= set(called)
  # Without locks or links it goes on, and a name too many is no harm. A file
  # that is seen to be damaged is not in the way of either.
  assert {"flock", "link", "unlink"} <= harmless <= {
    "flock", "link", "unlink", "mkdir",
  }  # fmt: skip


def test_an_interrupted_write_leaves_nothing(folder):
  def interrupt(name, real, *args, **kwargs):
    raise KeyboardInterrupt

  get(folder, kind="samples")
  for n in range(1, 100):
    shutil.copytree(folder, folder.parent / str(n))
    with Intruder(n, interrupt) as intruder:
      try:
        get(folder.parent / str(n))
      except KeyboardInterrupt:
        pass
    if intruder.called is None:
      break
    left = set(names(folder.parent / str(n)))
    if intruder.called not in ("unlink", "flock"):
      assert left <= {DOCUMENTS, entry("samples").name}
  assert n > 10


def test_one_warning_a_folder(folder, caplog):
  folder.parent.joinpath("file").touch()
  for kind in ("documents", "samples"):
    event = get(folder.parent / "file" / "cache", kind=kind)
    assert (event.path, event.built) == (None, True)
    get(folder.parent / "file", kind=kind)
  texts = warnings(caplog)
  assert [text.split(" ")[3] for text in texts] == [
    f"{folder.parent}/file/cache",
    f"{folder.parent}/file",
  ]
  assert "(Not a directory: " in texts[0]
  assert "(File exists: " in texts[1]
  assert all("name another folder in data_cache_path" in x for x in texts)


def in_namespace(script):
  """A command in which the user may mount, without a trace outside."""
  words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-ec"]
  try:
    allowed = subprocess.run(
      [*words, "mount -t tmpfs none /mnt"], capture_output=True, check=False
    )
  except FileNotFoundError:
    pytest.skip("unshare is not installed")
  if allowed.returncode:
    pytest.skip(f"mounting is not permitted: {allowed.stderr.decode()}")
  return [*words, f'{script}; exec "$@"', "sh"]


def test_a_full_disk_is_no_error_of_the_run(folder):
  folder.mkdir()
  mount = in_namespace(f"mount -t tmpfs -o size=300k none '{folder}'")
  told = finish(start("full", folder, *mount))
  assert told["mapped"] == [False, False, True]
  assert told["built"] == [True, True, True]
  assert [name.split("-")[0] for name in told["left"]] == ["small"]
  (said,) = told["warnings"]
  assert said.startswith(
    f"The index cache {folder} cannot be used (No space left on device)."
  )


def test_a_limit_on_files_is_no_error_of_the_run(folder):
  told = finish(start("limited", folder))
  assert told["mapped"] == [False, False, True]
  assert [name.split("-")[0] for name in told["left"]] == ["small"]
  (said,) = told["warnings"]
  assert "cannot be used (File too large)." in said


def check_read_only(told, reason):
  assert told["mapped"] == [True, False, False]
  assert told["built"] == [False, True, True]
  assert told["left"] == [DOCUMENTS]
  assert told["early"] == []
  (said,) = told["warnings"]
  assert f"cannot be used ({reason}: " in said


def test_a_read_only_file_system_is_read(folder):
  get(folder)
  mount = in_namespace(
    f"mount --bind '{folder}' '{folder}'; mount -o remount,bind,ro '{folder}'"
  )
  told = finish(start("missing", folder, *mount))
  check_read_only(told, "Read-only file system")


@pytest.fixture
def open_folder():
  """A folder that other users may reach, as pytest's are not."""
  with tempfile.TemporaryDirectory(dir="/tmp") as folder:
    Path(folder).chmod(0o755)
    yield Path(folder)


def test_a_folder_without_the_right_to_write_is_read(open_folder):
  get(open_folder)
  open_folder.chmod(0o555)
  told = finish(start("read_only", open_folder))
  check_read_only(told, "Permission denied")


def test_a_file_that_may_not_be_read_is_not_replaced(open_folder):
  get(open_folder)
  open_folder.chmod(0o777)
  path = open_folder / DOCUMENTS
  path.chmod(0)
  before = path.stat()
  told = finish(start("read_only", open_folder))
  assert told["mapped"] == [False, True, True]
  (said,) = told["warnings"]
  assert f"cannot be used (Permission denied: {path})" in said
  assert path.stat() == before


# Killed writers and their files.


def test_no_kill_leaves_anything_that_counts(tmp_path):
  told = finish(start("killed_everywhere", tmp_path))
  whole = [DOCUMENTS]
  for case in told:
    published = "unlink" in case["call"] or not any(
      name.endswith(".partial") for name in case["left"]
    )
    if case["built"][0]:
      # Nothing was there, or only what had been damaged before.
      files = [n for n in case["left"] if not n.endswith(".partial")]
      assert files == (whole if case["damaged"] else [])
      assert case["warnings"] == int(case["damaged"])
    else:
      assert published or case["call"] == "link"
      assert case["warnings"] == 0
    assert case["built"][1]
    assert case["then"] == sorted([DOCUMENTS, entry("samples").name])
  for damaged in (False, True):
    for when in ("_die_before", "_die_after"):
      calls = [
        case["call"]
        for case in told
        if (case["damaged"], case["when"]) == (damaged, when)
      ]
      assert calls.count("write") == 4
      assert calls.count("fsync") == 2
      assert calls.count("link") == 1
      assert calls.count("replace") == damaged
      assert calls.count("unlink") == 1


def test_a_living_writer_keeps_its_temporary_file(folder):
  process = start("waiting", folder)
  assert process.stdout.readline() == "writing\n"
  (name,) = names(folder)
  assert name.endswith(".partial")
  # Not even a very old one is taken from it.
  os.utime(folder / name, (0, 0))
  get(folder, kind="samples")
  assert names(folder) == [name, entry("samples").name]
  assert finish(process) == {
    "mapped": [True],
    "built": [True],
    "warnings": [],
    "left": [DOCUMENTS, entry("samples").name],
  }


def leave(folder, name, *, age=0):
  folder.mkdir(exist_ok=True)
  path = folder / name
  path.touch()
  now = path.stat().st_mtime
  os.utime(path, (now - age, now - age))
  return name


def test_only_what_was_left_by_writers_is_removed(folder):
  elsewhere = "01234567"
  kept = [
    leave(folder, "notes.partial", age=2 * DAY),
    leave(folder, f"{DOCUMENTS}.partial", age=2 * DAY),
    leave(folder, f"{partial()}.txt", age=2 * DAY),
    leave(folder, f"x{partial()}".replace("-", "_"), age=2 * DAY),
    # Where locks end at the machine, its writer may live.
    leave(folder, partial(machine=elsewhere), age=DAY - 60),
  ]
  leave(folder, partial())
  leave(folder, partial("samples", elsewhere), age=DAY + 60)
  get(folder)
  assert names(folder) == sorted([*kept, DOCUMENTS])


def test_a_link_in_the_place_of_a_temporary_file_is_not_followed(folder):
  folder.mkdir()
  (folder / "mine").touch()
  (folder / partial()).symlink_to("mine")
  get(folder)
  assert names(folder) == sorted([DOCUMENTS, partial(), "mine"])


@pytest.fixture
def no_locks(monkeypatch):
  def refuse(fd, operation):
    raise OSError(errno.ENOTSUP, "no locks")

  monkeypatch.setattr(fcntl, "flock", refuse)


@pytest.mark.usefixtures("no_locks")
def test_without_locks_only_old_files_are_removed(folder, caplog):
  young = leave(folder, partial(), age=DAY - 60)
  leave(folder, partial("samples"), age=DAY + 60)
  assert get(folder).path == folder / DOCUMENTS
  assert names(folder) == sorted([DOCUMENTS, young])
  assert not warnings(caplog)


@pytest.mark.parametrize("locked", [False, True])
def test_a_file_taken_for_abandoned_is_made_again(folder, monkeypatch, locked):
  lock, taken = fcntl.flock, []

  def tidied_up_meanwhile(fd, operation):
    if len(taken) < 2:
      (name,) = names(folder)
      taken.append(name)
      (folder / name).unlink()
      if locked:
        raise BlockingIOError(errno.EAGAIN, "locked")
    return lock(fd, operation)

  monkeypatch.setattr(fcntl, "flock", tidied_up_meanwhile)
  assert get(folder).path == folder / DOCUMENTS
  assert names(folder) == [DOCUMENTS]
  assert len(set(taken)) == 2


def test_a_file_taken_again_and_again_is_given_up(folder, monkeypatch, caplog):
  def held(fd, operation):
    raise BlockingIOError(errno.EAGAIN, "locked")

  monkeypatch.setattr(fcntl, "flock", held)
  assert get(folder).path is None
  assert names(folder) == []
  (said,) = warnings(caplog)
  assert "each of 10 temporary files was removed by somebody" in said


def test_a_temporary_file_that_is_gone_is_a_failure(
  folder, monkeypatch, caplog
):
  link = os.link

  def gone(source, target):
    Path(source).unlink()
    link(source, target)

  monkeypatch.setattr(os, "link", gone)
  event = get(folder)
  assert (event.path, event.built) == (None, True)
  assert names(folder) == []
  (said,) = warnings(caplog)
  assert f"{folder} cannot be used (No such file or directory: " in said


# Two at once.


def test_two_processes_that_build_at_once_both_succeed(folder):
  processes = [start("together", folder) for _ in range(2)]
  for process in processes:
    assert process.stdout.readline() == "building\n"
  for process in processes:
    process.stdin.write("\n")
    process.stdin.flush()
  told = [finish(process, None) for process in processes]
  assert names(folder) == [DOCUMENTS]
  inode = (folder / DOCUMENTS).stat().st_ino
  assert told == [{"built": True, "inodes": [inode]}] * 2


def test_the_faster_of_two_is_waited_for_by_nobody(folder):
  slow = start("together", folder)
  assert slow.stdout.readline() == "building\n"
  get(folder)
  inode = (folder / DOCUMENTS).stat().st_ino
  assert finish(slow) == {"built": True, "inodes": [inode]}
  assert (folder / DOCUMENTS).stat().st_ino == inode


@pytest.mark.parametrize("call", ["link", "write"])
def test_the_winner_is_not_replaced(folder, monkeypatch, caplog, call):
  real = getattr(os, call)
  inodes = []

  def overtaken(*args):
    monkeypatch.setattr(os, call, real)
    get(folder)
    inodes.append((folder / DOCUMENTS).stat().st_ino)
    return real(*args)

  monkeypatch.setattr(os, call, overtaken)
  event = get(folder)
  assert (event.built, event.path) == (True, folder / DOCUMENTS)
  assert names(folder) == [DOCUMENTS]
  assert [(folder / DOCUMENTS).stat().st_ino] == inodes
  assert not warnings(caplog)


def test_many_processes_and_entries(folder):
  assert finish(start("crowd", folder)) == [0] * 8
  assert len(names(folder)) == 10


def test_a_damaged_winner_is_replaced_by_each_that_sees_it(folder):
  get(folder)
  damage(folder / DOCUMENTS, "empty")
  assert finish(start("crowd", folder)) == [0] * 8
  assert get(folder).built
  assert not get(folder).built


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
