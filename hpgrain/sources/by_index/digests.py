"""What tells data from other data: files or records in, a short digest out.

Of long data samples are looked at, evenly spread, so that the cost stays the
same; a small change in a large file may go unseen. Paths take no part: copied
data are the same data.
"""

import hashlib
import json
import numbers
import struct
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from hpgrain.sources.by_index.byte_ranges import ByteRanges
from hpgrain.tools.readers.records import InputFile

_BLOCK_BYTES = 4096
# Of one file, and of all files together.
_FILE_BLOCKS, _ALL_BLOCKS = 16, 1024
_RECORDS = 64
_THREADS = 8


def files_digest(files: Sequence[InputFile]) -> str:
  """32 hex digits: BLAKE2b-128 over files' sizes and sampled blocks.

  Raises:
    FileNotFoundError: a file is gone.
    ValueError: one was written again.
  """
  count = max(2, min(_FILE_BLOCKS, _ALL_BLOCKS // max(len(files), 1)))

  def sampled(number: int) -> bytes:
    starts, stops = _blocks(files[number].size, count)
    file = np.zeros(len(starts), np.int64)
    # Opened and closed here: a source may have more files than may be open.
    ranges = ByteRanges([files[number]])
    return b"".join(ranges.read(file, np.array(starts), np.array(stops)))

  digest = hashlib.blake2b(digest_size=16)
  with ThreadPoolExecutor(_THREADS) as pool:
    for file, content in zip(files, pool.map(sampled, range(len(files)))):
      digest.update(struct.pack("<Q", file.size))
      digest.update(content)
  return digest.hexdigest()


def versions_digest(files: Sequence[InputFile]) -> str:
  """32 hex digits over the files' versions: of when they were written."""
  text = json.dumps([file.version for file in files])
  return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def sampled_records(num_records: int) -> np.ndarray:
  """int64[n] of records that stand for all, the first and the last included."""
  count = min(num_records, _RECORDS)
  last = num_records - 1
  return np.array(
    [last * i // max(count - 1, 1) for i in range(count)], np.int64
  )


def records_digest(records: Sequence[Any], num_records: int) -> str:
  """32 hex digits over a number of records, and those that were sampled.

  Raises:
    TypeError: a record holds something that has no bytes of its own.
  """
  digest = hashlib.blake2b(struct.pack("<Q", num_records), digest_size=16)
  for record in records:
    for part in _parts(record):
      digest.update(part)
  return digest.hexdigest()


def _blocks(size: int, count: int) -> tuple[list[int], list[int]]:
  """First bytes and ends of the blocks that stand for a file."""
  if size <= count * _BLOCK_BYTES:
    return [0], [size]
  last = size - _BLOCK_BYTES
  starts = [last * i // (count - 1) for i in range(count)]
  return starts, [start + _BLOCK_BYTES for start in starts]


def _parts(value: Any) -> Iterator[bytes]:
  """The bytes that a value is told by, its type first."""
  if isinstance(value, np.generic):
    value = value.item()
  if value is None or isinstance(value, (bool, numbers.Number)):
    # 1, 1.0 and True are unlike each other.
    yield f"{type(value).__name__} {value!r};".encode()
  elif isinstance(value, str):
    data = value.encode("utf-8", "surrogatepass")
    yield f"str {len(data)};".encode() + data
  elif isinstance(value, (bytes, bytearray, memoryview)):
    data = bytes(value)
    yield f"bytes {len(data)};".encode() + data
  elif isinstance(value, np.ndarray) and value.dtype.kind in "biufcSU":
    dtype = value.dtype.newbyteorder("<")
    yield f"array {dtype.str} {value.shape};".encode()
    yield np.ascontiguousarray(value, dtype).tobytes()
  elif isinstance(value, Mapping):
    yield f"mapping {len(value)};".encode()
    for key in value:
      yield from _parts(key)
      yield from _parts(value[key])
  elif isinstance(value, (list, tuple, np.ndarray)):
    yield f"list {len(value)};".encode()
    for item in value:
      yield from _parts(item)
  else:
    raise TypeError(
      f"A record holds a {type(value).__name__}, which cannot be told from"
      " another one. Give the source an identity (identity={...}): JSON of what"
      " decides its records."
    )
