"""Pairs to ArrayRecord files and back: the same bytes, or an error."""

import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from corpora import random_documents, write_pair
from hypothesis import given, settings
from hypothesis import strategies as st

from hpgrain.manifest import (
  Manifest,
  manifest_path,
  read_manifest,
  storage_fields,
  write_manifest,
)
from hpgrain.sources.array_record import ArrayRecordDocuments, ArrayRecordWriter
from hpgrain.sources.file_digest import digest_of_path
from hpgrain.sources.indexed import IndexedReader, IndexedWriter
from hpgrain.tokenizer import TokenizerInfo
from hpgrain.tools.convert import convert
from hpgrain.tools.convert_indexed_dataset import main

GOLDEN = Path(__file__).parents[1] / "data" / "indexed"
NAMES = sorted(path.stem for path in GOLDEN.glob("*.idx"))
DOCUMENTS = [[[1, 2, 3]], [], [[4], [], [5, 0]], [[]]]


def digests(name):
  kinds = ("array_record",) if name.endswith("record") else ("bin", "idx")
  paths = [name] if len(kinds) == 1 else [f"{name}.{kind}" for kind in kinds]
  return {k: digest_of_path(path) for k, path in zip(kinds, paths)}


def manifest_of(name, **changes):
  """A manifest that is true of the pair of `DOCUMENTS`."""
  manifest = Manifest(
    tool="hpgrain 0.0.1",
    tokenizer=TokenizerInfo("t", "d", 10, 0, None, None, 0),
    append_eod=False,
    pack_to_seq_len=None,
    dtype="uint16",
    documents=4,
    sequences=5,
    tokens=6,
    dropped_tokens=0,
    empty_documents=2,
    inputs=(),
    **storage_fields(name, digests(name)),
  )
  return dataclasses.replace(manifest, **changes)


@pytest.fixture
def pair(tmp_path):
  return write_pair(tmp_path / "x_text_document", DOCUMENTS)


def names(folder):
  return sorted(path.name for path in folder.iterdir())


def same_pair(one, other):
  return all(
    Path(f"{one}.{suffix}").read_bytes()
    == Path(f"{other}.{suffix}").read_bytes()
    for suffix in ("bin", "idx")
  )


def test_the_golden_pairs_are_all_kinds():
  assert {f"dtype_{name}" for name in "uint8 float64 int16".split()} < {*NAMES}
  assert {"multi_seq", "empty_docs", "mm", "merged"} < {*NAMES}
  assert len([name for name in NAMES if name.startswith("dtype_")]) == 8


@pytest.mark.parametrize("name", NAMES)
def test_golden_pairs_go_there_and_back(tmp_path, name):
  path = str(tmp_path / "y.array_record")
  there = convert(GOLDEN / name, path)
  back = convert(path, tmp_path / "back")
  assert same_pair(GOLDEN / name, tmp_path / "back")
  reader = IndexedReader(GOLDEN / name)
  assert there.documents == back.documents == reader.num_documents
  assert there.sequences == back.sequences == len(reader)
  assert there.tokens == back.tokens == reader.num_tokens
  assert there.manifest is None
  assert names(tmp_path) == ["back.bin", "back.idx", "y.array_record"]


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.integers(1, 40))
def test_any_pair_goes_there_and_back(tmp_path_factory, seed, size):
  folder = tmp_path_factory.mktemp("pairs")
  rng = random.Random(seed)
  dtype = rng.choice(["uint8", "int8", "int16", "int32", "int64", "uint16"])
  pair = write_pair(
    folder / "x", random_documents(rng, num_documents=size), dtype=dtype
  )
  convert(pair)
  convert(f"{pair}.array_record", folder / "y")
  assert same_pair(pair, folder / "y")


