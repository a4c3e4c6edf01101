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
from hpgrain.arguments import integer
from hpgrain.attention_inputs import Adapter, AttentionInputs
from hpgrain.context_layout import ROW_ORDER, ContextLayout
from hpgrain.records import (
  INPUT_IDS,
  LABELS,
  LOSS_MASK,
  POSITION_IDS,
  SEGMENT_IDS,
)

# One key more, as window_keys="reference" counts them, is an int32 too.
MAX_WINDOW = 2**31 - 2


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
      for as many, and queries of a row that has more see no key: nobody can
      raise an error for it inside `jit`.

  Raises:
    ValueError: for an unknown mode, one of mode and adapter without the other,
      a window of no key, or fewer than 2 segments.
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
    if self.sliding_window is not None:
      integer(
        "sliding_window", self.sliding_window, minimum=1, maximum=MAX_WINDOW
      )
    if self.max_segments is not None:
      # One, and the padding behind it.
      integer("max_segments", self.max_segments, minimum=2)

  @property
  def keys_seen(self) -> int | None:
    """Keys that a query sees, its own included; None: all before it."""
    if self.sliding_window is None:
      return None
    return 1 + attention.window_reach(self.sliding_window, self.window_keys)


def model_inputs(
  batch: Mapping[str, jax.Array], **options: Any
) -> dict[str, Any]:
  """Returns what a model's forward pass takes; call it inside `jit`.

  Args:
    batch: of the loader; int32[rows, S] each, in slot order.
    **options: the attributes of `AttentionOptions`.

  Returns:
    input_ids, labels, position_ids and segment_ids as they are, int32[rows,
    S]; with attention_mode="dense" `attention_mask`, with a sliding_window and
    without an adapter `swa_mask`, each bool[rows, 1, S, S], indexed [row, head,
    query, key] in slot order, True = may attend. With "ltor" `attention_mask`
    is Megatron's, of the same shape: True = masked. With "compressed"
    `packed_seq_params`, what the adapter returns: `attention_adapters` has the
    shapes.

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
  segment_ids = batch[SEGMENT_IDS]
  return AttentionInputs(
    segment_ids=segment_ids,
    position_ids=batch[POSITION_IDS],
    layout=options.layout,
    max_segments=(
      segment_ids.shape[1]
      if options.max_segments is None
      else options.max_segments
    ),
    sliding_window=options.keys_seen,
  )


def loss_inputs(batch: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
  """Returns what a loss takes: `labels` and `loss_mask`."""
  return {name: batch[name] for name in (LABELS, LOSS_MASK)}
