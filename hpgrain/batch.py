"""A batch in, what a model and a loss take of it out; inside `jit`.

batch -> model_inputs   ids, labels, positions, segments, and masks if asked
      -> loss_inputs    labels, loss_mask
      -> num_loss_tokens, by which a summed loss is divided
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from hpgrain import attention
from hpgrain.records import (
  INPUT_IDS,
  LABELS,
  LOSS_MASK,
  POSITION_IDS,
  SEGMENT_IDS,
)


def num_loss_tokens(batch: Mapping[str, jax.Array]) -> jax.Array:
  """Returns how many positions of the global batch take part in the loss.

  Inside `jit` the sum is over the whole batch on every process, so neither a
  data-parallel nor a context-parallel mean is needed: divide the summed loss
  by it.
  """
  return jnp.sum(batch[LOSS_MASK])


@dataclasses.dataclass(frozen=True)
class AttentionOptions:
  """Which masks `model_inputs` adds; what rows are does not depend on them.

  Attributes:
    attention_mode: "segment_ids" for kernels that take segments, "dense" to
      add `attention_mask`, "ltor" to add Megatron's, True where masked.
    sliding_window: how many keys a query sees in `swa_mask`; None adds none.
    window_keys: "inclusive" counts the query's own key, "reference" does not.
  """

  attention_mode: str = "segment_ids"
  sliding_window: int | None = None
  window_keys: str = "inclusive"

  def __post_init__(self) -> None:
    if self.attention_mode not in ("segment_ids", "dense", "ltor"):
      raise ValueError(
        'attention_mode must be "segment_ids", "dense" or "ltor", got'
        f" {self.attention_mode!r}."
      )


def model_inputs(
  batch: Mapping[str, jax.Array], **options: Any
) -> dict[str, jax.Array]:
  """Returns what a model's forward pass takes; call it inside `jit`.

  Args:
    batch: of the loader.
    **options: the attributes of `AttentionOptions`.

  Returns:
    input_ids, labels, position_ids and segment_ids as they are; with
    attention_mode="dense" `attention_mask`, with a sliding_window `swa_mask`,
    each bool[rows, 1, S, S], True = may attend. With "ltor" `attention_mask`
    is Megatron's: True = masked.

  Raises:
    ValueError: for an option there is none of.
  """
  chosen = AttentionOptions(**options)
  names = (INPUT_IDS, LABELS, POSITION_IDS, SEGMENT_IDS)
  inputs = {name: batch[name] for name in names}
  if chosen.attention_mode == "dense":
    inputs["attention_mask"] = attention.attention_mask(batch[SEGMENT_IDS])
  elif chosen.attention_mode == "ltor":
    inputs["attention_mask"] = attention.ltor_attention_mask(batch[SEGMENT_IDS])
  if chosen.sliding_window is not None:
    inputs["swa_mask"] = attention.sliding_window_mask(
      batch[SEGMENT_IDS],
      window=chosen.sliding_window,
      window_keys=chosen.window_keys,
    )
  return inputs


def loss_inputs(batch: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
  """Returns what a loss takes: `labels` and `loss_mask`."""
  return {name: batch[name] for name in (LABELS, LOSS_MASK)}
