"""What the reference's acceptance document asks of the local command.

Each test runs the command's own function with the flags a user would type.
The rows of the flags' table are in test_offline_preparation.py, those of the
hub's command in test_huggingface_offline.py.
"""

import gzip
import hashlib
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from helpers_tokenizer import read_pair, save_word_tokenizer
from tokenizers import models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from hpgrain import build_indexed_text_dataset
from hpgrain.manifest import read_manifest
from hpgrain.sources.indexed import IndexedReader
from hpgrain.tools import corpus, offline_preparation, unit_work

_GOLDEN = Path(__file__).parents[1] / "data" / "indexed"
# With the word tokenizer: "a" is 3, "b" 4, "c" 5, "d" 6, "e" 7; <eos> is 0.
EOS, SEP = 0, 1


def lines(*texts):
  return "".join(json.dumps({"text": text}) + "\n" for text in texts)


def run(path, out, tokenizer, *flags):
  """The command's exit code."""
  return offline_preparation.main(
    [
      f"--dataset-name-or-path={path}",
      "--json-keys",
      "text",
      f"--output-prefix={out}/x",
      f"--tokenizer-name-or-path={tokenizer}",
      *map(str, flags),
    ]
  )


@pytest.fixture
def prepared(tmp_path, word_folder):
  """Runs the command on a path; returns the documents it wrote."""

  def prepare(path, *flags, tokenizer=word_folder, out=tmp_path / "out"):
    with pytest.warns(UserWarning, match="Only tokenizers that Hugging Face"):
      code = run(path, out, tokenizer, "--overwrite", *flags)
    assert code == 0
    return documents(out / "x_text_document")

  return prepare


@pytest.fixture
def refused(tmp_path, word_folder, capsys):
  """Runs the command, which must fail; returns what it says."""

  def prepare(path, *flags, tokenizer=word_folder):
    out = tmp_path / "out"
    assert run(path, out, tokenizer, *flags) == 1
    assert not out.exists() or not list(out.glob("*.idx"))
    assert not out.exists() or not list(out.glob("*.bin"))
    said = capsys.readouterr().err
    assert "Traceback" not in said
    return said

  return prepare


def documents(prefix):
  """The documents of a pair, as lists of tokens."""
  _, tokens, lengths, indices = read_pair(prefix)
  ends = np.cumsum([0, *lengths])
  bounds = [int(ends[i]) for i in indices]
  return [tokens[a:b] for a, b in itertools.pairwise(bounds)]


def numbered(count):
  """Texts that all differ: words in the base five, "a" to "e"."""
  return [" ".join("abcde"[int(c)] for c in np.base_repr(i, 5)) for i in count]


def ids(text):
  return [3 + "abcde".index(word) for word in text.split()]


@pytest.mark.parametrize(
  "name", ["x.json", "x.jsonl", "x.json.gz", "x.jsonl.gz"]
)
def test_json_and_gzip_files_are_read_alike(tmp_path, prepared, name):
  """Row 115: the four suffixes, a single gzip file with one partition too."""
  data = lines("a b", "c", "d e").encode()
  if name.endswith(".gz"):
    # Of two members, as `cat` makes them, cut inside a record.
    data = gzip.compress(data[:20]) + gzip.compress(data[20:])
  (tmp_path / name).write_bytes(data)
  expected = [[3, 4, EOS], [5, EOS], [6, 7, EOS]]
  assert prepared(tmp_path / name, "--partitions", 1) == expected
  found = prepared(
    tmp_path / name, "--partitions", 2, "--keep-sequential-samples"
  )
  assert found == expected


@pytest.fixture
def folder(tmp_path):
  """Four files out of their order, one of them in a folder of the folder."""
  path = tmp_path / "in"
  (path / "deeper").mkdir(parents=True)
  (path / "b-2.jsonl").write_text(lines("b"))
  (path / "b-10.jsonl").write_text(lines("a"))
  (path / "a.json").write_text(lines("c"))
  (path / "deeper" / "0.jsonl").write_text(lines("e"))
  (path / "c.jsonl.gz").write_bytes(gzip.compress(lines("d").encode()))
  return path


