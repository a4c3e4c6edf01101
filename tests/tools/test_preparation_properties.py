"""Any input and any layout against the definition, in `preparation_twin`.

Files of every dress (line ends, byte order mark, blank lines, a missing final
newline, arrays, gzip of several members, empty ones), bad records, several
keys, partitions, packing, tails, orders, units of all sizes, shards, formats:
the bytes of each pair and each count of its manifest are the defined ones.
"""

import dataclasses
import gzip
import json
import os
import random

import pytest
import zstandard
from corpora import write_pair
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from preparation_twin import expected_pair

from hpgrain.manifest import read_manifest
from hpgrain.tokenizer import load_tokenizer
from hpgrain.tools import engine
from hpgrain.tools.corpus import prepare
from hpgrain.tools.options import Options

KEYS = ("text", "é.b", "c")
SPECIALS = ("<bos>", "<eos>")
BAD = (
  b"broken",
  b'{"no": "text"}',
  b'"a string"',
  b'{"text": null, "\\u00e9.b": 1, "c": 2}',
  b'{"text": "\xff", "\\u00e9.b": "", "c": ""}',
)
BLANK = (b"", b" ", b"\t  ")

_characters = st.characters(exclude_categories=["Cs"])
_text = st.one_of(
  st.text(_characters, max_size=30),
  st.text("ab \n\u2028\x85", max_size=80),
  st.sampled_from(SPECIALS).map("x{} y".format),
  st.just(""),
)
_record = st.tuples(*[_text] * len(KEYS))


@dataclasses.dataclass
class File:
  """What a file holds: its bytes, good records, and bad ones by number."""

  data: bytes
  texts: list[tuple[str, ...]]
  bad: list[tuple[int, int]]
  suffix: str


def lines_file(draw, records):
  """Records as JSON Lines, in any dress; a None is a bad one."""
  end = draw(st.sampled_from([b"\n", b"\r\n"]))
  mark = b"\xef\xbb\xbf" if draw(st.booleans()) else b""
  data, texts, bad = bytearray(mark), [], []
  for number, record in enumerate(records, 1):
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
      data += draw(st.sampled_from(BLANK)) + end
    if record is None:
      # The mark counts as a part of the first line.
      bad.append((number, 0 if data == mark else len(data)))
      data += draw(st.sampled_from(BAD))
    else:
      texts.append(record)
      data += as_json(draw, record)
    data += end
  if records and draw(st.booleans()):
    del data[-len(end) :]
  if data == mark and draw(st.booleans()):
    data = bytearray()
  return File(bytes(data), texts, bad, draw(st.sampled_from(["json", "jsonl"])))


def array_file(draw, records):
  """Records as one JSON array."""
  texts = [record for record in records if record is not None]
  space = draw(st.sampled_from([b"", b" ", b"\n"]))
  parts = [as_json(draw, record) for record in texts]
  data = b"[" + space + (b"," + space).join(parts) + space + b"]"
  return File(data, texts, [], "json")


def as_json(draw, record):
  content = {"id": 5, **dict(zip(KEYS, record)), "more": [1, {"text": 2}]}
  return json.dumps(content, ensure_ascii=draw(st.booleans())).encode()


def packed(draw, file):
  """The file as it is, or as gzip of several members, or as zstd."""
  how = draw(st.sampled_from(["", "", "gz", "zst"]))
  if not how:
    return file
  cuts = sorted(draw(st.lists(st.integers(0, len(file.data)), max_size=2)))
  bounds = [0, *cuts, len(file.data)]
  press = gzip.compress if how == "gz" else zstandard.compress
  data = b"".join(press(file.data[a:b]) for a, b in zip(bounds, bounds[1:]))  # noqa: RUF007
  return dataclasses.replace(file, data=data, suffix=f"{file.suffix}.{how}")


def input_files(draw, *, with_bad, least):
  """Any files, and records in each, at least so many."""
  record = st.one_of(_record, st.none()) if with_bad else _record
  files = []
  group = st.lists(record, min_size=least, max_size=5)
  for records in draw(st.lists(group, min_size=least, max_size=4)):
    make = draw(st.sampled_from([lines_file, lines_file, array_file]))
    files.append(packed(draw, make(draw, records)))
  return files


