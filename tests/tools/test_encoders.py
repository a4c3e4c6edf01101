# ruff: noqa: RUF001
import os
import pickle
import random
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from helpers_tokenizer import save_word_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st

from hpgrain.tokenizer import PROBES, load_tokenizer
from hpgrain.tools import encoders, fast_backend, long_texts
from hpgrain.tools.encoder_spec import append_eod
from hpgrain.tools.encoders import choose_backend, make_encoder
from hpgrain.tools.example_text import (
  find_stdlib,
  split_text,
  train_tokenizer,
)
from hpgrain.tools.texts import Texts

needs_gigatoken = pytest.mark.skipif(
  fast_backend.version() is None, reason="gigatoken is not installed"
)
TEXTS = [*PROBES, "", "plain text", "été 中文", Path(__file__).read_text()]


def called(tokenizer, texts, **options):
  return tokenizer(texts, add_special_tokens=False, **options)["input_ids"]


def rows(encoded):
  ends = np.cumsum(encoded.lengths)
  assert len(encoded.ids) == (ends[-1] if len(ends) else 0)
  return [part.tolist() for part in np.split(encoded.ids, ends[:-1])]


@pytest.mark.parametrize(
  "backend",
  ["huggingface", pytest.param("gigatoken", marks=needs_gigatoken)],
)
@pytest.mark.parametrize("sent", [False, True])
def test_ids_are_those_of_the_call(bpe, backend, sent):
  encoder = make_encoder(bpe, sample=TEXTS, backend=backend)
  if sent:
    encoder = pickle.loads(pickle.dumps(encoder.spec)).open()
  assert (encoder.name, encoder.spec.dtype) == (backend, np.uint16)
  assert rows(encoder.encode(TEXTS)) == called(bpe, TEXTS)
  assert encoder.encode([]).ids.dtype == np.uint16
  assert encoder.encode(["a"]).ids.dtype == np.uint16


def test_a_tokenizer_whose_backend_differs_is_called(bpe, monkeypatch):
  monkeypatch.setattr(encoders, "backend_agrees", lambda tokenizer: False)
  encoder = make_encoder(bpe, sample=TEXTS)
  assert (encoder.name, encoder.spec.tokenizer_json) == ("huggingface", None)
  assert rows(encoder.encode(TEXTS)) == called(bpe, TEXTS)
  with pytest.raises(ValueError, match="no Rust backend that gives what its"):
    choose_backend(bpe, sample=[], backend="gigatoken")


@needs_gigatoken
def test_unsupported_tokenizers_fall_back_with_a_warning_or_an_error(words):
  with pytest.warns(UserWarning, match="slower: gigatoken does not support it"):
    assert choose_backend(words, sample=["a"]).backend == "huggingface"
  with pytest.raises(
    ValueError, match="gigatoken cannot be used: gigatoken do"
  ):
    choose_backend(words, sample=["a"], backend="gigatoken")


def test_without_gigatoken_auto_is_silent_and_an_order_is_refused(
  bpe, monkeypatch
):
  monkeypatch.setattr(fast_backend, "version", lambda: None)
  assert choose_backend(bpe, sample=["a"]).backend == "huggingface"
  with pytest.raises(
    ValueError,
    match=r"not installed \(pip install 'hpgrain.* Set --tokenizer-backend=",
  ):
    choose_backend(bpe, sample=["a"], backend="gigatoken")


@needs_gigatoken
@pytest.mark.parametrize(
  ("change", "at"),
  [
    (lambda ids, s: (np.concatenate([ids[:-1], [9]]).astype(ids.dtype), s), 2),
    (lambda ids, s: (ids, s - np.eye(len(s), dtype=int)[-1]), 2),
  ],
)
def test_a_differing_backend_is_refused_by_place_and_not_shown(
  bpe, monkeypatch, change, at
):
  built = fast_backend.fast_encoder

  def wrong(*args, **kwargs):
    encode = built(*args, **kwargs)
    return lambda texts: change(*encode(texts))

  monkeypatch.setattr(fast_backend, "fast_encoder", wrong)
  sample = ["right", "\x00\x01\x02"]
  message = f"differ from Hugging Face's at token {at} of text 1 of the sample"
  with pytest.raises(ValueError, match=message):
    choose_backend(bpe, sample=sample, backend="gigatoken")
  with pytest.warns(UserWarning, match=message):
    assert choose_backend(bpe, sample=sample).backend == "huggingface"


@pytest.mark.parametrize("backend", ["huggingface", "auto"])
def test_special_tokens_in_text_are_found_and_can_be_plain(bpe, backend):
  texts = ["a", "b<eos>", "", "<bos> c <eos> d", "<eo s>"]
  encoder = make_encoder(bpe, sample=[], backend=backend)
  encoded = encoder.encode(texts)
  assert encoded.special.tolist() == [False, True, False, True, False]
  plain = make_encoder(
    bpe, sample=[], backend=backend, special_tokens_in_text="plain"
  ).encode(texts)
  assert plain.special.tolist() == encoded.special.tolist()
  assert rows(plain) == called(bpe, texts, split_special_tokens=True)
  assert not np.isin(plain.ids, [0, 1]).any()


