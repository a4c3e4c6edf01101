"""Texts in, ids as they are stored out, by one of several backends.

  huggingface   the reference: the tokenizer's Rust backend, where that gives
                what the tokenizer's own call gives, else the call
  gigatoken     tens of times faster, for byte-level and SentencePiece BPE;
                taken only after it gave the reference's ids on a sample

Whatever the backend, the ids are those of
`tokenizer(text, add_special_tokens=False)`.
"""

import dataclasses
import importlib.metadata
import pickle
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hpgrain.sources.indexed import dtype_for_vocabulary
from hpgrain.tokenizer import (
  PROBES,
  backend_agrees,
  special_ids,
  tokenizer_info,
)
from hpgrain.tools import fast_backend
from hpgrain.tools.reference_backend import (
  EncodeFlat,
  backend_encoder,
  reference_encoder,
)

if TYPE_CHECKING:
  from transformers import PreTrainedTokenizerBase

BACKENDS = ("auto", "huggingface", "gigatoken")
SPECIAL_TOKENS_IN_TEXT = ("as_is", "plain", "error")

# Longer texts of a sample are cut: it is there to be encoded twice.
_SAMPLE_CHARACTERS = 1 << 16
# Tokens of a text from which on copying it by itself pays.
_LONG_TEXT = 200


@dataclasses.dataclass(frozen=True)
class EncoderSpec:
  """All that another process needs to encode as this one does.

  Attributes:
    backend: "huggingface" or "gigatoken".
    version: of the package that encodes.
    tokenizer_json: a tokenizer.json; None for a tokenizer in Python.
    pickled: the tokenizer, where its call is used.
    normalizes: whether the tokenizer.json changes characters first.
    vocab_size: one more than the largest id.
    special_ids: ids that only a special token's own string gets.
    plain: whether special tokens in texts are encoded like other text.
    add_eod: the id after each text that is not empty; None for none.
  """

  backend: str
  version: str
  tokenizer_json: str | None
  pickled: bytes | None
  normalizes: bool
  vocab_size: int
  special_ids: tuple[int, ...]
  plain: bool
  add_eod: int | None

  @property
  def dtype(self) -> np.dtype:
    """The dtype that ids are stored in."""
    return dtype_for_vocabulary(self.vocab_size)

  def open(
    self,
    *,
    parallel: bool = False,
    tokenizer: "PreTrainedTokenizerBase | None" = None,
  ) -> "Encoder":
    """Builds the encoder.

    Args:
      parallel: whether a batch may use all cores.
      tokenizer: the one that was chosen for, where it is at hand: it need not
        be opened again.
    """
    reference = _reference(self)
    if tokenizer is not None and self.tokenizer_json is not None:
      reference = backend_encoder(tokenizer.backend_tokenizer)
    if self.backend == "huggingface":
      return Encoder(self, reference)
    assert self.tokenizer_json is not None, "gigatoken has a tokenizer.json"
    fast = fast_backend.fast_encoder(self.tokenizer_json, parallel=parallel)
    return Encoder(self, _guarded(self, fast, reference))


@dataclasses.dataclass(frozen=True)
class Encoded:
  """The ids of a batch of texts.

  Attributes:
    ids: [tokens] of the stored dtype, one text's after the other.
    lengths: int64[texts].
    special: bool[texts]: whether a text spells out a special token.
  """

  ids: np.ndarray
  lengths: np.ndarray
  special: np.ndarray