def layouts(draw, *, least=1):
  """Options of the layout, and what the twin calls them."""
  partitions = draw(st.integers(1, 4))
  twin = {
    "partitions": partitions,
    "sequential": draw(st.booleans()),
    "pack": draw(st.sampled_from([None, None, 1, 4, 30])),
    "tail": draw(st.sampled_from(["drop", "carry"])),
    "shuffle": draw(st.sampled_from([None, 0, 3])),
    "append_eod": draw(st.booleans()),
  }
  options = {
    "partitions": partitions,
    "workers": partitions * draw(st.integers(max(1, least), 3)),
    "keep_sequential_samples": twin["sequential"],
    "pack_to_seq_len": twin["pack"],
    "pack_tail": twin["tail"],
    "shuffle": twin["shuffle"],
    "append_eod": twin["append_eod"],
  }
  return options, twin


def run(options, tokenizer, *, num_shards, order):
  """Prepares at once, or by shards in any order and a merge."""
  if num_shards == 1:
    return prepare(options, tokenizer=tokenizer)
  shards = dataclasses.replace(options, num_shards=num_shards)
  done = 0
  for shard in order:
    part = dataclasses.replace(shards, shard_index=shard)
    report = prepare(part, tokenizer=tokenizer)
    assert report.manifests == {}
    done += report.num_done
  assert done == report.num_units
  return prepare(
    dataclasses.replace(options, merge_only=True), tokenizer=tokenizer
  )


def check_pair(prefix, texts, manifest, tokenizer, twin):
  """Bytes and counts of one key."""
  tokens, lengths, indices, dropped = expected_pair(texts, tokenizer, **twin)
  ends = [0]
  for length in lengths:
    ends.append(ends[-1] + length)
  sequences = [tokens[a:b] for a, b in zip(ends, ends[1:])]  # noqa: RUF007
  documents = [
    sequences[a:b]
    for a, b in zip(indices, indices[1:])  # noqa: RUF007
  ]
  expected = prefix.parent / "expected"
  write_pair(expected, documents)
  for suffix in ("bin", "idx"):
    made = prefix.with_name(f"{prefix.name}.{suffix}").read_bytes()
    assert made == expected.with_suffix(f".{suffix}").read_bytes()
    assert len(made) == getattr(manifest, f"{suffix}_bytes")
  assert read_manifest(prefix) == manifest
  assert manifest.documents == len(documents)
  assert manifest.sequences == len(lengths)
  assert manifest.tokens == len(tokens)
  assert manifest.dropped_tokens == dropped
  assert (manifest.dropped_documents > 0) == (dropped > 0)
  assert manifest.dropped_documents <= twin["partitions"]
  assert manifest.records == len(texts)
  none = [
    not tokenizer(t, add_special_tokens=False)["input_ids"] for t in texts
  ]
  assert manifest.empty_documents == sum(none)
  special = [any(token in text for token in SPECIALS) for text in texts]
  assert manifest.special_token_documents == sum(special)
  assert manifest.append_eod == twin["append_eod"]


@pytest.fixture
def no_sync(monkeypatch):
  """Flushing to the disk is most of a small run, and changes no byte."""
  monkeypatch.setattr(os, "fsync", lambda fd: None)


