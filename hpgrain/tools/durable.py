"""Files that are whole or not there: content in, a file under its name out.

{name}.{anything}.tmp   written, flushed to the disk
{name}                  by one rename, after which the folder is flushed
"""

import contextlib
import errno
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any


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
  temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
  try:
    with temporary.open("wb") as file:
      file.write(json_bytes(content))
      file.flush()
      os.fsync(file.fileno())
    publish(temporary, path)
  finally:
    temporary.unlink(missing_ok=True)


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
