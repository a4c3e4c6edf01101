r"""What an attention kernel may need to know of a batch, gathered once.

  batch  ->  AttentionInputs  ->  an adapter  ->  what one kernel takes

An adapter is a function of `AttentionInputs` that returns arrays (any pytree of
them), called inside `jit`; `attention_adapters` has those for kernels that
people use. Nothing here or there is S x S.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from hpgrain import attention, context_parallel
from hpgrain.context_layout import ContextLayout


@dataclasses.dataclass(frozen=True)
class AttentionInputs:
  """A batch as attention sees it.

  Attributes:
    segment_ids: int32[rows, S], 1, 2, ... within a row, 0 = padding; in slot
      order.
    position_ids: int32[rows, S], in slot order.
    layout: which position of its row each slot holds.
    max_segments: segments of a row at most, that of its padding counted.
    sliding_window: keys that a query sees, its own included; None: all.
  """

  segment_ids: jax.Array
  position_ids: jax.Array
  layout: ContextLayout
  max_segments: int
  sliding_window: int | None

  @property
  def has_one_segment(self) -> bool:
    """Whether a row has one segment at most, and padding behind it."""
    return self.max_segments <= 2

  def require_whole_rows(self, adapter: str, reason: str) -> None:
    """Raises ValueError if a row is split over devices.

    Args:
      adapter: the one that asks, for the message.
      reason: what its kernel does, as "The kernel ..." goes on.
    """
    ranks = self.layout.num_ranks
    if ranks > 1:
      raise ValueError(
        f"attention_adapter={adapter!r} needs whole rows, and the mesh splits"
        f" them over cp={ranks} (layout {self.layout.name!r}). The kernel"
        f" {reason}. Set mesh.cp=1, or take 'splash' (TPU),"
        " 'transformer_engine' (GPU) or 'context_parallel'."
      )

  @property
  def row_positions(self) -> jax.Array:
    """int32[1 or rows, S], which position of its row each slot holds."""
    return context_parallel.row_positions(self.segment_ids, self.layout)

  @property
  def cu_seq_lens(self) -> jax.Array:
    """int32[rows, max_segments + 1], where segments end; in row order.

    See `attention.cu_seq_lens`: 0, the end of each, and S from the last on. A
    row of more than max_segments segments is -1 throughout: of those that are
    left out, a kernel would attend across their ends, or leave them unwritten.
    """
    segment_ids = self.segment_ids
    if not self.layout.is_identity:
      segment_ids = context_parallel.in_row_order(
        segment_ids, self.row_positions
      )
    ends = attention.cu_seq_lens(segment_ids, max_segments=self.max_segments)
    return jnp.where(ends[:, -1:] == segment_ids.shape[1], ends, -1)

  @property
  def lengths_of_one(self) -> jax.Array:
    """int32[rows], how long the one segment of each row is.

    0, so that nothing is attended to, where a row has two and more.
    """
    ids = self.segment_ids
    lengths = (ids > 0).sum(axis=1, dtype=jnp.int32)
    return jnp.where(ids.max(axis=1) <= 1, lengths, 0)

  def require_multiple(self, adapter: str, multiple: int, why: str) -> None:
    """Raises ValueError if a rank's positions are no multiple.

    Args:
      adapter: the one that asks, for the message.
      multiple: of positions on one context-parallel rank.
      why: what its kernel does, as "The kernel ..." goes on.
    """
    length, ranks = self.segment_ids.shape[1], self.layout.num_ranks
    if length % (ranks * multiple) == 0:
      return
    split = f", {length // ranks} on each of cp={ranks}" if ranks > 1 else ""
    raise ValueError(
      f"attention_adapter={adapter!r} needs rows of a multiple of"
      f" {ranks * multiple} positions, and a row has {length}{split}. The"
      f" kernel {why}. Take another length (seq_length, token_budget,"
      " max_seq_len, length_buckets), or 'context_parallel', which takes any."
    )


Adapter = Callable[[AttentionInputs], Any]
