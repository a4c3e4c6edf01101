"""Rows of texts in, lines of JSON out, a few rows at a time."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from hpgrain.manifest import tool_name
from hpgrain.tools.progress import Progress

if TYPE_CHECKING:
  from datasets import Dataset
  from pyarrow import Table

# Rows at once, and about how many bytes of them.
_BATCH_ROWS, _BATCH_BYTES = 1000, 8 << 20
_READ_BYTES = 1 << 20


def write_lines(
  rows: "Dataset", keys: Sequence[str], path: Path, *, log_interval: int
) -> dict[str, Any]:
  """Writes a JSON object a row, and flushes it to the disk.

  Args:
    rows: of columns that hold strings.
    keys: the columns, in the order they are written in.
    path: the file, which is removed if this fails.
    log_interval: rows between progress lines.

  Returns:
    JSON of what was written: its rows, bytes, time of change, digest, and by
    what.
  """
  encode = _encoder()
  digest = _new_digest()
  table = rows.with_format("arrow")
  total = rows.data.nbytes
  try:
    with (
      path.open("wb") as file,
      Progress(total, log_interval, what="writing JSON Lines") as progress,
    ):
      for batch in table.iter(batch_size=_BATCH_ROWS):
        for part in _parts(batch):
          columns = [part[key].to_pylist() for key in keys]
          lines = b"".join(
            [encode(dict(zip(keys, texts))) for texts in zip(*columns)]
          )
          digest.update(lines)
          file.write(lines)
          progress.update(part.num_rows, 0, part.nbytes)
      file.flush()
      os.fsync(file.fileno())
      status = os.fstat(file.fileno())
  except BaseException:
    path.unlink(missing_ok=True)
    raise
  return {
    "rows": rows.num_rows,
    "bytes": status.st_size,
    "changed": str(status.st_mtime_ns),
    "digest": digest.hexdigest(),
    "tool": tool_name(),
  }


def file_digest(file: BinaryIO) -> str:
  """The digest that `write_lines` gave, of what a file has now."""
  digest = _new_digest()
  while block := file.read(_READ_BYTES):
    digest.update(block)
  return digest.hexdigest()


def _new_digest() -> "hashlib.blake2b":
  return hashlib.blake2b(digest_size=16)


def _parts(batch: "Table") -> Iterator["Table"]:
  """Cuts a batch, so that not many long texts are held at once."""
  if batch.nbytes > _BATCH_BYTES and batch.num_rows > 1:
    half = batch.num_rows // 2
    yield from _parts(batch.slice(0, half))
    yield from _parts(batch.slice(half))
  else:
    yield batch


def _encoder() -> Callable[[Mapping[str, Any]], bytes]:
  """A function from a row to its line."""
  try:
    import orjson
  except ImportError:
    # The same bytes as below.
    dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    return lambda row: (dumps(row) + "\n").encode()
  return lambda row: orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)
