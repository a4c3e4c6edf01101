r"""A text file from a byte on, the bytes of its records out, so many at a time.

  bytes       .....{"a": 1}\n{"a": 2}\n\n{"a":          a block of the file
  starts           5         14         25              shown so far
  read(1)          [5, 14)                              next: 14

What a record's bytes are is what they are by index: the same kernel looks.
Compressed files count the bytes of their text; those before a place are
unpacked again, and not looked at.
"""

import logging
from typing import BinaryIO

import numpy as np

from hpgrain import _kernels
from hpgrain.log import log_once
from hpgrain.sources.by_index.record_index import check_array
from hpgrain.sources.in_turn.file_reader import check_unchanged, no_such_place
from hpgrain.tools.readers.compression import unpacked
from hpgrain.tools.readers.files import check_compression, open_stored
from hpgrain.tools.readers.records import InputFile

_log = logging.getLogger(__name__)

_BOM = b"\xef\xbb\xbf"
_BLOCK = 1 << 20
# What is given at once: more would be in memory twice while it is copied.
_MOST = 1 << 24
_ARRAY = "json_array"


class TextPieces:
  """The records of a text file, as bytes.

  Attributes:
    next: byte of the text at which the next record begins; after the last one
      the end of the text.
  """

  def __init__(
    self,
    file: InputFile,
    *,
    kind: str,
    start: int = 0,
    block_bytes: int | None = None,
  ) -> None:
    """Opens the file, and reads its first block from the place on.

    Args:
      file: as it was found.
      kind: how records are found: of `_kernels.RecordStarts`.
      start: what `next` was; 0 for the beginning.
      block_bytes: what is read of the text at once; None: a megabyte.

    Raises:
      FileNotFoundError: it is gone.
      ValueError: it was written again, is compressed otherwise than its name
        says, or no record begins at `start`.
    """
    check_unchanged(file)
    self.next = start
    self._file = file
    self._is_array = kind == _ARRAY
    self._block_bytes = block_bytes or _BLOCK
    self._ended = False
    self._num_starts = 0
    # Of records that were not given: where they begin, and the end after
    # them where it is known; and the text from `_base` on.
    self._starts = np.empty(0, np.int64)
    self._held = bytearray()
    self._base = self._begin = start
    self._stored = open_stored(file.path, size=file.size)
    try:
      if file.compression or not start:
        check_compression(file, self._stored)
      self._stream = unpacked(self._stored, file.compression, file.path)
      if start:
        self._enter_middle(kind, start)
      else:
        self._enter_beginning(kind)
    except BaseException:
      self._stored.close()
      raise

  def read(self, n: int) -> tuple[bytes, np.ndarray]:
    """The next records: m <= n of them, and none only at the end.

    Of a large n so many come that they fill some megabytes.

    Returns:
      Their bytes, one's after another's, and int64[m + 1]: where each begins
      in the text, and where the last one ends. One bound where there is no
      record.

    Raises:
      ValueError: the file is broken, or was written again.
    """
    while len(self._starts) <= n and not self._ended:
      if len(self._starts) > 1 and len(self._held) >= _MOST:
        break
      self._read_block()
    if self._is_array and self._records.closed and len(self._starts) <= n + 1:
      # With the last element comes what follows the array, and is refused.
      while not self._ended:
        self._read_block()
    count = min(n, len(self._starts) - 1)
    bounds, self._starts = self._starts[: count + 1], self._starts[count:]
    first, last = int(bounds[0]), int(bounds[-1])
    with memoryview(self._held) as held:
      data = bytes(held[first - self._base : last - self._base])
    del self._held[: last - self._base]
    self._base = self.next = last
    if self._is_array and self._ended and len(self._starts) <= 1:
      self.next = self._records.offset
    return data, bounds

  def close(self) -> None:
    """Closes the file."""
    self._stored.close()

  def _enter_beginning(self, kind: str) -> None:
    head = _exactly(self._stream, len(_BOM))
    if head == _BOM:
      # It belongs to no record.
      head, self._base = b"", len(_BOM)
    self._begin = self._base
    self._records = _kernels.RecordStarts(kind, self._base)
    self._look_at(head)

  def _enter_middle(self, kind: str, start: int) -> None:
    if self._file.compression:
      log_once(
        _log,
        logging.WARNING,
        "%s is compressed and cannot be entered in its middle: the %d bytes of"
        " text before the place are unpacked again.",
        self._file.path,
        start,
      )
      left = start - 1
      while left and (passed := self._stream.read(min(left, _BLOCK))):
        left -= len(passed)
    else:
      self._stream.seek(start - 1)
    block = self._stream.read(self._block_bytes)
    # Lines begin after the end of one; the text may end without it.
    in_line = not self._is_array and block[:1] != b"\n" and len(block) > 1
    if not block or in_line:
      raise no_such_place(self._file, start, 0)
    if self._is_array:
      # For the kernel, what an element in the middle stands after.
      before = b"[,"
      self._records = _kernels.RecordStarts(kind, start - len(before))
      self._records.feed(np.frombuffer(before, np.uint8))
    else:
      self._records = _kernels.RecordStarts(kind, start)
    self._look_at(block[1:])

  def _read_block(self) -> None:
    block = self._stream.read(self._block_bytes)
    if block:
      self._look_at(block)
      return
    self._ended = True
    check_unchanged(self._file)
    offset = self._records.offset
    if not self._is_array or offset == self._begin > 0:
      # Where the last record ends; of an array, the text was over before.
      self._starts = np.append(self._starts, offset)
    else:
      check_array(self._file, self._records, self._num_starts)

  def _look_at(self, block: bytes) -> None:
    starts = self._records.feed(np.frombuffer(block, np.uint8))
    self._num_starts += len(starts)
    self._starts = np.concatenate([self._starts, starts])
    self._held += block


def _exactly(stream: BinaryIO, size: int) -> bytes:
  """`size` bytes, fewer only at the end."""
  data = b""
  while len(data) < size and (more := stream.read(size - len(data))):
    data += more
  return data
