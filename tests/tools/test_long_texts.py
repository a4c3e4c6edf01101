import numpy as np
import pytest

from hpgrain.tools import long_texts
from hpgrain.tools.encoders import make_encoder
from hpgrain.tools.long_texts import NoCutError, encoded_pieces


@pytest.fixture(autouse=True)
def small(monkeypatch):
  monkeypatch.setattr(long_texts, "_PIECE", 200)
  monkeypatch.setattr(long_texts, "_MOST", 1000)
  monkeypatch.setattr(long_texts, "_AROUND", 60)


def encode_of(tokenizer):
  encoder = make_encoder(tokenizer, sample=[], backend="huggingface")
  return lambda text: encoder.encode([text]).ids


def chunks(text, size=70):
  return [text[i : i + size] for i in range(0, len(text), size)]


@pytest.mark.parametrize(
  "text",
  [
    "def f(x):\n  return x + 1\n\n" * 40,
    "one two three " * 60,
    "word <eos>" * 70,
    "中文。, " * 100,
    "one  two,three\n" * 30 + "x" * 300 + " four" * 100,
  ],
  ids=["lines", "words", "special", "signs", "run"],
)
def test_pieces_are_encoded_as_the_whole(bpe, text):
  encode = encode_of(bpe)
  parts = list(encoded_pieces(chunks(text), encode))
  assert len(parts) > 2
  assert np.concatenate(parts).tolist() == encode(text).tolist()
  parts = list(encoded_pieces([text], encode, at_words=" t" in text))
  assert np.concatenate(parts).tolist() == encode(text).tolist()


@pytest.mark.parametrize("text", [" " * 500, "x" * 300, "中" * 900])
def test_a_run_is_not_cut_up_to_what_fits_in_memory(bpe, text):
  text = f"a {text}"
  encode = encode_of(bpe)
  (ids,) = encoded_pieces(chunks(text), encode)
  assert ids.tolist() == encode(text).tolist()


@pytest.mark.parametrize("text", [" " * 1500, "wxyz" * 400, "ab1" * 500])
def test_a_longer_one_is_an_error_and_not_shown(bpe, text):
  with pytest.raises(NoCutError, match="without a place to cut it") as caught:
    list(encoded_pieces(chunks(f"a {text}"), encode_of(bpe)))
  assert text[:3] not in str(caught.value)


def test_words_alone_are_cut_where_a_tokenizer_divides_no_text(bpe):
  encode = encode_of(bpe)
  with pytest.raises(NoCutError, match="without a place to cut it"):
    list(encoded_pieces(["a,b\nc." * 300], encode, at_words=True))


def test_an_encoder_that_marks_beginnings_marks_one(bpe):
  def encode(text):
    return np.array([0, *map(ord, text)] if text else [])

  text = "one two three " * 60
  parts = list(encoded_pieces(chunks(text), encode))
  assert len(parts) > 2
  assert np.concatenate(parts).tolist() == encode(text).tolist()


def test_an_encoder_that_looks_at_all_of_a_text_allows_no_cut(bpe):
  def encode(text):
    return np.array([len(text), *map(ord, text)])

  with pytest.raises(NoCutError, match="looks at all of a text at once"):
    list(encoded_pieces(chunks("one two three " * 100), encode))


def test_short_texts_are_one_piece(bpe):
  encode = encode_of(bpe)
  assert [ids.tolist() for ids in encoded_pieces([""], encode)] == [[]]
  (ids,) = encoded_pieces(["a ", "b"], encode)
  assert ids.tolist() == encode("a b").tolist()
