r"""A batch in, lengths and offsets of JAX's cuDNN attention out.

  max_segments <= 2    one segment a row, and its padding:
    query_seq_lengths, key_value_seq_lengths   int32[rows]
    -> jax.nn.dot_product_attention(..., implementation="cudnn")
  else                 packed rows, M = max_segments:
    q_seqlen, kv_seqlen    int32[rows, M], -1 past the last segment
    q_offsets, kv_offsets  int32[rows, M + 1], -1 past the last segment
    -> jax._src.cudnn.fused_attention_stablehlo.dot_product_attention

  row 1 1 2 0 3 0 0, M = 5     seqlen    2  2  1  2 -1
                               offsets   0  2  4  5 -1 -1

An offset is where a segment begins. Segments that are listed cover the row:
room that one leaves is its own, padding at the end is one by itself. So every
position's output is written, and no query that is not padding sees a key that
is, since causality hides what comes after it. A row of more segments than
there is room for is one that sees no key: kv_seqlen 0, and with one segment
both lengths 0, which writes zeros.

Queries and keys are numbered alike, so rows are whole and in their order:
cp = 1. The packed form needs a Hopper GPU, cuDNN 9.6, and, before the JAX that
has https://github.com/jax-ml/jax/pull/39521, as many heads of keys as of
queries. It keeps float32[rows * M, heads, S] for the gradient: M must be small.

https://docs.jax.dev/en/latest/_autosummary/jax.nn.dot_product_attention.html
https://github.com/jax-ml/jax/blob/main/jax/_src/cudnn/fused_attention_stablehlo.py
https://github.com/jax-ml/jax/pull/25812 (packed rows)
"""

import jax
import jax.numpy as jnp

from hpgrain import attention
from hpgrain.attention_inputs import AttentionInputs


def adapt(inputs: AttentionInputs) -> dict[str, jax.Array]:
  """Returns keyword arguments of the functions above.

  Returns:
    int32[rows] each, of rows of one segment: `query_seq_lengths` and
    `key_value_seq_lengths`, the positions before the padding. Else, with M =
    max_segments: `q_seqlen` and `kv_seqlen`, int32[rows, M], positions of a
    segment, and `q_offsets` and `kv_offsets`, int32[rows, M + 1], the position
    in its row where it begins; -1 past the last segment.

  Raises:
    ValueError: rows are split, or the segments of a row are not limited.
  """
  inputs.require_whole_rows("cudnn", "numbers queries and keys from 0")
  length = inputs.segment_ids.shape[1]
  if inputs.has_one_segment:
    lengths = inputs.lengths_of_one
    return {"query_seq_lengths": lengths, "key_value_seq_lengths": lengths}
  if inputs.max_segments >= length:
    raise ValueError(
      "attention_adapter='cudnn' keeps a number for each head, position and"
      f" possible segment of a row, and {inputs.max_segments} segments of"
      f" {length} positions would be an S x S array. Set"
      " dataloader.max_segments to what a row has at most (packed rows), or"
      " reset_attention_mask=False, or take 'splash', 'pallas_gpu' or"
      " 'context_parallel', which need no such number."
    )
  ends = inputs.cu_seq_lens
  # Too many segments: one of the whole row, whose output is written.
  fits = ends[:, -1:] == length
  whole = jnp.full_like(ends, length).at[:, 0].set(0)
  ends = jnp.where(fits, ends, whole)
  begin = ends[:, :-1]
  is_there = begin < length
  seqlen = jnp.where(is_there, ends[:, 1:] - begin, -1)
  offsets = jnp.where(is_there, begin, -1)
  # One column more than segments: the documented shape.
  offsets = jnp.pad(offsets, ((0, 0), (0, 1)), constant_values=-1)
  return {
    "q_seqlen": seqlen,
    "kv_seqlen": jnp.where(fits, seqlen, jnp.minimum(seqlen, 0)),
    "q_offsets": offsets,
    "kv_offsets": offsets,
  }


def local_window_size(
  sliding_window: int | None, window_keys: str = "inclusive"
) -> tuple[int, int] | None:
  """Returns `jax.nn.dot_product_attention`'s argument of that name.

  Keys before the query's own, and after it. Give is_causal=True too.
  """
  if sliding_window is None:
    return None
  return attention.window_reach(sliding_window, window_keys), 0


def sliding_window_length(
  sliding_window: int | None, window_keys: str = "inclusive"
) -> int | None:
  """Returns the packed function's argument: keys with the query's own.

  Give mask_type=MaskType.PADDING_CAUSAL too.
  """
  if sliding_window is None:
    return None
  return 1 + attention.window_reach(sliding_window, window_keys)
