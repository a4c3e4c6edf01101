"""Records too long to be held: what becomes of them, and of their neighbours.

Everything is small here, but for what counts as long.
"""

import json

import pytest
from helpers_tokenizer import read_pair
from preparation_twin import expected_pair

from hpgrain.tools import long_texts
from hpgrain.tools.corpus import prepare, prepare_corpus
from hpgrain.tools.options import Options
from hpgrain.tools.readers import long_bytes, long_json, long_text

LONG = "été, one two\n" * 60
RUN = "x" * 1500
SPECIAL = "one <eos> two " * 60


@pytest.fixture(autouse=True)
def small(monkeypatch):
  monkeypatch.setattr(long_bytes, "LONG_BYTES", 400)
  monkeypatch.setattr(long_text, "PIECE_BYTES", 64)
  monkeypatch.setattr(long_json, "PIECE_BYTES", 64)
  monkeypatch.setattr(long_texts, "LONG", 200)
  monkeypatch.setattr(long_texts, "_PIECE", 100)
  monkeypatch.setattr(long_texts, "_MOST", 500)
  monkeypatch.setattr(long_texts, "_AROUND", 30)
  monkeypatch.setattr("hpgrain.tools.readers.lines._BLOCK", 150)


@pytest.fixture
def source(tmp_path):
  return tmp_path / "in.jsonl"


def write(source, *texts, **others):
  records = [{"text": text, **others} for text in texts]
  source.write_text("\n".join(map(json.dumps, records)))


def made(source, tokenizer, **options):
  prefix = source.with_name("x")
  manifest = prepare_corpus(
    source, output_prefix=prefix, tokenizer=tokenizer, **options
  )
  return manifest, read_pair(f"{prefix}_text_document")[1:]


@pytest.mark.parametrize("backend", ["huggingface", "auto"])
def test_long_records_lie_between_short_ones(source, bpe, backend):
  texts = ["a", LONG, "", "b" * 300, "b c " * 60, LONG, "c"]
  write(source, *texts)
  manifest, pair = made(source, bpe, tokenizer_backend=backend)
  assert pair == expected_pair(texts, bpe)[:3]
  assert (manifest.records, manifest.empty_documents) == (7, 1)


def test_a_text_that_cannot_be_cut_is_a_bad_record(source, bpe):
  write(source, "a", f"{LONG}{RUN}", "b")
  with pytest.raises(ValueError, match=r"record 2 \(line 2, at byte offset 14"):
    made(source, bpe)
  manifest, pair = made(source, bpe, on_bad_record="skip", overwrite=True)
  # What was written of it is taken back.
  assert pair == expected_pair(["a", "b"], bpe)[:3]
  assert manifest.bad_records == 1
  assert "without a place to cut it" in manifest.bad[0].reason
  assert "xxx" not in manifest.bad[0].reason


def test_special_tokens_in_long_texts(source, bpe):
  texts = [SPECIAL, LONG, "a <eos>"]
  write(source, *texts)
  manifest, pair = made(source, bpe)
  assert pair == expected_pair(texts, bpe)[:3]
  assert manifest.special_token_documents == 2
  how = {"special_tokens_in_text": "error", "on_bad_record": "skip"}
  manifest, pair = made(source, bpe, overwrite=True, **how)
  assert pair == expected_pair([LONG], bpe)[:3]
  before_third = sum(len(json.dumps({"text": t})) + 1 for t in texts[:2])
  places = [(bad.record, bad.offset) for bad in manifest.bad]
  assert places == [(1, 0), (3, before_third)]
  _, pair = made(source, bpe, overwrite=True, special_tokens_in_text="plain")
  plain = [
    [*bpe(text, add_special_tokens=False, split_special_tokens=True).input_ids]
    for text in texts
  ]
  assert pair[0] == [token for ids in plain for token in [*ids, 1]]


def test_one_of_several_texts_is_long(source, tmp_path, bpe):
  write(source, "a", LONG, title="été")
  options = Options(source, tmp_path / "x", json_keys=("title", "text"))
  prepare(options, tokenizer=bpe)
  for key, texts in (("title", ["été", "été"]), ("text", ["a", LONG])):
    pair = read_pair(tmp_path / f"x_{key}_document")[1:]
    assert pair == expected_pair(texts, bpe)[:3]


def test_long_lines_of_text_and_long_elements(tmp_path, bpe):
  texts = ["a", LONG.replace("\n", " "), "b"]
  source = tmp_path / "in.txt"
  source.write_text("\n".join(texts))
  assert made(source, bpe)[1] == expected_pair(texts, bpe)[:3]
  source = tmp_path / "in.json"
  source.write_text(json.dumps([{"text": text} for text in texts]))
  assert made(source, bpe, overwrite=True)[1] == expected_pair(texts, bpe)[:3]
