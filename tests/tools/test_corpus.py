import dataclasses
import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers_tokenizer import read_pair
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from preparation_twin import expected_pair, json_lines

from hpgrain.manifest import read_manifest
from hpgrain.tokenizer import load_tokenizer
from hpgrain.tools import corpus, engine, work_folder
from hpgrain.tools.corpus import prepare, prepare_corpus
from hpgrain.tools.options import Options

TEXTS = (
  "def f(x): return x",
  "",
  "naïve été 中文 🙂",
  "a",
  " \n",
  "the quick brown fox " * 7,
  "<eos> inside",
  "last one",
  "x" * 60,
)


def files(folder):
  return {
    path.name: path.read_bytes()
    for path in sorted(folder.iterdir())
    if path.is_file()
  }


@pytest.fixture
def source(tmp_path):
  folder = tmp_path / "in"
  folder.mkdir()
  # No end at the last line of a file.
  (folder / "a.jsonl").write_text(json_lines(TEXTS[:4]).rstrip("\n"))
  (folder / "b.jsonl").write_text("")
  (folder / "c.jsonl").write_text(json_lines(TEXTS[4:]))
  return folder


@pytest.fixture
def out(tmp_path):
  return tmp_path / "out"


@pytest.fixture
def no_sync(monkeypatch):
  """Flushing to the disk is most of a small run, and changes no byte."""
  monkeypatch.setattr(os, "fsync", lambda fd: None)


LAYOUTS = list(
  itertools.product(
    (1, 2, 3), (False, True), (None, 1, 6), ("drop", "carry"), (None, 5)
  )
)


@pytest.mark.parametrize(
  ("partitions", "sequential", "pack", "tail", "shuffle"), LAYOUTS
)
def test_pair_is_the_one_that_the_definition_gives(
  source, out, bpe, no_sync, *, partitions, sequential, pack, tail, shuffle
):
  expected = expected_pair(
    TEXTS,
    bpe,
    partitions=partitions,
    sequential=sequential,
    pack=pack,
    tail=tail,
    shuffle=shuffle,
  )
  found = set()
  for unit_bytes in (20, 100, 1 << 20):
    manifest = prepare_corpus(
      source,
      output_prefix=out / "x",
      tokenizer=bpe,
      workers=partitions,
      partitions=partitions,
      keep_sequential_samples=sequential,
      pack_to_seq_len=pack,
      pack_tail=tail,
      shuffle=shuffle,
      unit_bytes=unit_bytes,
      overwrite=True,
      log_interval=0,
    )
    assert read_pair(out / "x_text_document")[1:] == expected[:3]
    assert manifest.dropped_tokens == expected[3]
    found.add(json.dumps(sorted((k, v.hex()) for k, v in files(out).items())))
  assert len(found) == 1, "units decide nothing of the bytes"
  assert manifest.records == len(TEXTS)
  assert manifest.special_token_documents == 1


