import dataclasses

import pytest

from hpgrain.token_ids import TokenIds, resolve
from hpgrain.tokenizer import TokenizerInfo

_INFO = TokenizerInfo(
  name="bpe",
  digest="ab" * 16,
  vocab_size=50,
  eod_id=1,
  pad_id=2,
  bos_id=3,
  eos_id=4,
)


def _resolve(tokenizer=None, vocab_size=None, eod_id=None, pad_id=None):
  return resolve(
    tokenizer=tokenizer,
    manifests={},
    vocab_size=vocab_size,
    eod_id=eod_id,
    pad_id=pad_id,
  )


def test_what_nobody_knows_stays_unknown():
  assert _resolve() == TokenIds(None, None, None)


def test_numbers_are_taken_where_no_tokenizer_is_known():
  assert _resolve(vocab_size=9, eod_id=1, pad_id=1) == TokenIds(9, 1, 1)


def test_the_tokenizer_decides():
  assert _resolve(_INFO) == TokenIds(50, 1, 2)
  assert _resolve(_INFO, vocab_size=50, eod_id=1, pad_id=2) == TokenIds(
    50, 1, 2
  )


@pytest.mark.parametrize("name", ["eod_id", "pad_id"])
def test_ids_lie_in_the_vocabulary(name):
  with pytest.raises(
    ValueError, match=rf"^{name} is 9, outside the vocabulary of vocab_size=9"
  ):
    _resolve(vocab_size=9, **{name: 9})


@pytest.mark.parametrize("special", ["eod_id", "bos_id", "eos_id"])
def test_padding_that_is_another_special_id_may_stand_in_text(special):
  shared = dataclasses.replace(_INFO, pad_id=getattr(_INFO, special))
  assert _resolve(shared).pad_id is None


@pytest.mark.parametrize(
  "given, message",
  [
    ({"vocab_size": 51}, r"data_config\.vocab_size is 51, but .* says 50"),
    ({"eod_id": 0}, r"data_config\.eod_id is 0, but model_assets.* says 1"),
    ({"pad_id": 0}, r"data_config\.pad_id is 0, but .* says 2"),
  ],
)
def test_numbers_that_contradict_the_tokenizer_are_refused(given, message):
  with pytest.raises(ValueError, match=message):
    _resolve(_INFO, **given)
