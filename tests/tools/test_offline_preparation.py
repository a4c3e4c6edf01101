import hashlib
import json
import os
import signal
import subprocess
import sys
import traceback

import pytest
from helpers_tokenizer import read_pair, save_word_tokenizer

from hpgrain.manifest import read_manifest
from hpgrain.sources.indexed import IndexedWriter
from hpgrain.tokenizer import load_tokenizer, tokenizer_info
from hpgrain.tools import encoder_spec, offline_preparation, unit_batches
from hpgrain.tools.offline_preparation import prepare_corpus

# With the word tokenizer: "a" is 3, "b" 4, "c" 5, "d" 6; <eos> is 0, <sep> 1.
TEXTS = ("a b c", "", "d")


def lines(*texts):
  return "".join(json.dumps({"text": text}) + "\n" for text in texts)


def write(path, content=None):
  content = lines(*TEXTS) if content is None else content
  path.write_bytes(content.encode() if isinstance(content, str) else content)
  return path


def names(folder):
  return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def source(tmp_path):
  folder = tmp_path / "in"
  folder.mkdir()
  return write(folder / "corpus.jsonl")


@pytest.fixture
def out(tmp_path):
  return tmp_path / "out"


def prepared(source, out, tokenizer, **arguments):
  prepare_corpus(
    source, output_prefix=out / "x", tokenizer=tokenizer, **arguments
  )
  return read_pair(out / "x_text_document")


def test_documents_end_with_one_eod_and_empty_text_has_no_sequence(
  source, out, words
):
  assert prepared(source, out, words) == (
    "uint16",
    [3, 4, 5, 0, 6, 0],
    [4, 2],
    [0, 1, 1, 2],
  )
  assert names(out) == [
    "x_text_document.bin",
    "x_text_document.idx",
    "x_text_document.manifest.json",
  ]


def test_manifest_tells_how_the_pair_was_made(source, out, words):
  manifest = prepare_corpus(source, output_prefix=out / "x", tokenizer=words)
  assert read_manifest(out / "x_text_document") == manifest
  assert manifest.tokenizer == tokenizer_info(words)
  assert (manifest.documents, manifest.sequences, manifest.tokens) == (3, 2, 6)
  assert (manifest.empty_documents, manifest.dropped_tokens) == (1, 0)
  assert (manifest.append_eod, manifest.pack_to_seq_len) == (True, None)
  assert manifest.dtype == "uint16"
  assert manifest.bin_bytes == 12
  assert manifest.idx_bytes == 34 + 12 * 2 + 8 * 4
  (read,) = manifest.inputs
  assert (read.path, read.bytes) == (str(source), source.stat().st_size)
  assert manifest.tool.startswith("hpgrain ")


def test_text_of_spaces_alone_is_an_empty_document(source, out, words):
  write(source, lines(" \n ", "a"))
  assert prepared(source, out, words)[1:] == ([3, 0], [2], [0, 0, 1])


def test_without_eod_documents_hold_their_text_alone(source, out, words):
  _, tokens, lengths, _ = prepared(source, out, words, append_eod=False)
  assert (tokens, lengths) == ([3, 4, 5, 6], [3, 1])


def test_sep_ends_documents_where_there_is_no_eos(source, out, tmp_path):
  folder = save_word_tokenizer(tmp_path / "tok", sep_token="<sep>")
  _, tokens, _, _ = prepared(source, out, load_tokenizer(folder))
  assert tokens == [3, 4, 5, 1, 6, 1]


def test_tokenizer_without_eos_and_sep_is_refused(source, out, tmp_path):
  tokenizer = load_tokenizer(save_word_tokenizer(tmp_path / "tok"))
  with pytest.raises(ValueError, match="neither an EOS nor a SEP token"):
    prepared(source, out, tokenizer)
  assert not out.exists()
  assert prepared(source, out, tokenizer, append_eod=False)[2] == [3, 1]