def test_unknown_words_are_no_special_tokens(words):
  encoded = make_encoder(words, sample=[], backend="huggingface").encode(
    ["a zzz", "<sep> a"]
  )
  assert rows(encoded) == [[3, 2], [1, 3]]
  assert encoded.special.tolist() == [False, True]


def test_eod_follows_each_text_that_is_not_empty(bpe):
  encoder = make_encoder(bpe, sample=[], backend="huggingface", add_eod=1)
  texts = ["", "ab", "c", ""]
  plain = called(bpe, texts)
  expected = [[*ids, 1] if ids else [] for ids in plain]
  assert rows(encoder.encode(texts)) == expected
  assert rows(encoder.encode(texts, add_eod=False)) == plain


@pytest.mark.parametrize("dtype", [np.uint16, np.int32])
def test_append_eod_follows_what_is_not_empty(dtype):
  length = 3
  lengths = np.array([0, length, 2, 0, length * 2, 0])
  ids = np.arange(lengths.sum(), dtype=np.uint32)
  parts = np.split(ids.tolist(), np.cumsum(lengths)[:-1])
  out, new = append_eod(ids, lengths, 9, dtype=np.dtype(dtype))
  assert out.dtype == dtype
  assert new.tolist() == [0, length + 1, 3, 0, length * 2 + 1, 0]
  assert out.tolist() == [
    i for part in parts if len(part) for i in [*part.tolist(), 9]
  ]


def test_an_id_outside_the_vocabulary_is_refused(bpe):
  encoder = make_encoder(bpe, sample=[], backend="huggingface")
  encoder._encode_flat = lambda texts: (
    np.array([5000], np.uint32),
    np.array([0, 1]),
  )
  with pytest.raises(ValueError, match="gave the id 5000, but its vocabulary"):
    encoder.encode(["x"])


@pytest.mark.parametrize(
  ("options", "message"),
  [
    ({"backend": "x"}, "backend must be one of auto, huggingface, gigatoken"),
    ({"special_tokens_in_text": "x"}, "must be one of as_is, plain, error"),
  ],
)
def test_unknown_options_are_refused(bpe, options, message):
  with pytest.raises(ValueError, match=message):
    choose_backend(bpe, sample=[], **options)


def test_wide_vocabularies_are_stored_as_int32(tmp_path):
  folder = save_word_tokenizer(tmp_path, size=70000, eos_token="<eos>")
  encoder = make_encoder(
    load_tokenizer(folder), sample=[], backend="huggingface", add_eod=0
  )
  encoded = encoder.encode(["w69999 a"])
  assert encoded.ids.dtype == np.int32
  assert encoded.ids.tolist() == [69999, 3, 0]


@needs_gigatoken
@settings(max_examples=150, deadline=None)
@given(
  st.lists(
    st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=5
  )
)
def test_backends_agree_on_any_unicode(bpe_folder, texts):
  tokenizer = load_tokenizer(bpe_folder)
  encoder = make_encoder(tokenizer, sample=[], backend="gigatoken")
  assert rows(encoder.encode(texts)) == called(tokenizer, texts)


def safe(text, *, normalizes):
  (found,) = fast_backend.safe_texts(Texts.of([text]), normalizes=normalizes)
  return found


def test_texts_that_the_tables_differ_on_go_to_the_reference():
  composed, apart = "é", unicodedata.normalize("NFD", "é")
  # Marks in another than the canonical order, as gigatoken keeps them.
  marks = "a\u0315\u0300"
  for text in ("ascii", composed, "中文 🙂", "\ue000", "가나", "ก็"):
    assert safe(text, normalizes=True) and safe(text, normalizes=False)
  for text in (apart, marks, "\u1100\u1161", "\u0344", "\u09c7\u09be"):
    assert not safe(text, normalizes=True) and safe(text, normalizes=False)
  for point in (0x0378, 0x1AEB, 0x10940, 0x50000, 0xE0FFF):
    assert unicodedata.category(chr(point)) == "Cn"
    assert not safe(chr(point), normalizes=True)
    assert not safe(chr(point), normalizes=False)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1))
def test_texts_are_safe_by_pythons_own_tables(texts):
  def by_the_book(text, normalizes):
    if normalizes and not unicodedata.is_normalized("NFC", text):
      return False
    return all(unicodedata.category(c) != "Cn" for c in text)

  for normalizes in (True, False):
    assert fast_backend.safe_texts(
      Texts.of(texts), normalizes=normalizes
    ).tolist() == [by_the_book(text, normalizes) for text in texts]


