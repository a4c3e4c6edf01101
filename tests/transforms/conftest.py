"""Tokenizers whose ids can be written out, and a place for messages."""

import pytest
import tokenizers
from helpers_tokenizer import save_bpe_tokenizer, save_word_tokenizer
from tokenizers import models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from hpgrain.tokenizer import load_tokenizer
from hpgrain.transforms.lazy_tokenizer import LazyTokenizer

CHAT_WORDS = (
  *("<unk>", "<eos>", "<|im_start|>", "<|im_end|>"),
  *("system", "user", "assistant", "tool"),
  *("a", "b", "c", "d", "e", "f", "g", "h"),
)


@pytest.fixture(scope="session")
def word_folder(tmp_path_factory):
  """ "a" is 3, "b" 4, ..., "e" 7; <eos> 0, unknown 2."""
  return save_word_tokenizer(
    tmp_path_factory.mktemp("words"), eos_token="<eos>", sep_token="<sep>"
  )


@pytest.fixture(scope="session")
def bpe_folder(tmp_path_factory):
  return save_bpe_tokenizer(tmp_path_factory.mktemp("bpe"))


@pytest.fixture
def words(word_folder):
  return LazyTokenizer(word_folder)


@pytest.fixture(scope="session")
def chat_folder(tmp_path_factory):
  """Ids as in CHAT_WORDS: roles 4 to 7, "a" to "h" 8 to 15."""
  folder = tmp_path_factory.mktemp("chat")
  vocabulary = {word: i for i, word in enumerate(CHAT_WORDS)}
  backend = tokenizers.Tokenizer(
    models.WordLevel(vocabulary, unk_token="<unk>")
  )
  backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
  backend.add_special_tokens(["<eos>", "<|im_start|>", "<|im_end|>"])
  PreTrainedTokenizerFast(
    tokenizer_object=backend, unk_token="<unk>", eos_token="<eos>"
  ).save_pretrained(folder)
  return folder


@pytest.fixture
def chat(chat_folder):
  return LazyTokenizer(chat_folder)


@pytest.fixture
def bpe(bpe_folder):
  return load_tokenizer(bpe_folder)
