r"""Parquet and Arrow files in turn: rows batch by batch, from any row on.

  Parquet  group 0 of 5 rows   group 1 of 3 rows      (start, skip) of row 6:
           0 1 2 3 4           5 6 7                  group 1, row 1 -> (1, 1)
  Arrow    record batches in place of groups

Of a Parquet file a batch is a part of a group, so that a large group is never
in memory whole. A group is the least that pyarrow can begin to read: rows of
it before a place are unpacked, and not made to records.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from hpgrain.sources.by_index.parquet import open_parquet
from hpgrain.sources.by_index.row_groups import (
  broken,
  pyarrow_for,
  table_rows,
)
from hpgrain.sources.in_turn.file_reader import check_unchanged, no_such_place
from hpgrain.sources.in_turn.source import Block
from hpgrain.sources.records import Record
from hpgrain.tools.readers.files import is_remote, open_stored
from hpgrain.tools.readers.records import InputFile

# Of a Parquet file, about so much is unpacked at once.
_BYTES, _ROWS = 4 << 20, 4096


class _Batch(NamedTuple):
  """Rows that were read in one piece.

  Attributes:
    group: they lie in.
    first: rows of the group before them.
    group_rows: rows of the group.
    table: the rows.
  """

  group: int
  first: int
  group_rows: int
  table: Any


class TableFileReader:
  """The rows of one file of tables; see `FileReader`."""

  def __init__(
    self,
    batches: Callable[[InputFile, int], Iterator[_Batch]],
    file: InputFile,
    start: int,
    skip: int,
    record: int,
  ) -> None:
    """Looks whether the file is there; the first read opens it.

    Args:
      batches: `parquet_batches` or `arrow_batches`.
      file: as it was found.
      start: the group to begin in.
      skip: rows of it before the place.
      record: rows of the file before the place.

    Raises:
      FileNotFoundError: it is gone.
      ValueError: it was written again, or pyarrow is missing.
    """
    check_unchanged(file)
    self._file = file
    self._pa = pyarrow_for(file.path)
    self._start, self._skip = start, skip
    self._where = (start, skip)
    self._record = record
    self._batches = batches(file, start)
    # What is given out, and how many of its rows were.
    self._batch: _Batch | None = None
    self._given = 0

  def read(self, n: int) -> Block:
    """As `FileReader.read`: of one batch at most."""
    if not is_remote(self._file.path):
      # A mapped file that was cut short must not be looked at.
      check_unchanged(self._file)
    while self._batch is None or self._given >= self._batch.table.num_rows:
      self._batch = self._next_batch()
      if self._batch is None:
        check_unchanged(self._file)
        return Block(0, lambda numbers: [], str)
    batch, begin = self._batch, self._given
    self._given = min(begin + n, batch.table.num_rows)
    after = batch.first + self._given
    # One way to name the end of a group: the next one's beginning.
    whole = after == batch.group_rows
    self._where = (batch.group + 1, 0) if whole else (batch.group, after)
    rows = batch.table.slice(begin, self._given - begin)
    path, first = self._file.path, self._record
    self._record += rows.num_rows

    def place(i: int) -> str:
      return f"{path}, record {first + i + 1}"

    def take(numbers: Sequence[int]) -> list[Record]:
      chosen = np.asarray(numbers, np.int64)
      return table_rows(rows, chosen, place=place, first=0)

    return Block(rows.num_rows, take, place)

  def where(self) -> tuple[int, int]:
    """(group, rows of it)."""
    return self._where

  def close(self) -> None:
    """Closes the file."""
    self._batches.close()

  def _next_batch(self) -> _Batch | None:
    """The next one that has a row after the place; None at the end."""
    found = None
    try:
      for batch in self._batches:
        stop = batch.first + batch.table.num_rows
        if batch.group > self._start or stop > self._skip:
          found = batch
          break
    except (self._pa.ArrowException, OSError) as error:
      raise ValueError(broken(self._file.path, error)) from error
    if not self._skip:
      self._given = 0
    elif found is None or found.group > self._start:
      raise no_such_place(self._file, self._start, self._skip)
    else:
      # Of the first batch alone.
      self._given, self._skip = self._skip - found.first, 0
    return found


def parquet_batches(file: InputFile, start: int) -> Iterator[_Batch]:
  """Yields the batches of the row groups from number `start` on.

  Raises:
    ValueError: there are fewer groups.
  """
  with open_parquet(file.path) as parquet:
    metadata = parquet.metadata
    if start > metadata.num_row_groups:
      raise no_such_place(file, start, 0)
    for number in range(start, metadata.num_row_groups):
      group = metadata.row_group(number)
      row_bytes = group.total_byte_size // (group.num_rows or 1)
      first = 0
      for batch in parquet.iter_batches(
        batch_size=max(min(_BYTES // (row_bytes or 1), _ROWS), 1),
        row_groups=[number],
      ):
        yield _Batch(number, first, group.num_rows, _table(batch))
        first += batch.num_rows


def arrow_batches(file: InputFile, start: int) -> Iterator[_Batch]:
  """Yields the record batches of a file or stream from number `start` on.

  Of a stream, those before it are passed by; a mapped one's lie where they
  are.

  Raises:
    ValueError: there are fewer batches.
  """
  pa = pyarrow_for(file.path)
  stored = (
    pa.PythonFile(open_stored(file.path, size=file.size), mode="r")
    if is_remote(file.path)
    else pa.memory_map(file.path)
  )
  with stored:
    is_file = stored.read(6) == b"ARROW1"
    stored.seek(0)
    count = 0
    if is_file:
      reader = pa.ipc.open_file(stored)
      count = reader.num_record_batches
      for number in range(start, count):
        batch = reader.get_batch(number)
        yield _Batch(number, 0, batch.num_rows, _table(batch))
    else:
      for count, batch in enumerate(pa.ipc.open_stream(stored), 1):
        if count > start:
          yield _Batch(count - 1, 0, batch.num_rows, _table(batch))
    if start > count:
      raise no_such_place(file, start, 0)


def _table(batch: Any) -> Any:
  import pyarrow as pa

  return pa.Table.from_batches([batch])
