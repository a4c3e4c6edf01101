"""launch/run_folder.py: folders that can be used, and by one run at a time."""

import errno
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

LAUNCH = Path(__file__).parent.parent / "launch"
sys.path.insert(0, str(LAUNCH))

import run_folder  # noqa: E402

HOLDER = f"""
import sys, time
from pathlib import Path
sys.path[:0] = [{str(LAUNCH)!r}]
import run_folder
run_folder.lock(Path(sys.argv[1]))
print("locked", flush=True)
time.sleep(120)
"""


@pytest.mark.parametrize("workdir", ["", "  "])
def test_no_name_is_refused(workdir):
  with pytest.raises(ValueError, match=f"got '{workdir}'. Name one, such as"):
    run_folder.resolve(workdir)


def test_a_name_becomes_an_absolute_path(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  assert run_folder.resolve("a/b") == tmp_path.resolve() / "a" / "b"
  monkeypatch.setenv("HOME", str(tmp_path))
  assert run_folder.resolve("~/a") == tmp_path.resolve() / "a"


def test_folders_are_made_where_they_are_missing(tmp_path):
  run_folder.make(tmp_path / "a" / "b")
  run_folder.make(tmp_path / "a" / "b")
  assert (tmp_path / "a" / "b").is_dir()


def test_what_cannot_be_a_folder_is_refused(tmp_path):
  file = tmp_path / "file"
  file.write_text("kept")
  advice = "Give a folder in which you may write"
  with pytest.raises(
    ValueError, match=f"={file} cannot be made: .*File exists. {advice}"
  ):
    run_folder.make(file)
  with pytest.raises(
    ValueError, match=f"cannot be made: .*Not a dir.*{advice}"
  ):
    run_folder.make(file / "below")
  assert file.read_text() == "kept"
  with pytest.raises(ValueError, match=f"={Path('/proc/none')} cannot be made"):
    run_folder.make(Path("/proc/none"))


def test_a_folder_that_takes_no_file_is_refused():
  with pytest.raises(ValueError, match=r"=/proc cannot be written to: /proc/"):
    run_folder.lock(Path("/proc"))


@pytest.fixture
def holder(tmp_path):
  """Another process that has the folder."""
  process = subprocess.Popen(
    [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE
  )
  assert process.stdout.readline() == b"locked\n"
  yield process
  process.kill()
  process.communicate()


def test_a_folder_in_use_is_refused_and_says_by_whom(
  tmp_path, holder, monkeypatch
):
  monkeypatch.setattr(run_folder, "_PATIENCE_SECONDS", 0.2)
  with pytest.raises(
    BlockingIOError,
    match=re.escape(f"={tmp_path} is in use by another run (process ")
    + rf"{holder.pid}, .*another --workdir\.",
  ):
    run_folder.lock(tmp_path)


def test_a_killed_run_leaves_the_folder_free_at_once(tmp_path, holder):
  # Not waited for: the kernel may still be clearing it away.
  holder.send_signal(signal.SIGKILL)
  os.close(run_folder.lock(tmp_path))
  assert (tmp_path / ".lock").read_text().startswith(f"process {os.getpid()},")


def test_a_file_system_without_locks_is_warned_of(
  tmp_path, monkeypatch, capsys
):
  def flock(file, operation):
    raise OSError(errno.ENOLCK, "No locks available")

  monkeypatch.setattr("fcntl.flock", flock)
  os.close(run_folder.lock(tmp_path))
  assert re.search(
    f"^WARNING: .*{tmp_path} has no locks .No locks available.*the only one",
    capsys.readouterr().err,
  )