@pytest.mark.parametrize(
  ("size", "dtype"), [(65499, "uint16"), (65500, "int32"), (70000, "int32")]
)
def test_dtype_follows_the_vocabulary(source, out, tmp_path, size, dtype):
  folder = save_word_tokenizer(tmp_path / "t", size=size, eos_token="<eos>")
  write(source, lines(f"a w{size - 1}"))
  found = prepared(source, out, load_tokenizer(folder))
  assert found == (dtype, [3, size - 1, 0], [3], [0, 1])


@pytest.mark.parametrize(
  "content",
  [
    b"\xef\xbb\xbf" + lines(*TEXTS).encode(),
    lines(*TEXTS).replace("\n", "\r\n").encode(),
    b"\n  \n" + lines(*TEXTS).replace("\n", "\n\r\n\t\n").encode(),
    lines(*TEXTS).rstrip("\n").encode(),
  ],
  ids=["byte order mark", "CRLF", "blank lines", "no final newline"],
)
def test_line_ends_and_blank_lines_do_not_matter(source, out, words, content):
  write(source, content)
  assert prepared(source, out, words)[1:] == (
    [3, 4, 5, 0, 6, 0],
    [4, 2],
    [0, 1, 1, 2],
  )


def test_separators_inside_text_do_not_end_a_record(source, out, words):
  # Unicode's own line ends, which splitlines would cut at.
  write(source, '{"text": "a\u2028b\x85c"}\n')
  assert prepared(source, out, words)[1] == [3, 4, 5, 0]


def test_another_key_names_the_output(source, out, words):
  write(source, '{"text": 1, "body": "a"}\n')
  prepare_corpus(
    source, output_prefix=out / "x", tokenizer=words, json_key="body"
  )
  assert read_pair(out / "x_body_document")[1] == [3, 0]


SECRET = "sesame"


@pytest.mark.parametrize(
  ("bad", "message"),
  [
    (b'{"texts": "sesame"}', "has no key 'text'; it has 1 other keys"),
    (b'{"text": null}', "holds null under 'text'"),
    (b'{"text": ["sesame"]}', "holds an array under 'text'"),
    (b'{"text": 5}', "holds a number under 'text'"),
    (b'{"text": true}', "holds a boolean under 'text'"),
    (b'{"text": {"text": "sesame"}}', "holds an object under 'text'"),
    (b'"sesame"', "is a string, not an object"),
    (b'[{"text": "sesame"}]', "is an array, not an object"),
    (b'{"text": "sesame', "is not JSON: Unterminated string"),
    (b'{"text": "sesame"} x', "is not JSON: Extra data at character 19"),
    (b'{"text": "sesame\xff"}', "is not UTF-8: byte 0xff at 16 bytes"),
    (b'{"text": "sesame \\ud83d"}', "holds half of a surrogate pair"),
    (b'{"text": ' + b"[" * 100_000, "is not readable JSON|is not JSON"),
    (b'{"text": ' + b"1" * 5_000 + b"}", "a number of too many digits"),
  ],
)
def test_bad_record_is_named_by_place_and_not_shown(
  source, out, words, bad, message
):
  # The second record, on the third line, 17 bytes into the file.
  write(source, b'{"text": "a b"}\n\n' + bad + b"\n" + lines("c").encode())
  with pytest.raises(ValueError, match=message) as caught:
    prepared(source, out, words)
  place = f"{source}: record 2 (line 3, at byte offset 17)"
  assert str(caught.value).startswith(place)
  assert SECRET not in "".join(traceback.format_exception(caught.value))
  assert names(out) == []


def test_gzip_under_another_name_is_refused_with_what_to_do(source, out, words):
  write(source, b"\x1f\x8b\x08\x00rest")
  with pytest.raises(ValueError, match=r"compressed with gzip.*gunzip -k"):
    prepared(source, out, words)


