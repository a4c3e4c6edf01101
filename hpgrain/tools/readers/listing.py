"""A path, a folder or a pattern in, the input files it stands for out."""

import fnmatch
import itertools
import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from hpgrain import object_store
from hpgrain.object_errors import explained
from hpgrain.tools.readers.files import (
  filesystem,
  is_remote,
  size_and_version,
)
from hpgrain.tools.readers.records import InputFile

_FORMATS = {
  ".json": "json",
  ".jsonl": "json",
  ".ndjson": "json",
  ".txt": "text",
  ".csv": "csv",
  ".parquet": "parquet",
  ".arrow": "arrow",
  ".array_record": "array_record",
  ".arrayrecord": "array_record",
}
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
_PACKED_FORMATS = ("json", "text", "csv")
# Ours, beside the pairs that the tools write.
_MANIFEST = ".manifest.json"


def find_inputs(
  pattern: str | os.PathLike[str], *, recursive: bool = False
) -> list[InputFile]:
  """The files that a path, a folder or a pattern stands for, by path.

  Args:
    pattern: a file; a folder, whose files are taken but not its folders'; or
      a pattern with `*`, `?`, `[...]`. Local, or the URL of an object store.
    recursive: take the files of folders in folders too, and read `**` in a
      pattern as any number of folders.

  Returns:
    The files in the order of their paths' characters. In a folder, hidden
    files (`.` or `_` first), manifests, and files of a format that is not
    read are left out; the last with a warning.

  Raises:
    FileNotFoundError: nothing is there, or nothing matches.
    ValueError: a format is not read, or `**` without `recursive`.
  """
  name = os.fspath(pattern)
  if not name:
    raise ValueError("The input is an empty path. Give a file or a folder.")
  tree = _RemoteTree(name) if is_remote(name) else _LocalTree()
  kind = tree.kind(name)
  if kind == "file":
    return [_input_file(name)]
  if kind == "other":
    raise ValueError(
      f"The input {name} is neither a file nor a folder. Write it to a file"
      " first: it is read more than once."
    )
  if kind == "folder":
    return _in_folder(tree, name, recursive=recursive)
  if not _is_plain(name):
    return _matching(tree, name, recursive=recursive)
  raise FileNotFoundError(
    f"The input {name} does not exist. Give a file, a folder, or a pattern in"
    " quotes, such as 'data/*.jsonl'."
  )


def known_suffixes() -> str:
  """The suffixes of all formats that are read, for messages."""
  packed = [s for s, f in _FORMATS.items() if f in _PACKED_FORMATS]
  others = [s for s, f in _FORMATS.items() if f not in _PACKED_FORMATS]
  return (
    f"{', '.join(packed)} (each also with .gz or .zst), {', '.join(others)}"
  )


def _is_plain(name: str) -> bool:
  """Whether a name has no wildcard."""
  return not any(character in name for character in "*?[")


def _format(name: str) -> tuple[str, str] | None:
  """(format, compression) by the suffixes, or None for one not read."""
  stem, suffix = os.path.splitext(name.lower())  # noqa: PTH122
  compression = _COMPRESSIONS.get(suffix, "")
  if compression:
    suffix = os.path.splitext(stem)[1]  # noqa: PTH122
  form = _FORMATS.get(suffix)
  if form is None or (compression and form not in _PACKED_FORMATS):
    return None
  return form, compression


def _input_file(path: str) -> InputFile:
  found = _format(path)
  if found is None:
    raise ValueError(
      f"The input {path} has a name that tells no format that is read. Let it"
      f" end in one of {known_suffixes()}."
    )
  size, version = size_and_version(path)
  return InputFile(path, *found, size, version)


def _input_files(paths: Sequence[str]) -> list[InputFile]:
  if paths and is_remote(paths[0]):
    # Each is asked for, which takes a while.
    return list(object_store.in_parallel(_input_file, paths))
  return [_input_file(path) for path in paths]


def _in_folder(
  tree: "_LocalTree | _RemoteTree", folder: str, *, recursive: bool
) -> list[InputFile]:
  parts = ["**", "*"] if recursive else ["*"]
  found = [
    path
    for path in tree.match(folder, parts)
    if not path.rsplit("/", 1)[-1].startswith("_")
    and not path.endswith(_MANIFEST)
  ]
  known = [path for path in found if _format(path)]
  unknown = sorted(set(found) - set(known))
  if not known:
    inside = "" if recursive else " Folders in it are read with --recursive."
    raise FileNotFoundError(
      f"The folder {folder} holds no file of a format that is read:"
      f" {known_suffixes()}.{inside}"
    )
  if unknown:
    more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
    warnings.warn(
      f"Left out of the folder {folder}, by their names: "
      f"{', '.join(unknown[:3])}{more}. Formats that are read:"
      f" {known_suffixes()}.",
      UserWarning,
      stacklevel=3,
    )
  return _input_files(sorted(known))


