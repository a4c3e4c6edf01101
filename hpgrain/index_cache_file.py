r"""One file of an index cache: arrays in, the same arrays mapped out.

  "HPGRAIN\0" | version | bytes of the JSON | JSON with the key | zeros
  array | zeros | array | ...    each begins at a multiple of 64 bytes

Integers and arrays are little-endian. The head is decided by what is asked
for, so a file is the one that is meant only if it begins, byte for byte, as it
would be written; that and its size are all that is looked at, however large
the arrays are.
"""

import dataclasses
import errno
import hashlib
import json
import math
import mmap
import os
import re
import stat
import struct
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

SUFFIX = ".hpgrain"

# Part of every name: files of another version are not looked at.
_VERSION = 1
_MAGIC = b"HPGRAIN\0"
_FIXED = struct.Struct("<8sII")
_ALIGNMENT = 64
# Large enough for the disk, small enough to let an interrupt through.
_CHUNK_BYTES = 1 << 24
# Files from this size on are mapped, smaller ones read.
_MAPPED_BYTES = 1 << 20

# Before Python 3.13 a mapping keeps a descriptor of its own.
_MAP_OPTIONS: dict[str, Any] = (
  {"trackfd": False} if sys.version_info >= (3, 13) else {}
)


@dataclasses.dataclass(frozen=True)
class StoredArray:
  """An array as it lies in a file.

  Attributes:
    dtype: little-endian.
    shape: of the array.
    offset: its first byte, in the file.
  """

  dtype: np.dtype
  shape: tuple[int, ...]
  offset: int

  @property
  def num_bytes(self) -> int:
    """Bytes of the array."""
    return math.prod(self.shape) * self.dtype.itemsize


@dataclasses.dataclass(frozen=True)
class Entry:
  """What a file must be to count.

  Attributes:
    kind: which stage's arrays they are.
    name: of the file.
    head: its first bytes, up to the first array.
    arrays: by name, in the order they lie in.
    file_bytes: its size.
  """

  kind: str
  name: str
  head: bytes
  arrays: Mapping[str, StoredArray]
  file_bytes: int

  @property
  def num_bytes(self) -> int:
    """Bytes of all arrays."""
    return sum(array.num_bytes for array in self.arrays.values())


def describe(
  kind: str,
  *,
  key: Mapping[str, Any],
  arrays: Mapping[str, tuple[np.dtype, tuple[int, ...]]],
) -> Entry:
  """Says which file holds the arrays of a kind and a key.

  Args:
    kind: lower-case letters, digits and "_".
    key: everything that decides the content, as JSON.
    arrays: name -> (dtype, shape); integers, floats or booleans.

  Raises:
    RuntimeError: for a kind that is no part of a file name, or a dtype that
      cannot be stored.
    TypeError: for a key that is not JSON (ValueError where a NaN is in it).
  """
  if not re.fullmatch("[a-z][a-z0-9_]*", kind):
    raise RuntimeError(f"{kind!r} cannot be the beginning of a file name.")
  end, stored = 0, {}
  for name, (given, shape) in arrays.items():
    dtype = np.dtype(given).newbyteorder("<")
    if dtype.kind not in "biuf":
      raise RuntimeError(f"{kind}: {name} cannot be stored as {dtype}.")
    lengths = tuple(int(length) for length in shape)
    stored[name] = StoredArray(dtype, lengths, end)
    end = _aligned(end + stored[name].num_bytes)
  data_bytes = max(
    (array.offset + array.num_bytes for array in stored.values()), default=0
  )
  content = {
    "kind": kind,
    "key": key,
    # Counted from the first array on, so the head's length is not in it.
    "arrays": {
      name: {
        "dtype": array.dtype.str,
        "shape": array.shape,
        "offset": array.offset,
      }
      for name, array in stored.items()
    },
    "data_bytes": data_bytes,
  }
  text = _canonical(content)
  start = _aligned(_FIXED.size + len(text))
  head = _FIXED.pack(_MAGIC, _VERSION, len(text)) + text
  digest = hashlib.blake2b(
    _canonical({"version": _VERSION, "kind": kind, "key": key}), digest_size=16
  )
  return Entry(
    kind=kind,
    name=f"{kind}-{digest.hexdigest()}{SUFFIX}",
    head=head.ljust(start, b"\0"),
    arrays={
      name: dataclasses.replace(array, offset=start + array.offset)
      for name, array in stored.items()
    },
    file_bytes=start + data_bytes,
  )