_settings = settings(
  deadline=None,
  suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def check_case(data, folder, tokenizer, *, with_bad, least=0):
  """Draws a case, prepares it, and compares all."""
  draw = data.draw
  source = folder / "in"
  source.mkdir()
  files = input_files(draw, with_bad=with_bad, least=least)
  for place, file in enumerate(files):
    (source / f"{place}.{file.suffix}").write_bytes(file.data)
  if not files:
    files.append(File(b"", [], [], "jsonl"))
    (source / "0.jsonl").write_bytes(b"")
  keys = draw(
    st.lists(st.sampled_from(KEYS), min_size=1, max_size=3, unique=True)
  )
  options, twin = layouts(draw, least=least)
  # Of few units a shard would have one, which no other process does.
  num_shards = 1 if least else draw(st.integers(1, 3))
  report = run(
    Options(
      source,
      folder / "out" / "x",
      json_keys=tuple(keys),
      on_bad_record="skip" if with_bad else "error",
      unit_bytes=draw(st.integers(10, 400)),
      tokenizer_backend=draw(st.sampled_from(["auto", "huggingface"])),
      log_interval=0,
      **options,
    ),
    tokenizer,
    num_shards=num_shards,
    order=draw(st.permutations(range(num_shards))),
  )
  records = [record for file in files for record in file.texts]
  assert list(report.manifests) == keys
  for key in keys:
    texts = [record[KEYS.index(key)] for record in records]
    manifest = report.manifests[key]
    prefix = folder / "out" / f"x_{key}_document"
    check_pair(prefix, texts, manifest, tokenizer, twin)
    assert manifest.bad_records == sum(len(file.bad) for file in files)
    assert [(bad.path, bad.record, bad.offset) for bad in manifest.bad] == [
      (str(source / f"{place}.{file.suffix}"), *where)
      for place, file in enumerate(files)
      for where in file.bad
    ]
    assert [(file.path, file.bytes) for file in manifest.inputs] == [
      (str(source / f"{place}.{file.suffix}"), len(file.data))
      for place, file in enumerate(files)
    ]
  assert not list((folder / "out").glob("*.parts"))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("with_bad", [False, True])
@settings(parent=_settings, max_examples=settings().max_examples * 2)
@given(data=st.data())
def test_any_input_in_any_layout_gives_the_defined_bytes_and_counts(
  data, bpe_folder, tmp_path_factory, no_sync, *, with_bad
):
  check_case(
    data,
    tmp_path_factory.mktemp("case"),
    load_tokenizer(bpe_folder),
    with_bad=with_bad,
  )


@pytest.mark.filterwarnings("ignore::UserWarning")
@settings(parent=_settings, max_examples=2, phases=[Phase.generate])
@given(data=st.data())
def test_worker_processes_give_the_defined_bytes_and_counts(
  data, bpe_folder, tmp_path_factory, no_sync, monkeypatch
):
  monkeypatch.setattr(engine, "SMALL_INPUT_BYTES", 0)
  begun = []
  begin = engine._Worker.__init__

  def counted(worker):
    begun.append(worker)
    begin(worker)

  monkeypatch.setattr(engine._Worker, "__init__", counted)
  # Two files at least, so two units, and two workers for a partition.
  check_case(
    data,
    tmp_path_factory.mktemp("case"),
    load_tokenizer(bpe_folder),
    with_bad=True,
    least=2,
  )
  assert begun


@pytest.mark.filterwarnings("ignore::UserWarning")
@settings(parent=_settings)
@given(seed=st.integers(0, 2**32), kills=st.integers(1, 4), data=st.data())
def test_a_run_that_fails_anywhere_goes_on_to_the_same_bytes(
  seed, kills, data, *, bpe_folder, tmp_path_factory, no_sync, monkeypatch
):
  """Fails at random calls that finish a unit or publish; then it is let be."""
  rng = random.Random(seed)
  bpe = load_tokenizer(bpe_folder)
  folder = tmp_path_factory.mktemp("case")
  texts = data.draw(st.lists(_text, min_size=3, max_size=12))
  source = folder / "in.jsonl"
  source.write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
  options, twin = layouts(data.draw)
  made = Options(source, folder / "out" / "x", unit_bytes=40, **options)
  replace, total = os.replace, 0
  for _ in range(kills):
    left = rng.randrange(1, 12)

    def failing(*names, **kwargs):
      nonlocal left
      left -= 1
      if not left:
        raise OSError(5, "Input/output error")
      replace(*names, **kwargs)

    with monkeypatch.context() as context:
      context.setattr(os, "replace", failing)
      before = units_of(made)
      try:
        prepare(made, tokenizer=bpe)
      except OSError:
        total += len(units_of(made) - before)
        continue
      break
  else:
    before = units_of(made)
    report = prepare(made, tokenizer=bpe)
    assert report.num_reused == len(before)
    total += report.num_done
    assert total == report.num_units
  manifest = read_manifest(folder / "out" / "x_text_document")
  check_pair(folder / "out" / "x_text_document", texts, manifest, bpe, twin)


def units_of(options):
  """Names of the finished units."""
  folder = options.work_folder()
  return {path.name for path in folder.glob("*.unit")}
