r"""A batch in, what TransformerEngine's SequenceDescriptor is made of out.

  packed rows (THD)            segment_ids, segment_pos: pairs of int32[rows, S]
                               -> SequenceDescriptor.from_segment_ids_and_pos
  max_segments <= 2 (BSHD)     seqlens: a pair of int32[rows]
                               -> SequenceDescriptor.from_seqlens

Each pair is (queries, keys), in slot order: TransformerEngine gathers or passes
on keys itself, and undoes its own order. Its orders are layouts of ours:

  ReorderStrategy.Striped, stripe_size=1     "striped", of packed rows
  ReorderStrategy.DualChunkSwap, cp even     "zigzag", of one segment a row
  not load balanced                          "contiguous", of one segment a row

so a batch needs no `reorder_causal_load_balancing`: it was laid out so before
it was placed. What TransformerEngine refuses is refused here. Packed rows over
cp go with CPStrategy.RING: the all-gather strategy counts every stripe as a
segment, and these are one position wide. segment_pos counts from 0 in a
segment, also where position_ids do not; 0 is padding in segment_ids, and
nothing attends to it.

https://docs.nvidia.com/deeplearning/transformer-engine/user-guide/api/jax.html
https://nvidia.github.io/TransformerEngine/examples/jax/attention_context_parallel.html
https://github.com/NVIDIA/TransformerEngine/blob/main/transformer_engine/jax/attention.py
(SequenceDescriptor) and jax/cpp_extensions/attention.py (orders, and
`check_supported` of the two context-parallel strategies).
"""

import inspect
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from hpgrain import attention
from hpgrain.attention_inputs import AttentionInputs
from hpgrain.context_layout import (
  CONTIGUOUS,
  ROW_ORDER,
  STRIPED,
  ZIGZAG,
  ContextLayout,
)


def adapt(
  inputs: AttentionInputs,
) -> dict[str, tuple[jax.Array, jax.Array]]:
  """Returns arguments of the factories above, (queries, keys) each.

  Returns:
    `seqlens`, a pair of int32[rows], the positions before the padding; 0, so
    that nothing is attended to, in a row of more than one segment. Or
    `segment_ids` and `segment_pos`, pairs of int32[rows, S] in slot order: 0 =
    padding, and how far each slot is behind its segment's begin.

  Raises:
    ValueError: TransformerEngine has no such order for such rows.
  """
  _check(inputs)
  ids = inputs.segment_ids
  ranks, name = inputs.layout.num_ranks, inputs.layout.name
  if inputs.has_one_segment and (ranks == 1 or name != STRIPED):
    lengths = inputs.lengths_of_one
    return {"seqlens": (lengths, lengths)}
  positions = segment_positions(inputs)
  return {"segment_ids": (ids, ids), "segment_pos": (positions, positions)}


def seqlens_and_offsets(
  inputs: AttentionInputs,
) -> dict[str, tuple[jax.Array, jax.Array]]:
  """Returns arguments of `SequenceDescriptor.from_seqlens_and_offsets`.

  For packed rows that are whole: it saves TransformerEngine the counting.

  Returns:
    `seqlens` int32[rows, M], how many tokens segments 1, 2, ... have, and
    `seq_offsets` int32[rows, M + 1], where each begins; -1 past the last.
    M = max_segments. Padding is in no segment, and nor is anything of a row
    that has more than M with its padding.

  Raises:
    ValueError: rows are split.
  """
  inputs.require_whole_rows(
    "transformer_engine",
    "takes offsets of whole rows alone; of others the segment ids",
  )
  ids, begin = inputs.segment_ids, inputs.cu_seq_lens[:, :-1]
  rows, most = begin.shape
  count = jnp.zeros((rows, most + 1), jnp.int32)
  count = count.at[jnp.arange(rows)[:, None], ids].add(1)[:, 1:]
  is_there = (count > 0) & (begin >= 0)
  seqlens = jnp.where(is_there, count, -1)
  offsets = jnp.where(is_there, begin, -1)
  # One column more than segments: the documented shape.
  offsets = jnp.pad(offsets, ((0, 0), (0, 1)), constant_values=-1)
  return {"seqlens": (seqlens, seqlens), "seq_offsets": (offsets, offsets)}


def segment_positions(inputs: AttentionInputs) -> jax.Array:
  """Returns int32[rows, S], how far a slot is behind its segment's begin.

  In slot order. Padding is counted from its first position in the row.
  """
  ids = inputs.segment_ids
  rows, length = ids.shape
  positions = jnp.broadcast_to(inputs.row_positions, ids.shape)
  begin = jnp.full((rows, length + 1), length, jnp.int32)
  begin = begin.at[jnp.arange(rows)[:, None], ids].min(positions)
  return positions - jnp.take_along_axis(begin, ids, axis=1)


def window_size(
  sliding_window: int | None, window_keys: str = "inclusive"
) -> tuple[int, int]:
  """Returns TransformerEngine's argument of that name, of causal attention.

  Keys before the query's own, and after it; -1 is no limit. Take a
  padding-causal mask for packed rows, a causal one for BSHD. Ring attention
  has a window for packed rows alone.
  """
  if sliding_window is None:
    return -1, -1
  return attention.window_reach(sliding_window, window_keys), 0


def sequence_descriptor(
  packed_seq_params: Mapping[str, tuple[jax.Array, jax.Array]],
  layout: ContextLayout = ROW_ORDER,
) -> Any:
  """Returns TransformerEngine's SequenceDescriptor; it must be installed.

  Args:
    packed_seq_params: what `adapt` or `seqlens_and_offsets` returned.
    layout: of the batch; some versions ask whether it is permuted.
  """
  from transformer_engine.jax.attention import SequenceDescriptor

  if "segment_ids" in packed_seq_params:
    make = SequenceDescriptor.from_segment_ids_and_pos
    # Some versions before 2.14 ask for these as well:
    # https://github.com/NVIDIA/TransformerEngine/pull/2823
    flags = {
      "is_thd": True,
      "is_segment_ids_reordered": not layout.is_identity,
    }
    known = inspect.signature(make).parameters
    flags = {name: flag for name, flag in flags.items() if name in known}
    return make(**packed_seq_params, **flags)
  if "seq_offsets" in packed_seq_params:
    return SequenceDescriptor.from_seqlens_and_offsets(**packed_seq_params)
  return SequenceDescriptor.from_seqlens(**packed_seq_params)


def _check(inputs: AttentionInputs) -> None:
  layout = inputs.layout
  ranks, name = layout.num_ranks, layout.name
  if ranks == 1 or name == STRIPED:
    return
  said = (
    f"attention_adapter='transformer_engine' over cp={ranks} in layout {name!r}"
  )
  if name not in (CONTIGUOUS, ZIGZAG) or not inputs.has_one_segment:
    raise ValueError(
      f"{said}: TransformerEngine's JAX attention takes packed rows (here up to"
      f" {inputs.max_segments} segments) in the striped order alone, and"
      " 'contiguous' and 'zigzag' for rows of one segment. Set"
      " context_parallel_layout='striped', or take 'context_parallel'."
    )
  if name == ZIGZAG and ranks % 2:
    raise ValueError(
      f"{said}: its order of that kind (DualChunkSwap) is for an even number"
      " of ranks. Set context_parallel_layout='contiguous' or 'striped', or an"
      " even mesh.cp."
    )
