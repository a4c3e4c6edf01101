"""Packed bytes in, a stream of the unpacked ones out, in bounded memory."""

import functools
import gzip
import io
import zlib
from types import ModuleType
from typing import Any, BinaryIO

# Zstandard makes up to 128 KiB out of four bytes: what is unpacked at once
# stays below 256 MiB even so, and is about 32 KiB of ordinary text.
_PACKED_BLOCK = 1 << 13
_UNPACKED_BLOCK = 1 << 20


def unpacked(stored: BinaryIO, compression: str, name: str) -> BinaryIO:
  """A stream of the unpacked bytes of `stored`.

  Args:
    stored: the packed bytes, at their beginning.
    compression: "" (none), "gzip" or "zstd".
    name: for messages.

  Raises:
    ValueError: the package for it is missing. Reading the stream raises it
      where the packed data is broken or ends too early.
  """
  if compression == "gzip":
    return _Unpacked(_gzip(stored), name)
  if compression == "zstd":
    return _Unpacked(_ZstdStream(stored, _zstandard(name)), name)
  return stored


def _gzip(stored: BinaryIO) -> Any:
  """isal's reader where it is installed: the same bytes, three times faster."""
  igzip = _igzip()
  if igzip is None:
    return gzip.GzipFile(fileobj=stored, mode="rb")
  return igzip.GzipFile(fileobj=stored, mode="rb")


@functools.cache
def _igzip() -> ModuleType | None:
  try:
    from isal import igzip
  except ImportError:
    return None
  return igzip


def _zstandard(name: str) -> ModuleType:
  try:
    import zstandard
  except ImportError:
    raise ValueError(
      f"{name} is compressed with zstd, which the package zstandard reads."
      " Install it (pip install zstandard), or unpack the file (unzstd -k)."
    ) from None
  return zstandard


def _broken_data_errors() -> tuple[type[Exception], ...]:
  """What the libraries raise on packed data that is broken or cut off."""
  # isal's own error is zlib's, or its module's, by version.
  errors: list[type[Exception]] = [EOFError, zlib.error, gzip.BadGzipFile]
  if _igzip() is not None:
    from isal import isal_zlib

    errors.append(isal_zlib.error)
  return (*errors, _BrokenZstdError)


class _BrokenZstdError(Exception):
  """Zstandard data that is broken or cut off."""


class _Unpacked(io.RawIOBase):
  """Reads blocks, and says of which file packed data is broken."""

  def __init__(self, stream: Any, name: str) -> None:
    super().__init__()
    self._stream = stream
    self._name = name
    self._position = 0

  def readable(self) -> bool:
    return True

  def read(self, size: int = -1) -> bytes:
    """At most `size` bytes (any number if negative); none at the end."""
    try:
      data = self._stream.read(_UNPACKED_BLOCK if size < 0 else size)
    except _broken_data_errors() as error:
      raise ValueError(
        f"{self._name} cannot be unpacked beyond {self._position} bytes of"
        f" text ({type(error).__name__}: {error}). It is broken or was not"
        " written to its end; get it again."
      ) from None
    self._position += len(data)
    return data


class _ZstdStream:
  """The frames of a Zstandard file, one after the other.

  The library's own stream takes a file that ends inside a frame for whole.
  """

  def __init__(self, stored: BinaryIO, zstandard: ModuleType) -> None:
    self._stored = stored
    self._error = zstandard.ZstdError
    # As large a window as the format has (zstd --ultra --long=31).
    self._frames = zstandard.ZstdDecompressor(max_window_size=1 << 31)
    self._frame: Any = None
    self._packed = b""
    self._unpacked = b""

  def read(self, size: int) -> bytes:
    """At most `size` bytes; none at the end."""
    while not self._unpacked:
      if not self._packed:
        self._packed = self._stored.read(_PACKED_BLOCK)
      if not self._packed:
        if self._frame is not None:
          raise _BrokenZstdError("the data ends inside a frame")
        return b""
      if self._frame is None:
        self._frame = self._frames.decompressobj()
      try:
        self._unpacked = self._frame.decompress(self._packed)
      except self._error as error:
        raise _BrokenZstdError(str(error)) from None
      self._packed = b""
      if self._frame.eof:
        self._packed = self._frame.unused_data
        self._frame = None
    data, self._unpacked = self._unpacked[:size], self._unpacked[size:]
    return data
