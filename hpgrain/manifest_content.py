"""What a manifest says: its JSON in, dataclasses of checked types out."""

import dataclasses
from collections.abc import Mapping
from pathlib import PurePath
from types import UnionType
from typing import Any

from hpgrain.tokenizer import TokenizerInfo


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


def parse_content(path: PurePath, content: Mapping[str, Any]) -> Manifest:
  """Makes a `Manifest` of its JSON, each value's type checked.

  Args:
    path: of the manifest, for messages.
    content: the JSON object.

  Raises:
    ValueError: a field is missing or of another type than it should be.
  """
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
    "dataset": dataset and _fields(path, DatasetSource, dataset, "dataset."),
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
  path: PurePath, kind: type, values: Mapping[str, Any], where: str
) -> Any:
  """Makes a dataclass of `values`; keys it does not know are let be."""
  arguments = {}
  for field in dataclasses.fields(kind):
    if field.name not in values:
      if field.default is not dataclasses.MISSING:
        # A manifest from before there was such a field.
        continue
      raise ValueError(broken(path, f"'{where}{field.name}' is missing"))
    value = values[field.name]
    if not _fits(value, field.type):
      raise ValueError(
        broken(
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


def broken(path: PurePath, why: str) -> str:
  """The message for a manifest that cannot be used."""
  return (
    f"The manifest {path} cannot be read: {why}. Prepare the corpus again, or"
    " remove the manifest to read the pair without it."
  )
