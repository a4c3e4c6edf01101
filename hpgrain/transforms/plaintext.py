r"""Plain text in, examples out: tokenized in batches, ended by EOS, and cut.

  records    {"text": "ab"}   {"text": " "}   {"text": "cdefg"}
  ids        a b              -               c d e f g
  + EOS      a b EOS          -               c d e f g EOS
  examples   [a b]            -               [c d e] [f g]     max_seq_len 3
  labels     [b EOS]                          [d e f] [g EOS]   shifted

Whatever backend encodes, the ids are Hugging Face's, so which one it was is
no part of what identifies the examples.
"""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from hpgrain.arguments import integer
from hpgrain.examples import Examples, cut_documents
from hpgrain.tokenizer import tokenizer_info
from hpgrain.tools.encoder_spec import Encoded, Encoder
from hpgrain.tools.encoders import (
  BACKENDS,
  SPECIAL_TOKENS_IN_TEXT,
  choose_backend,
)
from hpgrain.transforms.counters import Counters
from hpgrain.transforms.lazy_tokenizer import OPENING, LazyTokenizer
from hpgrain.transforms.text_fields import text_keys_of, text_reader
from hpgrain.transforms.transform import Place, Record


class PlaintextTransform:
  """Tokenizes a text field; see `transform.Transform`.

  Threads that share it take turns at encoding.
  """

  one_to_one = False

  def __init__(
    self,
    tokenizer: LazyTokenizer,
    *,
    max_seq_len: int,
    text_keys: str | Sequence[str] | None = None,
    template: str | None = None,
    labels_are_shifted: bool = True,
    backend: str = "auto",
    sample: Sequence[str] | None = None,
    special_tokens_in_text: str = "as_is",
  ) -> None:
    r"""Checks the options; opens nothing.

    Args:
      tokenizer: what tokenizes.
      max_seq_len: positions an example has at most; a longer text gives
        several.
      text_keys: the text's field, or several of which the first that a record
        has is taken. Unset: "text", unless there is a template.
      template: a format string over the record's fields instead, as
        "{question}\n{answer}".
      labels_are_shifted: whether labels[t] is the target at position t.
      backend: "huggingface", "gigatoken", or "auto", the faster one where it
        gives the same ids on the sample.
      sample: texts to choose the backend on; None takes the first batch.
      special_tokens_in_text: a special token's string in a text becomes its
        id ("as_is", as Hugging Face does), is encoded like any text
        ("plain"), or is an error ("error").

    Raises:
      ValueError: an option is not legal, or contradicts another.
    """
    if text_keys is None and template is None:
      text_keys = "text"
    self._read = text_reader(text_keys, template)
    self._text_keys = None if text_keys is None else text_keys_of(text_keys)
    self._template = template
    self._tokenizer = tokenizer
    self._max_seq_len = integer("max_seq_len", max_seq_len, minimum=1)
    self._labels_are_shifted = labels_are_shifted
    for name, value, allowed in (
      ("backend", backend, BACKENDS),
      (
        "special_tokens_in_text",
        special_tokens_in_text,
        SPECIAL_TOKENS_IN_TEXT,
      ),
    ):
      if value not in allowed:
        raise ValueError(
          f"data_transform.{name} must be one of {', '.join(allowed)}, got"
          f" {value!r}."
        )
    self._backend = backend
    self._sample = None if sample is None else tuple(sample)
    self._special = special_tokens_in_text
    self._lock = threading.Lock()
    self._encoder: Encoder | None = None
    self.counters = Counters()

  @property
  def identity(self) -> dict[str, Any]:
    """Everything that decides the examples, as JSON."""
    info = self._tokenizer.info()
    return {
      "transform": "plaintext",
      "version": 1,
      "tokenizer": info.digest,
      "end_id": info.eod_id,
      "text_keys": self._text_keys and list(self._text_keys),
      "template": self._template,
      "max_seq_len": self._max_seq_len,
      "labels_are_shifted": self._labels_are_shifted,
      "special_tokens_in_text": self._special,
    }

  @property
  def backend(self) -> str | None:
    """The backend chosen and its version; None before the first batch."""
    encoder = self._encoder
    return None if encoder is None else f"{encoder.name} {encoder.version}"

  def __call__(self, records: Sequence[Record], place: Place) -> Examples:
    """See `transform.Transform`."""
    texts = self._texts(records, place)
    filled = [i for i, text in enumerate(texts) if text and not text.isspace()]
    encoded = self._encode([texts[i] for i in filled], filled, place)
    lengths = np.zeros(len(texts), np.int64)
    lengths[filled] = encoded.lengths
    examples = cut_documents(
      _int32(encoded.ids),
      lengths,
      max_seq_len=self._max_seq_len,
      labels_are_shifted=self._labels_are_shifted,
      end_id=self._end_id(),
    )
    self.counters.add(
      examples, dropped={"empty": lengths == 0}, tokens_dropped={}
    )
    return examples

  def _texts(self, records: Sequence[Record], place: Place) -> list[str]:
    if self._text_keys is not None and len(self._text_keys) == 1:
      # One field of all at once; whoever lacks it is named below.
      (key,) = self._text_keys
      found = [record.get(key) for record in records]
      if all(isinstance(text, str) for text in found):
        return found
    return [self._text(r, i, place) for i, r in enumerate(records)]

  def _text(self, record: Record, index: int, place: Place) -> str:
    try:
      return self._read(record)
    except ValueError as error:
      raise ValueError(f"{place(index)}: {error}") from None

  def _end_id(self) -> int:
    end_id = self._tokenizer.info().eod_id
    if end_id is None:
      # Raises, with the words for it.
      tokenizer_info(self._tokenizer.open(), require_eod=True)
    assert end_id is not None, "it was refused"
    return end_id

  def _encode(
    self, texts: Sequence[str], filled: Sequence[int], place: Place
  ) -> Encoded:
    try:
      with self._lock:
        encoded = self._opened(texts).encode(texts)
    except Exception:
      for i, text in zip(filled, texts):
        if not _is_unicode(text):
          raise ValueError(
            f"{place(i)}: its text holds half of a surrogate pair, which is no"
            " Unicode and cannot be encoded. Mend the record."
          ) from None
      raise
    if self._special == "error" and encoded.special.any():
      i = filled[int(np.argmax(encoded.special))]
      raise ValueError(
        f"{place(i)}: its text spells out a special token, which"
        " data_transform.special_tokens_in_text='error' refuses. Take 'plain'"
        " to encode it like any text, or 'as_is' to give it its id."
      )
    return encoded

  def _opened(self, texts: Sequence[str]) -> Encoder:
    """The encoder, opened the first time; the lock is held."""
    if self._encoder is None:
      with OPENING:
        spec = choose_backend(
          self._tokenizer.open(),
          sample=texts if self._sample is None else self._sample,
          vocab_size=self._tokenizer.info().vocab_size,
          backend=self._backend,
          special_tokens_in_text=self._special,
          option="data_transform.backend",
        )
      # Its own copy: the tokenizer may be called by other threads meanwhile.
      self._encoder = spec.open()
    return self._encoder

  def __getstate__(self) -> dict[str, Any]:
    """What a pickle carries: the options, and nothing that is open."""
    left_out = ("_lock", "_encoder", "_read")
    return {k: v for k, v in self.__dict__.items() if k not in left_out}

  def __setstate__(self, state: dict[str, Any]) -> None:
    """Opens the encoder at the first batch, as the original did."""
    self.__dict__.update(state)
    self._read = text_reader(self._text_keys, self._template)
    self._lock = threading.Lock()
    self._encoder = None


def _int32(ids: np.ndarray) -> np.ndarray:
  # Ids lie below 2^31: whichever dtype they are stored in, no value changes.
  return ids.astype(np.int32, copy=False)


def _is_unicode(text: str) -> bool:
  try:
    text.encode()
  except UnicodeEncodeError:
    return False
  return True
