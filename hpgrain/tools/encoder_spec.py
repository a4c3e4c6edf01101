"""What encodes a corpus: a description that travels, and the encoder it opens.

The description is chosen once (`encoders`), sent to every worker, and opened
in each.
"""

import dataclasses
import importlib.metadata
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hpgrain.sources.indexed import dtype_for_vocabulary
from hpgrain.tools import fast_backend
from hpgrain.tools.reference_backend import (
  EncodeFlat,
  backend_encoder,
  reference_encoder,
)

if TYPE_CHECKING:
  from transformers import PreTrainedTokenizerBase

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


def guarded(
  spec: EncoderSpec, fast: EncodeFlat, reference: EncodeFlat
) -> EncodeFlat:
  """Sends the texts that the fast encoder may get wrong to the reference.

  Args:
    spec: of the encoder.
    fast: gigatoken's.
    reference: Hugging Face's.
  """
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
