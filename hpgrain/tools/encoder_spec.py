"""What encodes a corpus: a description that travels, and the encoder it opens.

The description is chosen once (`encoders`), sent to every worker, and opened
in each.
"""

import dataclasses
import importlib.metadata
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hpgrain import _kernels
from hpgrain.sources.indexed import dtype_for_vocabulary
from hpgrain.tools import fast_backend
from hpgrain.tools.doubtful_texts import encode_apart
from hpgrain.tools.reference_backend import (
  EncodeFlat,
  backend_encoder,
  joined_rows,
  reference_encoder,
  rows_of,
)
from hpgrain.tools.texts import Texts

if TYPE_CHECKING:
  from transformers import PreTrainedTokenizerBase

# Bytes from which on a text is not all for the reference if a part of it is.
_DIVIDED_BYTES = 1 << 13


@dataclasses.dataclass(frozen=True)
class EncoderSpec:
  """All that another process needs to encode as this one does.

  Attributes:
    backend: "huggingface" or "gigatoken".
    version: of the package that encodes.
    tokenizer_json: a tokenizer.json; None for a tokenizer in Python.
    pickled: the tokenizer, where its call is used.
    normalizes: whether the tokenizer.json changes characters first.
    divides_texts: whether it is known to divide a text before it joins its
      characters to tokens.
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
  divides_texts: bool
  vocab_size: int
  special_ids: tuple[int, ...]
  plain: bool
  add_eod: int | None

  @property
  def dtype(self) -> np.dtype:
    """The dtype that ids are stored in."""
    return dtype_for_vocabulary(self.vocab_size)

  def open(
    self, tokenizer: "PreTrainedTokenizerBase | None" = None
  ) -> "Encoder":
    """Builds the encoder.

    Args:
      tokenizer: the one that was chosen for, where it is at hand: it need not
        be opened again.
    """
    reference = _reference(self)
    if tokenizer is not None and self.tokenizer_json is not None:
      reference = backend_encoder(tokenizer.backend_tokenizer)
    if self.backend == "huggingface":
      return Encoder(self, reference)
    assert self.tokenizer_json is not None, "gigatoken has a tokenizer.json"
    fast = fast_backend.fast_encoder(self.tokenizer_json)
    return Encoder(self, guarded(self, fast, reference))


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

  def encode(
    self, texts: Texts | Sequence[str], *, add_eod: bool = True
  ) -> Encoded:
    """Encodes texts.

    Args:
      texts: the batch.
      add_eod: False leaves the EOD out, for a text that is a part of one.

    Raises:
      ValueError: an id is outside the vocabulary.
    """
    if not isinstance(texts, Texts):
      texts = Texts.of(texts)
    if not len(texts):
      none = np.zeros(0, np.int64)
      return Encoded(none.astype(self.spec.dtype), none, none.astype(bool))
    eod_id = self.spec.add_eod if add_eod else None
    ids, splits = self._encode_flat(texts)
    stored, lengths, special = self._stored(ids, splits, eod_id)
    if self.spec.plain and special.any():
      ids, splits = self._encode_plain(texts, ids, splits, special)
      stored, lengths, _ = self._stored(ids, splits, eod_id)
    return Encoded(stored, lengths, special)

  def _stored(
    self, ids: np.ndarray, splits: np.ndarray, eod_id: int | None
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return _kernels.store_ids(
      ids,
      splits,
      self._specials,
      self.spec.vocab_size,
      -1 if eod_id is None else eod_id,
      self.spec.dtype.itemsize,
    )

  def _encode_plain(
    self,
    texts: Texts,
    ids: np.ndarray,
    splits: np.ndarray,
    special: np.ndarray,
  ) -> tuple[np.ndarray, np.ndarray]:
    """Encodes those that hold a special token's string again."""
    if self._plain is None:
      self._plain = _reference(self.spec, plain=True)
    which = np.flatnonzero(special)
    parts = rows_of(ids, splits)
    for i, part in zip(which, rows_of(*self._plain(texts.take(which)))):
      parts[i] = part
    return joined_rows(parts)


def installed_version(spec: EncoderSpec) -> tuple[str, str]:
  """The package that would encode here, and its version: "none" without it."""
  name = "tokenizers" if spec.pickled is None else "transformers"
  if spec.backend == "gigatoken":
    name = spec.backend
  try:
    return name, importlib.metadata.version(name)
  except importlib.metadata.PackageNotFoundError:
    return name, "none"


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
  is_text = np.ones(len(out), bool)
  is_text[places] = False
  out[is_text] = ids
  return out, lengths + filled


def guarded(
  spec: EncoderSpec, fast: EncodeFlat, reference: EncodeFlat
) -> EncodeFlat:
  """Sends the texts that the fast encoder may get wrong to the reference.

  Args:
    spec: of the encoder.
    fast: gigatoken's.
    reference: Hugging Face's.
  """

  def encode(texts: Texts) -> tuple[np.ndarray, np.ndarray]:
    safe = fast_backend.safe_texts(texts, normalizes=spec.normalizes)
    if safe.all():
      return fast(texts)
    long = texts.sizes() > _DIVIDED_BYTES
    parts: list[np.ndarray] = [np.empty(0)] * len(texts)
    for places, encode_flat in (
      (np.flatnonzero(safe), fast),
      (np.flatnonzero(~safe & ~long), reference),
    ):
      if len(places):
        rows = rows_of(*encode_flat(texts.take(places)))
        for i, row in zip(places, rows):
          parts[i] = row
    for i in np.flatnonzero(~safe & long):
      parts[i] = apart(texts.take([i]))
    return joined_rows(parts)

  def apart(texts: Texts) -> np.ndarray:
    (text,) = texts.strings()
    return encode_apart(
      text,
      fast_backend.doubtful_places(text, normalizes=spec.normalizes),
      fast=lambda piece: fast(Texts.of([piece]))[0],
      sure=lambda piece: reference(Texts.of([piece]))[0],
      is_safe=lambda piece: bool(
        fast_backend.safe_texts(Texts.of([piece]), normalizes=spec.normalizes)[
          0
        ]
      ),
      at_words=not spec.divides_texts,
    )

  return encode


def _reference(spec: EncoderSpec, *, plain: bool = False) -> EncodeFlat:
  return reference_encoder(spec.tokenizer_json, spec.pickled, plain=plain)
