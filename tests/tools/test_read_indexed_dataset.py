"""What the command shows of a corpus, and what it finds to be wrong."""

import dataclasses
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from corpora import write_pair
from helpers_tokenizer import save_word_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st

from hpgrain.manifest import (
  BadInput,
  manifest_path,
  parse_manifest,
  read_manifest,
  write_manifest,
)
from hpgrain.sources.indexed import IndexedReader, IndexedWriter
from hpgrain.tokenizer import load_tokenizer, tokenizer_info
from hpgrain.tools import describe as describe_module
from hpgrain.tools.convert import convert
from hpgrain.tools.describe import describe
from hpgrain.tools.describe_text import escaped
from hpgrain.tools.offline_preparation import prepare_corpus
from hpgrain.tools.read_indexed_dataset import main
from hpgrain.tools.verify import verify

GOLDEN = Path(__file__).parents[1] / "data" / "indexed"
# "a" is 3, "b" 4, "c" 5, "d" 6; <eos> is 0.
TEXTS = ("a b c", "", "d", "a a a a a")


def prepare(folder, tokenizer, texts=TEXTS, **options):
  folder.mkdir(parents=True, exist_ok=True)
  source = folder / "in.jsonl"
  source.write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
  prepare_corpus(
    source,
    output_prefix=folder / "x",
    tokenizer=tokenizer,
    tokenizer_backend="huggingface",
    overwrite=True,
    **options,
  )
  suffix = ".array_record" if options.get("format") == "arrayrecord" else ""
  return str(folder / f"x_text_document{suffix}")


@pytest.fixture
def pair(tmp_path, words):
  return prepare(tmp_path / "data", words)


@pytest.fixture
def record(tmp_path, words):
  return prepare(tmp_path / "data", words, format="arrayrecord")


def problems(name, **options):
  return verify(name, **options)[0].problems


def states(name, **options):
  found, _ = verify(name, **options)
  return {check.name: (check.state, check.why) for check in found.checks}


def flip(path, at, bit=1):
  data = bytearray(Path(path).read_bytes())
  data[at] ^= bit
  Path(path).write_bytes(data)


def change(name, **values):
  manifest = parse_manifest(name)
  write_manifest(name, dataclasses.replace(manifest, **values))


def bare(name):
  """Takes the manifest away, as Megatron has none."""
  manifest_path(name).unlink()
  return name


# What is shown.


def test_json_tells_all_of_a_pair(pair):
  found = describe(pair)
  manifest = found.pop("manifest")
  assert manifest["tokens"] == 12
  assert found == {
    "name": pair,
    "format": "indexed",
    "files": {
      "bin": {"path": f"{pair}.bin", "bytes": 24},
      "idx": {"path": f"{pair}.idx", "bytes": 34 + 12 * 3 + 8 * 5},
    },
    "documents": 4,
    "sequences": 3,
    "tokens": 12,
    "dtype": "uint16",
    "modes": False,
    "empty_documents": 1,
    "document_tokens": {
      "least": 0,
      "most": 6,
      "mean": 3.0,
      "histogram": [
        {"from": 0, "to": 0, "documents": 1},
        {"from": 1, "to": 1, "documents": 0},
        {"from": 2, "to": 3, "documents": 1},
        {"from": 4, "to": 7, "documents": 2},
      ],
    },
    "eod": {
      "id": 0,
      "tokens": 3,
      "documents_ending_with_it": 3,
      "documents_ending_otherwise": 0,
      "first_ending_otherwise": [],
      "inside_documents": 0,
      "first_inside": [],
    },
    "samples": [
      {
        "document": 0,
        "tokens": 4,
        "sequences": 1,
        "ids": [3, 4, 5, 0],
        "text": "a b c <eos>",
        "text_is_cut": False,
        "eods": 1,
        "first_eods": [3],
      },
      {
        "document": 1,
        "tokens": 0,
        "sequences": 0,
        "ids": [],
        "text": "",
        "text_is_cut": False,
        "eods": 0,
        "first_eods": [],
      },
      {
        "document": 2,
        "tokens": 2,
        "sequences": 1,
        "ids": [6, 0],
        "text": "d <eos>",
        "text_is_cut": False,
        "eods": 1,
        "first_eods": [1],
      },
    ],
    "notes": [],
  }


def test_an_array_record_shows_the_same(tmp_path, words, pair):
  convert(pair)
  one, other = describe(pair), describe(f"{pair}.array_record")
  for field in ("name", "format", "files", "manifest"):
    del one[field], other[field]
  assert one == other


