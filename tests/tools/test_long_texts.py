import numpy as np
import pytest

from hpgrain.tools import long_texts
from hpgrain.tools.encoders import make_encoder
from hpgrain.tools.long_texts import pieces


@pytest.fixture(autouse=True)
def small(monkeypatch):
  monkeypatch.setattr(long_texts, "_PIECE", 100)
  monkeypatch.setattr(long_texts, "_AROUND", 30)


def encode_of(tokenizer):
  encoder = make_encoder(tokenizer, sample=[], backend="huggingface")

  def encode(texts):
    encoded = encoder.encode(texts)
    return encoded.ids, encoded.lengths

  return encode


@pytest.mark.parametrize(
  "text",
  [
    "def f(x):\n  return x + 1\n\n" * 40,
    "one two three " * 60,
    "word<eos>" * 70,
    "中文。, " * 100,
  ],
  ids=["lines", "words", "special", "signs"],
)
def test_pieces_are_encoded_as_the_whole(bpe, text):
  encode = encode_of(bpe)
  parts = list(pieces(text, encode))
  assert "".join(parts) == text
  assert len(parts) > 4 and max(map(len, parts)) <= 100
  ids, _ = encode(parts)
  assert ids.tolist() == encode([text])[0].tolist()


def test_a_run_is_not_cut_however_long(bpe):
  text = "a " + " " * 500
  assert list(pieces(text, encode_of(bpe))) == [text]


def test_an_encoder_that_marks_beginnings_allows_no_cut():
  def encode(texts):
    lengths = np.array([len(text) + 1 for text in texts])
    return np.concatenate([[0, *map(ord, text)] for text in texts]), lengths

  text = "one two three " * 60
  assert list(pieces(text, encode)) == [text]


def test_short_texts_are_one_piece(bpe):
  assert list(pieces("", encode_of(bpe))) == [""]
  assert list(pieces("a b", encode_of(bpe))) == ["a b"]