# A folder with real tokenizers: qwen3/, deepseek/, gpt2/.
ASSETS = os.environ.get("HPGRAIN_TEST_TOKENIZERS")
real = pytest.mark.skipif(
  not ASSETS, reason="HPGRAIN_TEST_TOKENIZERS is not set"
)
# "The tea is hot today, and the rain has stopped.", or so.
SCRIPTS = (
  "The tea is hot today, and the rain has stopped.",
  "Le thé est chaud aujourd'hui, et la pluie a cessé.",
  "Der Tee ist heiß heute, und der Regen hat aufgehört. Übermäßig!",
  "Чай сегодня горячий, а дождь уже прошёл.",
  "Το τσάι είναι ζεστό σήμερα, και η βροχή σταμάτησε.",
  "الشاي ساخن اليوم، وقد توقّف المطر.",
  "התה חם היום, והגשם פסק.",
  "आज चाय गरम है, और बारिश रुक गई है।",
  "আজ চা গরম, আর বৃষ্টি থেমে গেছে।",
  "இன்று தேநீர் சூடாக இருக்கிறது, மழை நின்றுவிட்டது.",
  "วันนี้ชาร้อน และฝนหยุดแล้ว",
  "今天的茶很热，雨也停了。",
  "今日のお茶は熱いし、雨はもうやんだ。",
  "오늘은 차가 뜨겁고, 비도 그쳤다.",
  "Hôm nay trà nóng, và mưa đã tạnh.",
  "დღეს ჩაი ცხელია, წვიმა კი შეწყდა.",
  "👩🏽\u200d💻👨\u200d👩\u200d👧 ½ ² ﬁ ① Ⅷ 𝔘𝔫𝔦 \u00a0\u2003\u3000",
)


def real_texts():
  """Source and prose of what is installed, scripts, and random Unicode."""
  rng = random.Random(0)
  points = [c for c in range(0x30000) if not 0xD800 <= c < 0xE000]
  marks = [c for c in points if unicodedata.category(chr(c))[0] == "M"]
  pools = (points, points[:0x3000], marks, [*range(128)])
  texts = [
    "".join(map(chr, rng.choices(pool, k=rng.randrange(80))))
    for pool in pools
    for _ in range(400)
  ]
  folder = Path(os.__file__).parent
  sources = sorted(folder.glob("*.py")) + sorted(folder.glob("test/*.py"))
  texts += [path.read_text(errors="ignore") for path in rng.sample(sources, 40)]
  for text in SCRIPTS:
    texts += [text, f" {text}\n", unicodedata.normalize("NFD", text)]
  joined = list("\n".join([*SCRIPTS, *TEXTS]) * 3)
  for _ in range(20):
    rng.shuffle(joined)
    texts.append("".join(joined))
  return texts


@needs_gigatoken
@real
@pytest.mark.parametrize("name", ["qwen3", "deepseek", "gpt2"])
def test_backends_agree_for_real_tokenizers(name):
  tokenizer = load_tokenizer(Path(ASSETS) / name)
  texts = real_texts()
  encoder = make_encoder(tokenizer, sample=[], backend="gigatoken")
  assert rows(encoder.encode(texts)) == called(tokenizer, texts)


@needs_gigatoken
def test_backends_agree_for_our_own_tokenizer_on_real_text(tmp_path):
  train_tokenizer(split_text(find_stdlib(), max_bytes=1_500_000), tmp_path)
  tokenizer = load_tokenizer(tmp_path)
  texts = real_texts()
  encoder = make_encoder(tokenizer, sample=[], backend="gigatoken")
  assert rows(encoder.encode(texts)) == called(tokenizer, texts)


@needs_gigatoken
@real
@pytest.mark.parametrize("backend", ["huggingface", "gigatoken"])
@pytest.mark.parametrize("name", ["qwen3", "deepseek", "gpt2"])
def test_long_texts_are_encoded_as_the_whole_for_real_tokenizers(
  name, backend, monkeypatch
):
  monkeypatch.setattr(long_texts, "_PIECE", 20_000)
  tokenizer = load_tokenizer(Path(ASSETS) / name)
  encoder = make_encoder(tokenizer, sample=[], backend=backend)
  text = "\n".join(real_texts())[:600_000]
  special = tokenizer.convert_ids_to_tokens(encoder.spec.special_ids[0])
  text += f"{special} and {special}\n" * 3000
  parts = list(
    long_texts.encoded_pieces(
      [text[i : i + 9999] for i in range(0, len(text), 9999)],
      lambda piece: encoder.encode([piece]).ids,
      at_words=not encoder.spec.divides_texts,
    )
  )
  assert len(parts) > 20
  assert np.concatenate(parts).tolist() == called(tokenizer, [text])[0]


@needs_gigatoken
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_doubtful_characters_anywhere_in_a_long_text(bpe_folder, data):
  tokenizer = load_tokenizer(bpe_folder)
  encoder = make_encoder(tokenizer, sample=[], backend="gigatoken")
  text = list("\n".join(SCRIPTS) * 20)
  for place in data.draw(st.lists(st.integers(0, len(text)), max_size=5)):
    text.insert(place, data.draw(st.sampled_from(["\u0378", "\U0001fbef"])))
  texts = ["".join(text)]
  assert rows(encoder.encode(texts)) == called(tokenizer, texts)
