"""The jitted parts of a run: the first state, a train step, an eval step.

Everything that any process must know about all of them (loss, counts, whether
one was asked to stop) is a sum over global arrays inside `jit`; the host
exchanges nothing.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import ring_attention
import transformer
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from ml_collections import ConfigDict

import hpgrain
from hpgrain import attention as masks
from hpgrain import attention_adapters, records
from hpgrain.batch import AttentionOptions
from hpgrain.loader import Loader

Batch = dict[str, jax.Array]
# {"params", "optimizer", "step"}: all of it global arrays made under jit.
State = dict[str, Any]
# Replicated scalars: loss, loss_tokens, tokens, stop.
Metrics = dict[str, jax.Array]


@dataclasses.dataclass(frozen=True)
class Steps:
  """The compiled functions of one model on one mesh.

  Attributes:
    init: makes the state of step 0.
    abstract: the state's shapes, dtypes and shardings, to restore into.
    train: (state, batch, stop flags) -> (state, metrics); uses up the state.
    evaluate: (params, batch) -> (sum of the losses, number of them).
    mesh: the mesh.
  """

  init: Callable[[], State]
  abstract: State
  train: Callable[[State, Batch, jax.Array], tuple[State, Metrics]]
  evaluate: Callable[[Any, Batch], tuple[jax.Array, jax.Array]]
  mesh: Mesh

  def stop_flags(self, stop: bool) -> jax.Array:
    """Returns a flag a device; a process sets those of its own devices."""
    sharding = NamedSharding(self.mesh, P(self.mesh.axis_names))
    return jax.make_array_from_callback(
      (self.mesh.size,), sharding, lambda _: np.array([stop], np.int32)
    )


def make_optimizer(config: ConfigDict) -> optax.GradientTransformation:
  """AdamW with clipping and a linear warmup to a constant rate.

  The rate knows no run length, so a longer run begins as a shorter one did.
  """
  rate, warmup = config.learning_rate, max(1, config.warmup)

  def schedule(count: jax.Array) -> jax.Array:
    return rate * jnp.minimum(1.0, (count + 1) / warmup)

  return optax.chain(
    optax.clip_by_global_norm(config.clip) if config.clip else optax.identity(),
    optax.adamw(
      schedule,
      b2=0.98,
      weight_decay=config.weight_decay,
      mask=lambda params: jax.tree.map(lambda x: x.ndim > 1, params),
    ),
  )


def make_steps(
  shape: transformer.Shape,
  *,
  optimizer: optax.GradientTransformation,
  mesh: Mesh,
  seed: int,
  loader: Loader,
  method: str = "dense",
) -> Steps:
  """Builds the functions; they compile when first called.

  Args:
    shape: of the model.
    optimizer: as `make_optimizer` makes it.
    mesh: over the devices of all processes.
    seed: of the first parameters.
    loader: says what the model takes of its batches, the window among it, and
      of what kind their labels are.
    method: model.attention: "dense" attends by an S x S mask; "ring" and
      "all_gather" do by segment ids, with positions where they are.

  Raises:
    ValueError: if the loader makes something for attention that nothing would
      read.
  """
  _check_is_read(method, loader.attention)

  def init() -> State:
    params = transformer.init(jax.random.key(seed), shape)
    return {
      "params": params,
      "optimizer": optimizer.init(params),
      "step": jnp.zeros((), jnp.int32),
    }

  def loss_sums(params: Any, batch: Batch) -> tuple[jax.Array, jax.Array]:
    inputs = loader.model_inputs(batch) | hpgrain.loss_inputs(batch)
    if loader.attention_mode == "ltor":
      # Megatron's says where attention is masked, the model's where it is not.
      inputs["attention_mask"] = ~inputs["attention_mask"]
    elif method == "dense" and "attention_mask" not in inputs:
      # The model would take the slots of a layout for positions.
      inputs["attention_mask"] = masks.attention_mask(
        batch[records.SEGMENT_IDS], loader.row_positions(batch)
      )
    return transformer.loss_sums(
      params,
      inputs,
      shape=shape,
      labels_are_shifted=loader.labels_are_shifted,
      attend=attend_of(inputs),
    )

  def attend_of(inputs: dict[str, Any]) -> transformer.Attend | None:
    if method == "dense":
      return None
    if loader.attention_mode == "compressed":
      params = inputs["packed_seq_params"]
      segment_ids, positions = params["segment_ids"], params["row_positions"]
    else:
      segment_ids = inputs[records.SEGMENT_IDS]
      positions = loader.row_positions(inputs)
    return functools.partial(
      ring_attention.attention,
      segment_ids=segment_ids,
      row_positions=positions,
      mesh=mesh,
      method=method,
      data_axes=loader.sharding.spec[0],
      window=loader.attention.keys_seen,
    )

  def mean_loss(params: Any, batch: Batch) -> tuple[jax.Array, jax.Array]:
    total, count = loss_sums(params, batch)
    return total / jnp.maximum(count, 1), count

  def train(
    state: State, batch: Batch, stop: jax.Array
  ) -> tuple[State, Metrics]:
    value_and_grad = jax.value_and_grad(mean_loss, has_aux=True)
    (loss, loss_tokens), grads = value_and_grad(state["params"], batch)
    updates, optimizer_state = optimizer.update(
      grads, state["optimizer"], state["params"]
    )
    state = {
      "params": optax.apply_updates(state["params"], updates),
      "optimizer": optimizer_state,
      "step": state["step"] + 1,
    }
    return state, {
      "loss": loss,
      "loss_tokens": loss_tokens,
      "tokens": (batch[records.SEGMENT_IDS] > 0).sum(),
      "stop": stop.sum(),
    }

  shapes = jax.eval_shape(init)
  shardings = _state_shardings(shapes, shape, optimizer, mesh)
  replicated = NamedSharding(mesh, P())
  return Steps(
    init=jax.jit(init, out_shardings=shardings),
    abstract=jax.tree.map(
      lambda x, sharding: jax.ShapeDtypeStruct(
        x.shape, x.dtype, sharding=sharding
      ),
      shapes,
      shardings,
    ),
    train=jax.jit(
      train, donate_argnums=0, out_shardings=(shardings, replicated)
    ),
    evaluate=jax.jit(loss_sums, out_shardings=replicated),
    mesh=mesh,
  )


def _check_is_read(method: str, attention: AttentionOptions) -> None:
  """Raises ValueError if the model would not read what the loader makes."""
  mode = attention.attention_mode
  if mode == "compressed":
    adapter = attention_adapters.resolve(attention.adapter)
    names = {known: name for name, known in attention_adapters.ADAPTERS.items()}
    name = names.get(adapter, "a function of yours")
    if method != "dense" and name == "context_parallel":
      return
    raise ValueError(
      f"model.attention={method!r} would not read the packed_seq_params of"
      f" get_batch.attention_adapter={name!r}: the example's ring and"
      " all-gather attention read those of 'context_parallel', and its dense"
      " attention none. Set model.attention='ring' or 'all_gather' and"
      " attention_adapter='context_parallel', or attention_mode='segment_ids';"
      " other kernels are for a model of yours."
    )
  if method == "dense" or mode == "segment_ids":
    return
  made_by = {
    "dense": "get_batch.attention_mode='dense'",
    "ltor": "dataset.data_config.create_ltor_fields_in_dataloader=True",
  }
  raise ValueError(
    f"model.attention={method!r} attends by segment ids, and {made_by[mode]}"
    " makes an S x S mask that nothing would read. Leave both at their defaults"
    " (get_batch.attention_mode='segment_ids'), or set model.attention='dense'."
  )


def param_specs(
  shape: transformer.Shape, mesh: Mesh, *, axis: str = "tp"
) -> transformer.Params:
  """Returns the PartitionSpecs of `transformer.init`'s parameters on `mesh`.

  Heads, hidden units and the vocabulary go over the tensor axis; the rest is
  replicated.

  Raises:
    ValueError: if the heads cannot be shared out over the axis.
  """
  size = mesh.shape.get(axis, 1)
  if shape.heads % size:
    raise ValueError(
      f"model.heads must be a multiple of the mesh's {axis!r} axis, got"
      f" {shape.heads} heads over {size} devices."
    )
  tp = axis if axis in mesh.shape else None
  layer = {
    "attention_norm": P(),
    "qkv": P(None, None, tp),
    "attention_out": P(tp, None),
    "mlp_norm": P(),
    "mlp_in": P(None, tp),
    "mlp_out": P(tp, None),
  }
  return {
    # The vocabulary is a multiple of 128, so of any sensible tensor axis.
    "embedding": P(tp, None),
    "final_norm": P(),
    "layers": [dict(layer) for _ in range(shape.layers)],
  }


def _state_shardings(
  shapes: State,
  shape: transformer.Shape,
  optimizer: optax.GradientTransformation,
  mesh: Mesh,
) -> State:
  """Gives the optimizer's moments their parameter's sharding.

  Scalars are replicated, not left on one device: Orbax refuses to save an
  array that only one of several processes has.
  """
  replicated = NamedSharding(mesh, P())
  params = jax.tree.map(
    lambda spec: NamedSharding(mesh, spec),
    param_specs(shape, mesh),
    is_leaf=lambda x: isinstance(x, P),
  )
  return {
    "params": params,
    "optimizer": optax.tree_utils.tree_map_params(
      optimizer,
      lambda _, sharding: sharding,
      shapes["optimizer"],
      params,
      transform_non_params=lambda _: replicated,
    ),
    "step": replicated,
  }