def test_a_folder_is_its_own_files_and_a_pattern_what_matches(folder, prepared):
  """Row 116: one level of a folder; a pattern without **."""
  assert prepared(folder) == [[5, 0], [3, 0], [4, 0], [6, 0]]
  assert prepared(f"{folder}/b-*.jsonl") == [[3, 0], [4, 0]]
  assert prepared(f"{folder}/*/0.jsonl") == [[7, 0]]


def test_files_are_taken_in_the_order_of_their_paths(folder, prepared):
  """Row 117: by characters, so 10 comes before 2, in folder and pattern."""
  names = [path.name for path in folder.iterdir() if path.is_file()]
  assert sorted(names) == ["a.json", "b-10.jsonl", "b-2.jsonl", "c.jsonl.gz"]
  assert prepared(f"{folder}/*.*") == prepared(folder)


@pytest.mark.parametrize("sequential", [False, True])
@pytest.mark.parametrize("partitions", [1, 2, 3, 8])
def test_no_record_is_lost_or_doubled(
  tmp_path, prepared, *, partitions, sequential
):
  """Row 118: over files and partitions, with no newline at a file's end."""
  folder = tmp_path / "in"
  folder.mkdir()
  texts = numbered(range(17))
  for i, (first, last) in enumerate(
    [(0, 1), (1, 7), (7, 7), (7, 16), (16, 17)]
  ):
    content = lines(*texts[first:last])
    (folder / f"{i}.jsonl").write_text(content.removesuffix("\n"))
  flags = ["--keep-sequential-samples"] * sequential
  found = prepared(
    folder, "--partitions", partitions, "--workers", partitions, *flags
  )
  expected = [[*ids(text), EOS] for text in texts]
  assert sorted(found) == sorted(expected)
  if sequential or partitions == 1:
    assert found == expected
  else:
    dealt = [expected[p::partitions] for p in range(partitions)]
    assert found == [document for part in dealt for document in part]


@pytest.mark.parametrize(
  ("path", "message"),
  [
    ("no.jsonl", "FileNotFoundError: The input {}/no.jsonl does not exist"),
    ("no-*.jsonl", "FileNotFoundError: No file matches the pattern {}/no-*"),
    ("empty", "FileNotFoundError: The folder {}/empty holds no file of a form"),
    ("a.doc", "ValueError: The input {}/a.doc has a name that tells no format"),
  ],
)
def test_an_input_that_is_not_there_is_named(tmp_path, refused, path, message):
  """Row 119: a missing path, a pattern and a folder without a match."""
  (tmp_path / "empty").mkdir()
  (tmp_path / "a.doc").write_text("")
  assert message.format(tmp_path) in refused(tmp_path / path)


def test_inputs_are_never_touched(folder, prepared, refused):
  """Row 120: same bytes, times and names, also after a run that fails."""

  def state():
    return {
      path: (
        hashlib.sha256(path.read_bytes()).hexdigest(),
        path.stat().st_mtime_ns,
        path.stat().st_ino,
      )
      for path in folder.rglob("*")
      if path.is_file()
    }

  (folder / "z.jsonl").write_text("broken\n")
  before = state()
  refused(folder)
  prepared(
    folder,
    *("--on-bad-record", "skip", "--partitions", 2, "--keep-partition-files"),
  )
  assert state() == before


def test_a_record_without_the_key_is_an_error_and_names_its_place(
  tmp_path, refused
):
  """Row 121, first half: the file, the record's number, its byte; no text."""
  source = tmp_path / "in.jsonl"
  source.write_text(lines("a") + '{"body": "secret"}\n')
  said = refused(source)
  place = f"{source}: record 2 (line 2, at byte offset 14)"
  assert f"{place} has no key 'text'" in said
  assert "secret" not in said


def test_empty_texts_make_no_sequence(tmp_path, prepared):
  """Row 121, second half: an empty text is a document without tokens."""
  source = tmp_path / "in.jsonl"
  source.write_text(lines("", "a", " ", "", "b"))
  assert prepared(source) == [[], [3, 0], [], [], [4, 0]]
  reader = IndexedReader(tmp_path / "out" / "x_text_document")
  reader.verify()
  assert list(reader.lengths) == [2, 2]
  assert (
    read_manifest(tmp_path / "out" / "x_text_document").empty_documents == 3
  )


