"""A record too long for memory: its bytes, wherever they lie.

plain file on a disk    where they are, read again in pieces
unpacked, or from a     copied to an unnamed file as they pass by
store
"""

import io
import os
import tempfile
from pathlib import Path
from typing import BinaryIO

# Records up to this many bytes are held, and parsed as a whole.
LONG_BYTES = 1 << 22


class LongBytes:
  """The bytes of a record, until the next record is asked for."""

  def __init__(
    self, stream: BinaryIO, start: int, begun: bytearray, scratch: Path | None
  ) -> None:
    """Takes what is read of the record so far.

    Args:
      stream: that the record comes from.
      start: where in it the record begins.
      begun: its first bytes.
      scratch: a folder for those of a stream that cannot be read again; None
        takes the system's.
    """
    self._size = 0
    self._start = 0
    self._spill: BinaryIO | None = None
    if isinstance(stream, io.FileIO):
      self._fd = stream.fileno()
      self._start = start
    else:
      self._spill = tempfile.TemporaryFile(dir=scratch, buffering=1 << 20)
      self._fd = self._spill.fileno()
    self.extend(begun)

  def __len__(self) -> int:
    return self._size

  def extend(self, data: bytes | bytearray) -> None:
    """Takes the next bytes of the record."""
    self._size += len(data)
    if self._spill is not None:
      self._spill.write(data)

  def skip(self, count: int) -> None:
    """Leaves out the first bytes of what is there."""
    self._start += count
    self._size -= count

  def read(self, start: int, stop: int) -> bytes:
    """Bytes [start, stop) of the record, as far as it has them.

    Raises:
      RuntimeError: the next record was asked for, and they are gone.
      ValueError: the file ends early: it changed.
    """
    if self._fd < 0:
      raise RuntimeError(
        "A long text was read after the next record was asked for."
      )
    if self._spill is not None:
      self._spill.flush()
    stop = min(stop, self._size)
    parts = []
    while start < stop:
      data = os.pread(self._fd, stop - start, self._start + start)
      if not data:
        raise ValueError(
          f"The file ends {stop - start} bytes before the record that was read"
          " from it: it changed meanwhile. Wait until it is written."
        )
      parts.append(data)
      start += len(data)
    return parts[0] if len(parts) == 1 else b"".join(parts)

  def isspace(self) -> bool:
    """Whether there is nothing but white space, as of bytes."""
    step = 1 << 20
    return self._size > 0 and all(
      self.read(at, at + step).isspace() for at in range(0, self._size, step)
    )

  def close(self) -> None:
    """Gives the bytes up."""
    self._fd = -1
    if self._spill is not None:
      self._spill.close()
