"""How a file of an index cache comes to be: whole, once, without waiting.

  {name}.{machine}{random}.partial    locked by its writer as long as it lives
      | write, fsync
      v link
  {name}                              there whole, or not there

Any number of processes may write the same entry: the first to link wins, the
others take its file. What a killed writer leaves has no name that is read, and
is not locked any more; the next writer in the folder removes it.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from hpgrain import index_cache_file
from hpgrain.index_cache_file import Entry

_PARTIAL = ".partial"
_PARTIAL_NAME = re.compile(
  r"[a-z][a-z0-9_]*-[0-9a-f]{32}"
  + re.escape(index_cache_file.SUFFIX)
  + r"\.(?P<machine>[0-9a-f]{8})[0-9a-f]{16}"
  + re.escape(_PARTIAL)
)
# Without a lock to ask, a file that nobody wrote to for so long is left over.
_ABANDONED_SECONDS = 24 * 3600
_OPEN_ATTEMPTS = 10


def publish(
  folder: Path, entry: Entry, arrays: Mapping[str, np.ndarray]
) -> None:
  """Writes an entry, unless another process was faster.

  A file of that name that is not what the entry says is replaced.

  Args:
    folder: where to; it exists.
    entry: what to write.
    arrays: what `index_cache_file.as_stored` returned.

  Raises:
    OSError: as the system has it; nothing is left behind.
  """
  with partial_file(folder, entry.name) as (fd, partial):
    index_cache_file.write(fd, entry, arrays)
    publish_partial(
      fd, partial, folder / entry.name, is_whole=lambda p: _is_whole(p, entry)
    )
  sync_folder(folder)


def publish_partial(
  fd: int, partial: Path, path: Path, *, is_whole: Callable[[Path], bool]
) -> None:
  """Gives what was written its name, unless another process was faster.

  The name lasts when the folder is synced, too.

  Args:
    fd: of the file, with all its content.
    partial: its name until now.
    path: the name, in the same folder.
    is_whole: whether a file of that name is what it should be; one that is
      not is replaced.

  Raises:
    OSError: as the system has it.
  """
  _sync(fd)
  try:
    path.hardlink_to(partial)
  except FileExistsError:
    if is_whole(path):
      return
    partial.replace(path)
  except OSError:
    # Not every file system has links; two names for one file are not needed.
    partial.replace(path)


def remove_abandoned(folder: Path) -> None:
  """Removes what killed writers left in a folder, as far as it can.

  A lock says that its writer lives, but some file systems keep locks to one
  machine: another machine's file must be old, too.
  """
  with contextlib.suppress(OSError):
    for path in folder.iterdir():
      match = _PARTIAL_NAME.fullmatch(path.name)
      if match:
        # Another process may be at it, or have more rights.
        with contextlib.suppress(OSError):
          _remove_if_abandoned(path, match["machine"] == _machine())


def _remove_if_abandoned(path: Path, same_machine: bool) -> None:
  # For writing, without which network file systems give no exclusive lock.
  fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
  try:
    locked = _lock(fd)
    info = os.fstat(fd)
    old = time.time() - info.st_mtime > _ABANDONED_SECONDS
    if (same_machine and locked) or old:
      path.unlink()
  except BlockingIOError:
    pass
  finally:
    os.close(fd)


@contextlib.contextmanager
def partial_file(folder: Path, name: str) -> Iterator[tuple[int, Path]]:
  """Gives an empty file, locked, whose name is gone afterwards.

  Args:
    folder: where it lies; it exists.
    name: what it is to be called: kind, "-", 32 hex digits and the suffix.

  Yields:
    (descriptor, path).

  Raises:
    OSError: as the system has it; nothing is left behind.
  """
  fd, path = _create_locked(folder, name)
  try:
    yield fd, path
  finally:
    # The error that brought us here says more than one from tidying up.
    with contextlib.suppress(OSError):
      path.unlink(missing_ok=True)
    # Last: until here the lock keeps the name from being tidied up by others.
    with contextlib.suppress(OSError):
      os.close(fd)


def _create_locked(folder: Path, name: str) -> tuple[int, Path]:
  for _ in range(_OPEN_ATTEMPTS):
    token = f"{_machine()}{secrets.token_hex(8)}"
    path = folder / f"{name}.{token}{_PARTIAL}"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    fd = os.open(path, flags, 0o666)
    try:
      _lock(fd)
      # Between opening and locking it may have been taken for abandoned.
      if os.path.samestat(os.fstat(fd), path.stat()):
        return fd, path
    except (BlockingIOError, FileNotFoundError):
      pass
    except BaseException:
      path.unlink(missing_ok=True)
      os.close(fd)
      raise
    path.unlink(missing_ok=True)
    os.close(fd)
  raise OSError(
    errno.EAGAIN,
    f"each of {_OPEN_ATTEMPTS} temporary files was removed by somebody",
    os.fspath(folder),
  )


def _lock(fd: int) -> bool:
  """Locks a file; returns whether the file system has locks.

  Raises:
    BlockingIOError: another process has it.
  """
  try:
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError:
    raise
  except OSError:
    return False
  return True


def _machine() -> str:
  """8 hex digits for the machine we are on."""
  name = socket.gethostname().encode()
  return hashlib.blake2b(name, digest_size=4).hexdigest()


def _is_whole(path: Path, entry: Entry) -> bool:
  try:
    return index_cache_file.read(path, entry) is not None
  except ValueError:
    return False


def sync_folder(folder: Path) -> None:
  """Makes the names in a folder durable."""
  fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
  try:
    _sync(fd)
  finally:
    os.close(fd)


def _sync(fd: int) -> None:
  try:
    os.fsync(fd)
  except OSError as error:
    # Some network file systems have nothing to sync.
    if error.errno not in (errno.EINVAL, errno.ENOTSUP):
      raise
