import dataclasses
import json
from pathlib import Path

import pytest

from hpgrain.manifest import (
  BadInput,
  DatasetSource,
  InputFile,
  Manifest,
  corpus_files,
  corpus_format,
  manifest_path,
  parse_manifest,
  read_manifest,
  storage_fields,
  write_manifest,
)
from hpgrain.tokenizer import TokenizerInfo

TOKENIZER = TokenizerInfo(
  name="gpt2",
  digest="0123",
  vocab_size=50257,
  eod_id=50256,
  pad_id=None,
  bos_id=None,
  eos_id=50256,
)
MANIFEST = Manifest(
  tool="hpgrain 1",
  tokenizer=TOKENIZER,
  append_eod=True,
  pack_to_seq_len=None,
  dtype="uint16",
  documents=2,
  sequences=1,
  tokens=3,
  dropped_tokens=0,
  empty_documents=1,
  inputs=(InputFile(path="é.jsonl", bytes=40),),
  bin_bytes=6,
  idx_bytes=5,
  json_key="text",
  records=3,
  special_token_documents=1,
  special_tokens_in_text="as_is",
  bad_records=2,
  bad=(
    BadInput("é.jsonl", record=2, offset=17, reason="is not JSON"),
    BadInput("f.parquet", record=4, offset=None, reason="holds null"),
  ),
  tokenizer_backend="gigatoken",
  tokenizer_backend_version="0.10",
  partitions=4,
  keep_sequential_samples=True,
  pack_tail="carry",
  shuffle_seed=7,
  sentences="english",
  chat_template="45",
  dataset=DatasetSource(id="a/b", subset="c", split="train", commit="0f"),
  dropped_documents=2,
  bin_digest="xxh3_128:00",
  idx_digest="xxh3_128:01",
)
# What was written before there were the later fields.
OLD = Manifest(
  **{
    field.name: getattr(MANIFEST, field.name)
    for field in dataclasses.fields(Manifest)
    if field.default is dataclasses.MISSING
  }
)


@pytest.fixture
def prefix(tmp_path):
  (tmp_path / "x_text_document.bin").write_bytes(b"123456")
  (tmp_path / "x_text_document.idx").write_bytes(b"12345")
  return str(tmp_path / "x_text_document")


def change(prefix, **values):
  write_manifest(prefix, MANIFEST)
  path = manifest_path(prefix)
  content = json.loads(path.read_text())
  for key, value in values.items():
    outer, _, inner = key.partition("__")
    if inner:
      content[outer][inner] = value
    else:
      content[outer] = value
  path.write_text(json.dumps(content))


def test_what_was_written_is_read(prefix):
  write_manifest(prefix, MANIFEST)
  assert read_manifest(prefix) == MANIFEST
  assert read_manifest(Path(prefix)) == MANIFEST


def test_file_holds_the_documented_keys(prefix):
  write_manifest(prefix, MANIFEST)
  content = json.loads(Path(f"{prefix}.manifest.json").read_text())
  assert content == {
    "version": 1,
    "tool": "hpgrain 1",
    "tokenizer": {
      "name": "gpt2",
      "digest": "0123",
      "vocab_size": 50257,
      "eod_id": 50256,
      "pad_id": None,
      "bos_id": None,
      "eos_id": 50256,
    },
    "append_eod": True,
    "pack_to_seq_len": None,
    "dtype": "uint16",
    "documents": 2,
    "sequences": 1,
    "tokens": 3,
    "dropped_tokens": 0,
    "empty_documents": 1,
    "inputs": [{"path": "é.jsonl", "bytes": 40}],
    "bin_bytes": 6,
    "idx_bytes": 5,
    "json_key": "text",
    "records": 3,
    "special_token_documents": 1,
    "special_tokens_in_text": "as_is",
    "bad_records": 2,
    "bad": [
      {
        "path": "é.jsonl",
        "record": 2,
        "offset": 17,
        "reason": "is not JSON",
      },
      {
        "path": "f.parquet",
        "record": 4,
        "offset": None,
        "reason": "holds null",
      },
    ],
    "tokenizer_backend": "gigatoken",
    "tokenizer_backend_version": "0.10",
    "partitions": 4,
    "keep_sequential_samples": True,
    "pack_tail": "carry",
    "shuffle_seed": 7,
    "sentences": "english",
    "chat_template": "45",
    "dataset": {"id": "a/b", "subset": "c", "split": "train", "commit": "0f"},
    "dropped_documents": 2,
    "format": "indexed",
    "array_record_bytes": None,
    "bin_digest": "xxh3_128:00",
    "idx_digest": "xxh3_128:01",
    "array_record_digest": None,
  }


def test_manifest_without_the_later_fields_is_read(prefix):
  write_manifest(prefix, OLD)
  path = manifest_path(prefix)
  content = json.loads(path.read_text())
  required = {
    field.name
    for field in dataclasses.fields(Manifest)
    if field.default is dataclasses.MISSING
  }
  assert len(required) == 13
  path.write_text(
    json.dumps({k: content[k] for k in ("version", *sorted(required))})
  )
  assert read_manifest(prefix) == OLD


def test_writing_leaves_no_other_file(prefix, tmp_path):
  write_manifest(prefix, MANIFEST)
  write_manifest(prefix, MANIFEST)
  assert sorted(path.name for path in tmp_path.iterdir()) == [
    "x_text_document.bin",
    "x_text_document.idx",
    "x_text_document.manifest.json",
  ]


def test_pair_without_manifest_gives_none(prefix):
  assert read_manifest(prefix) is None


@pytest.mark.parametrize("suffix", ["bin", "idx"])
def test_changed_pair_is_refused(prefix, suffix):
  write_manifest(prefix, MANIFEST)
  with Path(f"{prefix}.{suffix}").open("ab") as file:
    file.write(b"7")
  with pytest.raises(ValueError, match="was changed after it was written"):
    read_manifest(prefix)


