import pytest

from hpgrain.transforms.conversation import ConversationTransform
from hpgrain.transforms.lazy_tokenizer import LazyTokenizer
from hpgrain.transforms.make import make_transform
from hpgrain.transforms.plaintext import PlaintextTransform
from hpgrain.transforms.pretokenized import PretokenizedTransform


def test_each_type_has_its_transform(word_folder):
  for data_type, kind, one_to_one in (
    ("plaintext", PlaintextTransform, False),
    ("conversation", ConversationTransform, True),
    ("pretokenized", PretokenizedTransform, False),
  ):
    for tokenizer in (str(word_folder), word_folder, LazyTokenizer("absent")):
      made = make_transform(data_type, max_seq_len=8, tokenizer=tokenizer)
      assert type(made) is kind
      assert made.one_to_one is one_to_one


def test_options_that_are_none_take_the_default(words):
  made = make_transform(
    "plaintext",
    max_seq_len=8,
    tokenizer=words,
    text_keys=None,
    chat_template=None,
    labels_are_shifted=False,
  )
  assert made.identity["text_keys"] == ["text"]
  assert made.identity["labels_are_shifted"] is False


@pytest.mark.parametrize(
  "data_type, options, message",
  [
    ("text", {}, "must be one of plaintext, .* got 'text'"),
    ("identity", {}, "'identity' is of indexed data.*'pretokenized'"),
    ("plaintext", {"tokenizer": None}, "needs a tokenizer. Set model_assets"),
    ("plaintext", {"tokenizer": 3}, "must be a folder, .* got int"),
    (
      "plaintext",
      {"text_key": "a"},
      r"text_key is no key of .*'plaintext'.* Did you mean 'text_keys'\?",
    ),
    ("plaintext", {"truncation": "drop"}, "truncation is no key of data_type"),
    ("pretokenized", {"chat_template": "chatml"}, "chat_template is no key"),
  ],
)
def test_what_does_not_belong_is_refused(words, data_type, options, message):
  with pytest.raises(ValueError, match=message):
    make_transform(
      data_type, **{"max_seq_len": 8, "tokenizer": words, **options}
    )