def test_the_pair_has_the_name_of_prefix_and_key(tmp_path, prepared):
  """Row 122: `<prefix>_text_document.bin/.idx`, and a manifest beside it."""
  (tmp_path / "in.jsonl").write_text(lines("a"))
  prepared(tmp_path / "in.jsonl", out=tmp_path / "deep" / "er")
  assert sorted(p.name for p in (tmp_path / "deep" / "er").iterdir()) == [
    "x_text_document.bin",
    "x_text_document.idx",
    "x_text_document.manifest.json",
  ]


@pytest.mark.parametrize(
  ("flags", "message"),
  [
    (("--workers", 3, "--partitions", 2), "must be a multiple of partitions"),
    (("--partitions", 3), "got workers 8 and partitions 3"),
    (("--workers", 0), "workers must be a positive integer, got 0"),
    (("--workers", -2), "workers must be a positive integer, got -2"),
    (("--partitions", 0), "partitions must be a positive integer, got 0"),
    (("--partitions", -1), "partitions must be a positive integer, got -1"),
    (("--pack-to-seq-len", 0), "pack_to_seq_len must be positive"),
    (("--pack-to-seq-len", -4096), "pack_to_seq_len must be positive"),
  ],
)
def test_numbers_that_cannot_be_are_value_errors(
  tmp_path, refused, flags, message
):
  """Rows 123 and 127: workers, partitions and the packing length."""
  (tmp_path / "in.jsonl").write_text(lines("a"))
  said = refused(tmp_path / "in.jsonl", *flags)
  assert said.startswith("offline_preparation: ValueError: ")
  assert message in said


@pytest.mark.parametrize("partitions", [1, 2, 4, 8])
def test_sequential_samples_keep_the_inputs_order(
  tmp_path, prepared, partitions
):
  """Row 124: whatever the number of partitions, the same bytes."""
  texts = numbered(range(21))
  (tmp_path / "in.jsonl").write_text(lines(*texts))
  flags = ("--keep-sequential-samples", "--partitions", partitions)
  found = prepared(tmp_path / "in.jsonl", *flags, "--keep-partition-files")
  assert found == [[*ids(text), EOS] for text in texts]
  # And each partition got a run of consecutive records.
  parts = [
    [json.loads(line)["text"] for line in path.read_text().splitlines()]
    for path in sorted((tmp_path / "out").glob("x_partition_*.jsonl"))
  ]
  assert len(parts) == partitions
  assert [text for part in parts for text in part] == texts


def test_the_merge_counts_documents_tokens_and_keeps_the_order(
  tmp_path, prepared, capsys
):
  """Row 125: of several partitions, in the manifest and the summary."""
  texts = numbered(range(10))
  (tmp_path / "in.jsonl").write_text(lines(*texts))
  found = prepared(tmp_path / "in.jsonl", "--partitions", 4)
  whole = [[*ids(text), EOS] for text in texts]
  dealt = [whole[p::4] for p in range(4)]
  assert found == [document for part in dealt for document in part]
  manifest = read_manifest(tmp_path / "out" / "x_text_document")
  num_tokens = sum(map(len, whole))
  assert (manifest.documents, manifest.sequences) == (10, 10)
  assert (manifest.tokens, manifest.bin_bytes) == (num_tokens, 2 * num_tokens)
  said = capsys.readouterr().out
  assert "documents         10, in 10 sequences" in said
  assert f"tokens            {num_tokens} as uint16" in said


