"""What a preparation writes beside its corpus, and what it leaves alone."""

import json
from pathlib import Path

import pytest

from hpgrain.manifest import read_manifest
from hpgrain.tokenizer import load_tokenizer
from hpgrain.tools import corpus
from hpgrain.tools.offline_preparation import main, prepare_corpus
from hpgrain.tools.options import Options, check_options


def lines(*texts):
  return "".join(json.dumps({"text": text}) + "\n" for text in texts)


def write(path, content):
  path.write_text(content, encoding="utf-8")
  return path


def flags_of(source, out, tokenizer, *more):
  return [
    f"--dataset-name-or-path={source}",
    f"--output-prefix={out / 'x'}",
    f"--tokenizer-name-or-path={tokenizer}",
    "--log-interval=0",
    *more,
  ]


@pytest.fixture
def source(tmp_path):
  return write(tmp_path / "corpus.jsonl", lines("a b c", "", "d"))


@pytest.fixture
def out(tmp_path):
  return tmp_path / "out"


def test_a_run_that_ends_later_does_not_replace_what_is_there(
  source, out, words, monkeypatch
):
  run_units = corpus.run_units

  def end_after_another(*arguments, **options):
    run_units(*arguments, **options)
    (out / "x_text_document.bin").write_bytes(b"another run's")

  monkeypatch.setattr(corpus, "run_units", end_after_another)
  with pytest.raises(FileExistsError, match=r"exists: .*x_text_document.bin\."):
    prepare_corpus(source, output_prefix=out / "x", tokenizer=words)
  assert (out / "x_text_document.bin").read_bytes() == b"another run's"
  assert not list(out.glob("*.partial"))


def test_what_the_command_wrote_into_its_folder_is_no_input(tmp_path, words):
  write(tmp_path / "a.jsonl", lines("one"))
  write(tmp_path / "b.jsonl", lines("two"))
  (tmp_path / "x_partition_0.jsonl").write_text('{"text": "three"}\n')
  manifest = prepare_corpus(
    tmp_path,
    output_prefix=tmp_path / "x",
    tokenizer=words,
    keep_partition_files=True,
    overwrite=True,
  )
  assert [Path(f.path).name for f in manifest.inputs] == ["a.jsonl", "b.jsonl"]


def test_partition_files_leave_out_what_was_refused_late(tmp_path, bpe):
  texts = ["a" * 5_000_000, "one", "two", "three"]
  source = write(tmp_path / "in.jsonl", lines(*texts))
  manifest = prepare_corpus(
    source,
    output_prefix=tmp_path / "x",
    tokenizer=bpe,
    keep_partition_files=True,
    partitions=2,
    workers=2,
    on_bad_record="skip",
    tokenizer_backend="huggingface",
  )
  assert manifest.bad_records == 1
  kept = [(tmp_path / f"x_partition_{p}.jsonl").read_text() for p in (0, 1)]
  assert kept == [lines("one", "three"), lines("two")]


def test_the_tokenizer_with_added_tokens_is_there_before_the_corpus(
  source, out, word_folder, monkeypatch, capsys
):
  def die(*arguments, **options):
    raise OSError("killed")

  flags = flags_of(source, out, word_folder, "--add-special-tokens", "<a>")
  with monkeypatch.context() as patched:
    patched.setattr(corpus, "publish", die)
    assert main(flags) == 1
  folder = out / "x_tokenizer"
  assert "<a>" in load_tokenizer(str(folder)).get_vocab()
  assert main(flags) == 0
  manifest = read_manifest(out / "x_text_document")
  assert manifest.tokenizer.name == str(folder)
  (out / "x_text_document.idx").unlink()
  (out / "x_text_document.bin").unlink()
  (out / "x_text_document.manifest.json").unlink()
  other = flags_of(source, out, word_folder, "--add-special-tokens", "<b>")
  assert main(other) == 1
  assert "x_tokenizer holds another tokenizer" in capsys.readouterr().err
  empty = flags_of(source, out, word_folder, "--add-special-tokens", "")
  assert main(empty) == 1
  assert "a string that is not empty" in capsys.readouterr().err


def test_what_is_kept_is_said_where_the_command_goes_on(
  source, out, word_folder, capsys
):
  flags = flags_of(source, out, word_folder)
  write(source, lines("fine") + "{broken\n")
  assert main(flags) == 1
  assert "Finished work" not in capsys.readouterr().err


def test_many_keys_fit_a_files_name(tmp_path, words):
  keys = tuple(f"key_{i}" for i in range(40))
  options = Options(tmp_path, tmp_path / "x", json_keys=keys)
  assert len(options.work_folder().name) < 100
  other = Options(tmp_path, tmp_path / "x", json_keys=keys[::-1])
  assert options.work_folder() != other.work_folder()
  with pytest.raises(ValueError, match="UTF-8 text"):
    check_options(Options(tmp_path, tmp_path / "x", json_keys=("\udcff",)))
