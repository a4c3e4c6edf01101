"""A data path of online data in, its sources out.

  "books.jsonl", "books/", "books-*.jsonl", "a.jsonl,b.jsonl"    one source
  ("a.jsonl", "b.jsonl")                                         one source
  (0.7, "books/", 0.3, "code-*.parquet")                         two, by weight
  ({"path": "books/", "weight": 0.7, "name": "books"}, ...)      with names

Files that are listed are one source, as they are to those who read files one
after the other; weights or names make several.
"""

import dataclasses
from typing import Any

from hpgrain.data_paths import WORKDIR, SourceEntry, read_entries
from hpgrain.sources.by_index.file_list import default_name


@dataclasses.dataclass(frozen=True)
class OnlineSource:
  """Files that are read as one.

  Attributes:
    paths: files, folders and patterns, each maybe several with commas between.
    weight: its share of the records next to the others' weights, or None
      where none was given.
    name: the name that was given, or None.
  """

  paths: tuple[str, ...]
  weight: int | float | None
  name: str | None

  @property
  def data_path(self) -> Any:
    """The paths as `open_records` takes them."""
    return self.paths[0] if len(self.paths) == 1 else list(self.paths)


def read_sources(value: Any, *, key: str = "data_path") -> list[OnlineSource]:
  """Returns the sources that a data path names, without looking for files.

  Args:
    value: one of the forms above.
    key: what to call the value in errors.

  Raises:
    ValueError: an unknown form or a bad weight.
  """
  entries = read_entries(value, key=key, noun="file")
  if all(entry.weight is None and entry.name is None for entry in entries):
    return [OnlineSource(tuple(entry.path for entry in entries), None, None)]
  if len(entries) == 1:
    # A single source is no blend.
    return [OnlineSource((entries[0].path,), None, entries[0].name)]
  return [
    OnlineSource((entry.path,), entry.weight, entry.name) for entry in entries
  ]


def name_sources(
  sources: list[OnlineSource], *, key: str = "data_path"
) -> list[OnlineSource]:
  """Returns the sources, each with a name; those without get their path's.

  Raises:
    ValueError: two of one name, or a path whose {workdir} was not replaced.
  """
  named: dict[str, OnlineSource] = {}
  for source in sources:
    path = source.paths[0]
    if any(WORKDIR in part for part in source.paths):
      raise ValueError(
        f"{key} holds {path!r}, and nothing has replaced {WORKDIR}. Run"
        " launch/train.py with --workdir, or write the path out."
      )
    name = source.name or default_name(source.data_path)
    if name in named:
      entry = SourceEntry(path, source.weight, f"{name}_2")
      written = {k: v for k, v in dataclasses.asdict(entry).items() if v}
      raise ValueError(
        f"{key} has two sources named {name!r}: {named[name].paths[0]!r} and"
        f" {path!r}. Records are ordered by name, so each needs its own. Write"
        f" every entry as a mapping, this one as {written!r}."
      )
    named[name] = dataclasses.replace(source, name=name)
  return list(named.values())
