"""ArrayRecord files whose records are JSON objects, by number."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hpgrain.sources.by_index import row_groups
from hpgrain.sources.by_index.json_objects import parse_object, parse_objects
from hpgrain.sources.by_index.table_files import OpenFiles, TableFiles
from hpgrain.sources.records import Record, record_numbers
from hpgrain.tools.readers.bad_text import BadTextError
from hpgrain.tools.readers.files import is_remote
from hpgrain.tools.readers.records import (
  BadRecordError,
  InputFile,
)

# Records are asked for far from one another: nothing is read ahead.
_OPTIONS = "readahead_buffer_size:0,max_parallelism:0"


class ArrayRecordRecords:
  """The records of ArrayRecord files; see `Records`.

  Attributes:
    name: of the source.
    identity: JSON of what the records are.
    cache_identity: that, and when the files were written.
  """

  def __init__(self, files: Sequence[InputFile], *, name: str) -> None:
    """Reads the files' tables of contents.

    Args:
      files: local ones, as they were found.
      name: of the source.

    Raises:
      FileNotFoundError: a file is gone.
      ValueError: one was written again, is broken or on an object store, or
        the package array-record is missing.
    """
    self.name = name
    self._tables = TableFiles(files, "array_record", _num_records)
    self.identity = self._tables.identity
    self.cache_identity = self._tables.cache_identity
    self._open = OpenFiles(self._tables.files, open_reader)
    self._lock = threading.Lock()

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
    # A file is a group: it is asked once for all of its records.
    return row_groups.read_grouped(
      numbers, self._tables.first_row, self._read_rows
    )

  def place(self, index: int) -> str:
    """File and number in it of a record."""
    return self._tables.place(index, name=self.name)

  def _read_rows(self, file: int, rows: np.ndarray) -> list[Record]:
    path = self._tables.files[file].path
    with self._lock:
      reader = self._open.get(file)
    pieces = checked(path, reader.read, rows.tolist())
    records = parse_objects(pieces)
    if records is not None:
      return records
    records = []
    for row, piece in zip(rows.tolist(), pieces):
      try:
        records.append(parse_object(piece))
      except BadTextError as error:
        index = int(self._tables.first_row[file]) + row
        # From None: what is behind it may hold the text.
        raise BadRecordError(f"{self.place(index)} {error}") from None
    return records


def _num_records(file: InputFile) -> list[int]:
  reader = open_reader(file.path)
  num_records = checked(file.path, reader.num_records)
  # Some faults are only told here: a broken file has 0 records until then.
  checked(file.path, reader.close)
  return [num_records]


def open_reader(path: str) -> Any:
  """The library's reader of a local file.

  Raises:
    ValueError: it is broken or on an object store, or the package is missing.
  """
  if is_remote(path):
    raise ValueError(
      f"{path} is on an object store, where ArrayRecord files are not read."
      " Copy it to a disk first."
    )
  try:
    from array_record.python import array_record_module
  except ImportError:
    raise ValueError(
      f"{path} is read with the package array-record, which is not installed."
      " Install it (pip install array-record), or convert the file to JSON"
      " Lines."
    ) from None
  return checked(path, array_record_module.ArrayRecordReader, path, _OPTIONS)


def checked(path: str, call: Callable[..., Any], *arguments: object) -> Any:
  """Calls the library, which raises RuntimeError for broken files.

  Raises:
    ValueError: in place of that.
  """
  try:
    return call(*arguments)
  except (RuntimeError, ValueError, IndexError) as error:
    raise ValueError(
      f"{path} cannot be read as ArrayRecord ({error}). It is broken, was not"
      " written to its end, or is of another format than its name says."
    ) from None


def _reopen(files: Sequence[InputFile], name: str) -> ArrayRecordRecords:
  return ArrayRecordRecords(files, name=name)