def as_stored(
  entry: Entry, built: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
  """Returns built arrays as they would come from the file, in memory.

  Raises:
    RuntimeError: if they are not what the entry says.
  """
  if set(built) != set(entry.arrays):
    raise RuntimeError(
      f"{entry.kind}: built {sorted(built)}, promised {sorted(entry.arrays)}."
    )
  ready = {}
  for name, stored in entry.arrays.items():
    array = np.asarray(built[name])
    if (
      array.dtype.newbyteorder("<") != stored.dtype
      or array.shape != stored.shape
    ):
      raise RuntimeError(
        f"{entry.kind}: built {name} as {array.dtype}{list(array.shape)},"
        f" promised {stored.dtype}{list(stored.shape)}."
      )
    # A view, so that the builder's own array stays as it was.
    array = np.asarray(array, stored.dtype, order="C").view()
    array.flags.writeable = False
    ready[name] = array
  return ready


def write(fd: int, entry: Entry, arrays: Mapping[str, np.ndarray]) -> None:
  """Writes a whole file to the beginning of an empty one.

  By write() and not through a mapping: a full disk is an error here, and not
  a signal that ends the process.

  Args:
    fd: open for writing.
    entry: what to write.
    arrays: what `as_stored` returned.

  Raises:
    OSError: as the system has it.
  """
  write_all(fd, entry.head)
  position = len(entry.head)
  for name, stored in entry.arrays.items():
    write_all(fd, bytes(stored.offset - position))
    write_all(fd, arrays[name].reshape(-1).view(np.uint8).data)
    position = stored.offset + stored.num_bytes


def _content(fd: int, num_bytes: int) -> mmap.mmap | bytes:
  """Returns the bytes of a file: mapped, or read where they are few."""
  if num_bytes < _MAPPED_BYTES:
    content = os.pread(fd, num_bytes, 0)
    if len(content) < num_bytes:
      raise ValueError(f"it ends after {len(content)} of {num_bytes} bytes")
    return content
  # Private, since some network file systems refuse shared mappings.
  return mmap.mmap(
    fd,
    num_bytes,
    flags=mmap.MAP_PRIVATE,
    prot=mmap.PROT_READ,
    **_MAP_OPTIONS,
  )


def read(path: Path, entry: Entry) -> dict[str, np.ndarray] | None:
  """Maps the arrays of a file; the cost is the same for any size.

  Small ones are read instead: a mapping may hold a file descriptor, and a
  blend of thousands of small corpora would need as many.

  Returns:
    Read-only arrays, or None if there is no such file.

  Raises:
    ValueError: the file is not what the entry says.
    OSError: it cannot be read.
  """
  try:
    # A pipe of that name must not make us wait for its writer.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
  except (FileNotFoundError, NotADirectoryError):
    return None
  try:
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode):
      raise ValueError("it is not a regular file")
    if info.st_size != entry.file_bytes:
      raise ValueError(
        f"it has {info.st_size} bytes instead of {entry.file_bytes}"
      )
    if os.pread(fd, len(entry.head), 0) != entry.head:
      raise ValueError("it begins otherwise than it should")
    content = _content(fd, entry.file_bytes)
  finally:
    os.close(fd)
  return {
    name: np.ndarray(array.shape, array.dtype, content, array.offset)
    for name, array in entry.arrays.items()
  }


def _canonical(content: Mapping[str, Any]) -> bytes:
  return json.dumps(
    content, sort_keys=True, separators=(",", ":"), allow_nan=False
  ).encode("ascii")


def _aligned(offset: int) -> int:
  return -(-offset // _ALIGNMENT) * _ALIGNMENT


def write_all(fd: int, data: bytes | memoryview) -> None:
  """Writes all bytes, in parts that let an interrupt through.

  Raises:
    OSError: as the system has it.
  """
  rest = memoryview(data)
  while rest:
    written = os.write(fd, rest[:_CHUNK_BYTES])
    if not written:
      raise OSError(errno.EIO, "nothing was written")
    rest = rest[written:]