def test_text_for_a_person(pair, capsys):
  assert main([pair, "--samples", "1"]) == 0
  out = capsys.readouterr().out
  for line in (
    f"{pair}, a pair of .bin and .idx",
    "  documents         4, 1 of them empty",
    "  tokens            12 as uint16",
    "tokens a document: 0 to 6, 3.0 on average",
    "                          0              1 ####################",
    f"                      4 - 7              2 {'#' * 40}",
    "EOD, id 0: 3 of them",
    "  ends              3 documents",
    "  inside documents  0",
    "document 0: 4 tokens, 1 sequence, EOD at 3",
    "  ids   3 4 5 0",
    "  text  a b c <eos>",
    "manifest:",
    "  tokenizer vocab_size       8",
    "  append_eod                 yes",
  ):
    assert line in out.splitlines()
  assert "document 1:" not in out


def test_documents_asked_for_are_shown_instead(pair, capsys):
  assert main([pair, "--document", "3", "--document", "0", "--json"]) == 0
  samples = json.loads(capsys.readouterr().out)["samples"]
  assert [sample["document"] for sample in samples] == [3, 0]
  assert main([pair, "--document", "4"]) == 1
  assert "has no document 4. It has 4, counted" in capsys.readouterr().err


def test_a_pair_without_a_manifest_shows_ids(pair, capsys):
  bare(pair)
  assert main([pair]) == 0
  out = capsys.readouterr().out
  assert "  ids   3 4 5 0\n" in out
  assert "text  " not in out
  assert "manifest: there is none" in out
  assert "EOD," not in out
  assert "note: The EOD is not known" in out
  assert main([pair, "--eod-id", "4"]) == 0
  out = capsys.readouterr().out
  assert "EOD, id 4: 1 of them" in out
  assert "  inside documents  1, the first: document 0 token 1" in out
  assert (
    "  does not end      3 documents with tokens, the first: 0, 2, 3" in out
  )


def test_a_tokenizer_that_is_given_decodes(pair, word_folder, capsys):
  bare(pair)
  assert main([pair, "--tokenizer", str(word_folder)]) == 0
  out = capsys.readouterr().out
  assert "  text  a b c <eos>" in out
  assert "EOD, id 0: 3 of them" in out


def test_another_tokenizer_is_told(pair, tmp_path, capsys):
  other = save_word_tokenizer(tmp_path / "o", size=9, eos_token="<eos>")
  assert main([pair, "--tokenizer", str(other)]) == 0
  assert "is not what the corpus was made with" in capsys.readouterr().out
  assert main([pair, "--tokenizer", str(tmp_path / "none")]) == 1
  assert "does not exist" in capsys.readouterr().err


def test_the_manifests_tokenizer_may_be_gone_or_changed(tmp_path, capsys):
  folder = save_word_tokenizer(tmp_path / "t", eos_token="<eos>")
  name = prepare(tmp_path / "data", load_tokenizer(folder))
  save_word_tokenizer(folder, size=9, eos_token="<eos>")
  assert main([name]) == 0
  out = capsys.readouterr().out
  assert "is not what the corpus was made with (another digest)" in out
  assert "  text  " not in out
  (folder / "tokenizer.json").unlink()
  assert main([name]) == 0
  assert "is not here, so ids are shown" in capsys.readouterr().out


def test_long_documents_are_cut(tmp_path, words, monkeypatch):
  name = prepare(tmp_path, words, ["a " * 5000, "b"])
  sample = describe(name)["samples"][0]
  assert sample["tokens"] == 5001
  assert sample["ids"] == [3] * 16
  assert sample["text"] == ("a " * 150)
  assert sample["text_is_cut"] is True
  monkeypatch.setattr(describe_module, "_EODS", 2)
  sample = describe(name, eod_id=3)["samples"][0]
  assert (sample["eods"], sample["first_eods"]) == (5000, [0, 1])


def test_control_characters_are_escaped():
  assert escaped("a\n\x1b[31m\\ é中🙂\u202e\u2028\0") == (
    r"a\n\x1b[31m\\ é中🙂\u202e\u2028\x00"
  )


def test_without_a_scan(pair, record):
  found = describe(pair, scan=False)
  assert (found["tokens"], found["eod"]) == (12, None)
  found = describe(record, scan=False)
  assert (found["documents"], found["tokens"]) == (4, None)
  assert found["document_tokens"] is None
  assert len(found["samples"]) == 3


