"""Files that are whole or not there: content in, a file under its name out.

{name}.{anything}.tmp   written, flushed to the disk
{name}                  by one rename, after which the folder is flushed
"""

import contextlib
import errno
import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

_TOKEN = secrets.token_hex(4)
# Of a hard link, where there are none.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)


def process_name() -> str:
  """A name that no other process has: containers give the same numbers."""
  return f"{os.getpid()}-{_TOKEN}"


def sync_folder(folder: Path) -> None:
  """Makes the names in a folder durable."""
  fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
  try:
    os.fsync(fd)
  except OSError as error:
    # Some network file systems keep folders in step by themselves.
    if error.errno != errno.EINVAL:
      raise
  finally:
    os.close(fd)


def publish(temporary: Path, path: Path) -> None:
  """Gives a file that is written and flushed its final name."""
  temporary.replace(path)
  sync_folder(path.parent)


def write_json(path: Path, content: Any) -> None:
  """Writes JSON; whoever looks sees the old content, or the new, whole."""
  with _written(path, content) as temporary:
    publish(temporary, path)


def create_json(path: Path, content: Any) -> Any:
  """Writes JSON where there is no file; the first of several that do wins.

  Returns:
    The content that is there now: this one, or what was there before.
  """
  while (there := read_json(path)) is None:
    with _written(path, content) as temporary:
      try:
        # As a rename, but never in place of another's.
        os.link(temporary, path)
        sync_folder(path.parent)
      except FileExistsError:
        continue
      except OSError as error:
        if error.errno not in _NO_LINKS:
          raise
        publish(temporary, path)
    return content
  return there


def read_json(path: Path) -> Any | None:
  """The content of a file; None where there is none.

  Raises:
    ValueError: it is no JSON.
  """
  try:
    data = path.read_bytes()
  except FileNotFoundError:
    return None
  return parse_json(data, path)


def json_bytes(content: Any) -> bytes:
  """JSON in UTF-8, for people to read too."""
  text = json.dumps(content, ensure_ascii=False, indent=1)
  return f"{text}\n".encode()


def parse_json(data: bytes, path: PurePath) -> Any:
  """The content of a file that was read.

  Raises:
    ValueError: it is no JSON.
  """
  try:
    return json.loads(data.decode())
  except ValueError as error:
    raise ValueError(
      f"{path} is not JSON ({error}), so something else wrote it. Remove it."
    ) from None


@contextlib.contextmanager
def locked(path: Path, *, shared: bool = False) -> Iterator[None]:
  """Holds a lock on a file, which is made; the kernel frees it if we die.

  Raises:
    BlockingIOError: another process holds it.
  """
  mode = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
  while True:
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
      fcntl.flock(fd, mode | fcntl.LOCK_NB)
      try:
        # A run that ended between opening and locking removed the name.
        if not os.path.samestat(os.fstat(fd), path.stat()):
          continue
      except FileNotFoundError:
        continue
      yield
      return
    finally:
      os.close(fd)


@contextlib.contextmanager
def _written(path: Path, content: Any) -> Iterator[Path]:
  """A temporary file with the content, flushed to the disk."""
  temporary = path.with_name(f"{path.name}.{process_name()}.tmp")
  try:
    with temporary.open("wb") as file:
      file.write(json_bytes(content))
      file.flush()
      os.fsync(file.fileno())
    yield temporary
  finally:
    temporary.unlink(missing_ok=True)