class Encoder:
  """Encodes batches of texts. Not to be shared between threads."""

  def __init__(self, spec: EncoderSpec, encode_flat: EncodeFlat) -> None:
    """Made by `EncoderSpec.open`."""
    self.spec = spec
    self.name = spec.backend
    self.version = spec.version
    self._encode_flat = encode_flat
    self._plain: EncodeFlat | None = None
    self._specials = np.array(spec.special_ids, np.uint32)

  def encode(self, texts: Sequence[str], *, add_eod: bool = True) -> Encoded:
    """Encodes texts.

    Args:
      texts: the batch.
      add_eod: False leaves the EOD out, for a text that is a part of one.

    Raises:
      ValueError: an id is outside the vocabulary.
    """
    if not texts:
      none = np.zeros(0, np.int64)
      return Encoded(none.astype(self.spec.dtype), none, none.astype(bool))
    ids, lengths = self._encode_flat(texts)
    if len(ids) and int(ids.max()) >= self.spec.vocab_size:
      raise ValueError(
        f"The tokenizer gave the id {ids.max()}, but its vocabulary has"
        f" {self.spec.vocab_size} ids: it contradicts itself, and what is"
        " written could not be read. Take another, or mend it."
      )
    special = _any_of_each(self._special_places(ids), lengths)
    if self.spec.plain and special.any():
      ids, lengths = self._encode_plain(texts, ids, lengths, special)
    if add_eod and self.spec.add_eod is not None:
      ids, lengths = append_eod(
        ids, lengths, self.spec.add_eod, dtype=self.spec.dtype
      )
    ids = _stored(ids, self.spec.dtype)
    return Encoded(ids, lengths.astype(np.int64, copy=False), special)

  def _special_places(self, ids: np.ndarray) -> np.ndarray:
    """Where the ids of special tokens are."""
    specials = self._specials
    if not len(specials):
      return specials
    # They are few, and mostly the first or the last of all ids: comparing is
    # faster than looking each id up. Below the first, the difference wraps.
    gaps = np.flatnonzero(np.diff(specials) > 1)
    last = int(gaps[0]) if len(gaps) else len(specials) - 1
    near = ids - specials[0] <= specials[last] - specials[0]
    if len(gaps):
      near |= ids >= specials[last + 1]
    places = np.flatnonzero(near)
    return places[np.isin(ids[places], specials)]

  def _encode_plain(
    self,
    texts: Sequence[str],
    ids: np.ndarray,
    lengths: np.ndarray,
    special: np.ndarray,
  ) -> tuple[np.ndarray, np.ndarray]:
    """Encodes those that hold a special token's string again."""
    if self._plain is None:
      self._plain = _reference(self.spec, plain=True)
    which = np.flatnonzero(special)
    again, again_lengths = self._plain([texts[i] for i in which])
    parts = np.split(ids, np.cumsum(lengths)[:-1])
    for i, part in zip(which, np.split(again, np.cumsum(again_lengths)[:-1])):
      parts[i] = part
    lengths = lengths.copy()
    lengths[which] = again_lengths
    return np.concatenate(parts), lengths


def make_encoder(
  tokenizer: "PreTrainedTokenizerBase",
  *,
  sample: Sequence[str],
  backend: str = "auto",
  special_tokens_in_text: str = "as_is",
  add_eod: int | None = None,
) -> Encoder:
  """Chooses a backend and opens it; see `choose_backend`."""
  return choose_backend(
    tokenizer,
    sample=sample,
    backend=backend,
    special_tokens_in_text=special_tokens_in_text,
    add_eod=add_eod,
  ).open(parallel=True, tokenizer=tokenizer)


def choose_backend(
  tokenizer: "PreTrainedTokenizerBase",
  *,
  sample: Sequence[str],
  vocab_size: int | None = None,
  backend: str = "auto",
  special_tokens_in_text: str = "as_is",
  add_eod: int | None = None,
) -> EncoderSpec:
  """Chooses what encodes a corpus.

  Args:
    tokenizer: what `load_tokenizer` returned.
    sample: texts of the corpus. gigatoken must give the reference's ids on
      them.
    vocab_size: that of `tokenizer_info`, if it is known already.
    backend: "huggingface", "gigatoken", or "auto": gigatoken if it is
      installed, supports the tokenizer and agrees on the sample.
    special_tokens_in_text: "plain" encodes a special token's string like any
      text; with "as_is" and "error" it becomes its id (what "error" then does
      is up to the caller).
    add_eod: the id to put after each text that is not empty; None for none.

  Raises:
    ValueError: an unknown option; or "gigatoken" was asked for and is not
      there, does not support the tokenizer, or gave another id.
  """
  for name, value, allowed in (
    ("backend", backend, BACKENDS),
    ("special_tokens_in_text", special_tokens_in_text, SPECIAL_TOKENS_IN_TEXT),
  ):
    if value not in allowed:
      raise ValueError(
        f"{name} must be one of {', '.join(allowed)}, got {value!r}."
      )
  agrees = backend_agrees(tokenizer)
  reference = EncoderSpec(
    backend="huggingface",
    version=importlib.metadata.version(
      "tokenizers" if agrees else "transformers"
    ),
    tokenizer_json=tokenizer.backend_tokenizer.to_str() if agrees else None,
    pickled=None if agrees else pickle.dumps(tokenizer),
    normalizes=agrees and fast_backend.normalizes(tokenizer),
    vocab_size=vocab_size or tokenizer_info(tokenizer).vocab_size,
    special_ids=special_ids(tokenizer),
    plain=special_tokens_in_text == "plain",
    add_eod=add_eod,
  )
  if backend == "huggingface":
    return reference
  why = _why_not_fast(tokenizer, reference, sample)
  if why is None:
    return dataclasses.replace(
      reference, backend="gigatoken", version=fast_backend.version() or "?"
    )
  if backend == "gigatoken":
    raise ValueError(
      f"The tokenizer backend gigatoken cannot be used: {why}. Take"
      " --tokenizer-backend=huggingface, or auto, which takes the fast one"
      " where it can."
    )
  if fast_backend.version() is not None:
    warnings.warn(
      f"Tokenizing with Hugging Face, which is slower: {why}.",
      UserWarning,
      stacklevel=2,
    )
  return reference


