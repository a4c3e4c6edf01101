import itertools
import json
import pickle
import threading

import numpy as np
import pytest
from helpers_examples import listed, place
from hypothesis import given, settings
from hypothesis import strategies as st

from hpgrain.records import IGNORE_INDEX
from hpgrain.tokenizer import load_tokenizer
from hpgrain.tools import fast_backend
from hpgrain.transforms import lazy_tokenizer
from hpgrain.transforms.lazy_tokenizer import LazyTokenizer
from hpgrain.transforms.plaintext import PlaintextTransform

# gigatoken has no tokenizer of whole words.
pytestmark = pytest.mark.filterwarnings("ignore:Tokenizing with Hugging Face")

TEXTS = [{"text": t} for t in ("a b", "", " \n\t", "c d e a b", "a")]


def joined(lists):
  return list(itertools.chain.from_iterable(lists))


def test_documents_end_with_eos_and_are_cut(words):
  transform = PlaintextTransform(words, max_seq_len=3)
  assert listed(transform(TEXTS, place)) == [
    [([3, 4], [4, 0])],
    [],
    [],
    [([5, 6, 7], [6, 7, 3]), ([3, 4], [4, 0])],
    [([3], [0])],
  ]


def test_unshifted_labels_are_the_inputs(words):
  transform = PlaintextTransform(words, max_seq_len=3, labels_are_shifted=False)
  assert listed(transform(TEXTS, place)) == [
    [([3, 4, 0], [3, 4, 0])],
    [],
    [],
    [([5, 6, 7], [5, 6, 7]), ([3, 4, 0], [3, 4, 0])],
    [([3, 0], [3, 0])],
  ]


def test_counters_tell_what_was_read(words):
  transform = PlaintextTransform(words, max_seq_len=3)
  transform(TEXTS[:2], place)
  transform(TEXTS[2:], place)
  assert transform.counters.as_dict() == {
    "records": 5,
    "examples": 4,
    "tokens_read": 8,
    "tokens": 8,
    "dropped": {"empty": 2},
    "tokens_dropped": {},
  }


@settings(deadline=None)
@given(
  documents=st.lists(
    st.lists(st.sampled_from("abcde"), max_size=9).map(" ".join), max_size=8
  ),
  size=st.integers(1, 5),
  shifted=st.booleans(),
  cut=st.integers(0, 8),
)
def test_batches_change_nothing(word_folder, documents, size, shifted, cut):
  records = [{"text": text} for text in documents]
  transform = PlaintextTransform(
    LazyTokenizer(word_folder), max_seq_len=size, labels_are_shifted=shifted
  )
  whole = listed(transform(records, place))
  parts = listed(transform(records[:cut], place))
  parts += listed(transform(records[cut:], place))
  assert parts == whole
  for text, examples in zip(documents, whole):
    ids = ["abcde".index(word) + 3 for word in text.split()]
    ids += [0] if ids else []
    for inputs, labels in examples:
      assert len(inputs) == len(labels) <= size
    if not shifted:
      assert joined(inputs for inputs, _ in examples) == ids
      assert all(inputs == labels for inputs, labels in examples)
    else:
      assert joined(inputs for inputs, _ in examples) == ids[:-1]
      assert joined(labels for _, labels in examples) == ids[1:]


def test_a_backend_that_is_not_there_is_named_by_its_key(
  bpe_folder, monkeypatch
):
  monkeypatch.setattr(fast_backend, "version", lambda: None)
  transform = PlaintextTransform(
    LazyTokenizer(bpe_folder), max_seq_len=8, backend="gigatoken"
  )
  with pytest.raises(
    ValueError,
    match=r"not installed .* Set data_transform\.backend=huggingface, or auto",
  ):
    transform(TEXTS, place)


def test_gigatoken_gives_hugging_faces_ids(bpe_folder):
  pytest.importorskip("gigatoken")
  texts = [
    "def f(x):\n  return x",
    "naïve é\u0301 🙂",
    "\U0001fae9 new",
    "<eos>",
  ]
  records = [{"text": text} for text in texts]
  made = {}
  for backend in ("huggingface", "gigatoken"):
    transform = PlaintextTransform(
      LazyTokenizer(bpe_folder), max_seq_len=8, backend=backend
    )
    assert transform.backend is None
    made[backend] = listed(transform(records, place))
    assert transform.backend.split()[0] == backend
  assert made["gigatoken"] == made["huggingface"]
  tokenizer = load_tokenizer(bpe_folder)
  ids = tokenizer(texts[0], add_special_tokens=False)["input_ids"] + [1]
  inputs = joined(i for i, _ in made["huggingface"][0])
  assert inputs == ids[:-1]


