r"""A data path in, the records of its files one after the other out.

json          JSON Lines, or one array a file (.json, .jsonl, .ndjson)
text          lines of plain text (.txt)
csv           rows with a header (.csv)
parquet       rows (.parquet), compressed or not
arrow         rows of IPC files and streams (.arrow)
array_record  JSON objects (.array_record, .arrayrecord)

The first three also with .gz or .zst, which by index cannot be read.
"""

import functools
from typing import Any

from hpgrain.sources.by_index.csv_rows import CSV_ROWS
from hpgrain.sources.by_index.file_list import (
  default_name,
  find_files,
  read_format,
)
from hpgrain.sources.by_index.formats import check_name, json_format
from hpgrain.sources.by_index.text_lines import TEXT_LINES
from hpgrain.sources.in_turn.array_records import ArrayRecordFileReader
from hpgrain.sources.in_turn.file_reader import OpenFile
from hpgrain.sources.in_turn.files import FilesInTurn
from hpgrain.sources.in_turn.tables import (
  TableFileReader,
  arrow_batches,
  parquet_batches,
)
from hpgrain.sources.in_turn.text_files import TextFileReader

_TABLES: dict[str, OpenFile] = {
  "parquet": functools.partial(TableFileReader, parquet_batches),
  "arrow": functools.partial(TableFileReader, arrow_batches),
  "array_record": ArrayRecordFileReader,
}
_TEXTS = {"text": TEXT_LINES, "csv": CSV_ROWS}


def open_in_turn(
  data_path: Any, *, format: str | None = None, name: str | None = None
) -> FilesInTurn:
  """Opens the files of a source; finds none of their records yet.

  Args:
    data_path: a file, a folder (its files, by path; not those of its
      folders), a pattern, several of these with commas between, or a list of
      them. Local, or URLs of an object store.
    format: of the list above; None goes by the files' names.
    name: of the source; None takes the first entry's, without a suffix.

  Raises:
    FileNotFoundError: nothing is there, or nothing matches.
    ValueError: files of several formats, or of one that is not read.
  """
  files = find_files(data_path, form=format)
  if name is None:
    name = default_name(data_path)
  check_name(name, files)
  # The caller's word, where there is one, is in every file of the list.
  form = read_format(format) or files[0].format
  if form in _TABLES:
    return FilesInTurn(files, form=form, open_file=_TABLES[form], name=name)
  text = _TEXTS[form] if form in _TEXTS else json_format(files)
  reader = functools.partial(TextFileReader, text)
  return FilesInTurn(files, form=text.name, open_file=reader, name=name)
