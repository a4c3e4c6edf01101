import random

import numpy as np
import pytest

from hpgrain.tools.doubtful_texts import encode_apart
from hpgrain.tools.encoders import make_encoder

DOUBT = "\u0378"
LINES = "def f(x_1):\n  return x + 12  # été, 中文。\n\n"


def places(text):
  return np.array([i for i, c in enumerate(text) if c == DOUBT], np.int64)


@pytest.mark.parametrize("at_words", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_ids_are_those_of_the_whole_and_doubt_goes_to_the_sure(
  bpe, seed, at_words
):
  encoder = make_encoder(bpe, sample=[], backend="huggingface")
  rng = random.Random(seed)
  text = list(LINES * 1500)
  for _ in range(seed):
    text.insert(rng.randrange(len(text)), DOUBT)
  text = "".join([DOUBT * (seed % 2), *text, DOUBT * (seed == 3)])
  seen = []

  def fast(piece):
    assert DOUBT not in piece
    return encoder.encode([piece]).ids

  def sure(piece):
    seen.append(len(piece))
    return encoder.encode([piece]).ids

  ids = encode_apart(
    text,
    places(text),
    fast=fast,
    sure=sure,
    is_safe=lambda piece: False,
    at_words=at_words,
  )
  assert ids.tolist() == encoder.encode([text]).ids.tolist()
  assert len(text) not in seen
  assert sum(seen) < 4000 * text.count(DOUBT) + 1


def test_a_text_that_cannot_be_cut_is_encoded_whole():
  text = "x" * 5000 + DOUBT + "x" * 5000
  ids = encode_apart(
    text,
    places(text),
    fast=lambda piece: np.array(list(map(ord, piece))),
    sure=lambda piece: np.array([len(piece)]),
    is_safe=lambda piece: False,
    at_words=False,
  )
  assert ids.tolist() == [len(text)]


def test_a_piece_that_turns_out_safe_is_for_the_fast():
  def fast(piece):
    return np.array(list(map(ord, piece)))

  text = LINES * 200 + DOUBT + LINES * 200
  ids = encode_apart(
    text,
    places(text),
    fast=fast,
    sure=lambda piece: pytest.fail("there is no need"),
    is_safe=lambda piece: len(piece) < 3000,
    at_words=False,
  )
  assert ids.tolist() == fast(text).tolist()