def append_eod(
  ids: np.ndarray, lengths: np.ndarray, eod_id: int, *, dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray]:
  """Puts an id after each text that is not empty.

  Args:
    ids: [tokens], one text's after the other.
    lengths: int64[texts].
    eod_id: the id.
    dtype: of what is returned; holds every id.

  Returns:
    The new ids and lengths.
  """
  filled = lengths > 0
  ends = np.cumsum(lengths)[filled]
  out = np.empty(len(ids) + len(ends), dtype)
  places = ends + np.arange(len(ends))
  out[places] = eod_id
  if len(ids) > _LONG_TEXT * len(ends):
    # Copying text by text is faster where they are long.
    begin = 0
    for shift, end in enumerate(ends.tolist()):
      out[begin + shift : end + shift] = ids[begin:end]
      begin = end
  else:
    is_text = np.ones(len(out), bool)
    is_text[places] = False
    out[is_text] = ids
  return out, lengths + filled


def _stored(ids: np.ndarray, dtype: np.dtype) -> np.ndarray:
  """Ids in the dtype they are stored in, which holds them."""
  if ids.dtype == np.uint32 and dtype == np.int32:
    return ids.view(np.int32)
  return ids.astype(dtype, copy=False)


def _any_of_each(places: np.ndarray, lengths: np.ndarray) -> np.ndarray:
  """Whether one of each text's tokens is at the places; bool[texts]."""
  found = np.zeros(len(lengths), bool)
  if len(places):
    found[np.searchsorted(np.cumsum(lengths), places, side="right")] = True
  return found


def _why_not_fast(
  tokenizer: "PreTrainedTokenizerBase",
  spec: EncoderSpec,
  sample: Sequence[str],
) -> str | None:
  """Why gigatoken cannot take the reference's place; None if it can."""
  if fast_backend.version() is None:
    return "it is not installed (pip install 'hpgrain[fast]')"
  if spec.tokenizer_json is None:
    return "the tokenizer has no Rust backend that gives what its call gives"
  # As it is open already; `backend_agrees` left it without truncation.
  reference = backend_encoder(tokenizer.backend_tokenizer)
  try:
    fast = fast_backend.fast_encoder(spec.tokenizer_json, parallel=False)
  except (ImportError, ValueError) as error:
    return str(error)
  fast = _guarded(spec, fast, reference)
  texts = [*PROBES, *(text[:_SAMPLE_CHARACTERS] for text in sample)]
  expected, expected_lengths = reference(texts)
  found, found_lengths = fast(texts)
  if np.array_equal(expected_lengths, found_lengths) and np.array_equal(
    expected, found
  ):
    return None
  ends = np.cumsum(expected_lengths), np.cumsum(found_lengths)
  for i in range(len(texts)):
    here = [
      ids[e[i] - n[i] : e[i]]
      for ids, e, n in zip(
        (expected, found), ends, (expected_lengths, found_lengths)
      )
    ]
    if not np.array_equal(*here):
      both = min(map(len, here))
      differ = np.flatnonzero(here[0][:both] != here[1][:both])
      at = int(differ[0]) if len(differ) else both
      number = i - len(PROBES)
      which = f"text {number} of the sample" if number >= 0 else f"probe {i}"
      return f"its ids differ from Hugging Face's at token {at} of {which}"
  raise AssertionError("unequal ids differ somewhere")


def _guarded(
  spec: EncoderSpec, fast: EncodeFlat, reference: EncodeFlat
) -> EncodeFlat:
  """Sends the texts that the fast encoder may get wrong to the reference."""
  is_safe = fast_backend.safe_text(normalizes=spec.normalizes)

  def encode(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    safe = [is_safe(text) for text in texts]
    if all(safe):
      return fast(texts)
    parts: list[np.ndarray] = [np.empty(0)] * len(texts)
    lengths = np.zeros(len(texts), np.int64)
    for flag, encode_flat in ((True, fast), (False, reference)):
      places = [i for i, is_fast in enumerate(safe) if is_fast == flag]
      if not places:
        continue
      ids, counts = encode_flat([texts[i] for i in places])
      lengths[places] = counts
      for i, part in zip(places, np.split(ids, np.cumsum(counts)[:-1])):
        parts[i] = part
    return np.concatenate(parts), lengths

  return encode


def _reference(spec: EncoderSpec, *, plain: bool = False) -> EncodeFlat:
  return reference_encoder(spec.tokenizer_json, spec.pickled, plain=plain)
