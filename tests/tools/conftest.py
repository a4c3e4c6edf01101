"""Tokenizers that the tools' tests share."""

import pytest
from helpers_tokenizer import save_bpe_tokenizer, save_word_tokenizer

from hpgrain.tokenizer import load_tokenizer


@pytest.fixture(scope="session")
def word_folder(tmp_path_factory):
  return save_word_tokenizer(
    tmp_path_factory.mktemp("words"), eos_token="<eos>", sep_token="<sep>"
  )


@pytest.fixture(scope="session")
def bpe_folder(tmp_path_factory):
  return save_bpe_tokenizer(tmp_path_factory.mktemp("bpe"))


@pytest.fixture
def words(word_folder):
  return load_tokenizer(word_folder)


@pytest.fixture
def bpe(bpe_folder):
  return load_tokenizer(bpe_folder)
