r"""What a chunk of records came to, in a file that lies there until all have.

  tokens, block after block | counts | lengths | JSON | sizes, checksum, magic

Blocks are written as they are made, so that none need be held; what they are
stands after them. A file is read from its end.
"""

import dataclasses
import json
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hpgrain.examples import Examples
from hpgrain.index_cache_file import write_all
from hpgrain.records import IGNORE_INDEX, INPUT_IDS, LABELS

WEIGHTS = "weights"
# As they lie in a block.
COLUMNS = (INPUT_IDS, LABELS, WEIGHTS)
# Bytes between the blocks and this, of which those of the JSON; crc32, magic.
_END = struct.Struct("<QQI8s")
_MAGIC = b"HPCHUNK\0"


@dataclasses.dataclass(frozen=True)
class Chunk:
  """What n records came to.

  Attributes:
    counts: uint[n], examples of each record.
    lengths: int32[m], positions of each example.
    weighted: whether any example has weights.
    counters: see `merge_counters`.
    blocks: (positions, whether they have weights) of each block of tokens
      that lies in the chunk's file.
  """

  counts: np.ndarray
  lengths: np.ndarray
  weighted: bool
  counters: Mapping[str, Any]
  blocks: tuple[tuple[int, bool], ...] = ()

  @property
  def most(self) -> int:
    """Examples of the record that makes the most of them."""
    return int(self.counts.max(initial=0))


def write_block(fd: int, made: Examples) -> tuple[int, bool]:
  """Writes the tokens of some records.

  Returns:
    What `Chunk.blocks` says of them.

  Raises:
    OSError: as the system has it.
  """
  _write(fd, made.input_ids, "<i4")
  _write(fd, made.labels, "<i4")
  if made.weights is not None:
    _write(fd, made.weights, "<f4")
  return len(made.input_ids), made.weights is not None


def write_index(fd: int, chunk: Chunk) -> None:
  """Writes what comes after the blocks, whose number and sizes it has.

  Raises:
    OSError: as the system has it.
  """
  counts = _little(chunk.counts, chunk.counts.dtype)
  text = json.dumps(
    {
      "counts": [counts.dtype.str, len(counts)],
      "num_examples": len(chunk.lengths),
      "weighted": chunk.weighted,
      "counters": chunk.counters,
      "blocks": chunk.blocks,
    }
  ).encode("ascii")
  index = counts.tobytes() + _little(chunk.lengths, "<i4").tobytes() + text
  end = _END.pack(len(index), len(text), zlib.crc32(index), _MAGIC)
  write_all(fd, index + end)


def read(path: Path) -> Chunk | None:
  """Reads a chunk, without its tokens; None where there is no such file.

  Raises:
    ValueError: the file is not whole.
    OSError: it cannot be read.
  """
  try:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
  except FileNotFoundError:
    return None
  try:
    return _read(fd)
  except struct.error as error:
    raise ValueError("it does not end as it should") from error
  finally:
    os.close(fd)


def column_blocks(
  path: Path, chunk: Chunk, column: str
) -> Iterator[np.ndarray]:
  """Yields one column of a chunk's tokens, block by block.

  Args:
    path: of the chunk's file.
    chunk: what `read` returned.
    column: of `COLUMNS`. Where a block has no weights, each label counts 1.

  Yields:
    int32[t], or float32[t] of weights.

  Raises:
    ValueError: the file is not the chunk's.
    OSError: it cannot be read.
  """
  begin = 0
  with path.open("rb") as file:
    for num_tokens, weighted in chunk.blocks:
      number = COLUMNS.index(column)
      derived = column == WEIGHTS and not weighted
      if derived:
        number = COLUMNS.index(LABELS)
      file.seek(begin + 4 * num_tokens * number)
      data = file.read(4 * num_tokens)
      if len(data) != 4 * num_tokens:
        raise ValueError(f"{path} ends within its tokens.")
      block = np.frombuffer(data, "<f4" if number == 2 else "<i4")
      if derived:
        block = (block != IGNORE_INDEX).astype("<f4")
      yield block
      begin += 4 * num_tokens * (2 + weighted)


def _read(fd: int) -> Chunk:
  size = os.fstat(fd).st_size
  begin = size - _END.size
  index_bytes, text_bytes, checksum, magic = _END.unpack(
    os.pread(fd, _END.size, max(begin, 0))
  )
  if magic != _MAGIC or index_bytes > begin:
    raise ValueError("it does not end as it should")
  index = os.pread(fd, index_bytes, begin - index_bytes)
  if zlib.crc32(index) != checksum:
    raise ValueError("its checksum is another one")
  told = json.loads(index[index_bytes - text_bytes :])
  dtype, num_records = told["counts"]
  counts_bytes = np.dtype(dtype).itemsize * num_records
  lengths_bytes = 4 * told["num_examples"]
  return Chunk(
    counts=np.frombuffer(index[:counts_bytes], dtype),
    lengths=np.frombuffer(index[counts_bytes:][:lengths_bytes], "<i4"),
    weighted=told["weighted"],
    counters=told["counters"],
    blocks=tuple((n, weighted) for n, weighted in told["blocks"]),
  )


def _write(fd: int, values: np.ndarray, dtype: str) -> None:
  write_all(fd, _little(values, dtype).view(np.uint8).data)


def _little(values: np.ndarray, dtype: str | np.dtype) -> np.ndarray:
  stored = np.dtype(dtype).newbyteorder("<")
  return np.ascontiguousarray(values, stored)
