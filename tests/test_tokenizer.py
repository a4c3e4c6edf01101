import dataclasses
import shutil
import subprocess
import sys

import pytest
from helpers_tokenizer import save_bpe_tokenizer, save_word_tokenizer
from transformers import PreTrainedTokenizerFast

from hpgrain.tokenizer import document_encoder, load_tokenizer, tokenizer_info

TEXTS = ["def f(x):\n  return x", "", " <eos> naïve 中文 🙂", "x" * 100, "\x00"]


def info_of(folder, **special):
  return tokenizer_info(load_tokenizer(save_word_tokenizer(folder, **special)))


def test_info_names_every_special_id(tmp_path):
  special = {
    "eos_token": "<eos>",
    "sep_token": "<sep>",
    "pad_token": "a",
    "bos_token": "b",
  }
  info = info_of(tmp_path, **special)
  assert dataclasses.astuple(info)[2:] == (8, 0, 3, 4, 0)
  assert info.name == str(tmp_path)


def test_eod_is_eos_then_sep_then_none(tmp_path):
  both = info_of(tmp_path / "a", eos_token="<eos>", sep_token="<sep>")
  sep = info_of(tmp_path / "b", sep_token="<sep>")
  neither = info_of(tmp_path / "c")
  assert [x.eod_id for x in (both, sep, neither)] == [0, 1, None]
  assert [x.eos_id for x in (both, sep, neither)] == [0, None, None]


def test_no_eod_is_refused_when_asked_for(tmp_path):
  tokenizer = load_tokenizer(save_word_tokenizer(tmp_path))
  with pytest.raises(ValueError, match="neither an EOS nor a SEP token"):
    tokenizer_info(tokenizer, require_eod=True)


def test_vocabulary_counts_added_tokens(tmp_path):
  tokenizer = load_tokenizer(save_word_tokenizer(tmp_path))
  tokenizer.add_tokens(["new1", "new2"])
  assert tokenizer_info(tokenizer).vocab_size == 10


def test_digest_does_not_depend_on_the_folder_or_earlier_use(tmp_path):
  first = load_tokenizer(save_bpe_tokenizer(tmp_path / "a"))
  shutil.copytree(tmp_path / "a", tmp_path / "b")
  second = load_tokenizer(tmp_path / "b")
  second(["a", "b c d"], truncation=True, max_length=2)
  second.save_pretrained(tmp_path / "c")
  third = load_tokenizer(tmp_path / "c")
  digests = {tokenizer_info(t).digest for t in (first, second, third)}
  assert len(digests) == 1
  assert len(digests.pop()) == 32


def test_digest_depends_on_the_vocabulary_and_the_special_ids(tmp_path):
  infos = [
    info_of(tmp_path / "a", eos_token="<eos>"),
    info_of(tmp_path / "b", eos_token="<sep>"),
    info_of(tmp_path / "c", eos_token="<eos>", pad_token="<eos>"),
    info_of(tmp_path / "d", eos_token="<eos>", size=9),
  ]
  assert len({info.digest for info in infos}) == 4


def test_missing_folder_is_refused_without_asking_the_hub(tmp_path):
  with pytest.raises(ValueError, match=r"nothing' does not exist.*'gpt2'"):
    load_tokenizer(tmp_path / "nothing")


def test_file_is_refused(tmp_path):
  (tmp_path / "tokenizer.json").write_text("{}")
  with pytest.raises(ValueError, match=r"tokenizer\.json' is a file"):
    load_tokenizer(tmp_path / "tokenizer.json")


def test_folder_without_tokenizer_is_refused(tmp_path):
  with pytest.raises(ValueError, match="AutoTokenizer cannot load"):
    load_tokenizer(tmp_path)


def test_slow_tokenizer_that_is_not_there_is_said(tmp_path):
  save_word_tokenizer(tmp_path)
  with pytest.warns(UserWarning, match="use_fast=False has no effect"):
    load_tokenizer(tmp_path, use_fast=False)


def test_encoder_gives_the_tokenizers_ids_without_special_tokens(tmp_path):
  tokenizer = load_tokenizer(save_bpe_tokenizer(tmp_path))
  expected = [
    load_tokenizer(tmp_path)(text, add_special_tokens=False)["input_ids"]
    for text in TEXTS
  ]
  # The stored truncation to five ids must not show.
  assert len(expected[0]) > 5
  assert expected[1] == []
  encode = document_encoder(tokenizer)
  assert encode(TEXTS) == expected
  assert encode.__name__ == "encode_fast"


class _LoweringTokenizer(PreTrainedTokenizerFast):
  def __call__(self, text, **kwargs):
    return super().__call__([t.lower() for t in text], **kwargs)


def test_encoder_keeps_to_a_tokenizer_whose_backend_differs(tmp_path):
  save_bpe_tokenizer(tmp_path)
  tokenizer = _LoweringTokenizer.from_pretrained(tmp_path)
  encode = document_encoder(tokenizer)
  plain = document_encoder(load_tokenizer(tmp_path))
  assert encode(["ABC"]) == plain(["abc"]) != plain(["ABC"])


def test_transformers_is_not_imported_with_the_module():
  code = (
    "import sys, hpgrain.tokenizer, hpgrain.manifest;"
    "print('transformers' in sys.modules)"
  )
  done = subprocess.run(
    [sys.executable, "-c", code], capture_output=True, text=True, check=True
  )
  assert done.stdout.strip() == "False"
