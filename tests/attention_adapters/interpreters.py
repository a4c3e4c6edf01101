"""What kernels that do not run on a CPU do with their inputs, in NumPy.

Each returns bool[rows, S, S], True where a query sees a key, and follows the
documentation named in it, a segment at a time.
"""

import numpy as np


def lengths(query_lengths, key_lengths, *, length, window=None):
  """One sequence a row, padded at its end, under a causal mask.

  `query_seq_lengths` and `key_value_seq_lengths` of
  https://docs.jax.dev/en/latest/_autosummary/jax.nn.dot_product_attention.html,
  and TransformerEngine's SequenceDescriptor.from_seqlens with
  PADDING_CAUSAL_MASK; window as its `local_window_size` (keys before, 0).
  """
  seen = np.zeros((len(query_lengths), length, length), bool)
  for row, (queries, keys) in enumerate(
    zip(query_lengths.tolist(), key_lengths.tolist(), strict=True)
  ):
    for q in range(queries):
      first = 0 if window is None else max(q - window[0], 0)
      seen[row, q, first : min(q + 1, keys)] = True
  return seen


def offsets(
  query_lengths,
  key_lengths,
  query_offsets,
  key_offsets,
  *,
  length,
  window=None,
  smallest=0,
):
  """Packed rows by lengths [rows, M] and offsets [rows, M + 1], causal.

  https://github.com/jax-ml/jax/blob/main/jax/_src/cudnn/fused_attention_stablehlo.py
  (docstring of `dot_product_attention` and `_fix_seqlen_offsets`): entries that
  are not negative are moved to the front, over all rows; offsets then count
  from the first row, and those that are left over stand at the end of all.
  TransformerEngine's SequenceDescriptor.from_seqlens_and_offsets is read in the
  same way (its `FusedAttnFwdPrimitive.impl`), lengths of 0 left out:
  smallest=1. A window is `sliding_window_length`: (pos - window, pos].
  """
  rows = len(query_lengths)
  assert query_lengths.shape[1] + 1 == query_offsets.shape[1]
  assert key_lengths.shape[1] + 1 == key_offsets.shape[1]
  counts = [_to_the_front(x, 0, smallest) for x in (query_lengths, key_lengths)]
  starts = [
    _to_the_front(
      np.where(x < 0, x, x + length * np.arange(rows)[:, None]), rows * length
    )
    for x in (query_offsets, key_offsets)
  ]
  seen = np.zeros((rows * length, rows * length), bool)
  for queries, keys, q0, k0 in zip(*counts, *starts):
    for i in range(queries):
      first = 0 if window is None else max(i - window + 1, 0)
      last = min(i + 1, keys)
      # Beyond the last row a kernel would read what is not its own.
      assert q0 + i < rows * length and k0 + last <= rows * length
      seen[q0 + i, k0 + first : k0 + last] = True
  seen = seen.reshape(rows, length, rows, length)
  across = [np.delete(seen[row], row, axis=1).any() for row in range(rows)]
  assert not any(across), "a row sees another"
  return np.stack([seen[row, :, row] for row in range(rows)])


def _to_the_front(x, fill, smallest=0):
  kept = x[x >= smallest]
  return np.concatenate([kept, np.full(x.size - len(kept), fill)])


def ids_and_positions(
  query_ids, key_ids, query_positions, key_positions, *, window=(-1, -1)
):
  """TransformerEngine's SequenceDescriptor.from_segment_ids_and_pos, causal.

  https://github.com/NVIDIA/TransformerEngine/blob/main/transformer_engine/jax/attention.py:
  ids begin with 1 and 0 is padding (`make_attention_mask` of ids that are
  equal, multiplied by them), a query's position is not less than the key's, and
  a window counts keys before the query's own.
  """
  same = query_ids[:, :, None] == key_ids[:, None, :]
  distance = query_positions[:, :, None] - key_positions[:, None, :]
  seen = same & (query_ids > 0)[:, :, None] & (distance >= 0)
  return seen if window[0] < 0 else seen & (distance <= window[0])


def dual_chunk_swap(x, num_ranks):
  """TransformerEngine's `reorder_causal_dual_chunk_swap`, of axis 0."""
  chunks = x.reshape(2 * num_ranks, -1)
  parts = [chunks[[r, 2 * num_ranks - r - 1]] for r in range(num_ranks)]
  return np.stack(parts).reshape(x.shape)


def striped(x, num_ranks, stripe_size=1):
  """TransformerEngine's `reorder_causal_striped`, of axis 0."""
  split = x.reshape(-1, num_ranks, stripe_size)
  return split.swapaxes(0, 1).reshape(x.shape)