@pytest.mark.parametrize("partitions", [1, 2, 4])
def test_packing_cuts_n_plus_one_tokens_and_drops_each_partitions_tail(
  tmp_path, prepared, partitions
):
  """Row 126: across documents, within a partition, without padding."""
  texts = numbered(range(30))
  (tmp_path / "in.jsonl").write_text(lines(*texts))
  found = prepared(
    tmp_path / "in.jsonl", "--partitions", partitions, "--pack-to-seq-len", 6
  )
  expected, dropped = [], 0
  for p in range(partitions):
    stream = [t for text in texts[p::partitions] for t in [*ids(text), EOS]]
    whole = len(stream) // 7
    expected += [stream[7 * i : 7 * i + 7] for i in range(whole)]
    dropped += len(stream) - 7 * whole
  assert found == expected
  assert any(EOS in record[:-1] for record in found), "across documents"
  manifest = read_manifest(tmp_path / "out" / "x_text_document")
  assert manifest.dropped_tokens == dropped > 0
  assert manifest.dropped_documents <= partitions
  assert manifest.pack_to_seq_len == 6


def test_packed_records_are_what_training_reads(tmp_path, prepared):
  """Row 126, its end: the records are rows of training, S + 1 tokens each."""
  (tmp_path / "in.jsonl").write_text(lines(*numbered(range(60))))
  found = prepared(tmp_path / "in.jsonl", "--pack-to-seq-len", 8)
  rows, _, _ = build_indexed_text_dataset(
    seed=0,
    data_path=str(tmp_path / "out" / "x_text_document"),
    seq_length=8,
    is_dataset_from_mr=True,
    split="1,0,0",
  )
  assert sorted(rows[i]["tokens"].tolist() for i in range(len(rows))) == sorted(
    record[:-1] for record in found
  )


def test_packing_without_eod_warns_and_is_made(tmp_path, word_folder):
  """Row 127: a UserWarning that says what is lost, and a pair."""
  (tmp_path / "in.jsonl").write_text(lines("a b", "c d"))
  with pytest.warns(UserWarning, match="Packing without an EOD"):
    code = run(
      tmp_path / "in.jsonl",
      tmp_path,
      word_folder,
      *("--pack-to-seq-len", 1, "--append-eod", "false"),
    )
  assert code == 0
  assert documents(tmp_path / "x_text_document") == [[3, 4], [5, 6]]


def test_documents_end_with_eos_else_sep_else_there_is_an_error(
  tmp_path, prepared, refused
):
  """Row 128: once, only after documents that have tokens."""
  (tmp_path / "in.jsonl").write_text(lines("a", "", "b"))
  for special, eod in (
    ({"eos_token": "<eos>", "sep_token": "<sep>"}, EOS),
    ({"sep_token": "<sep>"}, SEP),
  ):
    folder = save_word_tokenizer(tmp_path / f"tokenizer{eod}", **special)
    found = prepared(tmp_path / "in.jsonl", tokenizer=folder)
    assert found == [[3, eod], [], [4, eod]]
  bare = save_word_tokenizer(tmp_path / "bare")
  found = prepared(
    tmp_path / "in.jsonl", "--append-eod", "false", tokenizer=bare
  )
  assert found == [[3], [], [4]]
  (tmp_path / "out" / "x_text_document.bin").unlink()
  (tmp_path / "out" / "x_text_document.idx").unlink()
  said = refused(tmp_path / "in.jsonl", "--overwrite", tokenizer=bare)
  assert "neither an EOS nor a SEP token" in said


def test_that_only_hugging_face_is_supported_is_a_warning(
  tmp_path, word_folder
):
  """Row 129: a UserWarning; the exit code is 0."""
  (tmp_path / "in.jsonl").write_text(lines("a"))
  with pytest.warns(UserWarning, match="Hugging Face AutoTokenizer loads are"):
    assert run(tmp_path / "in.jsonl", tmp_path, word_folder) == 0


def test_partition_files_stay_only_when_asked_for_and_change_nothing(
  tmp_path, prepared
):
  """Row 130: JSON files of the partitions' records; the pair is the same."""
  (tmp_path / "in.jsonl").write_text(lines("a", "b", "", "d"))
  flags = ("--partitions", 2)
  made = {}
  for name, more in (("without", ()), ("with", ("--keep-partition-files",))):
    prepared(tmp_path / "in.jsonl", *flags, *more, out=tmp_path / name)
    made[name] = {p.name: p.read_bytes() for p in (tmp_path / name).iterdir()}
  kept = {
    name: made["with"].pop(name)
    for name in set(made["with"]) - set(made["without"])
  }
  assert made["with"] == made["without"]
  assert {name: data.decode() for name, data in kept.items()} == {
    "x_partition_0.jsonl": lines("a", ""),
    "x_partition_1.jsonl": lines("b", "d"),
  }


