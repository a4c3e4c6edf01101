"""An object in, a file of its bytes out, of which only ranges are read."""

import errno
import io
from typing import Any

from hpgrain.object_errors import explained

# Each range that is read in order is so much larger than the one before, up
# to that. The packages' own 50 MB would read most objects many times over.
_GROWTH, _MOST_AHEAD = 4, 4 << 20


class RangeReader(io.RawIOBase):
  """An object's bytes, in ranges that grow while they are read in order."""

  def __init__(self, system: Any, name: str, *, url: str, size: int) -> None:
    """Begins at the first byte.

    Args:
      system: of fsspec.
      name: of the object in it.
      url: of the object, for messages.
      size: of the object in bytes.
    """
    super().__init__()
    self._system = system
    self._name = name
    self._url = url
    self._size = size
    self._position = 0
    # What was fetched last, and where it begins.
    self._data = b""
    self._start = 0

  def readable(self) -> bool:
    """True."""
    return True

  def seekable(self) -> bool:
    """True."""
    return True

  def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
    """Goes to a byte; nothing is read yet."""
    origins = {
      io.SEEK_SET: 0,
      io.SEEK_CUR: self._position,
      io.SEEK_END: self._size,
    }
    self._position = max(origins[whence] + offset, 0)
    return self._position

  def tell(self) -> int:
    """The byte that is read next."""
    return self._position

  def read(self, size: int | None = -1) -> bytes:
    """`size` bytes (all, if negative or None), fewer only at the end."""
    left = max(self._size - self._position, 0)
    size = left if size is None or size < 0 else min(size, left)
    begin = self._position - self._start
    data = b""
    if 0 <= begin <= len(self._data):
      data = self._data[begin : begin + size]
      ahead = min(len(self._data) * _GROWTH, _MOST_AHEAD)
    else:
      # Somewhere else: perhaps only for a few bytes.
      ahead = 0
    self._position += len(data)
    if len(data) < size:
      missing = size - len(data)
      self._fetch(max(missing, ahead))
      if len(self._data) < missing:
        raise OSError(errno.EIO, "the object is shorter than it was", self._url)
      data += self._data[:missing]
      self._position += missing
    return data

  def readall(self) -> bytes:
    """All that is left."""
    return self.read()

  def readinto(self, buffer: Any) -> int:
    """Fills a buffer; returns how many bytes there were."""
    data = self.read(len(buffer))
    buffer[: len(data)] = data
    return len(data)

  def _fetch(self, size: int) -> None:
    end = min(self._position + size, self._size)
    with explained(self._url):
      self._data = self._system.cat_file(
        self._name, start=self._position, end=end
      )
    self._start = self._position