def test_the_backend_is_chosen_on_the_callers_sample(words, monkeypatch):
  from hpgrain.transforms import plaintext

  seen = []
  choose = plaintext.choose_backend

  def spy(tokenizer, *, sample, **options):
    seen.append(list(sample))
    return choose(tokenizer, sample=sample, **options)

  monkeypatch.setattr(plaintext, "choose_backend", spy)
  given_sample = PlaintextTransform(words, max_seq_len=8, sample=["b c"])
  given_sample(TEXTS, place)
  given_sample(TEXTS, place)
  PlaintextTransform(words, max_seq_len=8)(TEXTS[:2], place)
  assert seen == [["b c"], ["a b"]]


def test_nothing_is_opened_before_the_first_batch(word_folder, monkeypatch):
  opened = []
  load = lazy_tokenizer.load_tokenizer
  monkeypatch.setattr(
    lazy_tokenizer,
    "load_tokenizer",
    lambda name, **options: opened.append(name) or load(name, **options),
  )
  lazy_tokenizer._load.cache_clear()
  first = PlaintextTransform(LazyTokenizer(word_folder), max_seq_len=3)
  again = PlaintextTransform(LazyTokenizer(word_folder), max_seq_len=4)
  assert opened == []
  first(TEXTS, place)
  again(TEXTS, place)
  # Once for the process, however many transforms.
  assert opened == [str(word_folder)]
  lazy_tokenizer._load.cache_clear()


def test_a_pickle_holds_the_options_alone(words):
  transform = PlaintextTransform(words, max_seq_len=3)
  expected = listed(transform(TEXTS, place))
  content = pickle.dumps(transform)
  assert len(content) < 2000
  copy = pickle.loads(content)
  assert copy.counters.as_dict()["records"] == 0
  assert listed(copy(TEXTS, place)) == expected
  assert copy.identity == transform.identity


def test_threads_share_a_transform(words):
  transform = PlaintextTransform(words, max_seq_len=3)
  expected = listed(transform(TEXTS, place))
  made = []

  def work():
    made.append(listed(transform(TEXTS, place)))

  threads = [threading.Thread(target=work) for _ in range(8)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert made == [expected] * 8
  assert transform.counters.as_dict()["tokens"] == 9 * 8


def test_the_identity_is_of_all_that_decides_the_ids(words, bpe_folder):
  def identity(tokenizer=words, **options):
    transform = PlaintextTransform(tokenizer, **{"max_seq_len": 8, **options})
    return json.dumps(transform.identity, sort_keys=True)

  plain = identity()
  assert identity(text_keys="text", backend="huggingface") == plain
  assert identity(sample=["a"]) == plain
  others = [
    identity(LazyTokenizer(bpe_folder)),
    identity(max_seq_len=9),
    identity(text_keys=["text", "body"]),
    identity(template="{text}"),
    identity(labels_are_shifted=False),
    identity(special_tokens_in_text="plain"),
  ]
  assert len({plain, *others}) == 1 + len(others)


def test_special_tokens_in_text(words):
  records = [{"text": "a"}, {"text": "b <eos> c"}]

  def transform(value):
    return PlaintextTransform(
      words, max_seq_len=8, special_tokens_in_text=value
    )

  assert listed(transform("as_is")(records, place))[1] == [
    ([4, 0, 5], [0, 5, 0])
  ]
  with pytest.raises(
    ValueError, match="record 1: its text spells out a special token"
  ):
    transform("error")(records, place)


def test_a_bad_record_is_named_and_not_quoted(words):
  transform = PlaintextTransform(words, max_seq_len=8)
  for record, message in (
    ({"body": "secret"}, "record 1: it has no field 'text', only 'body'"),
    ({"text": 7}, "record 1: its field 'text' must be a string, got int"),
    ({"text": None}, "must be a string, got NoneType"),
    ({"text": "secret \ud800"}, "record 1: .* half of a surrogate pair"),
  ):
    with pytest.raises(ValueError, match=message) as caught:
      transform([{"text": "a"}, record], place)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_options_are_checked(words, tmp_path):
  for options, message in (
    ({"max_seq_len": 0}, "max_seq_len must be at least 1, got 0"),
    ({"max_seq_len": 8, "backend": "fast"}, "backend must be one of auto"),
    (
      {"max_seq_len": 8, "special_tokens_in_text": "no"},
      "special_tokens_in_text must be one of as_is, plain, error",
    ),
    (
      {"max_seq_len": 8, "text_keys": "a", "template": "{a}"},
      "text_keys and data_transform.template exclude each other",
    ),
  ):
    with pytest.raises(ValueError, match=message):
      PlaintextTransform(words, **options)


def test_a_tokenizer_without_an_end_is_refused(tmp_path):
  from helpers_tokenizer import save_word_tokenizer

  folder = save_word_tokenizer(tmp_path)
  transform = PlaintextTransform(LazyTokenizer(folder), max_seq_len=8)
  with pytest.raises(ValueError, match="neither an EOS nor a SEP token"):
    transform(TEXTS, place)


def test_every_label_is_learnt(words):
  examples = PlaintextTransform(words, max_seq_len=2)(TEXTS, place)
  assert not np.any(examples.labels == IGNORE_INDEX)
  assert examples.weights is None
  assert examples.input_ids.dtype == examples.labels.dtype == np.int32
