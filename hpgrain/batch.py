"""A batch in, what a model and a loss take of it out; inside `jit`.

batch -> model_inputs   ids, labels, positions, segments, and masks if asked
      -> loss_inputs    labels, loss_mask

`loss` has what the losses are weighed with, and divided by.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax

from hpgrain import attention, attention_adapters, context_parallel
from hpgrain.attention_inputs import Adapter, AttentionInputs
from hpgrain.context_layout import ROW_ORDER, ContextLayout
from hpgrain.records import (
  INPUT_IDS,
  LABELS,
  LOSS_MASK,
  POSITION_IDS,
  SEGMENT_IDS,
)


@dataclasses.dataclass(frozen=True)
class AttentionOptions:
  """What `model_inputs` adds for attention; no row depends on it.

  Attributes:
    attention_mode: "segment_ids" for kernels that take segments, "dense" to
      add `attention_mask`, "ltor" to add Megatron's, True where masked,
      "compressed" to add `packed_seq_params`, what `adapter` returns.
    adapter: of "compressed" mode: a name of `attention_adapters.ADAPTERS`,
      "package.module:function", or a function of the keyword arguments that
      `attention_adapters.by_keywords` lists.
    sliding_window: how many keys a query sees, in `swa_mask` or to an adapter;
      None: all.
    window_keys: "inclusive" counts the query's own key, "reference" does not.
    layout: which position of its row each slot of the batch holds.
    max_segments: segments of a row at most, that of its padding counted; None:
      as many as there are positions. Adapters that list segments have room
      for as many.
  """

  attention_mode: str = "segment_ids"
  adapter: Adapter | str | Callable[..., Any] | None = None
  sliding_window: int | None = None
  window_keys: str = "inclusive"
  layout: ContextLayout = ROW_ORDER
  max_segments: int | None = None

  def __post_init__(self) -> None:
    modes = ("segment_ids", "dense", "ltor", "compressed")
    if self.attention_mode not in modes:
      raise ValueError(
        f"attention_mode must be one of {modes}, got {self.attention_mode!r}."
      )
    if (self.adapter is not None) != (self.attention_mode == "compressed"):
      raise ValueError(
        'attention_mode="compressed" and an adapter belong together, got'
        f" attention_mode={self.attention_mode!r} and adapter={self.adapter}."
      )


def model_inputs(
  batch: Mapping[str, jax.Array], **options: Any
) -> dict[str, Any]:
  """Returns what a model's forward pass takes; call it inside `jit`.

  Args:
    batch: of the loader.
    **options: the attributes of `AttentionOptions`.

  Returns:
    input_ids, labels, position_ids and segment_ids as they are; with
    attention_mode="dense" `attention_mask`, with a sliding_window `swa_mask`,
    each bool[rows, 1, S, S], True = may attend. With "ltor" `attention_mask`
    is Megatron's: True = masked. With "compressed" `packed_seq_params`.

  Raises:
    ValueError: for an option there is none of, or a batch without one of its
      fields.
  """
  chosen = AttentionOptions(**options)
  names = (INPUT_IDS, LABELS, POSITION_IDS, SEGMENT_IDS)
  if missing := [name for name in names if name not in batch]:
    raise ValueError(
      f"A batch of the loader has {names}, and {missing} are missing: without"
      " segment_ids documents of a row would attend to each other. Hand the"
      " batch on as it is."
    )
  inputs: dict[str, Any] = {name: batch[name] for name in names}
  mode, segment_ids = chosen.attention_mode, batch[SEGMENT_IDS]
  positions = None
  if not chosen.layout.is_identity:
    positions = context_parallel.row_positions(segment_ids, chosen.layout)
  if mode == "dense":
    inputs["attention_mask"] = attention.attention_mask(segment_ids, positions)
  elif mode == "ltor":
    inputs["attention_mask"] = attention.ltor_attention_mask(
      segment_ids, positions
    )
  if chosen.adapter is not None:
    adapter = attention_adapters.resolve(chosen.adapter)
    inputs["packed_seq_params"] = adapter(attention_inputs(batch, chosen))
  elif chosen.sliding_window is not None:
    inputs["swa_mask"] = attention.sliding_window_mask(
      segment_ids,
      window=chosen.sliding_window,
      window_keys=chosen.window_keys,
      row_positions=positions,
    )
  return inputs


def attention_inputs(
  batch: Mapping[str, jax.Array], options: AttentionOptions
) -> AttentionInputs:
  """Returns what an adapter is given of a batch."""
  window = options.sliding_window
  if window is not None:
    window = 1 + attention.window_reach(window, options.window_keys)
  segment_ids = batch[SEGMENT_IDS]
  return AttentionInputs(
    segment_ids=segment_ids,
    position_ids=batch[POSITION_IDS],
    layout=options.layout,
    max_segments=options.max_segments or segment_ids.shape[1],
    sliding_window=window,
  )


def loss_inputs(batch: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
  """Returns what a loss takes: `labels` and `loss_mask`."""
  return {name: batch[name] for name in (LABELS, LOSS_MASK)}
