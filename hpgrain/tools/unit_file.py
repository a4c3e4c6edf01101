"""The file of one prepared unit: its records' tokens and where each ends.

  0   magic (8 bytes)
  8   for each key: tokens, padding to 8 bytes,
        sequence_ends i64[sequences]  tokens up to the end of each sequence
        record_ends i64[records]      sequences up to the end of each record;
                                      left out where each record is one
  ..  JSON: counts, and where all of that lies
  -16 its size u64, magic again (8 bytes)

Ends rather than lengths, so that record i is found without those before it.
Written once, as a stream: neither side holds more than a block.
"""

import dataclasses
import json
import os
import struct
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np

from hpgrain.sources.column import Column

_MAGIC = b"HPGUNIT1"
_TAIL = struct.Struct("<Q8s")
_END = np.dtype("<i8")
_BUFFER = 1 << 20
# Tokens read at once.
BLOCK_TOKENS = 1 << 17


class UnitWriter:
  """Writes a unit's file under a temporary name; `finish` makes it durable."""

  def __init__(
    self,
    path: Path,
    *,
    dtype: np.dtype,
    num_keys: int,
    divided: bool = False,
  ) -> None:
    """Begins the file.

    Args:
      path: of the temporary file.
      dtype: of the tokens.
      num_keys: texts of each record.
      divided: whether a text may be several sequences.
    """
    self._dtype = dtype
    self._file: BinaryIO = path.open("wb", _BUFFER)
    self._file.write(_MAGIC)
    self._spills: list[BinaryIO] = []
    self._columns: list[_Writing] = []
    try:
      for key in range(num_keys):
        # The first key's tokens lie where they will stay.
        tokens = self._spill(path) if key else self._file
        ends = Column(self._spill(path), _END)
        records = Column(self._spill(path), _END) if divided else None
        self._columns.append(_Writing(tokens, ends, records))
    except BaseException:
      self.close()
      raise

  def add_tokens(self, key: int, tokens: np.ndarray) -> None:
    """Appends tokens [n] of the dtype to a key's sequence that is begun."""
    column = self._columns[key]
    column.tokens.write(tokens.data)
    column.num_tokens += len(tokens)

  def drop_tokens(self) -> None:
    """Takes back the tokens of records that were not ended."""
    for column in self._columns:
      more = column.num_tokens - column.ended
      if more:
        column.tokens.seek(-more * self._dtype.itemsize, os.SEEK_CUR)
        column.tokens.truncate()
        column.num_tokens = column.ended

  def end_records(
    self, key: int, lengths: np.ndarray, counts: np.ndarray | None = None
  ) -> None:
    """Says which records the tokens that were added since make.

    Args:
      key: the key's place.
      lengths: int64[sequences], adding up to those tokens.
      counts: int64[records], sequences of each; None where each is one.
    """
    column = self._columns[key]
    ends = column.ended + np.cumsum(lengths, dtype=np.int64)
    if len(ends):
      column.ended = int(ends[-1])
    assert column.ended == column.num_tokens, "lengths and tokens agree"
    column.ends.extend_array(ends)
    if column.records is not None:
      assert counts is not None, "a divided unit has counts"
      last = column.num_sequences
      column.records.extend_array(last + np.cumsum(counts, dtype=np.int64))
    column.num_sequences += len(ends)

  def finish(self, summary: Mapping[str, Any]) -> None:
    """Writes the rest and flushes all to the disk.

    Args:
      summary: JSON to keep with it.
    """
    keys = []
    for place, column in enumerate(self._columns):
      at = self._file.tell() if place else len(_MAGIC)
      if place:
        _copy(column.tokens, self._file)
      self._file.write(b"\0" * (-self._file.tell() % 8))
      entry = {"tokens_at": at, "tokens": column.num_tokens}
      for name, ends in (("ends", column.ends), ("records", column.records)):
        if ends is None:
          continue
        entry |= {f"{name}_at": self._file.tell(), name: ends.count}
        ends.flush()
        for block in ends.blocks():
          self._file.write(block.data)
      keys.append(entry)
    content = {"dtype": self._dtype.name, "keys": keys, "summary": summary}
    data = json.dumps(content).encode()
    self._file.write(data)
    self._file.write(_TAIL.pack(len(data), _MAGIC))
    self._file.flush()
    os.fsync(self._file.fileno())
    self.close()

  def close(self) -> None:
    """Closes all files; what was not finished is of no use."""
    for file in (self._file, *self._spills):
      try:
        file.close()
      except OSError:
        # A full disk: what failed to be written is not wanted any more.
        pass

  def _spill(self, path: Path) -> BinaryIO:
    spill = tempfile.TemporaryFile(dir=path.parent, buffering=_BUFFER)
    self._spills.append(spill)
    return spill


