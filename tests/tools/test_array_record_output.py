"""--format=arrayrecord: the documents of the pair, whatever makes them."""

import json
from pathlib import Path

import grain
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpgrain.indexed_dataset import build_indexed_text_dataset
from hpgrain.manifest import parse_manifest, read_manifest
from hpgrain.sources.array_record import ArrayRecordDocuments
from hpgrain.sources.indexed import IndexedReader
from hpgrain.tokenizer import load_tokenizer, tokenizer_info
from hpgrain.tools.convert import convert
from hpgrain.tools.corpus import prepare
from hpgrain.tools.offline_preparation import main, prepare_corpus
from hpgrain.tools.options import Options

# "a" is 3, "b" 4, "c" 5, "d" 6; <eos> is 0.
TEXTS = ("a b c", "", "d", "a a a a a", "c b", "e")


@pytest.fixture
def source(tmp_path):
  path = tmp_path / "in" / "x.jsonl"
  path.parent.mkdir()
  lines = [json.dumps({"text": t, "more": t[::-1]}) for t in TEXTS]
  path.write_text("\n".join(lines))
  return path


def run(source, prefix, tokenizer, **options):
  return prepare_corpus(
    source,
    output_prefix=prefix,
    tokenizer=tokenizer,
    tokenizer_backend="huggingface",
    **options,
  )


def names(folder):
  return sorted(path.name for path in folder.iterdir())


def documents_of(path):
  with ArrayRecordDocuments(path) as documents:
    return [documents[i].tokens.tolist() for i in range(len(documents))]


def test_each_record_is_a_document(tmp_path, source, words):
  out = tmp_path / "out"
  manifest = run(source, out / "x", words, format="arrayrecord")
  assert names(out) == [
    "x_text_document.array_record",
    "x_text_document.array_record.manifest.json",
  ]
  path = out / "x_text_document.array_record"
  assert documents_of(path) == [
    [3, 4, 5, 0],
    [],
    [6, 0],
    [3, 3, 3, 3, 3, 0],
    [5, 4, 0],
    [7, 0],
  ]
  assert read_manifest(path) == manifest
  assert manifest.format == "arrayrecord"
  assert (manifest.bin_bytes, manifest.idx_bytes) == (None, None)
  assert manifest.array_record_bytes == path.stat().st_size
  records = grain.sources.ArrayRecordDataSource(str(path))
  tokens = [np.frombuffer(record[-4:], "<u2").tolist() for record in records]
  assert tokens[3] == [3, 0]


def test_both_formats_lie_side_by_side_and_convert_into_each_other(
  tmp_path, source, words
):
  prefix = tmp_path / "x"
  run(source, prefix, words)
  run(source, prefix, words, format="arrayrecord")
  pair = tmp_path / "x_text_document"
  record = tmp_path / "x_text_document.array_record"
  convert(pair, tmp_path / "y.array_record")
  assert (tmp_path / "y.array_record").read_bytes() == record.read_bytes()
  convert(record, tmp_path / "z")
  for suffix in ("bin", "idx", "manifest.json"):
    assert (tmp_path / f"z.{suffix}").read_bytes() == Path(
      f"{pair}.{suffix}"
    ).read_bytes()


@pytest.mark.filterwarnings("ignore::UserWarning")
@settings(
  max_examples=12,
  deadline=None,
  suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
  partitions=st.integers(1, 3),
  multiple=st.integers(1, 2),
  sequential=st.booleans(),
  pack=st.sampled_from([None, 2]),
  shuffle=st.sampled_from([None, 5]),
  small=st.booleans(),
)
def test_the_same_bytes_for_any_workers(
  source,
  words,
  tmp_path_factory,
  **drawn,
):
  out = tmp_path_factory.mktemp("out")
  partitions, workers = drawn["partitions"], drawn["multiple"]
  options = {
    "partitions": partitions,
    "keep_sequential_samples": drawn["sequential"],
    "pack_to_seq_len": drawn["pack"],
    "shuffle": drawn["shuffle"],
    "format": "arrayrecord",
  }
  if drawn["small"]:
    options["unit_bytes"] = 20
  run(source, out / "a", words, workers=partitions * workers, **options)
  run(source, out / "b", words, workers=partitions, **options)
  options["format"] = "indexed"
  run(source, out / "c", words, workers=partitions, **options)
  convert(out / "c_text_document")
  one, other, third = (
    (out / f"{name}_text_document.array_record").read_bytes() for name in "abc"
  )
  assert one == other == third


def test_several_keys_give_several_files(tmp_path, source, words):
  options = Options(
    source,
    tmp_path / "x",
    json_keys=("text", "more"),
    format="arrayrecord",
    tokenizer_backend="huggingface",
  )
  prepare(options, tokenizer=words)
  assert names(tmp_path) == [
    "in",
    "x_more_document.array_record",
    "x_more_document.array_record.manifest.json",
    "x_text_document.array_record",
    "x_text_document.array_record.manifest.json",
  ]
  assert documents_of(tmp_path / "x_more_document.array_record")[0] == [
    *[5, 4, 3],
    0,
  ]


