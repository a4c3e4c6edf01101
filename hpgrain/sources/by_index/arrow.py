r"""Arrow IPC files and streams: rows by number, mapped where they lie.

`datasets` writes streams, in which a batch is found by way of those before
it; only what tells their sizes is looked at for that.
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


class ArrowRecords:
  """The rows of Arrow IPC files and streams; see `Records`.

  Attributes:
    name: of the source.
    identity: JSON of what the records are.
    cache_identity: that, and when the files were written.
  """

  def __init__(self, files: Sequence[InputFile], *, name: str) -> None:
    """Finds the files' record batches.

    Args:
      files: as they were found.
      name: of the source.

    Raises:
      FileNotFoundError: a file is gone.
      ValueError: one was written again or is broken, or pyarrow is missing.
    """
    self.name = name
    self._tables = TableFiles(files, "arrow", _batch_rows)
    self.identity = self._tables.identity
    self.cache_identity = self._tables.cache_identity
    self._open = OpenFiles(self._tables.files, _Batches)
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
    # Also because a mapped file that was cut short must not be looked at.
    self._tables.check_unchanged(numbers)
    return row_groups.read_grouped(
      numbers, self._tables.first_row, self._read_rows
    )

  def place(self, index: int) -> str:
    """File and number in it of a record."""
    return self._tables.place(index, name=self.name)

  def _read_rows(self, group: int, rows: np.ndarray) -> list[Record]:
    return row_groups.table_rows(
      self._held.get(group, self._read_batch),
      rows,
      place=self.place,
      first=int(self._tables.first_row[group]),
    )

  def _read_batch(self, group: int) -> Any:
    """A batch as a table; one thread at a time is here."""
    file, number = self._tables.locate(group)
    path = self._tables.files[file].path
    pa = pyarrow_for(path)
    try:
      return pa.Table.from_batches([self._open.get(file).get(number)])
    except (pa.ArrowException, OSError) as error:
      raise ValueError(broken(path, error)) from error


class _Batches:
  """The record batches of one file or stream."""

  def __init__(self, path: str, *, sizes_only: bool = False) -> None:
    pa = pyarrow_for(path)
    options = None
    self._source = (
      pa.PythonFile(open_stored(path), mode="r")
      if is_remote(path)
      else pa.memory_map(path)
    )
    is_file = self._source.read(6) == b"ARROW1"
    self._source.seek(0)
    if sizes_only:
      reader = self._reader(pa, is_file, None)
      options = _one_column(pa, reader.schema)
      self._source.seek(0)
    reader = self._reader(pa, is_file, options)
    self._file = reader if is_file else None
    self._stream = [] if is_file else list(reader)

  def __len__(self) -> int:
    if self._file is not None:
      return self._file.num_record_batches
    return len(self._stream)

  def get(self, number: int) -> Any:
    """A batch; its columns lie in the mapped file, if they are not packed."""
    if self._file is not None:
      return self._file.get_batch(number)
    return self._stream[number]

  def _reader(self, pa: Any, is_file: bool, options: Any) -> Any:
    opened = pa.ipc.open_file if is_file else pa.ipc.open_stream
    return opened(self._source, options=options)


def _one_column(pa: Any, schema: Any) -> Any:
  """Options to read one column, a narrow one: packed batches are unpacked."""
  for number, field in enumerate(schema):
    if pa.types.is_primitive(field.type):
      return pa.ipc.IpcReadOptions(included_fields=[number])
  # An empty list stands for all.
  return pa.ipc.IpcReadOptions(included_fields=[0] if len(schema) else [])


def _batch_rows(file: InputFile) -> list[int]:
  pa = pyarrow_for(file.path)
  try:
    batches = _Batches(file.path, sizes_only=True)
    return [batches.get(number).num_rows for number in range(len(batches))]
  except (pa.ArrowException, OSError) as error:
    raise ValueError(broken(file.path, error)) from error


def _reopen(files: Sequence[InputFile], name: str) -> ArrowRecords:
  return ArrowRecords(files, name=name)
