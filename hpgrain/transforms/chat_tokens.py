r"""Rendered conversations in, their ids and what each of them counts for out.

  characters   <user>Hi<assistant>Hel lo<end>\n
  spans                           ~~~~~~~~~~~
  tokens       ---- -- ----------- --- -- --- -
  weights      0    0  0           1   1  1   0

A token counts as the span it overlaps, as in transformers' assistant mask. A
whole text is encoded at once, since its parts by themselves may give other
ids, and nothing is put around it: its template wrote what belongs there.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgrain.tokenizer import backend_agrees
from hpgrain.transforms.rendering import Rendered, Span

if TYPE_CHECKING:
  from transformers import PreTrainedTokenizerBase


@dataclasses.dataclass(frozen=True)
class ChatTokens:
  """One conversation's tokens.

  Attributes:
    ids: int32[n].
    weights: float32[n], what each id counts for as a label.
  """

  ids: np.ndarray
  weights: np.ndarray


class ChatEncoder:
  """Encodes rendered conversations; threads may share it."""

  def __init__(self, tokenizer: "PreTrainedTokenizerBase") -> None:
    """Opens a copy of the tokenizer's Rust backend, once a process.

    Raises:
      ValueError: it has none, or its own call gives other ids.
    """
    if not backend_agrees(tokenizer):
      raise ValueError(
        f"The tokenizer {tokenizer.name_or_path!r} has no Rust backend that"
        " gives the ids of its own call, and only that says which characters a"
        " token came from. Take a fast tokenizer for data_type='conversation'."
      )
    self._backend = _open(tokenizer.backend_tokenizer.to_str())

  def encode(self, rendered: Sequence[Rendered]) -> list[ChatTokens]:
    """Encodes a batch, on all cores and without the GIL."""
    encodings = self._backend.encode_batch(
      [one.text for one in rendered], add_special_tokens=False
    )
    return [
      ChatTokens(
        np.array(encoding.ids, np.int32),
        token_weights(
          np.array(encoding.offsets, np.int64).reshape(-1, 2), one.spans
        ),
      )
      for encoding, one in zip(encodings, rendered)
    ]


def token_weights(offsets: np.ndarray, spans: Sequence[Span]) -> np.ndarray:
  """What each token counts for.

  Args:
    offsets: int64[n, 2], the characters [begin, end) each token came from, in
      order.
    spans: in order, none overlapping.

  Returns:
    float32[n]: the weight of the first span a token overlaps, else 0.
  """
  weights = np.zeros(len(offsets), np.float32)
  if not spans or not len(offsets):
    return weights
  begins, ends, values = map(np.array, zip(*spans))
  # The first span that ends behind a token's begin.
  which = np.searchsorted(ends, offsets[:, 0], side="right")
  known = np.minimum(which, len(spans) - 1)
  overlaps = (which < len(spans)) & (offsets[:, 1] > begins[known])
  weights[overlaps] = values[known[overlaps]]
  return weights


@functools.lru_cache(maxsize=2)
def _open(tokenizer_json: str) -> Any:
  """A backend of our own, which nobody sets a truncation in meanwhile."""
  import tokenizers

  # Else a token's white space is left out of its offsets. Inside a string of
  # the JSON these quotes would be escaped.
  backend: Any = tokenizers.Tokenizer.from_str(
    tokenizer_json.replace('"trim_offsets":true', '"trim_offsets":false')
  )
  backend.no_truncation()
  backend.no_padding()
  return backend
