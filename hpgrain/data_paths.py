"""Reads the forms a data path may have into a list of sources.

  "/data/books"                               one pair, /data/books.idx/.bin
  "/data/folder"                              every .bin below it, weight 1
  ("/data/books", "/data/code")               pairs in proportion to their rows
  (0.7, "/data/books", 0.3, "/data/code")     pairs and weights, or "0.7", ...
  ({"path": ..., "weight": 0.7, "name": "b"}, ...)   the same, with names

`read_entries` looks at the value alone; `parse_data_path` at the disk as well.
"""

import dataclasses
import math
import numbers
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_collections as mlc

from hpgrain.nearest import did_you_mean

WORKDIR = "{workdir}"

_SUFFIXES = (".bin", ".idx")
_FIELDS = ("path", "weight", "name")
_FORMS = (
  "a {0} or folder, a sequence of such, a sequence of weight and {0} in turn"
  ' such as (0.7, "a", 0.3, "b"), or a sequence of {{"path", "weight", "name"}}'
)


@dataclasses.dataclass(frozen=True)
class SourceEntry:
  """One source as it was written.

  Attributes:
    path: a prefix without `.bin` or `.idx`, or a folder.
    weight: a positive number, or None where none was given.
    name: the name that was given, or None.
  """

  path: str
  weight: int | float | None = None
  name: str | None = None


@dataclasses.dataclass(frozen=True)
class SourceSpec:
  """One `.idx`/`.bin` pair to read.

  Attributes:
    path: the pair's prefix.
    weight: its share of the rows next to the others' weights, or None where
      none was given: the sources' sizes decide then.
    name: stands for the source in the order of its rows, in states and in
      reports; unlike the path it stays when the data move.
  """

  path: str
  weight: int | float | None
  name: str


def parse_data_path(value: Any, *, key: str = "data_path") -> list[SourceSpec]:
  """Returns the sources that `value` names, in order, with unlike names.

  A path is a folder if it is one and no pair of that prefix stands beside it.
  A single source is no blend: its weight is None.

  Args:
    value: one of the forms above.
    key: what to call the value in errors.

  Raises:
    ValueError: an unknown form, a bad weight, a folder without `.bin` files or
      among other entries, or two sources of one name.
  """
  entries = read_entries(value, key=key)
  for entry in entries:
    if WORKDIR in entry.path:
      raise ValueError(
        f"{key} holds {entry.path!r}, and nothing has replaced {WORKDIR}. Run"
        " launch/train.py with --workdir, or write the path out."
      )
  folders = [entry for entry in entries if _is_folder(entry.path)]
  if folders and entries != [SourceEntry(folders[0].path)]:
    raise ValueError(
      f"{key}: {folders[0].path!r} is a folder, with other entries, a weight or"
      " a name. Give the folder alone, or list its prefixes."
    )
  if folders:
    specs = _read_folder(entries[0].path, key=key)
  else:
    specs = [
      SourceSpec(e.path, e.weight, e.name or e.path.rpartition("/")[2])
      for e in entries
    ]
  _check_names(specs, key=key)
  if len(specs) == 1:
    return [dataclasses.replace(specs[0], weight=None)]
  return specs


def read_entries(
  value: Any, *, key: str = "data_path", noun: str = "prefix"
) -> list[SourceEntry]:
  """Returns the entries of `value` without looking at the disk.

  Args:
    value: one of the forms above.
    key: what to call the value in errors.
    noun: what to call what it names.

  Raises:
    ValueError: as `parse_data_path`, but for what only the disk can tell.
  """
  if isinstance(value, (list, tuple)) and value:
    entries = _read_sequence(value, key=key, noun=noun)
  elif (entry := _read_entry(value, key=key)) is not None:
    entries = [entry]
  else:
    hint = ""
    if value is True:
      hint = " A flag needs `=` before its value: --config.dataset.data_path=X."
    elif _is_number(value):
      hint = f" A path that reads as a number is written './{value}'."
    raise ValueError(
      f"{key} must be {_FORMS.format(noun)}; got {value!r}.{hint}"
    )
  weighted = [entry for entry in entries if entry.weight is not None]
  if weighted and len(weighted) < len(entries):
    bare = next(entry for entry in entries if entry.weight is None)
    raise ValueError(
      f"{key} gives weights to {len(weighted)} of {len(entries)} entries;"
      f" {bare.path!r} has none. Give every entry a weight, or none."
    )
  return entries


def _read_sequence(
  value: Sequence[Any], *, key: str, noun: str
) -> list[SourceEntry]:
  if not any(_is_number(item) or _is_numeric(item) for item in value):
    entries = []
    for item in value:
      entry = _read_entry(item, key=key)
      if entry is None:
        raise ValueError(
          f"{key} must be {_FORMS.format(noun)}; got the entry {item!r}."
        )
      entries.append(entry)
    return entries
  # Weights and paths in turn. Anything else would be a guess.
  pairs = list(zip(value[::2], value[1::2], strict=False))
  regular = len(value) % 2 == 0 and all(
    (_is_number(weight) or _is_numeric(weight))
    and isinstance(path, (str, os.PathLike))
    and not _is_numeric(path)
    for weight, path in pairs
  )
  if not regular:
    raise ValueError(
      f"{key} holds a number, so it must be a weight and a {noun} in turn, such"
      f' as (0.7, "a", 0.3, "b"); got {value!r}. A {noun} that reads as a'
      " number is written './7'."
    )
  return [
    SourceEntry(p, _read_weight(weight, p, key=key))
    for weight, p in ((w, _read_path(path, key=key)) for w, path in pairs)
  ]