@dataclasses.dataclass
class _Writing:
  """What is being written of one key."""

  tokens: BinaryIO
  ends: Column
  records: Column | None
  num_tokens: int = 0
  num_sequences: int = 0
  # Tokens of the records that are ended.
  ended: int = 0


class UnitReader:
  """Reads a finished unit's file, block by block.

  Attributes:
    dtype: of the tokens.
    summary: the JSON that was kept with it.
    num_records: records of the unit.
  """

  def __init__(self, path: Path) -> None:
    """Opens the file and reads its tail.

    Raises:
      FileNotFoundError: there is none.
      ValueError: it is not a whole unit's file.
    """
    self._path = path
    self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
      size = os.fstat(self._fd).st_size
      tail = os.pread(self._fd, _TAIL.size, max(size - _TAIL.size, 0))
      length = _content_size(tail, size, path)
      content = json.loads(self._read(size - _TAIL.size - length, length))
    except BaseException:
      self.close()
      raise
    self.dtype = np.dtype(content["dtype"]).newbyteorder("<")
    self.summary: dict[str, Any] = content["summary"]
    self.num_records: int = self.summary["records"]
    self._keys: Sequence[Mapping[str, int]] = content["keys"]

  def num_tokens(self, key: int) -> int:
    """Tokens of a key."""
    return self._keys[key]["tokens"]

  def sequence_range(self, key: int, first: int, last: int) -> np.ndarray:
    """int64[last - first + 1]: where records [first, last) begin and end.

    In sequences of the unit. Without several sequences a record, they are the
    records themselves.
    """
    entry = self._keys[key]
    if "records" not in entry:
      return np.arange(first, last + 1, dtype=np.int64)
    return self._ends(entry["records_at"], first, last)

  def token_range(self, key: int, first: int, last: int) -> np.ndarray:
    """int64[last - first + 1]: where sequences [first, last) begin and end."""
    return self._ends(self._keys[key]["ends_at"], first, last)

  def tokens(self, key: int, first: int, last: int) -> Iterator[np.ndarray]:
    """Yields tokens [first, last) of a key in blocks."""
    itemsize = self.dtype.itemsize
    at = self._keys[key]["tokens_at"]
    for begin in range(first, last, BLOCK_TOKENS):
      count = min(BLOCK_TOKENS, last - begin)
      data = self._read(at + begin * itemsize, count * itemsize)
      yield np.frombuffer(data, self.dtype)

  def close(self) -> None:
    """Closes the file."""
    if self._fd >= 0:
      os.close(self._fd)
      self._fd = -1

  def __enter__(self) -> "UnitReader":
    return self

  def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    traceback: TracebackType | None,
  ) -> None:
    self.close()

  def _ends(self, at: int, first: int, last: int) -> np.ndarray:
    """Entries first - 1 to last - 1 of a column; entry -1 is 0."""
    skip = first == 0
    count = last - first + 1 - skip
    at += (first - 1 + skip) * _END.itemsize
    ends = np.frombuffer(self._read(at, count * _END.itemsize), _END)
    return np.concatenate([np.zeros(1, _END), ends]) if skip else ends

  def _read(self, at: int, size: int) -> bytes:
    data = os.pread(self._fd, size, at)
    while len(data) < size:
      # The kernel gives at most 2 GiB at once, a network file system less.
      more = os.pread(self._fd, size - len(data), at + len(data))
      if not more:
        raise ValueError(
          f"{self._path} ends at byte {at + len(data)}, {size - len(data)}"
          " bytes early. Remove it, and run the same command again."
        )
      data += more
    return data


def read_summary(file: BinaryIO, path: PurePath) -> tuple[dict[str, Any], int]:
  """Reads only the end of a finished unit's file, which may be an object.

  Args:
    file: opened for reading.
    path: its name, for messages.

  Returns:
    The summary that was kept with it, and the tokens of its first key.

  Raises:
    ValueError: it is not a whole unit's file.
  """
  size = file.seek(0, os.SEEK_END)
  file.seek(max(size - _TAIL.size, 0))
  length = _content_size(file.read(_TAIL.size), size, path)
  file.seek(size - _TAIL.size - length)
  content = json.loads(file.read(length))
  return content["summary"], content["keys"][0]["tokens"]


def _content_size(tail: bytes, size: int, path: PurePath) -> int:
  """Bytes of the JSON before the tail of a file of so many bytes.

  Raises:
    ValueError: it is not a whole unit's file.
  """
  length, magic = _TAIL.unpack(tail) if len(tail) == _TAIL.size else (0, b"")
  if magic != _MAGIC or length > size - _TAIL.size:
    raise ValueError(
      f"{path} is not the whole file of a prepared unit. Remove it, and run the"
      " same command again."
    )
  return length


def _copy(source: BinaryIO, target: BinaryIO) -> None:
  source.seek(0)
  while block := source.read(_BUFFER):
    target.write(block)
