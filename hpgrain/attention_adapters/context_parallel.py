"""A batch in, ids and positions for attention over a `cp` axis out.

Every array is [rows, S] in slot order and is split as `input_ids` are. A query
may see a key of its own segment whose position in the row is not greater, and
greater than its own less the window: with that, ring attention (keys travel
with their ids and positions) and all-gather attention need not know the
layout. Any layout is served, "document_zigzag" too.

Ring attention: https://arxiv.org/abs/2310.01889; the layouts:
https://arxiv.org/abs/2311.09431 (striped), and zigzag as in Megatron-LM,
https://docs.nvidia.com/megatron-core/developer-guide/latest/api-guide/context_parallel.html
"""

import jax
import jax.numpy as jnp

from hpgrain.attention_inputs import AttentionInputs


def adapt(inputs: AttentionInputs) -> dict[str, jax.Array]:
  """Returns what a mask over slots is made of, a block at a time.

  Returns:
    int32[rows, S] each: `segment_ids`, 0 = padding; `row_positions`, which
    position of its row a slot holds, for causality and windows;
    `position_ids`, for embeddings of positions.
  """
  segment_ids = inputs.segment_ids
  return {
    "segment_ids": segment_ids,
    "row_positions": jnp.broadcast_to(inputs.row_positions, segment_ids.shape),
    "position_ids": inputs.position_ids,
  }
