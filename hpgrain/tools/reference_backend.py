"""Texts in, ids out, by Hugging Face: what every other backend must give."""

import itertools
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hpgrain.tokenizer import encode_by_call, import_transformers
from hpgrain.tools.texts import Texts

# Texts in; ids uint32[tokens] and int64[texts + 1] out: text i has the ids from
# its place on up to the next one's. Not all of the ids need be some text's.
EncodeFlat = Callable[[Texts], tuple[np.ndarray, np.ndarray]]


def reference_encoder(
  tokenizer_json: str | None, pickled: bytes | None, *, plain: bool = False
) -> EncodeFlat:
  """Builds the encoder of a Hugging Face tokenizer when it is first called.

  Opening takes a second for a large vocabulary, and whoever holds it for the
  odd text may never need it.

  Args:
    tokenizer_json: a tokenizer.json for the Rust backend; or None, and
    pickled: the tokenizer, whose call is used.
    plain: encode special tokens that a text spells out like any text.
  """
  opened: list[Callable[[Sequence[str]], list[list[int]]]] = []

  def encode(texts: Texts) -> tuple[np.ndarray, np.ndarray]:
    if not opened:
      opened.append(
        _call(pickled, plain)
        if tokenizer_json is None
        else _backend(tokenizer_json, plain)
      )
    return _flat(opened[0](texts.strings()))

  return encode


def _call(
  pickled: bytes | None, plain: bool
) -> Callable[[Sequence[str]], list[list[int]]]:
  assert pickled is not None, "there is a tokenizer"
  import_transformers()
  tokenizer = pickle.loads(pickled)
  options = {"split_special_tokens": True} if plain else {}
  return lambda texts: encode_by_call(tokenizer, texts, **options)


def backend_encoder(backend: Any) -> EncodeFlat:
  """The encoder of a Rust backend that is open, without truncation."""
  return lambda texts: _flat(_ids(backend, texts.strings()))


def _backend(
  tokenizer_json: str, plain: bool
) -> Callable[[Sequence[str]], list[list[int]]]:
  import tokenizers

  backend: Any = tokenizers.Tokenizer.from_str(tokenizer_json)
  backend.no_truncation()
  backend.no_padding()
  backend.encode_special_tokens = plain
  return lambda texts: _ids(backend, texts)


def _ids(backend: Any, texts: Sequence[str]) -> list[list[int]]:
  encodings = backend.encode_batch_fast(list(texts), add_special_tokens=False)
  return [encoding.ids for encoding in encodings]


def _flat(rows: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
  splits = np.zeros(len(rows) + 1, np.int64)
  np.cumsum([len(row) for row in rows], out=splits[1:])
  ids = np.fromiter(
    itertools.chain.from_iterable(rows), np.uint32, int(splits[-1])
  )
  return ids, splits


def rows_of(ids: np.ndarray, splits: np.ndarray) -> list[np.ndarray]:
  """The ids of each text, as an `EncodeFlat` returned them."""
  return [ids[i:k] for i, k in itertools.pairwise(splits.tolist())]


def joined_rows(rows: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
  """What an `EncodeFlat` returns, of the ids of each text; at least one."""
  splits = np.zeros(len(rows) + 1, np.int64)
  np.cumsum([len(row) for row in rows], out=splits[1:])
  return np.concatenate(rows), splits
