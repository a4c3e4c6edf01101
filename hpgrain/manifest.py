"""The JSON beside a tokenized corpus: how it was made, the proof it is whole.

  {prefix}.bin, {prefix}.idx   {prefix}.manifest.json
  {prefix}.array_record        {prefix}.array_record.manifest.json

It is written after what it describes, so a corpus that has one was finished.
It holds counts, sizes, digests and the tokenizer's identity; no time, host or
user, so the same inputs give the same bytes. A corpus is named by a pair's
prefix or an ArrayRecord's path, or a URL of such.
"""

import dataclasses
import importlib.metadata
import json
import os
from collections.abc import Mapping
from pathlib import Path, PurePath

from hpgrain import object_store
from hpgrain.manifest_content import (
  BadInput,
  DatasetSource,
  InputFile,
  Manifest,
  broken,
  parse_content,
)
from hpgrain.sources.array_record_format import is_array_record

__all__ = [
  "BadInput",
  "DatasetSource",
  "InputFile",
  "Manifest",
  "corpus_files",
  "corpus_format",
  "manifest_path",
  "parse_manifest",
  "read_manifest",
  "storage_fields",
  "tool_name",
  "write_manifest",
]

_VERSION = 1


def tool_name() -> str:
  """The name and version that this installation signs its pairs with."""
  try:
    return f"hpgrain {importlib.metadata.version('hpgrain')}"
  except importlib.metadata.PackageNotFoundError:
    return "hpgrain unknown"


def manifest_path(name: str | os.PathLike[str]) -> PurePath:
  """Where the manifest of a corpus lies: a path or URL."""
  return object_store.as_path(f"{os.fspath(name)}.manifest.json")


def corpus_format(name: str | os.PathLike[str]) -> str:
  """The format of a corpus, as the manifest and --format call it."""
  return "arrayrecord" if is_array_record(name) else "indexed"


def corpus_files(name: str | os.PathLike[str]) -> dict[str, PurePath]:
  """The files of a corpus, by what the manifest calls them.

  Returns:
    "array_record" and its path, or "bin" and "idx" and theirs; "idx" last,
    since without it there is no pair.
  """
  path = os.fspath(name)
  if is_array_record(path):
    return {"array_record": object_store.as_path(path)}
  return {k: object_store.as_path(f"{path}.{k}") for k in ("bin", "idx")}


def storage_fields(
  name: str | os.PathLike[str], digests: Mapping[str, str]
) -> dict[str, str | int | None]:
  """The manifest's fields that say how a corpus is stored, all of them.

  Args:
    name: of the corpus, which is there.
    digests: of its files, by the names of `corpus_files`.

  Raises:
    FileNotFoundError: one of its files is not there.
  """
  fields: dict[str, str | int | None] = {"format": corpus_format(name)}
  for kind in ("bin", "idx", "array_record"):
    fields |= {f"{kind}_bytes": None, f"{kind}_digest": digests.get(kind)}
  return fields | {
    f"{kind}_bytes": _num_bytes(path)
    for kind, path in corpus_files(name).items()
  }


def write_manifest(name: str | os.PathLike[str], manifest: Manifest) -> None:
  """Writes the manifest under a temporary name, then renames it.

  On a disk: what goes to an object store is put there from one.
  """
  path = Path(manifest_path(name))
  content = {"version": _VERSION, **dataclasses.asdict(manifest)}
  # Whoever writes the corpus is alone, so what a killed one left is written
  # over.
  temporary = path.with_name(f"{path.name}.tmp")
  try:
    with temporary.open("w", encoding="utf-8") as file:
      json.dump(content, file, indent=2, ensure_ascii=False)
      file.write("\n")
      file.flush()
      os.fsync(file.fileno())
    temporary.replace(path)
  finally:
    temporary.unlink(missing_ok=True)


def read_manifest(name: str | os.PathLike[str]) -> Manifest | None:
  """Reads the manifest of a corpus; None where it has none.

  Digests are compared by `read_indexed_dataset --verify` alone: that reads
  all of the corpus, and this is to cost the same for any size.

  Raises:
    ValueError: the manifest is broken or of a later version, or the corpus'
      files have other sizes than it says or are gone.
  """
  manifest = parse_manifest(name)
  if manifest is None:
    return None
  path = manifest_path(name)
  if manifest.format != corpus_format(name):
    raise ValueError(
      broken(
        path,
        f"it describes a corpus of the format {manifest.format!r} and lies"
        f" beside one of {corpus_format(name)!r}",
      )
    )
  for kind, file in corpus_files(name).items():
    noted = getattr(manifest, f"{kind}_bytes")
    try:
      found = _num_bytes(file)
    except FileNotFoundError:
      raise ValueError(
        f"{path} describes a corpus that is incomplete: {file} is not there."
        " Bring the file back, or prepare the corpus again."
      ) from None
    if found != noted:
      raise ValueError(
        f"{file} was changed after it was written: it has {found} bytes, its"
        f" manifest says {noted}. Prepare the corpus again, or remove {path}"
        " if the change was meant."
      )
  return manifest


def parse_manifest(name: str | os.PathLike[str]) -> Manifest | None:
  """Reads the manifest of a corpus and looks at nothing else.

  Raises:
    ValueError: the manifest is broken or of a later version.
  """
  path = manifest_path(name)
  try:
    if object_store.is_url(path):
      text = object_store.read_bytes(str(path)).decode()
    else:
      text = Path(path).read_text(encoding="utf-8")
  except FileNotFoundError:
    return None
  except UnicodeDecodeError:
    raise ValueError(broken(path, "it is not UTF-8 text")) from None
  try:
    content = json.loads(text)
  except ValueError as error:
    raise ValueError(broken(path, f"it is not JSON ({error})")) from None
  if not isinstance(content, dict):
    raise ValueError(broken(path, "it holds no JSON object"))
  version = content.get("version")
  if version != _VERSION:
    raise ValueError(
      broken(path, f"its version is {version!r}, this hpgrain reads {_VERSION}")
    )
  return parse_content(path, content)


def _num_bytes(name: PurePath) -> int:
  if object_store.is_url(name):
    return object_store.size_and_version(str(name))[0]
  return Path(name).stat().st_size