def _matching(
  tree: "_LocalTree | _RemoteTree", pattern: str, *, recursive: bool
) -> list[InputFile]:
  prefix, parts = tree.split(pattern)
  if "**" in pattern and not recursive:
    raise ValueError(
      f"The pattern {pattern} has **, which is only read as any number of"
      " folders with --recursive (recursive=True). Ask for that, or name the"
      " folders."
    )
  if any("**" in part and part != "**" for part in parts):
    raise ValueError(
      f"The pattern {pattern} has ** beside other characters. It stands for"
      " folders and must be alone between slashes, as in 'data/**/*.jsonl'."
    )
  if parts[-1] == "**":
    parts.append("*")
  found = sorted(set(tree.match(prefix, parts)))
  if not found:
    raise FileNotFoundError(
      f"No file matches the pattern {pattern}. Folders are not matched, nor"
      " files whose names begin with a dot."
    )
  # Named by the pattern, so none is left out in silence.
  return _input_files(found)


def _matches(
  tree: "_LocalTree | _RemoteTree", folder: str, parts: Sequence[str]
) -> Iterator[str]:
  """The files below a folder whose path's parts match, in any order."""
  part, *rest = parts
  if part == "**":
    yield from _matches(tree, folder, rest)
    for path, name, kind in tree.entries(folder):
      if kind == "folder" and not name.startswith("."):
        yield from _matches(tree, path, parts)
    return
  wanted = "folder" if rest else "file"
  for path, name, kind in tree.entries(folder):
    hidden = name.startswith(".") and not part.startswith(".")
    # A linked folder is entered where a pattern names its level.
    fits = kind == wanted or (rest and kind == "link")
    if fits and not hidden and fnmatch.fnmatchcase(name, part):
      if rest:
        yield from _matches(tree, path, rest)
      else:
        yield path


class _LocalTree:
  """Files and folders of this machine."""

  def kind(self, path: str) -> str:
    """ "file", "folder", "other" or "nothing"."""
    local = Path(path)
    if local.is_dir():
      return "folder"
    if local.is_file():
      return "file"
    return "other" if local.exists() else "nothing"

  def split(self, pattern: str) -> tuple[str, list[str]]:
    """The folder to begin in, and the parts to match below it."""
    parts = [part for part in pattern.split("/") if part]
    plain = list(itertools.takewhile(_is_plain, parts))
    folder = "/".join(plain)
    return (
      f"/{folder}" if pattern.startswith("/") else folder,
      parts[len(plain) :],
    )

  def match(self, folder: str, parts: Sequence[str]) -> Iterator[str]:
    """The files whose parts below a folder match."""
    return _matches(self, folder, parts)

  def entries(self, folder: str) -> Iterator[tuple[str, str, str]]:
    """(path, name, "file", "folder", "link" or "other") in a folder."""
    begin = folder if folder.endswith("/") or not folder else f"{folder}/"
    try:
      with os.scandir(folder or ".") as scan:
        for entry in scan:
          kind = "other"
          if entry.is_file():
            kind = "file"
          elif entry.is_dir(follow_symlinks=False):
            kind = "folder"
          elif entry.is_dir():
            # Not followed by **: it may lead round in a circle.
            kind = "link"
          yield f"{begin}{entry.name}", entry.name, kind
    except FileNotFoundError:
      return


class _RemoteTree(_LocalTree):
  """Objects of a store, whose names read as paths."""

  def __init__(self, url: str) -> None:
    self._scheme = url.split("://", 1)[0]
    self._system, _ = filesystem(url)

  def kind(self, path: str) -> str:
    """ "file", "folder" or "nothing"."""
    return object_store.kind(path)

  def split(self, pattern: str) -> tuple[str, list[str]]:
    """The bucket, and the parts to match below it."""
    bucket, *parts = pattern.split("://", 1)[1].strip("/").split("/")
    if not _is_plain(bucket):
      raise ValueError(
        f"The pattern {pattern} has a wildcard in the bucket's name. Name it."
      )
    if not parts:
      raise ValueError(f"The pattern {pattern} names no object.")
    return f"{self._scheme}://{bucket}", parts

  def entries(self, folder: str) -> Iterator[tuple[str, str, str]]:
    """(URL, name, "file" or "folder") in a folder."""
    try:
      with explained(folder):
        found = self._system.ls(filesystem(folder)[1], detail=True)
    except FileNotFoundError:
      return
    for info in found:
      name = info["name"].rstrip("/").rsplit("/", 1)[-1]
      kind = "folder" if info["type"] == "directory" else "file"
      # A store may list a folder's own empty object.
      if (
        name
        and f"{folder.rstrip('/')}/".endswith(f"/{name}/")
        and (info["name"].rstrip("/") == filesystem(folder)[1].rstrip("/"))
      ):
        continue
      yield f"{folder.rstrip('/')}/{name}", name, kind
