r"""A data path in, the records of its files by number out.

json          JSON Lines, or one array a file (.json, .jsonl, .ndjson)
text          lines of plain text (.txt)
csv           rows with a header (.csv)
parquet       rows (.parquet), compressed or not
arrow         rows of IPC files and streams (.arrow)
array_record  JSON objects (.array_record, .arrayrecord)
"""

from collections.abc import Sequence
from typing import Any

from hpgrain.index_cache import IndexCache
from hpgrain.sources.by_index.array_records import ArrayRecordRecords
from hpgrain.sources.by_index.arrow import ArrowRecords
from hpgrain.sources.by_index.csv_rows import CSV_ROWS
from hpgrain.sources.by_index.file_list import (
  default_name,
  find_files,
  read_format,
  refuse_compressed,
)
from hpgrain.sources.by_index.json_array import JSON_ARRAY
from hpgrain.sources.by_index.json_lines import JSON_LINES
from hpgrain.sources.by_index.parquet import ParquetRecords
from hpgrain.sources.by_index.text_files import TextFileRecords, TextFormat
from hpgrain.sources.by_index.text_lines import TEXT_LINES
from hpgrain.sources.records import Records
from hpgrain.tools.readers.json_arrays import is_array
from hpgrain.tools.readers.records import InputFile

_TABLES = {
  "parquet": ParquetRecords,
  "arrow": ArrowRecords,
  "array_record": ArrayRecordRecords,
}
_TEXTS = {"text": TEXT_LINES, "csv": CSV_ROWS}


def open_records(
  data_path: Any,
  *,
  format: str | None = None,
  name: str | None = None,
  cache: IndexCache | None = None,
) -> Records:
  """Opens the files of a source.

  Args:
    data_path: a file, a folder (its files, by path; not those of its
      folders), a pattern, several of these with commas between, or a list of
      them. Local, or URLs of an object store.
    format: of the list above; None goes by the files' names.
    name: of the source; None takes the first entry's, without a suffix.
    cache: where the places of records in text files are kept; None finds them
      at every start.

  Raises:
    FileNotFoundError: nothing is there, or nothing matches.
    ValueError: files of several formats, of one that is not read, or broken
      ones; compressed text, which has no place to begin to read at.
  """
  files = find_files(data_path, form=format)
  if name is None:
    name = default_name(data_path)
  check_name(name, files)
  # The caller's word, where there is one, is in every file of the list.
  form = read_format(format) or files[0].format
  if form in _TABLES:
    return _TABLES[form](files, name=name)
  refuse_compressed(files)
  return TextFileRecords(
    files,
    _TEXTS[form] if form in _TEXTS else json_format(files),
    name=name,
    cache=IndexCache(None) if cache is None else cache,
  )


def check_name(name: str, files: Sequence[InputFile]) -> None:
  """Checks the name of a source, which stands in states and reports.

  Raises:
    ValueError: it cannot be printed.
  """
  if not name or not name.isprintable():
    raise ValueError(
      f"The source of {files[0].path} has the name {name!r}, which cannot be"
      " printed. Give it another (name=...)."
    )


def json_format(files: Sequence[InputFile]) -> TextFormat:
  """Returns lines or arrays: a file named .json may be either.

  Raises:
    ValueError: some are arrays and some are not.
  """
  arrays = [_may_be_array(file.path) and is_array(file) for file in files]
  if len(set(arrays)) > 1:
    array, lines = files[arrays.index(True)], files[arrays.index(False)]
    raise ValueError(
      f"A source has files of one format; {array.path} is one JSON array and"
      f" {lines.path} is not. Make two sources of them, or convert one."
    )
  return JSON_ARRAY if arrays[0] else JSON_LINES


def _may_be_array(path: str) -> bool:
  name = path.lower().removesuffix(".gz").removesuffix(".zst")
  return name.endswith(".json")
