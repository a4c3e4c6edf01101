"""The folder of a run: named, made, and kept to one run at a time."""

import contextlib
import fcntl
import os
import socket
import sys
import time
from pathlib import Path

LOCK_NAME = ".lock"

# A run that was killed a moment ago holds its lock until the kernel has
# cleared its memory away.
_PATIENCE_SECONDS = 5.0


def resolve(workdir: str) -> Path:
  """Returns the absolute path that --workdir names.

  Raises:
    ValueError: if it names none.
  """
  if not workdir.strip():
    raise ValueError(
      f"--workdir is a folder for this run's files, got {workdir!r}. Name one,"
      " such as --workdir=/tmp/hpgrain, or --workdir=. for the current folder."
    )
  return Path(workdir).expanduser().resolve()


def make(workdir: Path) -> None:
  """Makes the folder and those above it, where they are missing.

  Raises:
    ValueError: if that cannot be done.
  """
  try:
    workdir.mkdir(parents=True, exist_ok=True)
  except OSError as error:
    raise _unusable(workdir, "cannot be made", error) from error


def lock(workdir: Path) -> int:
  """Keeps every other run out of the folder, for as long as this process is.

  Of a run in several processes, which share the folder, one does this. The
  lock goes with the process, however that ends; the file stays behind.

  Returns:
    The open file that holds the lock. Closing it lets go; a run never does.

  Raises:
    ValueError: if nothing can be written in the folder.
    BlockingIOError: if another run has it.
  """
  path = workdir / LOCK_NAME
  try:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
  except OSError as error:
    raise _unusable(workdir, "cannot be written to", error) from error
  end = time.monotonic() + _PATIENCE_SECONDS
  while True:
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
      break
    except BlockingIOError:
      if time.monotonic() > end:
        holder = os.pread(file, 200, 0).decode(errors="replace").strip()
        os.close(file)
        raise BlockingIOError(
          f"--workdir={workdir} is in use by another run"
          f" ({holder or 'unknown'}): two in one folder would overwrite each"
          " other's checkpoints. Wait for it, stop it, or give this run"
          " another --workdir."
        ) from None
      time.sleep(0.05)
    except OSError as error:
      print(
        f"WARNING: the file system of --workdir={workdir} has no locks"
        f" ({error.strerror}), so nothing stops a second run there. Make sure"
        " that this is the only one.",
        file=sys.stderr,
        flush=True,
      )
      break
  # Who has it is a courtesy to the reader; a full disk may refuse it.
  with contextlib.suppress(OSError):
    os.ftruncate(file, 0)
    os.pwrite(
      file, f"process {os.getpid()}, {socket.gethostname()}".encode(), 0
    )
  return file


def _unusable(workdir: Path, what: str, error: OSError) -> ValueError:
  return ValueError(
    f"--workdir={workdir} {what}: {error.filename or workdir}:"
    f" {error.strerror}. Give a folder in which you may write, new or of an"
    " earlier run."
  )
