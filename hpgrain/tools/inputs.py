"""Raw text in: which files, in which units, and the records of a unit.

  find_inputs(pattern)   files, sorted by path
  units(files)           runs of records, decided from the files alone
  read_unit(unit, keys)  the records of one, in the file's order

Readers of other formats go beside those of `readers/`, with a line here. The
files are only read; one that changes meanwhile is refused.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from hpgrain import object_store
from hpgrain.tools.readers.array_records import (
  array_record_units,
  read_array_records,
)
from hpgrain.tools.readers.bad_text import BadTextError
from hpgrain.tools.readers.columns import (
  arrow_units,
  parquet_units,
  read_arrow,
  read_parquet,
)
from hpgrain.tools.readers.csv_rows import read_csv
from hpgrain.tools.readers.files import (
  check_compression,
  is_remote,
  open_stored,
  reading,
)
from hpgrain.tools.readers.json_arrays import is_array, read_json_array
from hpgrain.tools.readers.lines import (
  count_lines_before,
  read_json_batches,
  read_json_lines,
  read_text_lines,
)
from hpgrain.tools.readers.listing import find_inputs
from hpgrain.tools.readers.long_text import LongText
from hpgrain.tools.readers.records import (
  BadRecord,
  BadRecordError,
  Batch,
  ConversationKey,
  InputFile,
  Record,
  Report,
  Unit,
)

__all__ = [
  "UNIT_BYTES",
  "BadRecord",
  "BadRecordError",
  "BadTextError",
  "Batch",
  "ConversationKey",
  "InputFile",
  "LongText",
  "Record",
  "Unit",
  "describe",
  "find_inputs",
  "read_batches",
  "read_unit",
  "record_number",
  "units",
]

UNIT_BYTES = 8 << 20

# Those that can leave a long text where it is.
_LONG_READERS: dict[str, Callable[..., Iterator[Record]]] = {
  "json_lines": read_json_lines,
  "json_array": read_json_array,
  "text": read_text_lines,
}
_READERS: dict[
  str, Callable[[Unit, Sequence[str], Report], Iterator[Record]]
] = {
  **_LONG_READERS,
  "csv": read_csv,
  "parquet": read_parquet,
  "arrow": read_arrow,
  "array_record": read_array_records,
}
_UNITS: dict[str, Callable[[InputFile, int], list[Unit]]] = {
  "parquet": parquet_units,
  "arrow": arrow_units,
  "array_record": array_record_units,
}
_LINES = ("json_lines", "text")


def units(
  files: Sequence[InputFile], *, unit_bytes: int = UNIT_BYTES
) -> list[Unit]:
  """Cuts files into units, in the order of their records.

  Every record of the files is in exactly one unit. They depend on the files
  and on `unit_bytes` alone. Plain lines are cut by their file's size; the
  beginning of each file is read, and Parquet's, Arrow's and ArrayRecord's
  tables of contents. What is compressed, CSV and a JSON array are one unit a
  file, which is read as a stream. An empty file has none.

  Args:
    files: what `find_inputs` returned.
    unit_bytes: about how much of a file makes a unit.

  Raises:
    ValueError: a file changed, is broken, or is of another format than its
      name says; or the package that reads it is missing.
  """
  if unit_bytes < 1:
    raise ValueError(
      f"unit_bytes must be positive, got {unit_bytes}. The usual is"
      f" {UNIT_BYTES}."
    )
  cut = functools.partial(_file_units, unit_bytes=unit_bytes)
  if any(is_remote(file.path) for file in files):
    # Looking at each takes a while.
    groups = object_store.in_parallel(cut, files)
  else:
    groups = map(cut, files)
  return [unit for group in groups for unit in group]


def read_unit(
  unit: Unit,
  keys: Sequence[str],
  on_bad: Callable[[BadRecord], None] | None = None,
  *,
  long_texts: bool = False,
  scratch: Path | None = None,
) -> Iterator[Record]:
  """Yields the records of a unit, in the file's order.

  Memory holds a block of a megabyte or so, or one record if that is longer.

  Args:
    unit: one of those that `units` returned.
    keys: the keys (or columns) that hold the texts; a record must have all.
    on_bad: called with each record that cannot be used, which is then
      skipped; it may raise to stop. None: such a record is an error.
    long_texts: give texts of more than a megabyte, in JSON objects and lines
      of more than `long_bytes.LONG_BYTES`, as `LongText`s, whose pieces are to
      be read before the next record is asked for. Such records take no memory
      then. A string may take four times the bytes it was read from.
    scratch: a folder for long records of files that are compressed or on a
      store; None takes the system's.

  Raises:
    BadRecordError: a ValueError: a record that cannot be used, without
      `on_bad`. Names file, record (from 1), byte offset and what is wrong;
      never the text.
    FileNotFoundError: the file is gone.
    ValueError: it changed, is broken, or has no such column.
  """
  read = _READERS[unit.kind]
  if unit.kind in _LONG_READERS:
    read = functools.partial(
      _LONG_READERS[unit.kind], long_texts=long_texts, scratch=scratch
    )
  return read(unit, _checked(keys), _report(unit, on_bad))


def read_batches(
  unit: Unit,
  keys: Sequence[str],
  on_bad: Callable[[BadRecord], None] | None = None,
  *,
  scratch: Path | None = None,
) -> Iterator[Batch | Record]:
  """Yields the records of a unit of JSON Lines, many at a time.

  A record with a line of more than `long_bytes.LONG_BYTES` comes by itself. No
  string is made of a text, which makes this several times faster than
  `read_unit`; arguments and errors are those of `read_unit` with `long_texts`.
  """
  assert unit.kind == "json_lines", "other units have one way to be read"
  return read_json_batches(
    unit, _checked(keys), _report(unit, on_bad), scratch=scratch
  )


def _checked(keys: Sequence[str]) -> tuple[str, ...]:
  if isinstance(keys, str) or not keys or len(set(keys)) != len(keys):
    raise ValueError(
      f"keys must be a sequence of one or more different keys, got {keys!r}."
    )
  return tuple(keys)


def _report(unit: Unit, on_bad: Callable[[BadRecord], None] | None) -> Report:
  def report(index: int, offset: int | None, reason: str) -> None:
    bad = BadRecord(unit.file.path, index, offset, reason)
    if on_bad is None:
      # From None: what is behind it may hold the text.
      raise BadRecordError(describe(unit, bad)) from None
    on_bad(bad)

  return report


def describe(unit: Unit, bad: BadRecord) -> str:
  """File, number, place and fault of a bad record of a unit.

  Counts the records before the unit if it must: one pass over the file.
  """
  number, line = bad.index + 1, 0
  if unit.kind in _LINES and bad.offset is not None:
    records, lines = count_lines_before(unit, bad.offset)
    number, line = records + 1, lines + 1
  elif unit.first_record is not None:
    number += unit.first_record
  place = [f"line {line}"] if line else []
  if bad.offset is not None:
    unpacked = " of the unpacked file" if unit.file.compression else ""
    place.append(f"at byte offset {bad.offset}{unpacked}")
  where = f" ({', '.join(place)})" if place else ""
  return f"{bad.file}: record {number}{where} {bad.reason}"


def record_number(unit: Unit, record: Record | BadRecord) -> int:
  """A record's number in its file, from 1; may read what lies before it."""
  if unit.first_record is not None:
    return unit.first_record + record.index + 1
  if record.offset is None:
    raise ValueError("A record of a line has an offset; got None.")
  return count_lines_before(unit, record.offset)[0] + 1


def _file_units(file: InputFile, unit_bytes: int) -> list[Unit]:
  if file.format in _UNITS:
    return _UNITS[file.format](file, unit_bytes)
  if file.size == 0:
    return []
  with reading(file), open_stored(file.path, size=file.size) as stored:
    check_compression(file, stored)
  kind = file.format
  if kind == "json":
    # JSON Lines whose first record is an array is only an error of its own.
    array = _named_json(file.path) and is_array(file)
    kind = "json_array" if array else "json_lines"
  if file.compression or kind not in _LINES:
    return [Unit(file, kind, 0, file.size, 0, file.size)]
  return [
    Unit(
      file,
      kind,
      start,
      min(start + unit_bytes, file.size),
      None if start else 0,
      min(unit_bytes, file.size - start),
    )
    for start in range(0, file.size, unit_bytes)
  ]


def _named_json(path: str) -> bool:
  name = path.lower()
  return name.removesuffix(".gz").removesuffix(".zst").endswith(".json")
