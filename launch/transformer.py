"""A small decoder-only transformer: a batch goes in, a summed loss comes out.

  input_ids -> embedding -> layers x (attention, MLP) -> norm -> logits
                               |
                 rotary position_ids; swa_mask, attention_mask or segment_ids

It is here to show a batch being trained on, and to be read. Parameters are a
plain dict of float32 arrays; whoever jits decides where they live.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hpgrain import attention, records

Params = dict[str, Any]
Batch = dict[str, jax.Array]
# (query, key, value) -> what each query mixes; [row, position, head, channel].
Attend = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]

# Large enough to vanish in a softmax, finite so that a padding row, which may
# attend to nothing, gives a uniform softmax rather than a NaN.
_MASKED = -1e30

# The size of an embedding's numbers at the start.
_EMBEDDING_SCALE = 0.02


@dataclasses.dataclass(frozen=True)
class Shape:
  """The sizes of a model.

  Attributes:
    vocabulary: ids the model can read and predict.
    layers: blocks of attention and MLP.
    width: size of the residual stream.
    heads: attention heads; each has width // heads channels, an even number.
  """

  vocabulary: int
  layers: int
  width: int
  heads: int

  def __post_init__(self) -> None:
    for name in ("vocabulary", "layers", "width", "heads"):
      if getattr(self, name) < 1:
        raise ValueError(
          f"model.{name} must be at least 1, got {getattr(self, name)}."
        )
    if self.width % (2 * self.heads):
      raise ValueError(
        "model.width must be a multiple of 2 * model.heads (rotary positions"
        f" turn pairs of channels), got width {self.width} and heads"
        f" {self.heads}."
      )


def init(key: jax.Array, shape: Shape) -> Params:
  """Makes float32 parameters; the same values under every sharding."""
  width, hidden = shape.width, 4 * shape.width
  # Of matrices: how large it is and how large its numbers are. The residual
  # stream adds up two branches a layer, so what ends one is smaller.
  scale, last = width**-0.5, (2 * shape.layers * width) ** -0.5
  layer = {
    "qkv": ((width, 3, width), scale),
    "attention_out": ((width, width), last),
    "mlp_in": ((width, hidden), scale),
    "mlp_out": ((hidden, width), 0.5 * last),
  }
  sizes = {
    "embedding": ((shape.vocabulary, width), _EMBEDDING_SCALE),
    "layers": [layer] * shape.layers,
  }
  leaves, tree = jax.tree.flatten(sizes, is_leaf=lambda x: isinstance(x, tuple))
  # One draw for all: a draw takes a second to compile.
  ends = np.cumsum([np.prod(size) for size, _ in leaves])
  numbers = jnp.split(jax.random.normal(key, (int(ends[-1]),)), ends[:-1])
  params = tree.unflatten(
    [
      draw.reshape(size) * scale
      for draw, (size, scale) in zip(numbers, leaves, strict=True)
    ]
  )
  ones = jnp.ones(width)
  for block in params["layers"]:
    block.update(attention_norm=ones, mlp_norm=ones)
  return params | {"final_norm": ones}


def rotate(x: jax.Array, position_ids: jax.Array) -> jax.Array:
  """Rotary positions: turns channel pairs of [row, position, head, channel]."""
  half = x.shape[-1] // 2
  rates = 10_000.0 ** (-jnp.arange(half) / half)
  angles = position_ids[:, :, None, None] * rates
  sin, cos = jnp.sin(angles), jnp.cos(angles)
  left, right = x[..., :half], x[..., half:]
  return jnp.concatenate(
    [left * cos - right * sin, right * cos + left * sin], axis=-1
  )


def logits(
  params: Params,
  inputs: Batch,
  *,
  shape: Shape,
  attend: Attend | None = None,
) -> jax.Array:
  """Returns float32[row, position, vocabulary], the next token's log-odds.

  Args:
    params: as `init` makes them.
    inputs: what `model_inputs` gives of a batch.
    shape: the model's sizes.
    attend: how queries attend, as `ring_attention.attention` does with the
      batch's segment ids; None: by the mask in `inputs`, S x S.
  """
  if attend is None:
    attend = _dense(_mask(inputs))
  position_ids = inputs[records.POSITION_IDS]
  x = params["embedding"][inputs[records.INPUT_IDS]]
  # They start small because they are the output layer too.
  x = x / _EMBEDDING_SCALE
  for layer in params["layers"]:
    normed = _norm(x, layer["attention_norm"])
    x = x + _attention(layer, normed, attend, position_ids, shape)
    hidden = jax.nn.gelu(_norm(x, layer["mlp_norm"]) @ layer["mlp_in"])
    x = x + hidden @ layer["mlp_out"]
  return _norm(x, params["final_norm"]) @ params["embedding"].T


def loss_sums(
  params: Params,
  inputs: Batch,
  *,
  shape: Shape,
  labels_are_shifted: bool,
  attend: Attend | None = None,
) -> tuple[jax.Array, jax.Array]:
  """Returns the summed cross-entropy of a batch and the tokens it is over.

  Both are sums over the global arrays, so their quotient is the same number
  on every mesh and needs no mean of means.

  Args:
    params: as `init` makes them.
    inputs: what `model_inputs` and `loss_inputs` give of a batch.
    shape: the model's sizes.
    labels_are_shifted: whether `labels[t]` is already the target of position
      t. If not, they equal the inputs and are shifted here.
    attend: see `logits`.
  """
  targets, weights = _targets(inputs, labels_are_shifted)
  scores = logits(params, inputs, shape=shape, attend=attend)
  # A sum instead of a gather, whose gradient would be a slow scatter.
  ids = jnp.arange(shape.vocabulary)
  picked = jnp.where(ids == targets[..., None], scores, 0.0).sum(-1)
  losses = jax.nn.logsumexp(scores, axis=-1) - picked
  return (losses * weights).sum(), weights.sum()


def _targets(
  inputs: Batch, labels_are_shifted: bool
) -> tuple[jax.Array, jax.Array]:
  """Returns int32 targets, all legal ids, and the float32 weight of each."""
  labels, weights = inputs[records.LABELS], inputs[records.LOSS_MASK]
  if not labels_are_shifted:
    segment_ids = inputs[records.SEGMENT_IDS]
    same = segment_ids == _next(segment_ids, 0)
    labels = _next(labels, records.IGNORE_INDEX)
    # The next document's first token is nothing this one could foretell.
    weights = weights * same * (labels != records.IGNORE_INDEX)
  return jnp.maximum(labels, 0), weights


def _next(x: jax.Array, last: int) -> jax.Array:
  """Moves [row, position] one position to the left."""
  return jnp.pad(x[:, 1:], ((0, 0), (0, 1)), constant_values=last)


def _mask(inputs: Batch) -> jax.Array:
  """Returns bool[row, 1, query, key], True where a query may attend."""
  for name in ("swa_mask", "attention_mask"):
    if name in inputs:
      return inputs[name]
  return attention.attention_mask(inputs[records.SEGMENT_IDS])


def _dense(mask: jax.Array) -> Attend:
  """Returns attention by a mask, bool[row or 1, 1, query, key]."""

  def attend(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
    scores = jnp.einsum("rqhc,rkhc->rhqk", query, key)
    scores = jnp.where(mask, scores * query.shape[-1] ** -0.5, _MASKED)
    return jnp.einsum("rhqk,rkhc->rqhc", jax.nn.softmax(scores, -1), value)

  return attend


def _attention(
  layer: Params,
  x: jax.Array,
  attend: Attend,
  position_ids: jax.Array,
  shape: Shape,
) -> jax.Array:
  """Multi-head attention; [row, position, width] in and out."""
  heads = (*x.shape[:2], shape.heads, shape.width // shape.heads)
  projected = jnp.einsum("rpw,wkv->krpv", x, layer["qkv"])
  query, key, value = (part.reshape(heads) for part in projected)
  query, key = rotate(query, position_ids), rotate(key, position_ids)
  mixed = attend(query, key, value)
  return mixed.reshape(x.shape) @ layer["attention_out"]


def _norm(x: jax.Array, scale: jax.Array) -> jax.Array:
  """RMS normalisation over the last dimension."""
  return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * scale
