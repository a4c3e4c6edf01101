"""Open pairs: prefixes in, mapped `.idx` and mapped or open `.bin` out.

A pair stays open while it or an array made from it is alive. It is opened
again and again under one stamp: files that changed in between are refused.
"""

import contextlib
import dataclasses
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hpgrain.sources import index_file
from hpgrain.sources.array_record_format import array_record_path

_OPEN_ATTEMPTS = 10


@dataclasses.dataclass(frozen=True)
class PairStamp:
  """What tells whether a pair is still the one that was opened.

  Attributes:
    idx_bytes: size of the `.idx`.
    bin_bytes: size of the `.bin`.
    idx_mtime_ns: when the `.idx` was last written.
    bin_mtime_ns: when the `.bin` was last written.
  """

  idx_bytes: int
  bin_bytes: int
  idx_mtime_ns: int
  bin_mtime_ns: int


class OpenFile:
  """A file descriptor that is closed when its last owner is gone.

  Attributes:
    fd: the descriptor.
    path: of the file when it was opened, for messages.
  """

  def __init__(self, fd: int, path: str) -> None:
    self.fd = fd
    self.path = path

  def __del__(self) -> None:
    os.close(self.fd)


@dataclasses.dataclass
class OpenPair:
  """One pair, open.

  Attributes:
    index: the whole `.idx`, mapped read-only.
    tokens: uint8[bytes] over the mapped `.bin`, read-only, or the open `.bin`
      where it is read by pread.
    token_file: what the kernels made of this pair, once they have.
  """

  index: mmap.mmap
  tokens: np.ndarray | OpenFile
  token_file: Any = None

  def read(self, start: int, num_bytes: int) -> np.ndarray:
    """Bytes of the `.bin`, all of which exist: a view, or a copy by pread.

    Returns:
      uint8[num_bytes], read-only.

    Raises:
      ValueError: the `.bin` was cut since it was opened.
    """
    if isinstance(self.tokens, np.ndarray):
      return self.tokens[start : start + num_bytes]
    data = np.empty(num_bytes, np.uint8)
    done = 0
    while done < num_bytes:
      rest = memoryview(data)[done:]
      read = os.preadv(self.tokens.fd, [rest], start + done)
      if not read:
        raise ValueError(
          f"{self.tokens.path} ends at byte {start + done}, "
          f"{num_bytes - done} bytes short of what it had when it was opened. "
          "It was cut while in use: copy it again and start anew."
        )
      done += read
    data.flags.writeable = False
    return data


@contextlib.contextmanager
def pair_descriptors(prefix: str) -> Iterator[tuple[int, int]]:
  """Opens the `.idx` and the `.bin` of one and the same pair, for reading.

  Raises:
    FileNotFoundError: one of them does not exist.
    OSError: the pair is being replaced over and over.
  """
  for _ in range(_OPEN_ATTEMPTS):
    with contextlib.ExitStack() as stack:
      idx_fd = _open(index_file.idx_path(prefix), prefix)
      stack.callback(os.close, idx_fd)
      bin_fd = _open(index_file.bin_path(prefix), prefix)
      stack.callback(os.close, bin_fd)
      # A writer removes the old .idx before it replaces the .bin: while the
      # .idx is still in place, the .bin belongs to it.
      if _is_at(idx_fd, index_file.idx_path(prefix)):
        yield idx_fd, bin_fd
        return
  raise OSError(
    f"{index_file.idx_path(prefix)} was replaced {_OPEN_ATTEMPTS} times while "
    "it was opened: wait until its writers are done."
  )


def stamp(idx_fd: int, bin_fd: int) -> PairStamp:
  """The stamp of an open pair."""
  idx, tokens = os.fstat(idx_fd), os.fstat(bin_fd)
  return PairStamp(
    idx.st_size, tokens.st_size, idx.st_mtime_ns, tokens.st_mtime_ns
  )


def check_stamp(found: PairStamp, expected: PairStamp, prefix: str) -> None:
  """Raises ValueError if a pair is no longer the one that was opened."""
  if found == expected:
    return
  changes = []
  for name in ("idx", "bin"):
    old = getattr(expected, f"{name}_bytes")
    new = getattr(found, f"{name}_bytes")
    if old != new:
      changes.append(f"the .{name} had {old} bytes and has {new}")
    elif getattr(expected, f"{name}_mtime_ns") != getattr(
      found, f"{name}_mtime_ns"
    ):
      changes.append(f"the .{name} was written again")
  raise ValueError(
    f"{prefix} changed since it was opened: {', '.join(changes)}. Rows read "
    "before and after would not belong together: leave a corpus in place "
    "while it is read, and start anew."
  )


def open_pair(prefix: str, *, use_mmap: bool, expected: PairStamp) -> OpenPair:
  """Maps the `.idx` of a pair and maps or opens its `.bin`.

  Raises:
    FileNotFoundError: one of the files does not exist.
    ValueError: the pair is not the one that has the stamp `expected`.
    OSError: the system refuses to map.
  """
  with pair_descriptors(prefix) as (idx_fd, bin_fd):
    check_stamp(stamp(idx_fd, bin_fd), expected, prefix)
    index = _map(idx_fd, expected.idx_bytes, index_file.idx_path(prefix))
    path = index_file.bin_path(prefix)
    if not use_mmap:
      return OpenPair(index, OpenFile(os.dup(bin_fd), path))
    # A file of no bytes cannot be mapped.
    tokens = np.empty(0, np.uint8)
    if expected.bin_bytes:
      tokens = np.frombuffer(_map(bin_fd, expected.bin_bytes, path), np.uint8)
    tokens.flags.writeable = False
    return OpenPair(index, tokens)


def _open(path: str, prefix: str) -> int:
  try:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
  except FileNotFoundError:
    likely = f"{prefix}_text_document"
    advice = "Check the prefix, or write the pair first."
    if Path(f"{likely}.idx").exists():
      advice = (
        f"Did you mean {likely!r}? offline_preparation adds the key to a"
        " prefix."
      )
    elif Path(array_record_path(prefix)).exists():
      advice = (
        f"{array_record_path(prefix)} is there: convert_indexed_dataset makes"
        " a pair of it."
      )
    raise FileNotFoundError(
      f"{path} does not exist. A corpus is a pair of files and is named by "
      f"what their paths share: {prefix!r} stands for {prefix}.idx and "
      f"{prefix}.bin. {advice}"
    ) from None


def _is_at(fd: int, path: str) -> bool:
  try:
    return os.path.samestat(os.fstat(fd), Path(path).stat())
  except FileNotFoundError:
    return False


def _map(fd: int, size: int, path: str) -> mmap.mmap:
  # Private, since some network file systems refuse shared mappings.
  try:
    return mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
  except OSError as error:
    raise OSError(
      error.errno,
      f"{path} cannot be mapped ({error.strerror}): lower max_open_files or "
      "raise the system's limits on mappings and open files; mmap=False maps "
      "the .idx alone.",
    ) from error