@settings(
  max_examples=40,
  deadline=None,
  suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_any_texts_and_layout_give_the_defined_pair(
  data, bpe_folder, tmp_path_factory, no_sync
):
  bpe = load_tokenizer(bpe_folder)
  folder = tmp_path_factory.mktemp("case")
  text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
  texts = data.draw(st.lists(text, max_size=12))
  partitions = data.draw(st.integers(1, 4))
  layout = {
    "partitions": partitions,
    "pack": data.draw(st.sampled_from([None, 1, 4, 30])),
    "sequential": data.draw(st.booleans()),
    "tail": data.draw(st.sampled_from(["drop", "carry"])),
    "shuffle": data.draw(st.sampled_from([None, 0, 3])),
    "append_eod": data.draw(st.booleans()),
  }
  (folder / "in.jsonl").write_text(json_lines(texts))
  manifest = prepare_corpus(
    folder / "in.jsonl",
    output_prefix=folder / "x",
    tokenizer=bpe,
    workers=partitions,
    partitions=partitions,
    keep_sequential_samples=layout["sequential"],
    pack_to_seq_len=layout["pack"],
    pack_tail=layout["tail"],
    shuffle=layout["shuffle"],
    append_eod=layout["append_eod"],
    unit_bytes=data.draw(st.integers(10, 200)),
    tokenizer_backend=data.draw(st.sampled_from(["auto", "huggingface"])),
  )
  tokens, lengths, indices, dropped = expected_pair(texts, bpe, **layout)
  pair = read_pair(folder / "x_text_document")
  assert pair[1:] == (tokens, lengths, indices)
  assert manifest.dropped_tokens == dropped


def test_several_keys_give_several_pairs(tmp_path, bpe):
  records = [
    {"q": text, "n": 1, "a": text[::-1]} for text in TEXTS if text.strip()
  ]
  source = tmp_path / "in.jsonl"
  source.write_text("".join(json.dumps(r) + "\n" for r in records))
  options = Options(source, tmp_path / "x", json_keys=("a", "q"), unit_bytes=99)
  report = prepare(options, tokenizer=bpe)
  assert list(report.manifests) == ["a", "q"]
  for key in ("a", "q"):
    expected = expected_pair([record[key] for record in records], bpe)
    pair = read_pair(tmp_path / f"x_{key}_document")
    assert pair[1:] == expected[:3]
    assert read_manifest(tmp_path / f"x_{key}_document").json_key == key


@pytest.mark.parametrize("workers", [2, 4])
def test_processes_give_the_same_bytes_as_one(
  source, out, bpe, monkeypatch, workers
):
  made = {}
  for name, count in (("one", 1), ("many", workers)):
    monkeypatch.setattr(
      engine, "SMALL_INPUT_BYTES", 1 << 20 if count == 1 else 0
    )
    prepare_corpus(
      source,
      output_prefix=out / name / "x",
      tokenizer=bpe,
      workers=count,
      partitions=2 if count > 1 else 1,
      keep_sequential_samples=True,
      unit_bytes=40,
    )
    made[name] = files(out / name)
  for suffix in ("bin", "idx"):
    name = f"x_text_document.{suffix}"
    assert made["one"][name] == made["many"][name]


def test_shards_and_a_merge_give_the_same_bytes(source, out, bpe):
  options = Options(source, out / "all" / "x", unit_bytes=30)
  prepare(options, tokenizer=bpe)
  counts = []
  for shard in (2, 0, 1):
    report = prepare(
      Options(
        source,
        out / "parts" / "x",
        unit_bytes=30,
        num_shards=3,
        shard_index=shard,
      ),
      tokenizer=bpe,
    )
    assert report.manifests == {}
    counts.append(report.num_done)
  assert sum(counts) == report.num_units and min(counts) > 1
  last = prepare(
    Options(source, out / "parts" / "x", unit_bytes=30, merge_only=True),
    tokenizer=bpe,
  )
  assert (last.num_done, last.num_reused) == (0, report.num_units)
  assert files(out / "parts") == files(out / "all")
  assert not (out / "parts" / "x_text_document.parts").exists()


def test_merge_without_all_units_says_what_is_missing(source, out, bpe):
  shard = Options(source, out / "x", unit_bytes=30, num_shards=2)
  prepare(shard, tokenizer=bpe)
  merge = Options(source, out / "x", unit_bytes=30, merge_only=True)
  with pytest.raises(
    ValueError, match=r"not finished.*of 2 shards, shard 1 \(\d+ m"
  ):
    prepare(merge, tokenizer=bpe)


def test_another_request_is_refused_until_it_may_start_over(source, out, bpe):
  prepare(Options(source, out / "x", num_shards=2), tokenizer=bpe)
  other = Options(source, out / "x", append_eod=False)
  with pytest.raises(
    ValueError, match="append_eod is True there and False here"
  ):
    prepare(other, tokenizer=bpe)
  other = Options(source, out / "x", append_eod=False, overwrite=True)
  prepare(other, tokenizer=bpe)
  expected = expected_pair(TEXTS, bpe, append_eod=False)
  assert read_pair(out / "x_text_document")[1:] == expected[:3]


BAD = '{"text": "a b"}\n{"no": 1}\n{"text": "c"}\nbroken\n\n{"text": "d"}\n'


@pytest.mark.parametrize("unit_bytes", [10, 20, 1000])
def test_bad_records_are_left_out_counted_and_listed(tmp_path, bpe, unit_bytes):
  source = tmp_path / "in.jsonl"
  source.write_text(BAD)
  manifest = prepare_corpus(
    source,
    output_prefix=tmp_path / "x",
    tokenizer=bpe,
    on_bad_record="skip",
    unit_bytes=unit_bytes,
  )
  expected = expected_pair(["a b", "c", "d"], bpe)
  assert read_pair(tmp_path / "x_text_document")[1:] == expected[:3]
  assert (manifest.records, manifest.bad_records) == (3, 2)
  assert [(bad.path, bad.record, bad.offset) for bad in manifest.bad] == [
    (str(source), 2, 16),
    (str(source), 4, 40),
  ]
  assert manifest.bad[0].reason.startswith("has no key 'text'")
  assert "broken" not in manifest.bad[1].reason


@pytest.mark.parametrize("unit_bytes", [10, 1000])
def test_more_bad_records_than_allowed_are_an_error(tmp_path, bpe, unit_bytes):
  source = tmp_path / "in.jsonl"
  source.write_text(BAD)
  options = Options(
    source,
    tmp_path / "x",
    on_bad_record="skip",
    max_bad_records=1,
    unit_bytes=unit_bytes,
  )
  with pytest.raises(ValueError, match="--max-bad-records=1 allows"):
    prepare(options, tokenizer=bpe)
  # What an earlier run skipped is not skipped in silence by a strict one.
  with pytest.raises(ValueError, match="record 2 "):
    prepare(
      Options(source, tmp_path / "x", unit_bytes=unit_bytes), tokenizer=bpe
    )


def test_special_tokens_in_text_as_is_plain_or_refused(tmp_path, bpe):
  source = tmp_path / "in.jsonl"
  source.write_text(json_lines(["a", "b<eos>c", "d"]))
  made = {}
  for how in ("as_is", "plain"):
    manifest = prepare_corpus(
      source,
      output_prefix=tmp_path / how,
      tokenizer=bpe,
      special_tokens_in_text=how,
    )
    assert manifest.special_token_documents == 1
    assert manifest.special_tokens_in_text == how
    made[how] = read_pair(tmp_path / f"{how}_text_document")[1]
  assert made["as_is"].count(1) == 4
  assert made["plain"].count(1) == 3
  options = {"output_prefix": tmp_path / "e", "tokenizer": bpe}
  with pytest.raises(ValueError, match=r"record 2 .* spells out a special tok"):
    prepare_corpus(source, special_tokens_in_text="error", **options)
  manifest = prepare_corpus(
    source,
    special_tokens_in_text="error",
    on_bad_record="skip",
    **options,
  )
  assert (manifest.records, manifest.bad_records) == (2, 1)
  assert (manifest.bad[0].record, manifest.bad[0].offset) == (2, 14)


@pytest.mark.parametrize("sequential", [False, True])
def test_partition_files_hold_each_partitions_records(
  source, out, bpe, sequential
):
  prepare_corpus(
    source,
    output_prefix=out / "x",
    tokenizer=bpe,
    workers=2,
    partitions=2,
    keep_sequential_samples=sequential,
    keep_partition_files=True,
  )
  parts = [
    [
      json.loads(line)["text"]
      for line in (out / f"x_partition_{p}.jsonl").read_text().splitlines()
    ]
    for p in range(2)
  ]
  whole = list(TEXTS)
  if sequential:
    assert parts == [whole[:5], whole[5:]]
  else:
    assert parts == [whole[::2], whole[1::2]]


def test_partition_files_asked_for_too_late_are_not_taken_for_made(
  source, out, bpe, monkeypatch
):
  def interrupted(folder):
    raise KeyboardInterrupt

  with monkeypatch.context() as context:
    context.setattr(work_folder.WorkFolder, "remove", interrupted)
    with pytest.raises(KeyboardInterrupt):
      prepare(Options(source, out / "x"), tokenizer=bpe)
  late = Options(source, out / "x", keep_partition_files=True)
  with pytest.raises(FileExistsError, match="The output exists"):
    prepare(late, tokenizer=bpe)
  late = dataclasses.replace(late, overwrite=True)
  assert prepare(late, tokenizer=bpe).num_done == 0
  assert (out / "x_partition_0.jsonl").exists()


@pytest.mark.parametrize(
  ("options", "message"),
  [
    ({"workers": 0}, "workers must be a positive integer, got 0"),
    ({"partitions": 0}, "partitions must be a positive integer, got 0"),
    ({"workers": 3, "partitions": 2}, "workers must be a multiple of part"),
    ({"shard_index": 2, "num_shards": 2}, "counts from 0 to num_shards - 1"),
    ({"on_bad_record": "no"}, "on_bad_record must be one of error, skip"),
    ({"pack_tail": "pad"}, "pack_tail must be one of drop, carry, got 'pad'"),
    ({"tokenizer_backend": "x"}, "must be one of auto, huggingface, gigatoken"),
    ({"json_keys": ("a", "a")}, "one or more different keys"),
    ({"runner": "spark"}, "runner must be one of local, beam, ray, got 'sp"),
    ({"beam_options": ("--x",)}, "is for --runner=beam, got --runner=local"),
    ({"ray_address": "a:1"}, "is for --runner=ray, got --runner=local"),
    (
      {"keep_partition_files": True, "shuffle": 1},
      "does not go with shuffle",
    ),
  ],
)
def test_options_that_cannot_be_are_refused(source, out, bpe, options, message):
  with pytest.raises(ValueError, match=message):
    prepare(Options(source, out / "x", **options), tokenizer=bpe)
  assert not out.exists()


def test_long_texts_are_encoded_as_a_whole(tmp_path, bpe, monkeypatch):
  from hpgrain.tools import long_texts

  monkeypatch.setattr(long_texts, "LONG", 300)
  monkeypatch.setattr(long_texts, "_PIECE", 100)
  monkeypatch.setattr(long_texts, "_MOST", 2000)
  monkeypatch.setattr(long_texts, "_AROUND", 40)
  texts = [
    Path(__file__).read_text()[:3000],
    " " * 1000 + "x" * 500,
    "é中 ," * 200,
  ]
  source = tmp_path / "in.jsonl"
  source.write_text(json_lines([*texts, "short"]))
  prepare_corpus(source, output_prefix=tmp_path / "x", tokenizer=bpe)
  expected = expected_pair([*texts, "short"], bpe)
  assert read_pair(tmp_path / "x_text_document")[1:] == expected[:3]


DRIVER = """
import sys
from hpgrain.tokenizer import load_tokenizer
from hpgrain.tools import engine
from hpgrain.tools.corpus import prepare_corpus
engine.SMALL_INPUT_BYTES = 0
try:
  prepare_corpus(
    sys.argv[1], output_prefix=sys.argv[2],
    tokenizer=load_tokenizer(sys.argv[3]), workers=2, unit_bytes=1 << 18,
    log_interval=1000, tokenizer_backend="huggingface")
except BaseException as error:
  print(type(error).__name__, error)
  sys.exit(1)
"""


def start(source, out, tokenizer):
  return subprocess.Popen(
    [sys.executable, "-c", DRIVER, source, out / "x", tokenizer],
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )


def children(pid):
  return [
    int(child)
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
  ]


def alive(pid):
  try:
    state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
  except FileNotFoundError:
    return False
  return state != "Z"


@pytest.fixture
def long_source(tmp_path):
  path = tmp_path / "long.jsonl"
  rng = np.random.default_rng(0)
  words = np.array(["def", "return", "naïve", "x1", "été", "\n", "(a, b)"])
  path.write_text(
    json_lines(" ".join(rng.choice(words, 200)) for _ in range(6000))
  )
  return path


@pytest.mark.parametrize("how", ["worker", "interrupt", "parent"])
def test_death_ends_the_run_and_the_next_goes_on(
  long_source, out, bpe_folder, how
):
  process = start(long_source, out, bpe_folder)
  parts = out / "x_text_document.parts"
  # From the first progress line on, both workers are at work.
  process.stderr.readline()
  while not list(parts.glob("*.unit")):
    assert process.poll() is None, process.stderr.read()
  workers = children(process.pid)
  assert len(workers) == 2
  if how == "worker":
    os.kill(workers[0], signal.SIGKILL)
    said, _ = process.communicate(timeout=60)
    assert said.startswith(f"ChildProcessError Worker process {workers[0]} at")
    assert "was killed by SIGKILL" in said and str(long_source) in said
    assert not list(parts.glob("*.tmp"))
  elif how == "interrupt":
    process.send_signal(signal.SIGINT)
    said, errors = process.communicate(timeout=60)
    assert said.startswith("KeyboardInterrupt")
    assert "Traceback" not in errors
    assert not list(parts.glob("*.tmp"))
  else:
    process.kill()
    process.communicate(timeout=60)
  for _ in range(600):
    if not any(map(alive, workers)):
      break
    signal.sigtimedwait([], 0.1)
  assert not any(map(alive, workers))
  assert {path.name for path in out.iterdir()} == {parts.name}
  kept = len(list(parts.glob("*.unit")))
  assert kept

  bpe = load_tokenizer(bpe_folder)
  options = {"unit_bytes": 1 << 18, "tokenizer_backend": "huggingface"}
  report = prepare(
    Options(long_source, out / "x", log_interval=0, **options), tokenizer=bpe
  )
  assert report.num_reused == kept
  assert report.num_done == report.num_units - kept
  whole = out.parent / "whole"
  prepare(
    Options(long_source, whole / "x", log_interval=0, **options), tokenizer=bpe
  )
  assert files(out) == files(whole)


def test_api_of_one_pair_has_no_shards(source, out, bpe):
  with pytest.raises(ValueError, match="a shard makes none"):
    prepare_corpus(source, output_prefix=out / "x", tokenizer=bpe, num_shards=2)
  assert corpus.Report.__dataclass_fields__.keys() >= {"num_reused"}


def test_no_jax_is_imported():
  code = (
    "import sys\nimport hpgrain.tools.offline_preparation\n"
    "print([m for m in ('jax', 'grain', 'torch') if m in sys.modules])"
  )
  done = subprocess.run(
    [sys.executable, "-c", code], capture_output=True, text=True, check=True
  )
  assert done.stdout == "[]\n"


CONVERSATIONS = [
  [{"role": "user", "content": "hi"}, {"role": "bot", "content": "ho"}],
  [{"role": "user", "content": "naïve"}],
]
TEMPLATE = (
  "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}"
  "{% endfor %}"
)


def write_records(path, values):
  path.write_text("".join(json.dumps({"text": v}) + "\n" for v in values))
  return path


@pytest.mark.parametrize("place", ["text", "file", "tokenizer"])
def test_conversations_are_rendered_by_the_template(tmp_path, bpe, place):
  source = write_records(tmp_path / "in.jsonl", CONVERSATIONS)
  template = TEMPLATE
  if place == "file":
    (tmp_path / "t.jinja").write_text(TEMPLATE)
    template = str(tmp_path / "t.jinja")
  elif place == "tokenizer":
    bpe.chat_template, template = TEMPLATE, "tokenizer"
  manifest = prepare_corpus(
    source, output_prefix=tmp_path / "x", tokenizer=bpe, chat_template=template
  )
  expected = expected_pair(
    ["<user>hi<eos><bot>ho<eos>", "<user>naïve<eos>"], bpe
  )
  assert read_pair(tmp_path / "x_text_document")[1:] == expected[:3]
  assert len(manifest.chat_template) == 32


def test_what_is_no_conversation_is_a_bad_record(tmp_path, bpe):
  values = ["text", CONVERSATIONS[1], [{"role": "secret"}, 3]]
  source = write_records(tmp_path / "in.jsonl", values)
  manifest = prepare_corpus(
    source,
    output_prefix=tmp_path / "x",
    tokenizer=bpe,
    chat_template="{% for m in messages %}{{ m.content + '' }}{% endfor %}",
    on_bad_record="skip",
  )
  first, second = [bad.reason for bad in manifest.bad]
  assert first == "holds a string under 'text', not an array of messages."
  assert second.startswith("cannot be rendered by the chat template (")
  assert "secret" not in second
  assert manifest.records == 1


@pytest.mark.parametrize(
  ("template", "message"),
  [
    ("tokenizer", "has no chat template of its own"),
    ("no/such/file", "neither a Jinja template nor a file: 'no/such/file'"),
  ],
)
def test_a_template_that_is_not_there_is_refused(
  source, out, bpe, template, message
):
  with pytest.raises(ValueError, match=message):
    prepare_corpus(
      source, output_prefix=out / "x", tokenizer=bpe, chat_template=template
    )