def id_tokenizer(folder, numbers):
  """A tokenizer that gives each of some ids for its word; 0 is its EOS."""
  vocabulary = {word(number): int(number) for number in numbers}
  vocabulary |= {word(0): 0, "unknown": 1 + max(vocabulary.values())}
  backend = tokenizers.Tokenizer(
    models.WordLevel(vocabulary, unk_token="unknown")
  )
  backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
  PreTrainedTokenizerFast(
    tokenizer_object=backend, unk_token="unknown", eos_token=word(0)
  ).save_pretrained(folder)
  return folder


def word(number):
  """What stands for an id; no EOS is found inside another word."""
  return f"i{number}" if number else "<eos>"


def golden(name):
  """A pair that Megatron wrote, as documents of sequences of ids."""
  reader = IndexedReader(_GOLDEN / name)
  bounds = list(reader.document_indices)
  return [
    [reader[i].tolist() for i in range(first, last)]
    for first, last in itertools.pairwise(bounds)
  ]


@pytest.mark.parametrize(
  ("name", "sources", "dtype", "eod"),
  [
    ("u16_0", ["u16_0"], "uint16", False),
    ("u16_3", ["u16_3"], "uint16", False),
    # A merge is the files one after the other.
    ("merged", ["u16_0", "u16_1", "u16_2"], "uint16", False),
    ("i32_a", ["i32_a"], "int32", False),
    # The others hold a document of an EOD alone, which no text gives.
    ("i32_a", ["i32_a"], "int32", True),
  ],
)
def test_megatrons_bytes_come_out_of_its_own_ids(
  tmp_path, prepared, *, name, sources, dtype, eod
):
  """Rows 34 and 39: texts of a golden pair's ids give its `.bin` and `.idx`.

  With an EOD from the text, and with one that the command appends.
  """
  source = tmp_path / "in"
  source.mkdir()
  numbers = set()
  for place, part in enumerate(sources):
    texts = []
    for (tokens,) in golden(part):
      numbers |= set(tokens)
      assert tokens[-1] == EOS
      texts.append(" ".join(map(word, tokens[:-1] if eod else tokens)))
    (source / f"{place}.jsonl").write_text(lines(*texts))
  tokenizer = id_tokenizer(tmp_path / "tokenizer", numbers)
  for partitions in (1, 2):
    prepared(
      source,
      *("--append-eod", str(eod).lower(), "--partitions", partitions),
      "--keep-sequential-samples",
      tokenizer=tokenizer,
    )
    for suffix in ("bin", "idx"):
      made = tmp_path / "out" / f"x_text_document.{suffix}"
      assert made.read_bytes() == (_GOLDEN / f"{name}.{suffix}").read_bytes()
    assert read_manifest(tmp_path / "out" / "x_text_document").dtype == dtype


def test_megatrons_documents_of_several_sequences_come_out(
  tmp_path, prepared, monkeypatch
):
  """Row 34: each sentence is a sequence of its document, as in `multi_seq`.

  A document without sequences is there as well. Lines stand for sentences.
  """
  for module in (corpus, unit_work):
    monkeypatch.setattr(module, "sentence_splitter", lambda how: str.splitlines)
  whole = golden("multi_seq")
  texts = ["\n".join(" ".join(map(word, s)) for s in d) for d in whole]
  (tmp_path / "in.jsonl").write_text(lines(*texts))
  numbers = {token for d in whole for s in d for token in s}
  tokenizer = id_tokenizer(tmp_path / "tokenizer", {*numbers, 70_000})
  prepared(
    tmp_path / "in.jsonl",
    *("--append-eod", "false", "--split-sentences"),
    tokenizer=tokenizer,
  )
  for suffix in ("bin", "idx"):
    made = tmp_path / "out" / f"x_text_document.{suffix}"
    assert made.read_bytes() == (_GOLDEN / f"multi_seq.{suffix}").read_bytes()
