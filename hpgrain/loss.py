r"""A batch in, what each position's loss weighs in the mean out; inside `jit`.

  segment_ids        1    1    1    2    2    0
  loss_mask          1    1    0    1    0    0
  source_ids         0    0    0    1    1   -1

  token_weights      1    1    0    1    0    0    every token alike
  sequence_weights  1/2  1/2   0    1    0    0    every packed sequence alike
  source_weights     3    3    0   .5    0    0    of weights [3, 0.5]

A mean is sum(losses * weights) / sum(weights), over the whole batch: that is
`mean_loss`. Arrays inside `jit` are global, whatever mesh holds them, so the
sums are, too: no mean over data-parallel, context-parallel or replica devices
is to be taken after them, and every position counts once in any layout.

`loss_mask` may hold any weights of at least 0, as pretokenized records give
them. They count as that many tokens: the mean over tokens is divided by their
sum, and a sequence's by the sum of its own.

Inside `shard_map` arrays are slices, of which only sums can be taken: make the
weights before it, hand them in beside the losses, and `jax.lax.psum` the sums
over all axes that split the batch. What would be of one slice, and not say so,
is refused there. docs/loss.md shows it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hpgrain.records import LOSS_MASK, SEGMENT_IDS, SOURCE_IDS

Batch = Mapping[str, jax.Array]


def mean_loss(losses: jax.Array, weights: jax.Array) -> jax.Array:
  """Returns the weighted mean over the global batch; 0 of no weight.

  Args:
    losses: float[rows, S]. What has no weight is left out, even if infinite,
      but its gradient is 0 times whatever made it: keep labels that are
      IGNORE_INDEX out of a model's indexing.
    weights: float32[rows, S].

  Raises:
    ValueError: called inside `shard_map`, where it would be a slice's mean.
  """
  _refuse_slices("mean_loss", losses, weights)
  total = jnp.sum(_weighted(losses, weights))
  count = jnp.sum(weights)
  return jnp.where(count != 0, total / jnp.where(count != 0, count, 1), 0.0)


def num_loss_tokens(batch: Batch) -> jax.Array:
  """Returns how many positions of the global batch take part in the loss.

  Inside `jit` the sum is over the whole batch on every process, so neither a
  data-parallel nor a context-parallel mean is needed: divide the summed loss
  by it. Where `loss_mask` holds weights it is their sum. float32 for both:
  whole numbers are exact up to 2**24, 16.7 million tokens, and rounded beyond,
  by a share of about 2**-24, as the loss is that they divide.

  Raises:
    ValueError: called inside `shard_map`, where a loss that is divided by it
      would be a slice's mean.
  """
  _refuse_slices("num_loss_tokens", batch[LOSS_MASK])
  return jnp.sum(batch[LOSS_MASK])


def num_loss_sequences(batch: Batch) -> jax.Array:
  """Returns how many sequences of the global batch have a loss, int32.

  A sequence is a segment of a row, as `sequence_weights` has it; one whose
  positions weigh nothing is not counted, and padding is none.

  Raises:
    ValueError: called inside `shard_map`.
  """
  _refuse_slices("num_loss_sequences", batch[LOSS_MASK], batch[SEGMENT_IDS])
  return jnp.sum(_of_segments(_count_segments, batch), dtype=jnp.int32)


def token_weights(batch: Batch) -> jax.Array:
  """Returns float32[rows, S], by which every token counts alike: `loss_mask`.

  They add up to `num_loss_tokens`.
  """
  return batch[LOSS_MASK]


def sequence_weights(batch: Batch) -> jax.Array:
  """Returns float32[rows, S], by which every sequence counts alike.

  A position of loss_mask m weighs m / M, where M is the sum of loss_mask over
  its segment: the losses of a sequence are averaged, and sequences add up to
  `num_loss_sequences`. A sequence of M = 0 weighs nothing, nor does padding,
  whatever its loss_mask.

  A sequence is what has a number of its own in `segment_ids`: a packed
  example, or a document of a row that is cut. What was cut into several rows,
  or into several pieces, is as many sequences. With
  get_batch.reset_attention_mask=False it is the row.

  Raises:
    ValueError: called inside `shard_map`, where a segment may be cut.
  """
  _refuse_slices("sequence_weights", batch[LOSS_MASK], batch[SEGMENT_IDS])
  return _of_segments(_share_of_segments, batch)


def source_weights(
  batch: Batch,
  weights: Sequence[float] | np.ndarray | jax.Array,
  *,
  base: jax.Array | None = None,
) -> jax.Array:
  """Returns float32[rows, S], by which tokens of a source count so much.

  Args:
    batch: with `source_ids`.
    weights: [num_sources], by a source's place in the configuration's list.
    base: what they are multiplied with, say `sequence_weights`; None:
      `token_weights`.

  Returns:
    base * weights[source]; NaN, and so in the loss, where a source has none;
    0 at padding, whatever its base.

  Raises:
    ValueError: the batch has no `source_ids`, or `weights` is no list.
  """
  source_ids = _source_ids(batch)
  table = jnp.asarray(weights, jnp.float32)
  if table.ndim != 1 or not table.size:
    raise ValueError(
      "Weights are a list of one number for each source, got an array of shape"
      f" {table.shape}."
    )
  base = token_weights(batch) if base is None else base

  def look_up(source_ids: jax.Array, table: jax.Array) -> jax.Array:
    return table.at[source_ids].get(mode="fill", fill_value=jnp.nan)

  factor = _automatic(look_up, source_ids, table, like=source_ids)
  # -1, which is padding, looks up the last one.
  return jnp.where(source_ids < 0, 0.0, _weighted(factor, base))


def loss_by_source(
  losses: jax.Array,
  batch: Batch,
  num_sources: int,
  *,
  weights: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
  """Returns the losses' sum and the number of tokens of each source.

  Both add up: over micro-batches, steps of an evaluation, and, inside
  `shard_map`, over devices. Their quotient is a source's mean loss.

  Args:
    losses: float[rows, S].
    batch: with `source_ids`.
    num_sources: as many as `Loader.source_names` has.
    weights: float32[rows, S]; None: `token_weights`.

  Returns:
    (float32[num_sources] sum of losses * weights, float32[num_sources] sum of
    weights). NaN, all of them, if there are more sources than that.

  Raises:
    ValueError: the batch has no `source_ids`, or num_sources is below 1.
  """
  source_ids = _source_ids(batch)
  if num_sources < 1:
    raise ValueError(f"There is at least 1 source, got {num_sources}.")
  weights = token_weights(batch) if weights is None else weights
  # No data is left out in silence.
  known = jnp.max(source_ids) < num_sources

  def of_row(values: jax.Array, source_ids: jax.Array) -> jax.Array:
    # Padding goes to a place of its own, which is left out.
    at = jnp.where(source_ids < 0, num_sources, source_ids)
    return jnp.zeros(num_sources + 1, values.dtype).at[at].add(values)[:-1]

  def total(values: jax.Array) -> jax.Array:
    # Row by row first: a sum of 2**24 ones would not grow by one more.
    rows = jax.vmap(of_row)
    made = _automatic(
      lambda *arrays: jnp.sum(rows(*arrays), axis=0),
      values,
      source_ids,
      like=jnp.sum(values),
    )
    return jnp.where(known, made, jnp.nan)

  return total(_weighted(losses, weights)), total(weights)


def _weighted(values: jax.Array, weights: jax.Array) -> jax.Array:
  """Returns float32, values * weights, and 0 where the weight is."""
  return jnp.where(weights != 0, values * weights, 0.0)


def _source_ids(batch: Batch) -> jax.Array:
  if SOURCE_IDS not in batch:
    raise ValueError(
      f"This batch has {sorted(batch)} and no source_ids: set"
      " get_batch.source_ids=True."
    )
  return batch[SOURCE_IDS]


def _refuse_slices(name: str, *arrays: jax.Array) -> None:
  """Raises ValueError where an array is the slice of a device."""
  for array in arrays:
    axes = jax.typeof(array).sharding.mesh.manual_axes
    if axes:
      raise ValueError(
        f"{name} needs the whole batch, and inside shard_map over"
        f" {tuple(axes)} gets the slice of one device. Make counts and weights"
        " before shard_map, in the same jit, and hand them in. Inside, sum"
        " losses * weights and sum weights, add both up by jax.lax.psum over"
        " all axes that split the batch, and only then divide."
      )


def _of_segments(
  function: Callable[[jax.Array, jax.Array], jax.Array], batch: Batch
) -> jax.Array:
  """Returns function(loss_mask, segment_ids), float32[rows, S], row by row."""
  segment_ids = batch[SEGMENT_IDS]
  # Segment 0 is padding.
  mask = jnp.where(segment_ids > 0, batch[LOSS_MASK], 0.0)
  return _automatic(jax.vmap(function), mask, segment_ids, like=mask)


def _automatic(
  function: Callable[..., jax.Array], *arrays: jax.Array, like: jax.Array
) -> jax.Array:
  """Returns function(*arrays), which lies on the mesh as `like` does.

  Mesh axes of type Explicit would ask how to lay out each gather and scatter.
  """
  lies: Any = jax.typeof(like).sharding
  axes = lies.mesh.explicit_axes
  if axes:
    function = jax.sharding.auto_axes(function, axes=axes, out_sharding=lies)
  return function(*arrays)


def _sums_of_segments(mask: jax.Array, segment_ids: jax.Array) -> jax.Array:
  """Returns float32[S + 1]: a row's loss_mask, summed by segment."""
  # The positions of a segment may be anywhere in the row, and on any device.
  return jnp.zeros(len(mask) + 1, mask.dtype).at[segment_ids].add(mask)


def _share_of_segments(mask: jax.Array, segment_ids: jax.Array) -> jax.Array:
  total = _sums_of_segments(mask, segment_ids)[segment_ids]
  return jnp.where(total > 0, mask / jnp.where(total > 0, total, 1), 0.0)


def _count_segments(mask: jax.Array, segment_ids: jax.Array) -> jax.Array:
  """Returns a 1 for each segment that has a loss, in its number's place."""
  counted = _sums_of_segments(mask, segment_ids) > 0
  # S of them, as there are positions: padding, segment 0, is left out.
  return counted[1:].astype(mask.dtype)
