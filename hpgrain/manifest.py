"""The JSON beside a tokenized pair: how it was made, and the proof it is whole.

`{prefix}.manifest.json` lies beside `{prefix}.bin` and `{prefix}.idx` and is
written after them, so a pair that has one was finished. It holds counts,
sizes and the tokenizer's identity; no time, host or user, so the same inputs
give the same bytes.
"""

import dataclasses
import importlib.metadata
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import Any

from hpgrain.tokenizer import TokenizerInfo

_VERSION = 1


@dataclasses.dataclass(frozen=True)
class InputFile:
  """A file whose documents went into the pair: its path as given, its size."""

  path: str
  bytes: int


@dataclasses.dataclass(frozen=True)
class BadInput:
  """A record that was left out of the pair.

  Attributes:
    path: its file, as `InputFile.path`.
    record: its number in the file, from 1.
    offset: the byte it begins at, in the unpacked file; None where the format
      has no such place.
    reason: what is wrong with it; never quotes it.
  """

  path: str
  record: int
  offset: int | None
  reason: str


@dataclasses.dataclass(frozen=True)
class Manifest:
  """What is known of a tokenized pair.

  Attributes:
    tool: name and version of the program that wrote it.
    tokenizer: the tokenizer's identity and special ids.
    append_eod: whether each non-empty document ends with `tokenizer.eod_id`.
    pack_to_seq_len: S if every document is a record of S + 1 tokens, else
      None.
    dtype: NumPy name of the tokens' type in the `.bin`.
    documents: documents of the pair (records, when packed).
    sequences: sequences of the pair.
    tokens: tokens of the pair, EODs included.
    dropped_tokens: tokens after the last whole record, not in the pair.
    dropped_documents: records those would have begun, at most one a partition.
    empty_documents: documents read that gave no token.
    inputs: the files read, in order.
    bin_bytes: size of the `.bin`.
    idx_bytes: size of the `.idx`.
    json_key: the key whose texts are in the pair.
    records: records read, without bad ones; None in manifests before it was
      counted.
    special_token_documents: records whose text spelt out a special token.
    special_tokens_in_text: what was done with those: "as_is" (the token's
      id), "plain" (like any text), "error" (refused).
    bad_records: records that were left out.
    bad: the first of them.
    tokenizer_backend: "huggingface" or "gigatoken", which give the same.
    tokenizer_backend_version: of the package that encoded.
    partitions: partitions that the records were dealt to.
    keep_sequential_samples: whether those are blocks of consecutive records.
    pack_tail: "drop" (one tail a partition) or "carry" (one in all).
    shuffle_seed: of the records' order; None for the input's.
    sentences: the language that texts were split into sentences by, each a
      sequence; None for whole texts.
    chat_template: digest of the template that made texts of conversations;
      None where the records hold texts.
  """

  tool: str
  tokenizer: TokenizerInfo
  append_eod: bool
  pack_to_seq_len: int | None
  dtype: str
  documents: int
  sequences: int
  tokens: int
  dropped_tokens: int
  empty_documents: int
  inputs: tuple[InputFile, ...]
  bin_bytes: int
  idx_bytes: int
  dropped_documents: int = 0
  json_key: str | None = None
  records: int | None = None
  special_token_documents: int | None = None
  special_tokens_in_text: str | None = None
  bad_records: int = 0
  bad: tuple[BadInput, ...] = ()
  tokenizer_backend: str | None = None
  tokenizer_backend_version: str | None = None
  partitions: int = 1
  keep_sequential_samples: bool = False
  pack_tail: str | None = None
  shuffle_seed: int | None = None
  sentences: str | None = None
  chat_template: str | None = None


def tool_name() -> str:
  """The name and version that this installation signs its pairs with."""
  try:
    return f"hpgrain {importlib.metadata.version('hpgrain')}"
  except importlib.metadata.PackageNotFoundError:
    return "hpgrain unknown"


def manifest_path(prefix: str | os.PathLike[str]) -> Path:
  """Where the manifest of the pair `{prefix}.bin/.idx` lies."""
  return Path(f"{os.fspath(prefix)}.manifest.json")


def pair_bytes(prefix: str | os.PathLike[str]) -> tuple[int, int]:
  """Sizes of `{prefix}.bin` and `{prefix}.idx` in bytes.

  Raises:
    FileNotFoundError: one of them is not there.
  """
  name = os.fspath(prefix)
  return Path(f"{name}.bin").stat().st_size, Path(f"{name}.idx").stat().st_size