def test_missing_half_is_refused(prefix):
  write_manifest(prefix, MANIFEST)
  Path(f"{prefix}.bin").unlink()
  with pytest.raises(ValueError, match=r"incomplete: .*\.bin is not there"):
    read_manifest(prefix)


@pytest.mark.parametrize(
  ("content", "message"),
  [
    (b"{", "is not JSON"),
    (b"\xff", "is not UTF-8"),
    (b"[]", "holds no JSON object"),
    (b"{}", "its version is None, this hpgrain reads 1"),
    (b'{"version": 2}', "its version is 2, this hpgrain reads 1"),
    (b'{"version": 1}', "'tokenizer' must be an object"),
    (b'{"version": 1, "tokenizer": {}}', "'inputs' must be a list"),
    (
      b'{"version": 1, "tokenizer": {}, "inputs": []}',
      "'tokenizer.name' is missing",
    ),
  ],
)
def test_broken_manifest_is_refused(prefix, content, message):
  manifest_path(prefix).write_bytes(content)
  with pytest.raises(ValueError, match=message):
    read_manifest(prefix)


@pytest.mark.parametrize(
  ("values", "message"),
  [
    ({"tokens": "3"}, "'tokens' must be of type int, got '3'"),
    ({"tokens": True}, "'tokens' must be of type int, got True"),
    ({"tokens": -1}, "'tokens' must be of type int, got -1"),
    ({"tokens": None}, "'tokens' must be of type int, got None"),
    ({"append_eod": 1}, "'append_eod' must be of type bool, got 1"),
    ({"pack_to_seq_len": 1.5}, "'pack_to_seq_len' must be of type"),
    ({"tokenizer__eod_id": "0"}, r"'tokenizer\.eod_id' must be of type"),
    ({"inputs": [{"path": 1}]}, r"'inputs\[0\]\.path' must be of type str"),
    ({"dataset": "a/b"}, "'dataset' must be an object or null"),
    ({"dataset__commit": 1}, r"'dataset\.commit' must be of type"),
  ],
)
def test_wrong_type_is_refused(prefix, values, message):
  change(prefix, **values)
  with pytest.raises(ValueError, match=message):
    read_manifest(prefix)


def test_keys_of_later_writers_are_let_be(prefix):
  change(prefix, note="hello", tokenizer__note="hello")
  assert read_manifest(prefix) == MANIFEST


ARRAY_RECORD = dataclasses.replace(
  MANIFEST,
  format="arrayrecord",
  bin_bytes=None,
  idx_bytes=None,
  bin_digest=None,
  idx_digest=None,
  array_record_bytes=7,
  array_record_digest="xxh3_128:02",
)


@pytest.fixture
def array_record(tmp_path):
  path = tmp_path / "x_text_document.array_record"
  path.write_bytes(b"1234567")
  return path


def test_manifests_of_a_pair_and_an_array_record_lie_side_by_side(
  prefix, array_record
):
  write_manifest(prefix, MANIFEST)
  write_manifest(array_record, ARRAY_RECORD)
  assert manifest_path(array_record).name == (
    "x_text_document.array_record.manifest.json"
  )
  assert read_manifest(prefix) == MANIFEST
  assert read_manifest(array_record) == ARRAY_RECORD


def test_changed_array_record_is_refused(array_record):
  write_manifest(array_record, ARRAY_RECORD)
  array_record.write_bytes(b"123456")
  with pytest.raises(ValueError, match="it has 6 bytes, its manifest says 7"):
    read_manifest(array_record)
  array_record.unlink()
  with pytest.raises(ValueError, match=r"\.array_record is not there"):
    read_manifest(array_record)


def test_manifest_of_the_other_format_is_refused(prefix, array_record):
  write_manifest(array_record, MANIFEST)
  with pytest.raises(
    ValueError, match="format 'indexed' and lies beside one of 'arrayrecord'"
  ):
    read_manifest(array_record)
  write_manifest(prefix, ARRAY_RECORD)
  with pytest.raises(
    ValueError, match="format 'arrayrecord' and lies beside one of 'indexed'"
  ):
    read_manifest(prefix)


def test_manifest_is_parsed_though_the_corpus_is_not_there(tmp_path):
  write_manifest(tmp_path / "y", MANIFEST)
  assert parse_manifest(tmp_path / "y") == MANIFEST
  assert parse_manifest(tmp_path / "z") is None


def test_files_of_a_corpus(tmp_path):
  assert corpus_files("a/b") == {"bin": Path("a/b.bin"), "idx": Path("a/b.idx")}
  assert corpus_files(Path("a/b.array_record")) == {
    "array_record": Path("a/b.array_record")
  }
  assert corpus_format("a/b") == "indexed"
  assert corpus_format("a/b.array_record") == "arrayrecord"


def test_storage_fields_are_all_of_those_that_tell_the_files(
  prefix, array_record
):
  assert storage_fields(prefix, {"bin": "x:1", "idx": "x:2"}) == {
    "format": "indexed",
    "bin_bytes": 6,
    "idx_bytes": 5,
    "array_record_bytes": None,
    "bin_digest": "x:1",
    "idx_digest": "x:2",
    "array_record_digest": None,
  }
  assert storage_fields(array_record, {"array_record": "x:3"}) == {
    "format": "arrayrecord",
    "bin_bytes": None,
    "idx_bytes": None,
    "array_record_bytes": 7,
    "bin_digest": None,
    "idx_digest": None,
    "array_record_digest": "x:3",
  }
  with pytest.raises(FileNotFoundError):
    storage_fields("nowhere", {})