def test_output_that_is_there_is_refused_and_only_its_own(
  tmp_path, source, words
):
  run(source, tmp_path / "x", words)
  run(source, tmp_path / "x", words, format="arrayrecord")
  before = {p: p.read_bytes() for p in tmp_path.glob("x*")}
  with pytest.raises(FileExistsError, match=r"x_text_document\.array_record, "):
    run(source, tmp_path / "x", words, format="arrayrecord")
  run(source, tmp_path / "x", words, format="arrayrecord", overwrite=True)
  assert {p: p.read_bytes() for p in tmp_path.glob("x*")} == before


def test_unfinished_work_of_a_pair_is_gone_on_with(
  tmp_path, source, words, monkeypatch
):
  """The units are the same; what is made of them is not."""

  def fail(*arguments, **options):
    raise OSError("full")

  monkeypatch.setattr("hpgrain.tools.publish.merge", fail)
  with pytest.raises(OSError, match="full"):
    run(source, tmp_path / "x", words)
  monkeypatch.undo()
  options = Options(
    source,
    tmp_path / "x",
    format="arrayrecord",
    tokenizer_backend="huggingface",
  )
  report = prepare(options, tokenizer=words)
  assert (report.num_done, report.num_reused) == (0, 1)
  assert names(tmp_path) == [
    "in",
    "x_text_document.array_record",
    "x_text_document.array_record.manifest.json",
  ]


def test_unknown_format_is_refused(tmp_path, source, words):
  with pytest.raises(
    ValueError, match="format must be one of indexed, arrayrecord, got 'bin'"
  ):
    run(source, tmp_path / "x", words, format="bin")


def test_command(tmp_path, source, word_folder, capsys):
  arguments = [
    *("--dataset-name-or-path", str(source)),
    *("--output-prefix", str(tmp_path / "x")),
    *("--tokenizer-name-or-path", str(word_folder)),
    *("--workers", "1", "--format", "arrayrecord"),
  ]
  with pytest.warns(UserWarning, match="AutoTokenizer"):
    assert main(arguments) == 0
  path = tmp_path / "x_text_document.array_record"
  assert f"wrote {path} and {path}.manifest.json\n" in capsys.readouterr().out
  assert len(documents_of(path)) == 6


# What the loader does with the manifests that are written.


def build(prefix, tokenizer, **options):
  return build_indexed_text_dataset(
    data_path=str(prefix),
    split="1,0,0",
    seq_length=4,
    seed=0,
    tokenizer=tokenizer_info(tokenizer),
    **options,
  )


@pytest.fixture(params=["prepared", "converted"])
def pair(request, tmp_path, source, words):
  if request.param == "prepared":
    run(source, tmp_path / "x", words)
    return tmp_path / "x_text_document"
  run(source, tmp_path / "x", words, format="arrayrecord")
  convert(tmp_path / "x_text_document.array_record", tmp_path / "y")
  return tmp_path / "y"


def test_training_takes_the_pair_with_its_tokenizer(pair, words):
  train, _, _ = build(pair, words)
  assert train.vocab_size == 8
  assert len(train) == (IndexedReader(pair).num_tokens - 1) // 4


def test_training_with_another_tokenizer_is_refused(pair, bpe_folder):
  with pytest.raises(ValueError, match="name different tokenizers"):
    build(pair, load_tokenizer(bpe_folder))


def test_training_on_a_changed_pair_is_refused(pair, words):
  with Path(f"{pair}.bin").open("ab") as file:
    file.write(b"xx")
  with pytest.raises(ValueError, match="was changed after it was written"):
    build(pair, words)


def test_training_on_records_read_as_documents_is_refused(
  tmp_path, source, words
):
  run(source, tmp_path / "x", words, pack_to_seq_len=4, format="arrayrecord")
  convert(tmp_path / "x_text_document.array_record")
  pair = tmp_path / "x_text_document"
  assert parse_manifest(pair).pack_to_seq_len == 4
  with pytest.raises(ValueError, match="is_dataset_from_mr"):
    build(pair, words)
  train, _, _ = build(pair, words, is_dataset_from_mr=True)
  assert len(train) == IndexedReader(pair).num_documents


def test_a_flipped_byte_is_not_looked_for_at_a_start(pair, words, monkeypatch):
  """Digests of gigabytes are for read_indexed_dataset --verify."""

  def fail(*arguments, **options):
    raise AssertionError

  for name in ("digest_of", "digest_of_path", "FileDigest"):
    monkeypatch.setattr(f"hpgrain.sources.file_digest.{name}", fail)
  data = bytearray(Path(f"{pair}.bin").read_bytes())
  data[0] ^= 1
  Path(f"{pair}.bin").write_bytes(data)
  assert len(build(pair, words)[0])


def test_object_store(bucket, s3, source, words):
  prefix = f"{bucket}/x"
  manifest = run(source, prefix, words, format="arrayrecord")
  path = f"{prefix}_text_document.array_record"
  assert sorted(s3.ls(bucket)) == [
    path.removeprefix("s3://"),
    f"{path.removeprefix('s3://')}.manifest.json",
  ]
  assert read_manifest(path) == manifest
  local = source.parent / "y.array_record"
  s3.get(path, str(local))
  assert len(documents_of(local)) == 6
  with pytest.raises(FileExistsError, match=r"text_document\.array_record"):
    run(source, prefix, words, format="arrayrecord")
  run(source, prefix, words, format="arrayrecord", overwrite=True)
  assert read_manifest(path) == manifest
