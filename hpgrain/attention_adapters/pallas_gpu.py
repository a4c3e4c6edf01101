"""A batch in, the segment ids of Pallas' GPU attention out.

  mha(q, k, v, causal=True, sm_scale=head_dim**-0.5, **packed_seq_params)

with q, k, v [rows, S, heads, head_dim]; S is a multiple of the blocks, 128, or
a power of two below that. The kernel numbers queries and keys alike from 0 and
takes one array of ids for both, so it is for whole rows in their order: cp = 1.
It has no window.

`jax.experimental.pallas.ops.gpu.attention`:
https://github.com/jax-ml/jax/blob/main/jax/experimental/pallas/ops/gpu/attention.py
"""

import jax

from hpgrain.attention_inputs import AttentionInputs


def adapt(inputs: AttentionInputs) -> dict[str, jax.Array]:
  """Returns `mha`'s segment_ids, int32[rows, S]; padding is a segment.

  Raises:
    ValueError: a window is asked for, rows are split, or S is no length of
      whole blocks.
  """
  inputs.require_whole_rows("pallas_gpu", "numbers queries and keys from 0")
  if inputs.sliding_window is not None:
    raise ValueError(
      "attention_adapter='pallas_gpu': the kernel has no sliding window, and"
      f" {inputs.sliding_window} keys a query are asked for. Unset"
      " sliding_window, or take 'splash', 'cudnn' or 'context_parallel'."
    )
  # Triton's arrays are powers of two.
  length = inputs.segment_ids.shape[1]
  if length > 128 or length & (length - 1):
    inputs.require_multiple(
      "pallas_gpu", 128, "takes blocks of 128, or one of 64, 32 or 16"
    )
  return {"segment_ids": inputs.segment_ids}
