"""CSV with a header: the texts of some columns, row by row.

Quoted fields may hold commas, quotes (doubled) and line ends, so a row's
place is only known from the rows before it: a file is read in one go.
"""

import csv
from collections.abc import Iterator, Sequence

from hpgrain.tools.readers.json_texts import not_utf8
from hpgrain.tools.readers.lines import Line, whole_lines
from hpgrain.tools.readers.long_bytes import LongBytes
from hpgrain.tools.readers.records import Record, Report, Unit

# The library's own limit of 128 KiB is below many a document. A quote that is
# never closed must still not take the whole of a large file for one field.
_FIELD_CHARACTERS = 1 << 24


def read_csv(
  unit: Unit, keys: Sequence[str], report: Report
) -> Iterator[Record]:
  """Yields the texts of the columns `keys`; blank lines are no rows.

  Raises:
    ValueError: the header lacks a column, or has it twice.
  """
  # Of the whole process: nothing else here reads CSV.
  csv.field_size_limit(_FIELD_CHARACTERS)
  lines = _Lines(unit)
  rows = csv.reader(lines, strict=True)
  columns, width = None, 0
  index = 0
  while True:
    offset = lines.next_offset
    lines.error = None
    problem = None
    try:
      row = next(rows)
    except StopIteration:
      return
    except csv.Error as error:
      row, problem = [], f"is not CSV: {error}."
    if lines.error is not None:
      problem = lines.error
    if problem is None and not row:
      continue
    if columns is None:
      if problem is not None:
        raise ValueError(f"{unit.file.path}: the header {problem}")
      columns, width = _columns(unit.file.path, row, keys), len(row)
      continue
    if problem is None and len(row) != width:
      problem = f"has {len(row)} fields where the header has {width}."
    if problem is None:
      yield Record(tuple([row[column] for column in columns]), index, offset)
    else:
      report(index, offset, problem)
    index += 1


def _columns(name: str, header: list[str], keys: Sequence[str]) -> list[int]:
  """The places of the columns `keys`.

  The header's own words are not shown: a file without one begins with texts.
  """
  for key in keys:
    if header.count(key) != 1:
      found = "no column" if key not in header else "more than one column"
      raise ValueError(
        f"{name} has {found} {key!r} among the {len(header)} of its first"
        " line. That line must name the columns; say which hold the texts with"
        " --json-keys."
      )
  return [header.index(key) for key in keys]


class _Lines:
  """The lines of a file as the csv module wants them, and where they begin."""

  def __init__(self, unit: Unit) -> None:
    # Of the line that comes next.
    self.next_offset = 0
    # What is wrong with a line since it was last set to None.
    self.error: str | None = None
    self._name = unit.file.path
    self._lines = self._read(unit)

  def __iter__(self) -> Iterator[str]:
    return self._lines

  def _read(self, unit: Unit) -> Iterator[str]:
    for offset, lines in whole_lines(unit.file):
      for line in map(self._held, lines):
        offset += len(line) + 1  # noqa: PLW2901
        self.next_offset = offset
        try:
          text = line.decode("utf-8")
        except UnicodeDecodeError as error:
          self.error = str(not_utf8(error))
          # The quotes still tell where the row ends.
          text = line.decode("utf-8", "replace")
        yield text + "\n"

  def _held(self, line: Line) -> bytes:
    if not isinstance(line, LongBytes):
      return line
    if len(line) > _FIELD_CHARACTERS:
      raise ValueError(
        f"{self._name}: the line at byte offset {self.next_offset} has"
        f" {len(line)} bytes; in CSV one may have {_FIELD_CHARACTERS}, since"
        " what is longer does not fit in memory. Convert the file to JSON"
        " Lines, where texts may be of any length."
      )
    return line.read(0, len(line))
