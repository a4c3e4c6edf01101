r"""Parquet: rows by number, read a row group at a time.

A row group is the least that can be read, so reading far apart rows of large
groups unpacks much for little. The groups that were read last are held.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hpgrain.sources.by_index import row_groups
from hpgrain.sources.by_index.row_groups import broken, pyarrow_for
from hpgrain.sources.by_index.table_files import OpenFiles, TableFiles
from hpgrain.sources.records import Record, record_numbers
from hpgrain.tools.readers.files import is_remote, open_stored
from hpgrain.tools.readers.records import InputFile


class ParquetRecords:
  """The rows of Parquet files; see `Records`.

  Attributes:
    name: of the source.
    identity: JSON of what the records are.
    cache_identity: that, and when the files were written.
  """

  def __init__(self, files: Sequence[InputFile], *, name: str) -> None:
    """Reads the files' tables of contents.

    Args:
      files: as they were found.
      name: of the source.

    Raises:
      FileNotFoundError: a file is gone.
      ValueError: one was written again or is broken, or pyarrow is missing.
    """
    self.name = name
    self._tables = TableFiles(files, "parquet", _group_rows)
    self.identity = self._tables.identity
    self.cache_identity = self._tables.cache_identity
    self._open = OpenFiles(
      self._tables.files, open_parquet, close=lambda opened: opened.close()
    )
    self._held = row_groups.HeldGroups()

  def __reduce__(self) -> tuple[Any, ...]:
    """Opens the files again, elsewhere."""
    return _reopen, (self._tables.files, self.name)

  def __len__(self) -> int:
    """Number of records."""
    return len(self._tables)

  def read(self, indices: np.ndarray) -> list[Record]:
    """As `Records.read`."""
    numbers = record_numbers(indices, num_records=len(self), name=self.name)
    self._tables.check_unchanged(numbers)
    return row_groups.read_grouped(
      numbers, self._tables.first_row, self._read_rows
    )

  def place(self, index: int) -> str:
    """File and number in it of a record."""
    return self._tables.place(index, name=self.name)

  def _read_rows(self, group: int, rows: np.ndarray) -> list[Record]:
    return row_groups.table_rows(
      self._held.get(group, self._read_group),
      rows,
      place=self.place,
      first=int(self._tables.first_row[group]),
    )

  def _read_group(self, group: int) -> Any:
    """A row group's table; one thread at a time is here."""
    file, number = self._tables.locate(group)
    path = self._tables.files[file].path
    pa = pyarrow_for(path)
    try:
      return self._open.get(file).read_row_group(number)
    except (pa.ArrowException, OSError) as error:
      raise ValueError(broken(path, error)) from error


def _group_rows(file: InputFile) -> list[int]:
  pa = pyarrow_for(file.path)
  try:
    with open_parquet(file.path) as parquet:
      metadata = parquet.metadata
      return [
        metadata.row_group(number).num_rows
        for number in range(metadata.num_row_groups)
      ]
  except (pa.ArrowException, OSError) as error:
    raise ValueError(broken(file.path, error)) from error


def open_parquet(path: str) -> Any:
  """A `pyarrow.parquet.ParquetFile`; raises as pyarrow does."""
  from pyarrow import parquet

  stored = open_stored(path) if is_remote(path) else path
  return parquet.ParquetFile(stored, pre_buffer=False)


def _reopen(files: Sequence[InputFile], name: str) -> ParquetRecords:
  return ParquetRecords(files, name=name)