def test_blocks_of_few_documents_give_the_same(tmp_path, pair, monkeypatch):
  convert(pair, tmp_path / "a.array_record")
  monkeypatch.setattr("hpgrain.sources.document_blocks.BLOCK_DOCUMENTS", 2)
  monkeypatch.setattr("hpgrain.sources.document_blocks._BLOCK_SEQUENCES", 1)
  monkeypatch.setattr("hpgrain.sources.array_record_reader._BLOCK_BYTES", 1)
  convert(pair, tmp_path / "b.array_record")
  one, other = (tmp_path / f"{name}.array_record" for name in "ab")
  assert one.read_bytes() == other.read_bytes()
  convert(other, tmp_path / "back")
  assert same_pair(pair, tmp_path / "back")


def test_preparing_one_or_converting_to_it_is_the_same(tmp_path, pair):
  convert(pair)
  with ArrayRecordWriter(tmp_path / "y", dtype="uint16") as writer:
    writer.add_documents(
      [np.array([1, 2, 3, 4, 5, 0], "<u2")],
      np.array([3, 1, 0, 2, 0]),
      np.array([1, 0, 3, 1]),
    )
  assert (tmp_path / "y").read_bytes() == Path(
    f"{pair}.array_record"
  ).read_bytes()


def test_manifest_goes_along_and_comes_back(tmp_path, pair):
  manifest = manifest_of(pair)
  write_manifest(pair, manifest)
  path = f"{pair}.array_record"
  done = convert(pair)
  there = read_manifest(path)
  assert done.manifest == there
  assert there == dataclasses.replace(
    manifest,
    format="arrayrecord",
    bin_bytes=None,
    idx_bytes=None,
    bin_digest=None,
    idx_digest=None,
    array_record_bytes=Path(path).stat().st_size,
    array_record_digest=digest_of_path(path),
  )
  assert there.tool == "hpgrain 0.0.1"
  convert(path, tmp_path / "back")
  assert (
    manifest_path(tmp_path / "back").read_bytes()
    == manifest_path(pair).read_bytes()
  )


def test_old_manifest_gets_digests(pair):
  write_manifest(pair, manifest_of(pair, bin_digest=None, idx_digest=None))
  convert(pair)
  assert read_manifest(f"{pair}.array_record").array_record_digest is not None


def test_corpus_without_a_document_needs_a_manifest(tmp_path):
  with IndexedWriter(tmp_path / "x", dtype="int32"):
    pass
  prefix = str(tmp_path / "x")
  with pytest.raises(ValueError, match="has no document, and no manifest that"):
    convert(prefix)
  assert names(tmp_path) == ["x.bin", "x.idx"]
  counts = {"documents": 0, "sequences": 0, "tokens": 0, "dtype": "int32"}
  write_manifest(prefix, manifest_of(prefix, **counts))
  convert(prefix)
  convert(f"{prefix}.array_record", tmp_path / "back")
  assert same_pair(prefix, tmp_path / "back")
  manifest_path(f"{prefix}.array_record").unlink()
  with pytest.raises(ValueError, match="has no record and no manifest"):
    convert(f"{prefix}.array_record", tmp_path / "other")


def test_output_that_is_there_is_refused(tmp_path, pair):
  target = tmp_path / "x_text_document.array_record"
  manifest_path(target).write_text("mine")
  with pytest.raises(FileExistsError, match=r"array_record\.manifest\.json"):
    convert(pair)
  manifest_path(target).unlink()
  target.write_text("mine")
  with pytest.raises(FileExistsError, match="allow it with --overwrite"):
    convert(pair)
  assert target.read_text() == "mine"
  convert(pair, overwrite=True)
  with ArrayRecordDocuments(target) as documents:
    assert len(documents) == 4
  for suffix in ("bin", "idx"):
    with pytest.raises(FileExistsError, match=rf"document\.{suffix}"):
      convert(target)


def test_overwriting_takes_an_old_manifest_away(pair):
  write_manifest(pair, manifest_of(pair))
  convert(pair)
  manifest_path(pair).unlink()
  convert(pair, overwrite=True)
  assert not manifest_path(f"{pair}.array_record").exists()


def test_two_of_one_format_are_refused(tmp_path, pair):
  with pytest.raises(ValueError, match="are both of the format indexed"):
    convert(pair, tmp_path / "y")
  convert(pair)
  with pytest.raises(ValueError, match="are both of the format arrayrecord"):
    convert(f"{pair}.array_record", tmp_path / "y.array_record")


