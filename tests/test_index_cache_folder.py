"""hpgrain/index_cache_folder.py: killed, hindered and simultaneous writers."""

import errno
import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import index_cache_worker as worker
import pytest
from index_cache_worker import (
  DOCUMENTS,
  Intruder,
  entry,
  finish,
  get,
  names,
  start,
  warned,
)

from hpgrain import index_cache_file, index_cache_folder

DAY = 24 * 3600


def partial(kind="documents", machine=None):
  """The name of a temporary file."""
  machine = index_cache_folder._machine() if machine is None else machine
  return f"{entry(kind).name}.{machine}{16 * 'a'}.partial"


@pytest.fixture
def folder(tmp_path):
  return tmp_path / "cache"


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
    said = [text for text in warned(caplog) if "damaged" not in text]
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
  texts = warned(caplog)
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
  assert not warned(caplog)


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
  (said,) = warned(caplog)
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
  (said,) = warned(caplog)
  assert f"{folder} cannot be used (No such file or directory: " in said


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
  assert not warned(caplog)


@pytest.mark.parametrize("damaged", [False, True])
def test_many_processes_and_entries(folder, damaged):
  if damaged:
    folder.mkdir()
    for kind in worker.CROWD:
      (folder / entry(kind).name).touch()
  assert finish(start("crowd", folder)) == [0] * 8
  assert names(folder) == sorted(entry(kind).name for kind in worker.CROWD)
  assert not any(get(folder, kind=kind).built for kind in worker.CROWD)