def test_folder_is_read_in_the_order_of_its_files(source, out, words):
  write(source.parent / "b.jsonl", lines("e").rstrip("\n"))
  write(source.parent / "d.jsonl", lines("d"))
  assert prepared(source.parent, out, words)[1] == [
    7,
    0,
    3,
    4,
    5,
    0,
    6,
    0,
    6,
    0,
  ]


def test_missing_input_is_refused(tmp_path, out, words):
  with pytest.raises(FileNotFoundError, match=r"no\.jsonl does not exist"):
    prepared(tmp_path / "no.jsonl", out, words)


def test_packed_records_run_across_documents_and_the_tail_is_dropped(
  source, out, words
):
  write(source, lines("a b", "", "c d a b c", "d"))
  # 3 4 0 | 5 6 3 4 5 0 | 6 0, in records of 4 tokens.
  manifest = prepare_corpus(
    source, output_prefix=out / "x", tokenizer=words, pack_to_seq_len=3
  )
  assert read_pair(out / "x_text_document") == (
    "uint16",
    [3, 4, 0, 5, 6, 3, 4, 5],
    [4, 4],
    [0, 1, 2],
  )
  assert manifest.dropped_tokens == 3
  assert manifest.empty_documents == 1
  assert (manifest.documents, manifest.sequences, manifest.tokens) == (2, 2, 8)
  assert manifest.pack_to_seq_len == 3


@pytest.mark.parametrize("seq_len", [1, 2, 3, 4, 5, 10, 11])
def test_packing_loses_nothing_but_the_tail(source, out, words, seq_len):
  texts = ["a b c", "d", "", "e a b c d e a b c d e", "a", "b"]
  write(source, lines(*texts))
  whole = prepared(source, out / "whole", words)[1]
  size = seq_len + 1
  kept = len(whole) // size * size
  packed = prepared(source, out, words, pack_to_seq_len=seq_len)
  assert packed[1] == whole[:kept]
  assert packed[2] == [size] * (kept // size)


@pytest.mark.parametrize("seq_len", [0, -1, 2**31])
def test_pack_length_must_be_positive(source, out, words, seq_len):
  with pytest.raises(ValueError, match=f"must be positive.*got {seq_len}"):
    prepared(source, out, words, pack_to_seq_len=seq_len)


def test_packing_without_eod_warns(source, out, words):
  with pytest.warns(UserWarning, match="Packing without an EOD"):
    packed = prepared(source, out, words, pack_to_seq_len=1, append_eod=False)
  assert packed[1:3] == ([3, 4, 5, 6], [2, 2])


@pytest.mark.parametrize(
  ("content", "pack_to_seq_len", "documents"),
  [("", None, 0), (lines("", ""), None, 2), (lines("a b"), 100, 0)],
  ids=["no record", "empty texts", "less than one record"],
)
def test_output_without_a_token_warns(
  source, out, words, *, content, pack_to_seq_len, documents
):
  write(source, content)
  with pytest.warns(UserWarning, match="gave no token to write"):
    pair = prepared(source, out, words, pack_to_seq_len=pack_to_seq_len)
  assert pair == ("uint16", [], [], [0] * (documents + 1))


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    ({"log_interval": -1}, "log_interval must be 0"),
    ({"json_key": ""}, "JSON key '' cannot be part"),
    ({"json_key": "a/b"}, "JSON key 'a/b' cannot be part"),
    ({"output_prefix": "out/"}, "must end with the beginning of a file name"),
    ({"output_prefix": ""}, "must end with the beginning of a file name"),
  ],
)
def test_bad_argument_is_refused(source, words, arguments, message):
  with pytest.raises(ValueError, match=message):
    prepare_corpus(
      source, tokenizer=words, **{"output_prefix": "x", **arguments}
    )


@pytest.mark.parametrize("suffix", ["bin", "idx", "manifest.json"])
def test_existing_output_is_not_overwritten(source, out, words, suffix):
  out.mkdir()
  present = out / f"x_text_document.{suffix}"
  present.write_text("mine")
  with pytest.raises(FileExistsError, match=f"{present}.*--overwrite"):
    prepared(source, out, words)
  assert present.read_text() == "mine"
  assert names(out) == [present.name]


