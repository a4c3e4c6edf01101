"""The files that a preparation writes, on a disk or on an object store.

Every path is a `pathlib.Path` (a disk's) or an `epath.Path` (a URL's), both
of which join as paths do; what is done with them is done here, and only here
does it matter which they are:

               a disk                          a store
  put_once     rename                          one put, which the first wins
  publish      fsync, rename, fsync            one put
  create_json  hard link, the first wins       one put, which the first wins

A file to be put lies on a disk beforehand, whole, and is gone afterwards.
"""

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePath
from typing import Any

from hpgrain import object_store
from hpgrain.object_store import as_path, is_url
from hpgrain.tools import durable

__all__ = [
  "as_path",
  "create_json",
  "exists",
  "fetch",
  "filled_folder",
  "identity",
  "is_url",
  "list_files",
  "make_folder",
  "publish",
  "put_once",
  "read_json",
  "remove",
  "remove_folder",
  "write_json",
]


def make_folder(folder: PurePath) -> None:
  """Makes a folder and those it lies in; a store needs none."""
  if not is_url(folder):
    Path(folder).mkdir(parents=True, exist_ok=True)


def exists(path: PurePath) -> bool:
  """Whether a file is there."""
  if is_url(path):
    return object_store.exists(str(path))
  return Path(path).exists()


def identity(path: PurePath | str) -> tuple[object, ...]:
  """What two names of one file that is there have in common."""
  if is_url(path):
    system, name = object_store.filesystem(str(path))
    return tuple(system.protocol), name.strip("/")
  status = Path(path).stat()
  return status.st_dev, status.st_ino


def list_files(folder: PurePath) -> dict[str, int]:
  """Names and sizes of the files in a folder; none where it is not there."""
  if is_url(folder):
    return object_store.list_files(str(folder))
  found = {}
  with contextlib.suppress(FileNotFoundError), os.scandir(folder) as scan:
    for entry in scan:
      # What goes meanwhile is not there.
      with contextlib.suppress(FileNotFoundError):
        found[entry.name] = entry.stat().st_size
  return found


def read_json(path: PurePath) -> Any | None:
  """The content of a file; None where there is none.

  Raises:
    ValueError: it is no JSON.
  """
  if not is_url(path):
    return durable.read_json(Path(path))
  try:
    return durable.parse_json(object_store.read_bytes(str(path)), path)
  except FileNotFoundError:
    return None


def write_json(path: PurePath, content: Any) -> None:
  """Writes JSON; whoever looks sees the old content, or the new, whole."""
  if is_url(path):
    object_store.put_bytes(durable.json_bytes(content), str(path))
  else:
    durable.write_json(Path(path), content)


def create_json(path: PurePath, content: Any) -> Any:
  """Writes JSON where there is no file yet; the first of several wins.

  Returns:
    The content that is there now: this one, or what was there before.
  """
  if not is_url(path):
    return durable.create_json(Path(path), content)
  while (there := read_json(path)) is None:
    # Another may be as quick, or remove what it created.
    with contextlib.suppress(FileExistsError):
      object_store.put_bytes(
        durable.json_bytes(content), str(path), create=True
      )
      return content
  return there


def put_once(temporary: Path, path: PurePath) -> None:
  """Gives a whole file a name whose content is the same whoever writes it."""
  if not is_url(path):
    # The folder is not flushed: a name that a power cut takes is to be made
    # again, no worse.
    temporary.replace(path)
    return
  # There already: another did the same meanwhile.
  with contextlib.suppress(FileExistsError):
    object_store.put_file(temporary, str(path), create=True)
  temporary.unlink()


def publish(temporary: Path, path: PurePath) -> None:
  """Gives a file that is written and flushed its final name, durably.

  What is there is replaced, in one step.
  """
  if not is_url(path):
    durable.publish(temporary, Path(path))
    return
  object_store.put_file(temporary, str(path))
  temporary.unlink()


@contextlib.contextmanager
def filled_folder(folder: PurePath) -> Iterator[Path]:
  """A local folder to write files to, which then lie in `folder`."""
  if not is_url(folder):
    yield Path(folder)
    return
  with tempfile.TemporaryDirectory() as local:
    yield Path(local)
    for path in sorted(Path(local).iterdir()):
      object_store.put_file(path, str(folder / path.name))


def fetch(paths: Iterable[PurePath], folder: Path) -> list[Path]:
  """Brings objects to a local folder; paths of a disk are given back.

  Raises:
    FileNotFoundError: one is not there.
  """

  def get(path: PurePath) -> Path:
    if not is_url(path):
      return Path(path)
    local = folder / path.name
    object_store.get_file(str(path), local)
    return local

  return list(object_store.in_parallel(get, paths))


def remove(paths: Iterable[PurePath]) -> None:
  """Removes files; those that are not there are gone already."""
  urls = []
  for path in paths:
    if is_url(path):
      urls.append(str(path))
    else:
      Path(path).unlink(missing_ok=True)
  if urls:
    object_store.remove(urls)


def remove_folder(folder: PurePath) -> None:
  """Removes an empty folder, durably; a store has none."""
  if not is_url(folder):
    with contextlib.suppress(FileNotFoundError):
      Path(folder).rmdir()
      durable.sync_folder(Path(folder).parent)
