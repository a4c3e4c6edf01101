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
from typing import Any

from hpgrain import object_store
from hpgrain.manifest_fields import broken, fields
from hpgrain.sources.array_record_format import is_array_record
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
class DatasetSource:
  """The dataset of Hugging Face that the inputs were made of.

  Attributes:
    id: its name on the hub, or a local folder, or the reader of files.
    subset: of it.
    split: of that.
    commit: of its repository on the hub; None for one that is not there.
  """

  id: str
  subset: str
  split: str
  commit: str | None


@dataclasses.dataclass(frozen=True)
class Manifest:
  """What is known of a tokenized corpus.

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
    bin_bytes: size of the `.bin`; None for an ArrayRecord.
    idx_bytes: size of the `.idx`; None for an ArrayRecord.
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
    dataset: where the inputs come from; None for files of one's own.
    format: "indexed" (a pair) or "arrayrecord".
    array_record_bytes: size of the ArrayRecord; None for a pair.
    bin_digest: of the whole `.bin`, as `sources.file_digest` makes it; None
      for an ArrayRecord, and in manifests before there was one.
    idx_digest: of the whole `.idx`, likewise.
    array_record_digest: of the whole ArrayRecord; None for a pair.
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
  bin_bytes: int | None
  idx_bytes: int | None
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
  dataset: DatasetSource | None = None
  format: str = "indexed"
  array_record_bytes: int | None = None
  bin_digest: str | None = None
  idx_digest: str | None = None
  array_record_digest: str | None = None


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
  return _parse(path, content)


def _num_bytes(name: PurePath) -> int:
  if object_store.is_url(name):
    return object_store.size_and_version(str(name))[0]
  return Path(name).stat().st_size


def _parse(path: PurePath, content: Mapping[str, Any]) -> Manifest:
  """Builds the dataclass from JSON, each value's type checked."""
  tokenizer = content.get("tokenizer")
  inputs = content.get("inputs")
  bad = content.get("bad", [])
  if not isinstance(tokenizer, dict):
    raise ValueError(broken(path, "'tokenizer' must be an object"))
  if not isinstance(inputs, list) or not all(
    isinstance(item, dict) for item in inputs
  ):
    raise ValueError(broken(path, "'inputs' must be a list of objects"))
  if not isinstance(bad, list) or not all(
    isinstance(item, dict) for item in bad
  ):
    raise ValueError(broken(path, "'bad' must be a list of objects"))
  dataset = content.get("dataset")
  if not isinstance(dataset, dict | None):
    raise ValueError(broken(path, "'dataset' must be an object or null"))
  parsed = {
    "dataset": dataset and fields(path, DatasetSource, dataset, "dataset."),
    "tokenizer": fields(path, TokenizerInfo, tokenizer, "tokenizer."),
    "inputs": tuple(
      fields(path, InputFile, item, f"inputs[{i}].")
      for i, item in enumerate(inputs)
    ),
    "bad": tuple(
      fields(path, BadInput, item, f"bad[{i}].") for i, item in enumerate(bad)
    ),
  }
  return fields(path, Manifest, {**content, **parsed}, "")