def test_overwrite_replaces_the_output(source, out, words):
  prepared(source, out, words)
  write(source, lines("e"))
  assert prepared(source, out, words, overwrite=True)[1] == [7, 0]
  assert read_manifest(out / "x_text_document").tokens == 2


def test_failed_overwrite_leaves_the_old_output(source, out, words):
  before = prepared(source, out, words)
  write(source, lines("e") + "broken\n")
  with pytest.raises(ValueError, match="record 2"):
    prepared(source, out, words, overwrite=True)
  assert read_pair(out / "x_text_document") == before
  assert read_manifest(out / "x_text_document").tokens == 6
  assert len(names(out)) == 3


def test_output_over_the_input_is_refused(out, words):
  out.mkdir()
  source = write(out / "x_text_document.manifest.json")
  with pytest.raises(ValueError, match="would overwrite the input"):
    prepared(source, out, words, overwrite=True)
  assert source.read_text() == lines(*TEXTS)


def test_input_is_not_changed(source, out, words):
  before = hashlib.sha256(source.read_bytes()).digest(), source.stat().st_mtime
  prepared(source, out, words)
  after = hashlib.sha256(source.read_bytes()).digest(), source.stat().st_mtime
  assert before == after
  assert names(source.parent) == ["corpus.jsonl"]


def test_input_that_grows_while_it_is_read_is_refused(
  source, out, words, monkeypatch
):
  encode = encoder_spec.Encoder.encode

  def growing(encoder, texts, **options):
    with source.open("a") as file:
      file.write(lines("late"))
    return encode(encoder, texts, **options)

  monkeypatch.setattr(unit_batches, "BATCH_RECORDS", 1)
  monkeypatch.setattr(encoder_spec.Encoder, "encode", growing)
  with pytest.raises(ValueError, match="changed while it was read"):
    prepared(source, out, words)
  assert names(out) == []


@pytest.mark.parametrize("parallel", ["true", "false"])
@pytest.mark.parametrize(("documents", "characters"), [(1, 9**9), (3, 1)])
def test_ids_are_the_tokenizers_own_whatever_the_batches(
  source, out, bpe, monkeypatch, *, parallel, documents, characters
):
  monkeypatch.setenv("TOKENIZERS_PARALLELISM", parallel)
  monkeypatch.setattr(unit_batches, "BATCH_RECORDS", documents)
  monkeypatch.setattr(unit_batches, "BATCH_CHARACTERS", characters)
  texts = [f"def f{i}(x):\n  return x{'é' * i} <eos>" for i in range(20)]
  write(source, lines(*texts))
  # Neither the tokenizer's own <bos> and <eos> nor its stored truncation.
  expected = [
    [*bpe(text, add_special_tokens=False)["input_ids"], 1] for text in texts
  ]
  _, tokens, lengths, _ = prepared(source, out, bpe)
  assert lengths == [len(ids) for ids in expected]
  assert tokens == [token for ids in expected for token in ids]


def command(source, out, tokenizer, *more):
  return [
    f"--dataset-name-or-path={source}",
    "--json-keys",
    "text",
    f"--output-prefix={out}/x",
    f"--tokenizer-name-or-path={tokenizer}",
    *more,
  ]


def test_command_line_writes_and_sums_up(source, out, word_folder, capsys):
  argv = command(source, out, word_folder, "--pack-to-seq-len", "3")
  with pytest.warns(
    UserWarning, match="Only tokenizers that Hugging Face Auto"
  ):
    assert offline_preparation.main(argv) == 0
  assert read_pair(out / "x_text_document")[1:3] == ([3, 4, 5, 0], [4])
  said = capsys.readouterr().out
  assert f"wrote {out}/x_text_document.bin" in said
  assert "packed            records of 4 tokens" in said
  assert "dropped           2 tokens in 1 tail\n" in said
  assert "empty documents   1 read" in said