def test_modes_and_floats_are_shown(capsys):
  assert main([str(GOLDEN / "mm")]) == 0
  assert "modes             one for each sequence" in capsys.readouterr().out
  assert main([str(GOLDEN / "dtype_float32"), "--json", "--eod-id", "0"]) == 0
  assert json.loads(capsys.readouterr().out)["dtype"] == "float32"


def test_corpus_without_a_document(tmp_path, capsys):
  with IndexedWriter(tmp_path / "x", dtype="uint16"):
    pass
  assert main([str(tmp_path / "x")]) == 0
  assert "  documents         0, 0 of them empty" in capsys.readouterr().out
  assert main([str(tmp_path / "x"), "--verify"]) == 0


def test_a_files_name_stands_for_its_corpus(pair, record, capsys):
  for name in (f"{pair}.idx", f"{pair}.bin", f"{pair}.manifest.json"):
    assert main([name, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == pair
  assert main([f"{record}.manifest.json", "--json"]) == 0
  assert json.loads(capsys.readouterr().out)["name"] == record


def test_what_is_missing_is_named(tmp_path, pair, capsys):
  for arguments in ([], ["--verify"]):
    assert main([str(tmp_path / "y"), *arguments]) == 1
    assert "FileNotFoundError" in (err := capsys.readouterr().err)
    assert "y.idx does not exist" in err
    assert main([str(tmp_path / "y.array_record"), *arguments]) == 1
    assert "y.array_record" in capsys.readouterr().err
    assert main(["gs://bucket/x", *arguments]) == 1
    assert "is a URL" in capsys.readouterr().err
  Path(f"{pair}.bin").unlink()
  assert main([pair, "--verify"]) == 1
  assert ".bin does not exist" in capsys.readouterr().err


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    (["x", "--samples", "-1"], "expected 0 or more, got -1"),
    (["x", "--document", "y"], "invalid _count value: 'y'"),
    (["x", "--sam", "1"], "unrecognized arguments"),
    ([], "required: CORPUS"),
  ],
)
def test_bad_flags_are_refused(arguments, message, capsys):
  with pytest.raises(SystemExit):
    main(arguments)
  assert message in capsys.readouterr().err


def test_damaged_pair_is_not_shown(pair, capsys):
  flip(f"{bare(pair)}.idx", 38)
  assert main([pair]) == 1
  assert "sequence 2 begins at byte 12" in capsys.readouterr().err


def test_a_reader_that_has_enough_is_no_error(pair):
  done = subprocess.run(
    f"{sys.executable} -m hpgrain.tools.read_indexed_dataset {pair} --samples 0"
    " 2>err | true; cat err",
    shell=True,
    check=True,
    capture_output=True,
    text=True,
    cwd=Path(pair).parent,
    timeout=60,
  )
  assert "Traceback" not in done.stdout
  assert "BrokenPipe" not in done.stdout


# What is found to be right.


def test_good_pair(pair, word_folder, capsys):
  assert main([pair, "--verify", "--tokenizer", str(word_folder)]) == 0
  assert capsys.readouterr().out == (
    f"{pair}:\n"
    "  manifest                    ok\n"
    "  sizes of files              ok\n"
    "  values                      ok\n"
    "  inputs                      ok\n"
    "  tokenizer                   ok\n"
    "  .idx header and size        ok\n"
    "  .idx lengths and pointers   ok\n"
    "  .idx document indices       ok\n"
    "  digest of .idx              ok\n"
    "  digest of .bin              ok\n"
    "  ids in the vocabulary       ok\n"
    "  counts                      ok\n"
    "  EOD at each document's end  ok\n"
    "  no other EODs               ok\n"
    "  packed records              not checked  documents are whole\n"
    "  dropped tokens              ok\n"
    "Nothing wrong was found.\n"
  )


def test_good_array_record(record, capsys):
  assert main([record, "--verify", "--json"]) == 0
  found = json.loads(capsys.readouterr().out)
  assert found["good"] is True
  assert found["problems"] == []
  assert found["num_problems"] == 0
  assert (found["documents"], found["empty_documents"]) == (4, 1)
  assert (found["sequences"], found["tokens"]) == (3, 12)
  assert [c["name"] for c in found["checks"] if c["state"] == "ok"] == [
    "manifest",
    "sizes of files",
    "values",
    "inputs",
    "tokenizer",
    "digest of .array_record",
    "ArrayRecord header and footer",
    "records",
    "ids in the vocabulary",
    "counts",
    "EOD at each document's end",
    "no other EODs",
    "dropped tokens",
  ]


