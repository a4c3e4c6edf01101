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

from hpgrain.tokenizer import (
  PROBES,
  backend_agrees,
  special_ids,
  tokenizer_info,
)
from hpgrain.tools import fast_backend
from hpgrain.tools.encoder_spec import Encoder, EncoderSpec, guarded
from hpgrain.tools.reference_backend import backend_encoder, rows_of
from hpgrain.tools.texts import Texts

if TYPE_CHECKING:
  from transformers import PreTrainedTokenizerBase

BACKENDS = ("auto", "huggingface", "gigatoken")
SPECIAL_TOKENS_IN_TEXT = ("as_is", "plain", "error")

# Longer texts of a sample are cut: it is there to be encoded twice.
_SAMPLE_CHARACTERS = 1 << 16


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
  ).open(tokenizer)


def choose_backend(
  tokenizer: "PreTrainedTokenizerBase",
  *,
  sample: Sequence[str],
  vocab_size: int | None = None,
  backend: str = "auto",
  special_tokens_in_text: str = "as_is",
  add_eod: int | None = None,
  option: str = "--tokenizer-backend",
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
    option: what the caller's users know `backend` by.

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
    divides_texts=agrees
    and tokenizer.backend_tokenizer.pre_tokenizer is not None,
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
      f"The tokenizer backend gigatoken cannot be used: {why}. Set"
      f" {option}=huggingface, or auto, which takes the fast one where it can."
    )
  if fast_backend.version() is not None:
    warnings.warn(
      f"Tokenizing with Hugging Face, which is slower: {why}.",
      UserWarning,
      stacklevel=2,
    )
  return reference


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
    fast = fast_backend.fast_encoder(spec.tokenizer_json)
  except (ImportError, ValueError) as error:
    return str(error)
  fast = guarded(spec, fast, reference)
  texts = Texts.of([*PROBES, *(text[:_SAMPLE_CHARACTERS] for text in sample)])
  both = zip(rows_of(*reference(texts)), rows_of(*fast(texts)))
  for i, (expected, found) in enumerate(both):
    if not np.array_equal(expected, found):
      shared = min(len(expected), len(found))
      differ = np.flatnonzero(expected[:shared] != found[:shared])
      at = int(differ[0]) if len(differ) else shared
      number = i - len(PROBES)
      which = f"text {number} of the sample" if number >= 0 else f"probe {i}"
      return f"its ids differ from Hugging Face's at token {at} of {which}"
  return None
