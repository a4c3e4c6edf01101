import dataclasses

import pytest
from preparation_twin import json_lines

from hpgrain.manifest import Manifest
from hpgrain.tools.corpus import Report, prepare
from hpgrain.tools.options import Options
from hpgrain.tools.summary import run_summary


def rows(text):
  """The table as a dictionary; what is said of it in words is left out."""
  found = {}
  for line in text.splitlines():
    name, _, what = line.strip().partition("  ")
    found[name if what else line] = what.strip()
  return found


def test_the_table_says_all_that_a_run_did(tmp_path, words):
  # "a" 3, "b" 4, ...; 3 4 0, 3 0 5 0 (with a special token), 6 0.
  (tmp_path / "in").mkdir()
  (tmp_path / "in" / "a.jsonl").write_text(json_lines(["a b", "", "a <eos> c"]))
  (tmp_path / "in" / "b.jsonl").write_text("bad\n" + json_lines(["d"]))
  options = Options(
    tmp_path / "in",
    tmp_path / "x",
    pack_to_seq_len=3,
    partitions=2,
    workers=2,
    on_bad_record="skip",
    shuffle=7,
    log_interval=0,
    unit_bytes=1000,
  )
  report = prepare(options, tokenizer=words)
  report = dataclasses.replace(report, seconds=2.0)
  found = rows(run_summary(options, report))
  manifest = report.manifests["text"]
  size = sum(file.bytes for file in manifest.inputs)
  assert found["inputs"] == f"2 files, {size} bytes"
  assert found["units"] == "2 done, 0 reused of 2"
  assert found["time"] == f"2.0 s, {size / 2e6:.1f} MB/s"
  assert f"wrote {tmp_path}/x_text_document.bin, .idx and .manifest.json" in (
    found
  )
  assert found["records"] == "4"
  assert found["bad records"] == "1 left out, see the manifest"
  assert found["documents"] == (
    f"{manifest.documents}, in {manifest.sequences} sequence"
    + "s" * (manifest.sequences > 1)
  )
  assert found["empty documents"] == "1 read"
  assert found["tokens"] == (
    f"{manifest.tokens} as uint16, {2 * manifest.tokens} bytes"
  )
  assert manifest.tokens + manifest.dropped_tokens == 9
  assert found["dropped"] == (
    f"{manifest.dropped_tokens} tokens in {manifest.dropped_documents} tails"
  )
  assert found["packed"] == "records of 4 tokens"
  assert found["special tokens"] == "spelt out by 1 document (as_is)"
  assert found["tokenizer"].startswith(f"{words.name_or_path}, 8 ids, digest ")
  assert found["encoded by"].split()[0] in ("huggingface", "gigatoken")
  assert found["encoded by"].split()[1] == manifest.tokenizer_backend_version
  assert found["EOD"] == "id 0 after each document"
  assert found["partitions"] == "2, records dealt in turn"
  assert found["shuffled"] == "by the seed 7"


def test_several_keys_have_a_table_each(tmp_path, words):
  source = tmp_path / "in.jsonl"
  source.write_text('{"q": "a b", "a": ""}\n')
  options = Options(source, tmp_path / "x", json_keys=("q", "a"))
  report = prepare(options, tokenizer=words)
  said = run_summary(options, report)
  first, second = said.split("wrote ")[1:]
  assert first.startswith(f"{tmp_path}/x_q_document.bin")
  assert "tokens            3 as uint16, 6 bytes" in first
  assert second.startswith(f"{tmp_path}/x_a_document.bin")
  assert "empty documents   1 read" in second


@pytest.mark.parametrize("shard", [0, 1])
def test_a_shard_says_what_comes_next(shard):
  options = Options("in", "x", num_shards=2, shard_index=shard)
  said = run_summary(options, Report({}, 5, 2, 1, done_bytes=10, seconds=1))
  assert "2 done, 1 reused of 5" in said
  assert (
    f"shard {shard} of 2 is done" in said and "the word merge before" in said
  )
  assert "wrote" not in said


def test_reused_units_are_no_speed_of_this_run():
  options = Options("in", "x")
  report = Report(
    {}, 9, 1, 8, num_inputs=3, input_bytes=9e6, done_bytes=1e6, seconds=2
  )
  found = rows(run_summary(options, report))
  assert found["units"] == "1 done, 8 reused of 9"
  assert found["time"] == "2.0 s, 0.5 MB/s"
  assert Manifest.__dataclass_fields__["dropped_documents"].default == 0