@pytest.mark.parametrize("format", ["indexed", "arrayrecord"])
@pytest.mark.parametrize(
  "options",
  [
    {"append_eod": False},
    {"pack_to_seq_len": 2},
    {"pack_to_seq_len": 2, "partitions": 2, "workers": 2},
    {"pack_to_seq_len": 2, "pack_tail": "carry", "partitions": 2, "workers": 2},
    {"pack_to_seq_len": 4, "append_eod": False},
    {"pack_to_seq_len": 99},
    {"partitions": 3, "workers": 3, "keep_sequential_samples": True},
    {"shuffle": 3},
    {"special_tokens_in_text": "plain"},
    {"on_bad_record": "skip", "special_tokens_in_text": "error"},
    {"pack_to_seq_len": 5, "partitions": 3, "workers": 3},
  ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_whatever_is_prepared_is_good(tmp_path, words, options, format):
  texts = [*TEXTS, "a <eos> b", "e e e e e e e e e e", *"abcde"]
  name = prepare(tmp_path, words, texts, format=format, **options)
  assert problems(name) == []
  texts.remove("a <eos> b")
  name = prepare(tmp_path, words, texts, format=format, **options)
  assert problems(name) == []


def test_sentences_are_good(tmp_path, words, punkt):
  texts = ["Mr. Lee went home. He slept.", "", "He woke up."]
  name = prepare(tmp_path, words, texts, split_sentences=True)
  assert IndexedReader(name).document_indices.tolist() == [0, 2, 2, 3]
  assert problems(name) == []


def test_converted_corpora_are_good(tmp_path, pair):
  convert(pair)
  assert problems(f"{pair}.array_record") == []
  convert(f"{pair}.array_record", tmp_path / "back")
  assert problems(str(tmp_path / "back")) == []


@pytest.mark.parametrize("name", sorted(p.stem for p in GOLDEN.glob("*.idx")))
def test_megatrons_pairs_are_good(name):
  found = states(str(GOLDEN / name))
  assert {state for state, _ in found.values()} == {"ok", "not checked"}
  assert found["digest of .bin"] == (
    "not checked",
    "the manifest is not there",
  )


def test_old_manifest_without_digests(pair):
  change(pair, bin_digest=None, idx_digest=None, special_token_documents=None)
  found = states(pair)
  why = "the manifest has no digest of it"
  assert found["digest of .bin"] == ("not checked", why)
  assert found["digest of .idx"] == ("not checked", why)
  assert found["no other EODs"][0] == "not checked"
  change(pair, bin_digest="sha256:0", idx_digest="sha256:0")
  assert states(pair)["digest of .bin"] == (
    "not checked",
    "it is of another algorithm, sha256",
  )
  assert problems(pair) == []


def test_floats_are_no_ids(tmp_path, words):
  name = str(GOLDEN / "dtype_float64")
  found = states(name, tokenizer=tokenizer_info(words))
  assert found["ids in the vocabulary"] == (
    "not checked",
    "tokens of float64 are no ids",
  )


# What is found to be wrong.


@pytest.mark.parametrize("suffix", ["bin", "idx"])
def test_each_flipped_byte_of_a_pair_is_found(pair, suffix):
  path = Path(f"{pair}.{suffix}")
  data = path.read_bytes()
  for at in range(len(data)):
    for bit in (0x01, 0x80):
      flip(path, at, bit)
      found, _ = verify(pair)
      assert not found.good
      assert any(
        problem.startswith(f"{path}: its digest is ")
        for problem in found.problems
      )
      path.write_bytes(data)
  assert problems(pair) == []


def test_each_flipped_byte_of_an_idx_is_found_without_a_manifest(pair):
  """But for one document's bound, which nothing else in a pair tells."""
  path = Path(f"{bare(pair)}.idx")
  data = path.read_bytes()
  silent = []
  for at in range(len(data)):
    for bit in (0, 3, 7):
      flip(path, at, 1 << bit)
      if not problems(pair):
        silent.append((at, bit))
      path.write_bytes(data)
  # 34 bytes of head, 3 lengths, 3 pointers, indices 0 1 1 2 3; 1 may be 0 or
  # 2, and where it is 2, so is the next.
  first = 34 + 3 * 12
  assert {at for at, _ in silent} <= {first + 8, first + 16, first + 24}
  assert len(silent) <= 3


def test_flipped_bytes_of_an_array_record_are_found(record):
  path = Path(record)
  data = path.read_bytes()
  used = [at for at, byte in enumerate(data) if byte]
  for at in [*used[::5], *range(0, len(data), 9973), len(data) - 1]:
    flip(path, at)
    found, _ = verify(record)
    assert found.problems[0].startswith(f"{path}: its digest is ")
    path.write_bytes(data)
  assert problems(record) == []


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_damage_is_a_problem_and_no_crash(tmp_path_factory, data):
  folder = tmp_path_factory.mktemp("damage")
  name = str(folder / "x")
  with IndexedWriter(name, dtype="uint16", multimodal=True) as writer:
    writer.add_document([1, 2, 3, 0], [1, 3])
    writer.add_document([])
    writer.add_document([4, 0])
  path = folder / data.draw(st.sampled_from(["x.bin", "x.idx"]))
  content = path.read_bytes()
  at = data.draw(st.integers(0, len(content)))
  gone = data.draw(st.integers(0, 9))
  new = data.draw(st.binary(max_size=9))
  path.write_bytes(content[:at] + new + content[at + gone :])
  found, _ = verify(name)
  for problem in found.problems:
    assert problem.startswith(name)


@pytest.mark.parametrize("suffix", ["bin", "idx"])
def test_each_truncation_of_a_pair_is_found(pair, suffix):
  path = Path(f"{pair}.{suffix}")
  data = path.read_bytes()
  for manifest in (True, False):
    if not manifest:
      bare(pair)
    for size in range(len(data)):
      os.truncate(path, size)
      found, scan = verify(pair)
      assert not found.good
      assert scan is None
      assert str(path) in found.problems[0]
      path.write_bytes(data)


@pytest.mark.parametrize("size", [0, 1, 65535, 65536, 100_000, 131_071])
def test_truncated_array_record_is_found(record, size):
  os.truncate(record, size)
  found = problems(record)
  assert (
    found[0] == f"{record}: it has {size} bytes, expected 131072 (manifest)"
  )
  assert found[1].startswith(f"{record}: its digest is ")
  assert found[2].startswith(f"{record} cannot be read: ")
  bare(record)
  assert problems(record)[0].startswith(f"{record} cannot be read: ")


def test_every_bad_record_is_told(tmp_path, words):
  texts = [f"a {'b ' * 40}{'c ' * i}" for i in range(6)]
  name = bare(prepare(tmp_path, words, texts, format="arrayrecord"))
  data = bytearray(Path(name).read_bytes())
  for i in (1, 4):
    ids = [3, *[4] * 40, *[5] * i, 0]
    at = data.index(np.array(ids, "<u2").tobytes())
    data[at] ^= 64
  Path(name).write_bytes(data)
  found, scan = verify(name)
  assert scan is None
  assert [problem.split(" cannot")[0] for problem in found.problems] == [
    f"{name}: record 1",
    f"{name}: record 4",
  ]


def patch(path, at, kind, value):
  data = bytearray(path.read_bytes())
  struct.pack_into(kind, data, at, value)
  path.write_bytes(data)


def test_places_in_an_idx(tmp_path):
  name = write_pair(tmp_path / "x", [[[1, 2]], [[3], [4]], [[5]]])
  path = Path(f"{name}.idx")
  data = path.read_bytes()
  for at, kind, value, expected in (
    (
      38,
      "<i",
      -3,
      [
        f"{path}, sequence 1 (byte 38): its length is -3, expected 0 or more",
        f"{path}, sequence 2 (byte 66): it begins at byte 6 of the .bin,"
        " expected byte -2, where the one before it ends",
      ],
    ),
    (
      58,
      "<q",
      8,
      [
        f"{path}, sequence 1 (byte 58): it begins at byte 8 of the .bin,"
        " expected byte 4, where the one before it ends",
        f"{path}, sequence 2 (byte 66): it begins at byte 6 of the .bin,"
        " expected byte 10, where the one before it ends",
      ],
    ),
    (
      46,
      "<i",
      2,
      [
        f"{name}.bin: it has 10 bytes, expected 12: by {path}, the last of 4"
        " sequences ends there",
      ],
    ),
    (
      82,
      "<q",
      1,
      [f"{path}, document index 0 (byte 82): it is 1, expected 0"],
    ),
    (
      98,
      "<q",
      0,
      [f"{path}, document index 2 (byte 98): it is 0, expected 1 to 4"],
    ),
    (
      98,
      "<q",
      9,
      [
        f"{path}, document index 2 (byte 98): it is 9, expected 1 to 4",
        f"{path}, document index 3 (byte 106): it is 4, expected 4",
      ],
    ),
    (
      106,
      "<q",
      3,
      [f"{path}, document index 3 (byte 106): it is 3, expected 4"],
    ),
  ):
    patch(path, at, kind, value)
    assert problems(name) == expected
    path.write_bytes(data)


def test_problems_beyond_the_limit_are_counted(tmp_path, capsys):
  name = write_pair(tmp_path / "x", [[[i]] for i in range(50)])
  path = Path(f"{name}.idx")
  data = bytearray(path.read_bytes())
  data[34 + 200 : 34 + 600] = bytes(400)
  path.write_bytes(data)
  assert main([name, "--verify", "--max-problems", "2"]) == 1
  out = capsys.readouterr().out
  assert "  .idx lengths and pointers  FAILED\n" in out
  assert out.count("it begins at byte") == 2
  # The pointers are 0 and each sequence before ends at 2.
  assert "50 problems:\n" in out
  assert "  and 48 more\n" in out


def test_ids_outside_the_vocabulary(pair):
  change(pair, tokenizer=_smaller(pair, 5), bin_digest=None)
  assert problems(pair) == [
    f"{pair}.bin, document 0, token 2: the id is 5, expected 0 to 4",
    f"{pair}.bin, document 2, token 0: the id is 6, expected 0 to 4",
  ]


def _smaller(name, size):
  return dataclasses.replace(parse_manifest(name).tokenizer, vocab_size=size)


def test_ids_outside_a_tokenizer_that_is_given(pair, tmp_path):
  info = dataclasses.replace(parse_manifest(pair).tokenizer, vocab_size=6)
  assert problems(bare(pair), tokenizer=info) == [
    f"{pair}.bin, document 2, token 0: the id is 6, expected 0 to 5"
  ]


def test_another_tokenizer(pair, tmp_path):
  folder = save_word_tokenizer(tmp_path / "o", size=9, eos_token="<eos>")
  info = tokenizer_info(load_tokenizer(folder))
  problem, size = problems(pair, tokenizer=info)
  assert problem.startswith(f"{pair}.manifest.json: its tokenizer is ")
  assert f"expected that of {folder}, {info.digest}" in problem
  assert size.endswith("it says tokenizer.vocab_size 8, expected 9")


def test_documents_that_do_not_end_with_the_eod(tmp_path, words):
  name = prepare(tmp_path, words, append_eod=False)
  change(name, append_eod=True)
  assert problems(name) == [
    f"{name}.bin, document {document}, token {token}: the document's last id"
    f" is {last}, expected the EOD 0"
    for document, token, last in ((0, 2, 5), (2, 0, 6), (3, 4, 3))
  ]


def test_eods_inside_documents(tmp_path, words):
  name = prepare(tmp_path, words, ["a <eos> b"])
  assert parse_manifest(name).special_token_documents == 1
  assert problems(name) == []
  change(name, special_token_documents=0)
  assert problems(name) == [
    f"{name}.bin, document 0, token 1: the id is the EOD 0, expected another:"
    f" {name}.manifest.json says that no text spells it out"
  ]


def test_too_many_eods_in_records(tmp_path, words):
  name = prepare(tmp_path, words, ["a <eos> <eos>"], pack_to_seq_len=1)
  change(name, special_token_documents=0)
  assert problems(name) == [
    f"{name}.bin: it has 3 EODs (id 0), expected 1: one for each record that"
    " has tokens, less those dropped"
  ]


def test_records_of_another_length(tmp_path, words):
  name = prepare(tmp_path, words, pack_to_seq_len=2)
  change(name, pack_to_seq_len=3)
  found = problems(name)
  assert found == [
    f"{name}.bin, document {i}: it has 3 tokens in 1 sequences, expected 4 in 1"
    for i in range(4)
  ]


@pytest.mark.parametrize(
  ("options", "changed", "expected"),
  [
    ({}, {"documents": 5}, "it says documents 5, expected 4"),
    ({}, {"sequences": 5}, "it says sequences 5, expected 3"),
    ({}, {"tokens": 5}, "it says tokens 5, expected 12"),
    ({}, {"dtype": "int32"}, "it says dtype int32, expected uint16"),
    ({}, {"empty_documents": 0}, "it says empty_documents 0, expected 1"),
    ({}, {"records": 9}, "it says records 9, expected 4"),
    ({}, {"dropped_tokens": 1}, "it says dropped_tokens 1, expected 0"),
    (
      {"pack_to_seq_len": 2},
      {"dropped_tokens": 3},
      "it says dropped_tokens 3, expected 2 at most: 1 tails of 2 tokens",
    ),
    (
      {},
      {"format": "arrayrecord"},
      "its format is 'arrayrecord', expected 'indexed'",
    ),
  ],
)
def test_what_a_manifest_says_wrongly(
  tmp_path, words, options, changed, expected
):
  name = prepare(tmp_path, words, **options)
  change(name, **changed)
  assert problems(name) == [f"{name}.manifest.json: {expected}"]


BAD = BadInput("in.jsonl", 1, 0, "is no JSON.")
EDITS = [
  # (options of the preparation, the edit, what is said of it)
  ({}, {"tokenizer.vocab_size": 9}, "tokenizer.vocab_size 9, expected 8"),
  ({}, {"tokenizer.pad_id": 7}, "tokenizer.pad_id 7, expected None"),
  ({}, {"tokenizer.bos_id": 7}, "tokenizer.bos_id 7, expected None"),
  ({}, {"tokenizer.eos_id": 7}, "tokenizer.eos_id 7, expected 0"),
  ({}, {"tokenizer.eod_id": 7}, "tokenizer.eod_id 7, expected 0"),
  ({}, {"tokenizer.digest": "0"}, "its tokenizer is {words}, digest 0;"),
  (
    {},
    {"append_eod": False},
    "append_eod False, found each of 3 documents with tokens to end with the"
    " EOD 0, and special_token_documents to be 0",
  ),
  (
    {"pack_to_seq_len": 2},
    {"append_eod": False},
    "append_eod False, found 3 of the EOD 0,",
  ),
  (
    {"append_eod": False},
    {"append_eod": True},
    "the document's last id is 5, expected the EOD 0",
  ),
  ({}, {"dropped_documents": 1}, "dropped_documents 1, expected 0"),
  ({}, {"dropped_tokens": 1}, "dropped_tokens 1, expected 0"),
  (
    {"pack_to_seq_len": 4},
    {"dropped_documents": 0},
    "dropped_documents 0, expected 1: dropped_tokens is 2",
  ),
  (
    {},
    {"bad_records": 3},
    "bad_records 3, and bad has 0 entries, expected 3",
  ),
  ({}, {"bad": (BAD,)}, "bad_records 0, and bad has 1 entries, expected 0"),
  (
    {},
    {"bad_records": 1, "bad": (BAD,)},
    "bad[0].path in.jsonl, expected one of inputs",
  ),
  ({}, {"array_record_bytes": 1}, "array_record_bytes 1, expected None"),
  ({}, {"array_record_digest": "x"}, "array_record_digest x, expected None"),
  ({"format": "arrayrecord"}, {"bin_bytes": 1}, "bin_bytes 1, expected None"),
  ({"format": "arrayrecord"}, {"idx_bytes": 1}, "idx_bytes 1, expected None"),
  ({"format": "arrayrecord"}, {"bin_digest": "x"}, "bin_digest x, expected"),
  ({"format": "arrayrecord"}, {"idx_digest": "x"}, "idx_digest x, expected"),
  (
    {},
    {"special_tokens_in_text": "maybe"},
    "special_tokens_in_text maybe, expected one of as_is, plain, error",
  ),
  (
    {},
    {"tokenizer_backend": "auto"},
    "tokenizer_backend auto, expected one of huggingface, gigatoken",
  ),
  (
    {"pack_to_seq_len": 2},
    {"pack_tail": "cut"},
    "pack_tail cut, expected one of drop, carry",
  ),
  ({}, {"pack_tail": "drop"}, "pack_tail drop, expected None"),
  ({}, {"format": "x"}, "its format is 'x', expected 'indexed'"),
  ({}, {"json_key": "body"}, "json_key body, expected text"),
  (
    {"format": "arrayrecord"},
    {"json_key": "body"},
    "json_key body, expected text",
  ),
  ({}, {"records": 5}, "records 5, expected 4"),
  (
    {"pack_to_seq_len": 2},
    {"records": 99},
    "records 99, found 12 tokens and dropped_tokens, expected one or more of"
    " each of 98 that are not in empty_documents",
  ),
  (
    {"pack_to_seq_len": 2},
    {"empty_documents": 5},
    "empty_documents 5, expected 4 (records) at most",
  ),
  ({}, {"empty_documents": 2}, "empty_documents 2, expected 1"),
  ({}, {"partitions": 0}, "partitions 0, expected 1 or more"),
  (
    {},
    {"special_token_documents": 5},
    "special_token_documents 5, expected 4 (records) at most",
  ),
  (
    {"special_tokens_in_text": "error"},
    {"special_token_documents": 1},
    "special_token_documents 1, expected 0",
  ),
]


@pytest.mark.parametrize("case", EDITS)
def test_each_edit_of_a_manifest_is_found(tmp_path, words, case, capsys):
  options, edit, expected = case
  name = prepare(tmp_path, words, **options)
  path = manifest_path(name)
  content = json.loads(path.read_text())
  for field, value in edit.items():
    *outer, last = field.split(".")
    (content[outer[0]] if outer else content)[last] = value
  path.write_text(json.dumps(content, default=dataclasses.asdict))
  expected = expected.format(words=words.name_or_path)
  # The tokenizer is given, or found by its name.
  for flags in (["--tokenizer", words.name_or_path], []):
    assert main([name, "--verify", *flags]) == 1
    assert expected in capsys.readouterr().out


def test_an_eod_that_texts_end_with_is_not_an_appended_one(tmp_path, words):
  texts = ["a <eos>", "", "b <eos>"]
  assert problems(prepare(tmp_path, words, texts, append_eod=False)) == []


def test_a_key_of_another_name_is_not_compared(tmp_path, pair):
  convert(pair, tmp_path / "train_document.array_record")
  name = str(tmp_path / "train_document.array_record")
  assert problems(name) == []


def test_a_tokenizer_that_is_not_here(pair, capsys):
  tokenizer = parse_manifest(pair).tokenizer
  change(pair, tokenizer=dataclasses.replace(tokenizer, name="/not/here"))
  assert main([pair, "--verify"]) == 0
  out = capsys.readouterr().out
  assert "not checked  it is not here, and no --tokenizer is given" in out


def test_inputs_of_another_size_are_noted(pair):
  source = Path(parse_manifest(pair).inputs[0].path)
  size = source.stat().st_size
  source.write_text("x")
  assert states(pair)["inputs"] == (
    "ok",
    f"{source} has 1 bytes, not {size}",
  )
  source.unlink()
  assert states(pair)["inputs"] == ("not checked", "they are not here")
  assert problems(pair) == []


def test_sizes_of_files(pair):
  change(pair, bin_bytes=26)
  assert problems(pair) == [
    f"{pair}.bin: it has 24 bytes, expected 26 (manifest)"
  ]


def test_broken_manifest(pair):
  path = manifest_path(pair)
  path.write_text("{")
  (problem,) = problems(pair)
  assert problem.startswith(f"{path}: The manifest {path} cannot be read: ")
  assert states(pair)["counts"] == ("not checked", "there is no manifest")


def test_what_follows_the_last_sequence(pair):
  with Path(f"{bare(pair)}.bin").open("ab") as file:
    file.write(b"x")
  assert problems(pair) == [
    f"{pair}.bin: it has 25 bytes, expected 24: by {pair}.idx, the last of 3"
    " sequences ends there"
  ]


def test_memory_does_not_grow_with_the_corpus(tmp_path):
  with IndexedWriter(tmp_path / "x", dtype="uint16") as writer:
    tokens = np.zeros(1 << 20, "<u2")
    for _ in range(100):
      writer.add_documents([tokens], np.array([1 << 20]), np.array([1]))
  code = """
import sys
from hpgrain.tools.read_indexed_dataset import main
def peak():
  # Not ru_maxrss, which begins with that of the process that started this.
  lines = open("/proc/self/status").read().splitlines()
  return next(int(l.split()[1]) for l in lines if l.startswith("VmHWM"))
before = peak()
assert main([sys.argv[1], "--eod-id", "0"]) == 0
assert main([sys.argv[1], "--verify"]) == 0
after = peak()
print((after - before) // 1024)
"""
  done = subprocess.run(
    [sys.executable, "-c", code, tmp_path / "x"],
    check=True,
    capture_output=True,
    text=True,
    timeout=100,
  )
  assert int(done.stdout.splitlines()[-1]) < 100


# What the loader does with manifests.


def test_opening_reads_no_digest(pair):
  """Gigabytes are not read at a start: sizes alone are compared."""
  flip(f"{pair}.bin", 0)
  assert read_manifest(pair).tokens == 12
  assert not verify(pair)[0].good