def _read_entry(item: Any, *, key: str) -> SourceEntry | None:
  if isinstance(item, SourceEntry):
    return _read_mapping(dataclasses.asdict(item), key=key)
  if isinstance(item, (Mapping, mlc.ConfigDict)):
    return _read_mapping(item, key=key)
  if isinstance(item, (str, os.PathLike)):
    return SourceEntry(_read_path(item, key=key))
  return None


def _read_mapping(value: Any, *, key: str) -> SourceEntry:
  fields = {name: value[name] for name in value}
  for name in fields:
    if name not in _FIELDS:
      raise ValueError(
        f"{key} has an entry with the field {name!r}; the fields are"
        f" {', '.join(_FIELDS)}.{did_you_mean(name, _FIELDS)}"
      )
  if fields.get("path") is None:
    raise ValueError(f"{key} has an entry without a path: {fields!r}.")
  path = _read_path(fields["path"], key=key)
  weight = fields.get("weight")
  if weight is not None:
    weight = _read_weight(weight, path, key=key)
  name = fields.get("name")
  if name is not None and (not isinstance(name, str) or not name):
    raise ValueError(
      f"{key} names {path!r} {name!r}; a name is a string that is not empty."
    )
  return SourceEntry(path, weight, name)


def _read_path(value: Any, *, key: str) -> str:
  if not isinstance(value, (str, os.PathLike)):
    hint = ""
    if isinstance(value, (list, tuple)):
      hint = " Several files of one source are joined with commas: 'a,b'."
    raise ValueError(f"{key} has the path {value!r}, which is no string.{hint}")
  path = os.fspath(value)
  if not isinstance(path, str) or not path.strip():
    raise ValueError(f"{key} has the path {path!r}, which is empty.")
  parts = re.split(r"[,\s]+", path.strip())
  if len(parts) > 1 and _is_numeric(parts[0]):
    written = ", ".join(
      part if _is_numeric(part) else f'"{part}"' for part in parts
    )
    raise ValueError(
      f"{key} is one string that begins with a weight: {path!r}. Write a tuple:"
      f" ({written}); a path that begins so is written './{path}'."
    )
  # Shells complete to one of the two files; both stand for their prefix.
  return path[:-4] if path.endswith(_SUFFIXES) else path


def _read_weight(value: Any, path: str, *, key: str) -> int | float:
  if _is_numeric(value):
    value = float(value)
  if not _is_number(value) or not 0 < value < math.inf:
    raise ValueError(
      f"{key} gives {path!r} the weight {value!r}; a weight is a finite number"
      " above 0. Leave the entry out to read nothing from it."
    )
  return int(value) if isinstance(value, numbers.Integral) else float(value)


def _read_folder(folder: str, *, key: str) -> list[SourceSpec]:
  names = sorted(
    path.relative_to(folder).as_posix() for path in Path(folder).rglob("*.bin")
  )
  if not names:
    raise ValueError(
      f"{key}: the folder {folder!r} holds no .bin file, nor does a folder in"
      " it. Give the folder or the prefix that the preparation wrote."
    )
  base = folder.rstrip("/")
  return [SourceSpec(f"{base}/{name[:-4]}", 1, name[:-4]) for name in names]


def _is_folder(path: str) -> bool:
  return Path(path).is_dir() and not Path(path.rstrip("/") + ".idx").exists()


def _check_names(specs: Sequence[SourceSpec], *, key: str) -> None:
  seen: dict[str, SourceSpec] = {}
  for spec in specs:
    if not spec.name:
      raise ValueError(
        f"{key}: {spec.path!r} ends in a slash but is no folder. Give a prefix"
        " without .bin or .idx, or a folder that exists."
      )
    if not spec.name.isprintable():
      raise ValueError(
        f"{key} names {spec.path!r} {spec.name!r}, which cannot be printed."
        ' Name it otherwise: {"path": ..., "name": ...}.'
      )
    if spec.name in seen:
      entry: dict[str, Any] = {"path": spec.path}
      if spec.weight is not None:
        entry["weight"] = spec.weight
      entry["name"] = f"{spec.name}_2"
      raise ValueError(
        f"{key} has two sources named {spec.name!r}: {seen[spec.name].path!r}"
        f" and {spec.path!r}. Rows are ordered by name, so each needs its own."
        f" Write every entry as a mapping, this one as {entry!r}."
      )
    seen[spec.name] = spec


def _is_number(value: Any) -> bool:
  return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _is_numeric(value: Any) -> bool:
  """Whether `value` is a string that reads as a number."""
  if not isinstance(value, str):
    return False
  try:
    float(value)
  except ValueError:
    return False
  return True
