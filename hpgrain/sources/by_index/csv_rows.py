r"""CSV with a header: a record has a string under each of its names.

  text,lang\n
  "a comma, a ""quote""\n
  and a line end",en\n       -> {"text": "a comma, ...", "lang": "en"}

Empty lines are no rows. Each file has a header of its own.
"""

import csv
from collections.abc import Sequence

from hpgrain.sources.by_index.text_files import TextFormat
from hpgrain.sources.records import Record
from hpgrain.tools.readers.bad_text import BadTextError
from hpgrain.tools.readers.json_texts import not_utf8


def decode_row(piece: bytes, header: Sequence[str]) -> Record:
  """The fields of a row by their names.

  Raises:
    BadTextError: it is not CSV in UTF-8, or has more or fewer fields.
  """
  row = _fields(piece)
  if len(row) != len(header):
    raise BadTextError(
      f"has {len(row)} fields where the header has {len(header)}."
    )
  return dict(zip(header, row))


def read_header(piece: bytes) -> list[str]:
  """The names of the columns.

  They are not shown: a file without a header begins with texts.

  Raises:
    BadTextError: they are not CSV in UTF-8, or two are alike.
  """
  names = _fields(piece)
  if len(set(names)) < len(names):
    first = next(i for i, name in enumerate(names) if name in names[:i])
    raise BadTextError(
      f"has one name for the columns {names.index(names[first]) + 1} and"
      f" {first + 1} of its {len(names)}. The first line must name the columns,"
      " each otherwise."
    )
  return names


def _fields(piece: bytes) -> list[str]:
  try:
    text = piece.decode("utf-8")
  except UnicodeDecodeError as error:
    # From None: the cause holds the text.
    raise not_utf8(error) from None
  if len(text) > csv.field_size_limit():
    # Of the whole process, and below many a document at first.
    csv.field_size_limit(len(text))
  # Split where the index is: other characters end no line of a file.
  lines = (line + "\n" for line in text.removesuffix("\n").split("\n"))
  try:
    return next(csv.reader(lines, strict=True))
  except csv.Error as error:
    raise BadTextError(f"is not CSV: {error}.") from None


CSV_ROWS = TextFormat(
  name="csv", kind="csv_rows", decode=decode_row, read_header=read_header
)