@pytest.mark.filterwarnings("ignore:Only tokenizers")
@pytest.mark.parametrize(
  ("flags", "tokens"),
  [
    (["--append-eod", "false"], [3, 4, 5, 6]),
    (["--append-eod", "true"], [3, 4, 5, 0, 6, 0]),
    (["--append-eod"], [3, 4, 5, 0, 6, 0]),
    (["--trust-remote-code", "false"], [3, 4, 5, 0, 6, 0]),
    (["--tokenizer-use-fast=true"], [3, 4, 5, 0, 6, 0]),
  ],
)
def test_boolean_flags_take_true_and_false(
  source, out, word_folder, flags, tokens
):
  assert (
    offline_preparation.main(command(source, out, word_folder, *flags)) == 0
  )
  assert read_pair(out / "x_text_document")[1] == tokens


@pytest.mark.parametrize(
  ("flags", "message"),
  [
    (["--append-eod", "maybe"], "expected true or false, got 'maybe'"),
    (["--worker", "8"], "unrecognized arguments: --worker 8"),
    (["--pack", "8"], "unrecognized arguments: --pack 8"),
    (["--pack-to-seq-len", "x"], "invalid int value: 'x'"),
  ],
)
def test_unknown_flags_and_values_are_refused(
  source, out, word_folder, capsys, *, flags, message
):
  with pytest.raises(SystemExit, match="2"):
    offline_preparation.main(command(source, out, word_folder, *flags))
  assert message in capsys.readouterr().err


def test_errors_are_one_line_and_an_exit_code(source, out, word_folder, capsys):
  argv = command(source, out, word_folder, "--pack-to-seq-len", "0")
  assert offline_preparation.main(argv) == 1
  said = capsys.readouterr().err
  assert said.startswith(
    "offline_preparation: ValueError: pack_to_seq_len must be positive"
  )
  assert said.count("\n") == 1


def run(source, out, tokenizer, *more):
  module = "hpgrain.tools.offline_preparation"
  flags = command(source, out, tokenizer, "--log-interval", "1000", *more)
  return subprocess.Popen(
    [sys.executable, "-m", module, *flags],
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )


def test_killed_run_leaves_nothing_that_passes_for_a_pair(
  tmp_path, out, bpe_folder
):
  source = write(tmp_path / "long.jsonl", lines(*["def f(x): x"] * 60_000))
  process = run(source, out, bpe_folder)
  for line in process.stderr:
    if line.startswith("tokenizing: 2,048 documents"):
      break
  os.kill(process.pid, signal.SIGKILL)
  process.communicate()
  assert process.returncode == -signal.SIGKILL
  assert names(out) == ["x_text_document.parts"]

  # Another content; no unit of the first was finished, so none is lost.
  write(source, lines(*TEXTS))
  process = run(source, out, bpe_folder)
  _, said = process.communicate(timeout=100)
  assert process.returncode == 0, said
  assert read_pair(out / "x_text_document")[3] == [0, 1, 1, 2]
  assert len(names(out)) == 3


def test_two_runs_on_one_prefix_do_not_mix(source, out, words):
  out.mkdir()
  other = IndexedWriter(str(out / "x_text_document"), dtype="uint16")
  with pytest.raises(BlockingIOError, match="is being written by another"):
    prepared(source, out, words)
  other.discard()
  assert prepared(source, out, words)[2] == [4, 2]