def test_missing_source_is_named(tmp_path):
  with pytest.raises(FileNotFoundError, match=r"x\.idx does not exist"):
    convert(tmp_path / "x")
  with pytest.raises(FileNotFoundError, match=r"x\.array_record is not there"):
    convert(tmp_path / "x.array_record")
  convert(write_pair(tmp_path / "z", DOCUMENTS))
  for suffix in ("bin", "idx"):
    (tmp_path / f"z.{suffix}").unlink()
  with pytest.raises(
    FileNotFoundError, match=r"z\.array_record is there: convert_indexed"
  ):
    IndexedReader(tmp_path / "z")


def flip(path, at):
  data = bytearray(Path(path).read_bytes())
  data[at] ^= 1
  Path(path).write_bytes(data)


def test_flipped_token_is_refused_if_the_manifest_has_a_digest(tmp_path, pair):
  write_manifest(pair, manifest_of(pair))
  flip(f"{pair}.bin", 4)
  before = names(tmp_path)
  with pytest.raises(ValueError, match=r"\.bin was changed after it was writ"):
    convert(pair)
  assert names(tmp_path) == before


def test_flipped_mode_is_refused_if_the_manifest_has_a_digest(tmp_path):
  prefix = str(tmp_path / "x")
  with IndexedWriter(prefix, dtype="uint16", multimodal=True) as writer:
    for document in DOCUMENTS:
      tokens = [token for sequence in document for token in sequence]
      writer.add_document(tokens, [len(sequence) for sequence in document])
  write_manifest(prefix, manifest_of(prefix))
  flip(f"{prefix}.idx", -1)
  with pytest.raises(ValueError, match=r"\.idx was changed after it was writ"):
    convert(prefix)


def test_flipped_byte_of_an_array_record_is_refused(tmp_path, pair):
  write_manifest(pair, manifest_of(pair))
  convert(pair)
  # Between chunks, where the format has no hash.
  flip(f"{pair}.array_record", 60_000)
  with pytest.raises(ValueError, match="array_record was changed after it was"):
    convert(f"{pair}.array_record", tmp_path / "back")


@pytest.mark.parametrize(
  ("field", "value"),
  [("documents", 5), ("sequences", 4), ("tokens", 7), ("dtype", "int32")],
)
def test_manifest_of_another_corpus_is_refused(tmp_path, pair, field, value):
  write_manifest(pair, manifest_of(pair, **{field: value}))
  before = names(tmp_path)
  with pytest.raises(ValueError, match=f"its manifest says {value}: they do"):
    convert(pair)
  assert names(tmp_path) == before


def test_damaged_pairs_are_refused(tmp_path, pair):
  with Path(f"{pair}.bin").open("ab") as file:
    file.write(b"12")
  with pytest.raises(ValueError, match=r"has 14 bytes, its \.idx uses 12"):
    convert(pair)
  os.truncate(f"{pair}.bin", 12)
  flip(f"{pair}.idx", 34)
  before = names(tmp_path)
  with pytest.raises(ValueError, match="sequence 1 begins at byte"):
    convert(pair)
  assert names(tmp_path) == before


def test_document_that_is_too_large_leaves_nothing(tmp_path, pair, monkeypatch):
  monkeypatch.setattr("hpgrain.sources.array_record_writer.MAX_RECORD_BYTES", 8)
  before = names(tmp_path)
  with pytest.raises(ValueError, match="a record may have 8"):
    convert(pair)
  assert names(tmp_path) == before


def test_source_is_not_changed(tmp_path, pair):
  before = {p: p.read_bytes() for p in tmp_path.iterdir()}
  convert(pair)
  assert {p: p.read_bytes() for p in before} == before


