"""Opens input files on disk and on object stores, and sees them change."""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from hpgrain import object_store
from hpgrain.object_store import filesystem
from hpgrain.object_store import is_url as is_remote
from hpgrain.tools.readers.compression import unpacked
from hpgrain.tools.readers.records import InputFile

__all__ = [
  "check_compression",
  "filesystem",
  "is_remote",
  "open_stored",
  "open_unpacked",
  "reading",
  "size_and_version",
]


def size_and_version(path: str) -> tuple[int, str]:
  """A file's size in bytes and what changes when it is written again."""
  if not is_remote(path):
    status = Path(path).stat()
    return status.st_size, str(status.st_mtime_ns)
  return object_store.size_and_version(path)


def open_stored(path: str, *, size: int | None = None) -> BinaryIO:
  """Opens the bytes of a file as they are stored.

  Args:
    path: of the file.
    size: of it in bytes, where that is known, so that no store is asked.
  """
  if not is_remote(path):
    # Unbuffered: the readers ask for large blocks.
    return Path(path).open("rb", buffering=0)
  return object_store.open_reader(path, size=size)


@contextlib.contextmanager
def reading(file: InputFile) -> Iterator[None]:
  """Refuses a file that was changed before or while it is read.

  Raises:
    FileNotFoundError: it is gone.
    ValueError: it changed since it was found.
  """
  _check_unchanged(file)
  yield
  _check_unchanged(file)


@contextlib.contextmanager
def open_unpacked(file: InputFile, *, start: int = 0) -> Iterator[BinaryIO]:
  """Opens a file's bytes, unpacked, from the byte `start` of them.

  Raises:
    ValueError: as `reading`; or the file is compressed otherwise than its
      name says. Reading raises it too where the packed data is broken.
  """
  with reading(file), open_stored(file.path, size=file.size) as stored:
    if not start:
      check_compression(file, stored)
    stream = unpacked(stored, file.compression, file.path)
    if start:
      assert not file.compression, "only plain files have a middle"
      stream.seek(start, io.SEEK_SET)
    yield stream


def check_compression(file: InputFile, stored: BinaryIO) -> None:
  """Looks at the first bytes, and goes back to them.

  Raises:
    ValueError: a file is compressed though its name does not say so, or the
      other way round.
  """
  head = stored.read(4)
  stored.seek(0)
  found = ""
  if head.startswith(b"\x1f\x8b"):
    found = "gzip"
  elif head == b"\x28\xb5\x2f\xfd":
    found = "zstd"
  if found == file.compression or (not head and file.compression == "gzip"):
    return
  suffix = {"gzip": ".gz", "zstd": ".zst"}
  if found:
    unpack = {"gzip": "gunzip -k", "zstd": "unzstd -k"}[found]
    raise ValueError(
      f"{file.path} is compressed with {found}, though its name does not say"
      f" so. Let its name end in {suffix[found]}, or unpack it ({unpack})."
    )
  # A skippable frame may stand first in zstd, so its absence proves nothing.
  if file.compression == "gzip":
    raise ValueError(
      f"{file.path} is not compressed with gzip, though its name ends in .gz."
      " Give it a name without .gz if it is plain, or write it again."
    )


def _check_unchanged(file: InputFile) -> None:
  size, version = size_and_version(file.path)
  if size != file.size:
    raise ValueError(
      f"{file.path} changed while it was read: it had {file.size} bytes at"
      f" first, then {size}. Wait until it is written, then run again."
    )
  if version != file.version:
    raise ValueError(
      f"{file.path} changed while it was read: it was written again. Wait"
      " until it is whole, then run again."
    )