def write_manifest(prefix: str | os.PathLike[str], manifest: Manifest) -> None:
  """Writes the manifest under a temporary name, then renames it."""
  path = manifest_path(prefix)
  content = {"version": _VERSION, **dataclasses.asdict(manifest)}
  # Whoever writes the pair is alone, so what a killed one left is written
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


def read_manifest(prefix: str | os.PathLike[str]) -> Manifest | None:
  """Reads the manifest of a pair; None where it has none.

  Raises:
    ValueError: the manifest is broken or of a later version, or the pair's
      files have other sizes than it says or are gone.
  """
  path = manifest_path(prefix)
  try:
    text = path.read_text(encoding="utf-8")
  except FileNotFoundError:
    return None
  except UnicodeDecodeError:
    raise ValueError(_broken(path, "it is not UTF-8 text")) from None
  try:
    content = json.loads(text)
  except ValueError as error:
    raise ValueError(_broken(path, f"it is not JSON ({error})")) from None
  if not isinstance(content, dict):
    raise ValueError(_broken(path, "it holds no JSON object"))
  version = content.get("version")
  if version != _VERSION:
    raise ValueError(
      _broken(
        path, f"its version is {version!r}, this hpgrain reads {_VERSION}"
      )
    )
  manifest = _parse(path, content)
  try:
    found = pair_bytes(prefix)
  except FileNotFoundError as error:
    raise ValueError(
      f"{path} describes a pair that is incomplete: {error.filename} is not"
      " there. Bring the file back, or prepare the corpus again."
    ) from None
  noted = manifest.bin_bytes, manifest.idx_bytes
  if found != noted:
    raise ValueError(
      f"The pair {os.fspath(prefix)}.bin/.idx was changed after it was"
      f" written: its sizes are {found[0]} and {found[1]} bytes, its manifest"
      f" says {noted[0]} and {noted[1]}. Prepare the corpus again, or remove"
      f" {path} if the change was meant."
    )
  return manifest


def _parse(path: Path, content: Mapping[str, Any]) -> Manifest:
  """Builds the dataclass from JSON, each value's type checked."""
  tokenizer = content.get("tokenizer")
  inputs = content.get("inputs")
  bad = content.get("bad", [])
  if not isinstance(tokenizer, dict):
    raise ValueError(_broken(path, "'tokenizer' must be an object"))
  if not isinstance(inputs, list) or not all(
    isinstance(item, dict) for item in inputs
  ):
    raise ValueError(_broken(path, "'inputs' must be a list of objects"))
  if not isinstance(bad, list) or not all(
    isinstance(item, dict) for item in bad
  ):
    raise ValueError(_broken(path, "'bad' must be a list of objects"))
  parsed = {
    "tokenizer": _fields(path, TokenizerInfo, tokenizer, "tokenizer."),
    "inputs": tuple(
      _fields(path, InputFile, item, f"inputs[{i}].")
      for i, item in enumerate(inputs)
    ),
    "bad": tuple(
      _fields(path, BadInput, item, f"bad[{i}].") for i, item in enumerate(bad)
    ),
  }
  return _fields(path, Manifest, {**content, **parsed}, "")


def _fields(
  path: Path, kind: type, values: Mapping[str, Any], where: str
) -> Any:
  """Makes a dataclass from `values`; keys it does not know are let be."""
  arguments = {}
  for field in dataclasses.fields(kind):
    if field.name not in values:
      if field.default is not dataclasses.MISSING:
        # A manifest from before there was such a field.
        continue
      raise ValueError(_broken(path, f"'{where}{field.name}' is missing"))
    value = values[field.name]
    if not _fits(value, field.type):
      raise ValueError(
        _broken(
          path,
          f"'{where}{field.name}' must be of type"
          f" {getattr(field.type, '__name__', field.type)}, got {value!r}",
        )
      )
    arguments[field.name] = value
  return kind(**arguments)


def _fits(value: Any, expected: Any) -> bool:
  """Whether a value is of an annotated type; True is no int, nor is -1."""
  if isinstance(expected, UnionType):
    return any(_fits(value, kind) for kind in expected.__args__)
  if expected is int:
    return type(value) is int and value >= 0
  if isinstance(expected, type):
    return type(value) is expected
  # A tuple of dataclasses, checked where it was made.
  return isinstance(value, tuple)


def _broken(path: Path, why: str) -> str:
  return (
    f"The manifest {path} cannot be read: {why}. Prepare the corpus again, or"
    " remove the manifest to read the pair without it."
  )