def test_command(tmp_path, pair, capsys):
  write_manifest(pair, manifest_of(pair))
  # A shell completes to one of the files.
  assert main([f"{pair}.bin"]) == 0
  assert capsys.readouterr().out == (
    f"wrote {pair}.array_record: 4 documents, 5 sequences, 6 tokens\n"
  )
  back = str(tmp_path / "back")
  assert main([f"{pair}.array_record", "--output", back]) == 0
  assert capsys.readouterr().out == (
    f"wrote {back}.bin and {back}.idx: 4 documents, 5 sequences, 6 tokens\n"
  )
  assert main([pair]) == 1
  assert "FileExistsError: The output exists" in capsys.readouterr().err
  assert main([pair, "--overwrite"]) == 0
  manifest_path(pair).unlink()
  capsys.readouterr()
  assert main([pair, "--overwrite"]) == 0
  assert "There was no manifest to take along" in capsys.readouterr().out
  assert main(["s3://bucket/x"]) == 1
  assert "is a URL, and this command works on local" in capsys.readouterr().err
  with pytest.raises(SystemExit):
    main([])
  assert "required: CORPUS" in capsys.readouterr().err


# Converts in a child of its own for each line on stdin: killed at that write,
# and what became of it on stdout.
_KILLED = """
import os, signal, sys
from pathlib import Path
from hpgrain.tools.convert import convert

def run(point):
  count = 0
  def dying(call):
    def hooked(*arguments, **options):
      nonlocal count
      count += 1
      if count == point:
        os.kill(os.getpid(), signal.SIGKILL)
      return call(*arguments, **options)
    return hooked
  os.fsync, Path.replace, Path.unlink = map(
    dying, (os.fsync, Path.replace, Path.unlink))
  convert(sys.argv[1], sys.argv[2], overwrite=True)

for line in sys.stdin:
  child = os.fork()
  if not child:
    run(int(line))
    os._exit(0)
  print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.mark.parametrize("back", [False, True])
def test_killed_at_every_step_leaves_the_old_or_the_new(tmp_path, back):
  """What lies under the final names is whole; a rerun makes it new."""
  pair = write_pair(tmp_path / "x", DOCUMENTS)
  write_manifest(pair, manifest_of(pair))
  source, target = pair, str(tmp_path / "y.array_record")
  if back:
    convert(pair)
    source, target = f"{pair}.array_record", str(tmp_path / "y")
  convert(source, target)
  suffixes = [".bin", ".idx"] if back else [""]
  files = [Path(f"{target}{suffix}") for suffix in suffixes]
  expected = [path.read_bytes() for path in files]
  with subprocess.Popen(
    [sys.executable, "-c", _KILLED, source, target],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
  ) as driver:
    for point in range(1, 99):
      driver.stdin.write(f"{point}\n")
      driver.stdin.flush()
      code = int(driver.stdout.readline())
      # A .bin alone is no pair.
      if not back or files[1].exists():
        assert [path.read_bytes() for path in files] == expected
      if manifest_path(target).exists():
        json.loads(manifest_path(target).read_text())
      if code == 0:
        break
      assert code == -signal.SIGKILL
  assert 3 < point < 20
  assert read_manifest(target).tool == "hpgrain 0.0.1"
  assert not [name for name in names(tmp_path) if "partial" in name]


def test_memory_does_not_grow_with_the_corpus(tmp_path):
  with IndexedWriter(tmp_path / "x", dtype="uint16") as writer:
    tokens = np.zeros(1 << 20, "<u2")
    for _ in range(80):
      writer.add_documents([tokens], np.array([1 << 20]), np.array([1]))
  code = """
import sys
from hpgrain.tools.convert import convert
def peak():
  # Not ru_maxrss, which begins with that of the process that started this.
  lines = open("/proc/self/status").read().splitlines()
  return next(int(l.split()[1]) for l in lines if l.startswith("VmHWM"))
before = peak()
convert(sys.argv[1], sys.argv[2])
print((peak() - before) // 1024)
"""
  for source, target in (("x", "y.array_record"), ("y.array_record", "z")):
    done = subprocess.run(
      [sys.executable, "-c", code, tmp_path / source, tmp_path / target],
      check=True,
      capture_output=True,
      text=True,
      timeout=60,
    )
    assert int(done.stdout) < 80
  assert same_pair(tmp_path / "x", tmp_path / "z")