# The reference's table of flags; None is no default.
TABLE = {
  "dataset_name_or_path": None,
  "json_keys": ["text"],
  "output_prefix": None,
  "tokenizer_name_or_path": None,
  "tokenizer_use_fast": True,
  "trust_remote_code": False,
  "chat_template": None,
  "add_special_tokens": None,
  "split_sentences": False,
  "keep_newlines": False,
  "lang": "english",
  "append_eod": True,
  "workers": 8,
  "partitions": 1,
  "keep_sequential_samples": False,
  "pack_to_seq_len": None,
  "keep_partition_files": False,
  "log_interval": 1000,
}
OURS = {
  "overwrite": False,
  "on_bad_record": "error",
  "max_bad_records": 1000,
  "shuffle": None,
  "ray_address": None,
  "scratch_dir": None,
  "format": "indexed",
  "pack_tail": "drop",
  "tokenizer_backend": "auto",
  "special_tokens_in_text": "as_is",
  "work_dir": None,
  "runner": "local",
  "shard_index": 0,
  "num_shards": 1,
  "merge_only": False,
  "recursive": False,
}


def test_flags_and_defaults_are_those_of_the_table():
  actions = {
    action.dest: action
    for action in offline_preparation.parser()._actions
    if action.dest != "help"
  }
  assert {name: a.default for name, a in actions.items()} == TABLE | OURS
  assert {name for name, a in actions.items() if a.required} == {
    "dataset_name_or_path",
    "output_prefix",
    "tokenizer_name_or_path",
  }
  for name, action in actions.items():
    assert action.option_strings == ["--" + name.replace("_", "-")]


@pytest.mark.filterwarnings("ignore:Only tokenizers")
def test_command_line_with_every_kind_of_flag(
  source, out, bpe_folder, tmp_path, capsys
):
  write(source, lines("a b <new> c", "d") + "bad\n")
  argv = command(
    source.parent,
    out,
    bpe_folder,
    *("--workers", "4", "--partitions", "2", "--keep-sequential-samples"),
    *("--add-special-tokens", "<new>", "--keep-partition-files"),
    *("--on-bad-record", "skip", "--max-bad-records", "1"),
    *("--tokenizer-backend", "huggingface", "--log-interval", "0"),
    *("--work-dir", str(tmp_path / "work"), "--runner", "local"),
  )
  assert offline_preparation.main(argv) == 0
  said = capsys.readouterr().out
  assert "spelt out by 1 document (as_is)" in said
  assert "bad records       1 left out, see the manifest" in said
  assert "partitions        2, records consecutive" in said
  manifest = read_manifest(out / "x_text_document")
  extended = load_tokenizer(out / "x_tokenizer")
  assert manifest.tokenizer.digest == tokenizer_info(extended).digest
  assert (
    extended.convert_tokens_to_ids("<new>")
    in read_pair(out / "x_text_document")[1]
  )
  assert list((tmp_path / "work").iterdir()) == []
  assert names(out) == [
    "x_partition_0.jsonl",
    "x_partition_1.jsonl",
    "x_text_document.bin",
    "x_text_document.idx",
    "x_text_document.manifest.json",
    "x_tokenizer",
  ]


@pytest.mark.filterwarnings("ignore:Only tokenizers")
def test_shards_by_the_command_line(source, out, word_folder, capsys):
  for shard in ("0", "1"):
    argv = command(
      source, out, word_folder, "--num-shards", "2", "--shard-index", shard
    )
    assert offline_preparation.main(argv) == 0
  assert "run the same with the word merge before" in capsys.readouterr().out
  assert names(out) == ["x_text_document.parts"]
  argv = command(source, out, word_folder, "--merge-only")
  assert offline_preparation.main(argv) == 0
  assert read_pair(out / "x_text_document")[1] == [3, 4, 5, 0, 6, 0]


def test_interrupt_is_a_line_and_an_exit_code(
  source, out, word_folder, capsys, monkeypatch
):
  def interrupted(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGTERM)
    raise AssertionError("not reached")

  monkeypatch.setattr(offline_preparation, "prepare", interrupted)
  monkeypatch.setattr(
    offline_preparation.warnings, "warn", lambda *a, **k: None
  )
  argv = command(source, out, word_folder)
  assert offline_preparation.main(argv) == 130
  assert capsys.readouterr().err == "offline_preparation: interrupted\n"
