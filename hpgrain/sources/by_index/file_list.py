r"""A data path in, the files of one source out: in order, of one format.

"data/books.jsonl"                  a file
"data/books"                        a folder: the files in it, by path
"data/books-*.jsonl"                a pattern, by path
"a.jsonl,b.jsonl", ["a", "b"]       several of these, in the order given
"""

import dataclasses
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hpgrain.nearest import did_you_mean
from hpgrain.tools.readers.files import is_remote, size_and_version
from hpgrain.tools.readers.listing import find_inputs
from hpgrain.tools.readers.records import InputFile

FORMATS = ("json", "text", "csv", "parquet", "arrow", "array_record")
_OTHER_NAMES = {
  "jsonl": "json",
  "json_lines": "json",
  "txt": "text",
  "arrayrecord": "array_record",
}
_UNPACK = {"gzip": "gunzip -k", "zstd": "unzstd -k"}
_SUFFIXES = (".gz", ".zst")


def read_format(form: str | None) -> str | None:
  """Returns a format by its own name.

  Raises:
    ValueError: there is none of that name.
  """
  if form is None:
    return None
  known = _OTHER_NAMES.get(form, form)
  if known not in FORMATS:
    hint = did_you_mean(form, (*FORMATS, *_OTHER_NAMES))
    raise ValueError(
      f"format must be one of {', '.join(FORMATS)}, or None to go by the files'"
      f" names; got {form!r}.{hint}"
    )
  return known


def find_files(data_path: Any, *, form: str | None = None) -> list[InputFile]:
  """Returns the files of a source.

  Args:
    data_path: one of the forms above.
    form: the format, whatever the files' names say; of folders, only files
      of this format are taken. None: the names tell.

  Raises:
    FileNotFoundError: nothing is there, or nothing matches.
    ValueError: the files have several formats, one is named twice or is of a
      format that is not read; or the data path is of another form.
  """
  form = read_format(form)
  files = [
    file
    for entry in path_entries(data_path)
    for file in _entry_files(entry, form)
  ]
  seen: dict[str, InputFile] = {}
  for file in files:
    if file.path in seen:
      raise ValueError(
        f"The data path names {file.path} twice, so that its records would be"
        " read twice. Name it once."
      )
    seen[file.path] = file
  _check_one_format(files)
  return files


def path_entries(data_path: Any) -> list[str]:
  """Returns the paths, folders and patterns of a data path, in its order.

  Raises:
    ValueError: it is none, or an empty one.
  """
  if isinstance(data_path, (str, os.PathLike)):
    entries = list(_comma_separated(os.fspath(data_path)))
  elif isinstance(data_path, Sequence) and not isinstance(data_path, bytes):
    entries = []
    for entry in data_path:
      if not isinstance(entry, (str, os.PathLike)):
        raise ValueError(
          f"The data path has the entry {entry!r}; an entry is a path."
        )
      entries.append(os.fspath(entry))
  else:
    raise ValueError(
      "A data path is a file, a folder, a pattern, several of these with commas"
      f" between, or a list of them; got {data_path!r}."
    )
  if not entries or not all(
    isinstance(entry, str) and entry.strip() for entry in entries
  ):
    raise ValueError(
      f"The data path {data_path!r} has an empty entry. Give files or folders."
    )
  return entries


def default_name(data_path: Any) -> str:
  """Returns what a source is called: its first entry's name, no suffix."""
  last = path_entries(data_path)[0].rstrip("/").rsplit("/", 1)[-1]
  stem = last
  for suffix in _SUFFIXES:
    stem = stem.removesuffix(suffix)
  return stem.rsplit(".", 1)[0] or last


def refuse_compressed(files: Sequence[InputFile]) -> None:
  """Refuses files no record of which can be read without those before it.

  Raises:
    ValueError: there is one.
  """
  for file in files:
    if file.compression:
      raise ValueError(
        f"{file.path} is compressed with {file.compression}: no record of it"
        " can be read without all that stand before it. Read it in turn"
        ' (dataset_type="iterable"), unpack it'
        f" ({_UNPACK[file.compression]}), or convert it to Parquet."
      )


def _comma_separated(path: str) -> Iterator[str]:
  # A comma in a name that is there is no separator.
  if "," not in path or (not is_remote(path) and Path(path).exists()):
    yield path
    return
  for part in path.split(","):
    yield part.strip()


def _entry_files(entry: str, form: str | None) -> list[InputFile]:
  if form is None:
    return find_inputs(entry)
  if not is_remote(entry) and Path(entry).is_file():
    compression = {".gz": "gzip", ".zst": "zstd"}.get(Path(entry).suffix, "")
    return [InputFile(entry, form, compression, *size_and_version(entry))]
  found = find_inputs(entry)
  if not is_remote(entry) and Path(entry).is_dir():
    chosen = [file for file in found if file.format == form]
    if not chosen:
      raise FileNotFoundError(
        f"The folder {entry} holds no file of the format {form!r} by its name,"
        f" but {found[0].format!r}: {found[0].path}."
      )
    return chosen
  # Named one by one or by a pattern: the caller knows better than the names.
  return [dataclasses.replace(file, format=form) for file in found]


def _check_one_format(files: Sequence[InputFile]) -> None:
  first = files[0]
  for file in files:
    if file.format != first.format:
      raise ValueError(
        f"A source has files of one format; {first.path} is {first.format!r}"
        f" and {file.path} is {file.format!r}. Make two sources of them, or"
        f" take one format alone (format={first.format!r})."
      )
