"""A pair being written: two temporary files that become a pair, or nothing.

  {prefix}.idx.partial   locked while it is written: one writer per prefix
  {prefix}.bin.partial

What a killed writer leaves behind is never taken for a corpus, is not locked
any more, and is overwritten by the next writer of the prefix.
"""

import errno
import fcntl
import os
from pathlib import Path
from typing import BinaryIO

from hpgrain.sources import index_file

_BUFFER_BYTES = 1 << 20


class PartialPair:
  """The two files of one writer.

  Attributes:
    idx: the `.idx` to be, for reading and writing, from its beginning.
    bin: the `.bin` to be, for writing.
    folder: where both lie.
  """

  def __init__(self, prefix: str) -> None:
    """Creates and locks the temporary files.

    Raises:
      FileNotFoundError: the folder does not exist.
      IsADirectoryError: a folder lies where the pair is to be.
      BlockingIOError: another writer is at work on the prefix.
    """
    self._idx_path = Path(index_file.idx_path(prefix)).absolute()
    self._bin_path = Path(index_file.bin_path(prefix)).absolute()
    self._idx_partial = Path(f"{self._idx_path}.partial")
    self._bin_partial = Path(f"{self._bin_path}.partial")
    self._published = False
    self.folder = self._idx_path.parent
    if not self.folder.is_dir():
      raise FileNotFoundError(
        f"{self.folder} is not a folder, so {prefix} cannot be written. "
        "Create it first."
      )
    for path in (self._idx_path, self._bin_path):
      if path.is_dir():
        raise IsADirectoryError(
          f"{path} is a folder. Choose another prefix, or move it away."
        )
    fd = open_locked(self._idx_partial, prefix)
    self.idx: BinaryIO = os.fdopen(fd, "w+b", _BUFFER_BYTES)
    try:
      self.bin: BinaryIO = self._bin_partial.open("wb", _BUFFER_BYTES)
    except BaseException:
      self._idx_partial.unlink()
      self.idx.close()
      raise

  def num_bin_bytes(self) -> int:
    """The size of the `.bin`, with all that was written."""
    self.bin.flush()
    return os.fstat(self.bin.fileno()).st_size

  def publish(self) -> None:
    """Makes the temporary files the pair, replacing one that is there.

    The old `.idx` goes first and the new one comes last: at no moment does an
    `.idx` lie beside a `.bin` that is not its own.
    """
    for file in (self.bin, self.idx):
      file.flush()
      os.fsync(file.fileno())
    self._idx_path.unlink(missing_ok=True)
    sync_folder(self.folder)
    self._bin_partial.replace(self._bin_path)
    try:
      sync_folder(self.folder)
      self._idx_partial.replace(self._idx_path)
    except BaseException:
      self._bin_path.unlink(missing_ok=True)
      raise
    # From here on the temporary names may be another writer's.
    self._published = True
    sync_folder(self.folder)
    self.bin.close()
    self.idx.close()

  def discard(self) -> None:
    """Removes the temporary files and gives the prefix free."""
    if not self._published:
      self._bin_partial.unlink(missing_ok=True)
      self._idx_partial.unlink(missing_ok=True)
    # Last, since closing the .idx unlocks the prefix.
    close_unflushed(self.bin)
    close_unflushed(self.idx)


def close_unflushed(file: BinaryIO) -> None:
  """Closes a file whose buffered bytes are not wanted any more."""
  try:
    file.close()
  except OSError:
    # Flushing is what failed, as on a full disk; it is closed all the same.
    pass


def open_locked(path: Path, prefix: str) -> int:
  """Opens `path`, emptied, for the one writer that holds its lock.

  Raises:
    BlockingIOError: another writer holds it.
  """
  while True:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
      fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
      # The name may have passed on between opening and locking.
      if os.path.samestat(os.fstat(fd), path.stat()):
        os.ftruncate(fd, 0)
        return fd
    except FileNotFoundError:
      pass
    except BlockingIOError:
      os.close(fd)
      raise BlockingIOError(
        f"{prefix} is being written by another writer, which holds {path}. "
        "Wait until it is done, or choose another prefix."
      ) from None
    except BaseException:
      os.close(fd)
      raise
    os.close(fd)


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
