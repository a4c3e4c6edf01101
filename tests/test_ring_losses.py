"""A context-parallel batch of the loader trains as the unsharded one does.

The loss and its gradients are those of dense attention by a mask over the rows
as they are, on one device: so labels at the edges of slices, positions,
segments and loss weights are all right at once, in every layout.
"""

import functools
import json
import random
import sys
from pathlib import Path

import corpora
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import hpgrain
from hpgrain.config import base_config
from hpgrain.context_layout import LAYOUTS

sys.path.insert(0, str(Path(__file__).parent.parent / "launch"))

import ring_attention
import transformer

LENGTH = 64
SHAPE = transformer.Shape(vocabulary=128, layers=1, width=16, heads=2)
AXES = ("data", "cp", "tp")
KINDS = ("packed", "cut", "online")

# Quick to compile rather than to run.
_jit = functools.partial(
  jax.jit,
  compiler_options={
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
  },
)
PARAMS = _jit(
  lambda: transformer.init(jax.random.key(0), SHAPE),
)()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """Documents of few tokens and of most of a row; records with weights."""
  path = tmp_path_factory.mktemp("data")
  rng = random.Random(0)
  documents = corpora.random_documents(
    rng, num_documents=60, max_length=60, vocab_size=128
  )
  corpora.write_pair(path / "documents", documents)
  with (path / "records.jsonl").open("w") as file:
    for _ in range(60):
      count = rng.randint(1, 70)
      ids = [rng.randrange(128) for _ in range(count)]
      weights = [rng.choice((0, 1, 1, 0.5, 2)) for _ in ids]
      print(json.dumps({"input_ids": ids, "loss_mask": weights}), file=file)
  return path


def first_batch(
  folder,
  kind,
  sizes,
  *,
  layout="contiguous",
  reset=False,
  axis_type=AxisType.Auto,
):
  """Returns the first batch of a kind of rows, with its row_positions."""
  config = base_config()
  config.training.global_batch_size = 4
  config.mesh.update(
    dict(zip(AXES, sizes, strict=True)), sequence_parallel=sizes[2] > 1
  )
  config.get_batch.update(
    reset_position_ids=reset, context_parallel_layout=layout
  )
  data = config.dataset.data_config
  data.vocab_size = 128
  if kind == "online":
    config.dataset.update(kind="online", data_path=f"{folder}/records.jsonl")
    config.data_transform.update(data_type="pretokenized", max_seq_len=LENGTH)
  else:
    config.dataset.data_path = f"{folder}/documents"
    data.update(split="1,0,0", seq_length=LENGTH)
  if kind != "cut":
    config.dataloader.update(
      type="dynamic", overlong="split", segment_multiple=16
    )
  loader = hpgrain.build(config, make_mesh(sizes, axis_type)).train
  batches = iter(loader)
  batch = next(batches)
  batches.close()
  assert batch["segment_ids"].sharding == loader.sharding
  # A row for each, and placed alike, whatever the layout: one program for all.
  positions = _jit(
    lambda batch: jnp.broadcast_to(loader.row_positions(batch), (4, LENGTH)),
    out_shardings=loader.sharding,
  )(batch)
  return batch | {"row_positions": positions}


@_jit
@jax.value_and_grad
def _dense(params, batch):
  return _mean(params, batch)


def _mean(params, batch, attend=None):
  total, _ = transformer.loss_sums(
    params, batch, shape=SHAPE, labels_are_shifted=True, attend=attend
  )
  return total / hpgrain.num_loss_tokens(batch)


@functools.cache
def expected(folder, kind, window, reset):
  """Returns the unsharded batch as NumPy, its loss and its gradients."""
  batch = first_batch(folder, kind, (1, 1, 1), reset=reset)
  batch = jax.device_get(batch)
  at = np.arange(LENGTH)
  before = at[:, None] - at
  segment_ids = batch["segment_ids"]
  mask = (segment_ids[:, :, None] == segment_ids[:, None]) & (before >= 0)
  if window is not None:
    mask &= before < window
  loss, grads = _dense(PARAMS, batch | {"attention_mask": mask[:, None]})
  return batch, loss, grads


@functools.cache
def ring_loss(sizes, window, method="ring"):
  """Returns the loss and gradients of batches on a mesh, jitted.

  The batches say their row_positions themselves: one program for all layouts.
  """

  @_jit
  @jax.value_and_grad
  def loss(params, batch):
    attend = functools.partial(
      ring_attention.attention,
      segment_ids=batch["segment_ids"],
      row_positions=batch["row_positions"],
      mesh=make_mesh(sizes),
      method=method,
      window=window,
    )
    return _mean(params, batch, attend)

  return loss


def make_mesh(sizes, axis_type=AxisType.Auto):
  devices = np.array(jax.devices()[: np.prod(sizes)]).reshape(sizes)
  return Mesh(devices, AXES, axis_types=(axis_type,) * 3)


def error(got, want):
  """The largest difference of any array, by the largest number in it."""
  return max(
    float(np.abs(np.asarray(a) - b).max() / np.abs(b).max())
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True)
  )


def layouts_of(kind):
  """All of them; of rows without rooms, those that need none."""
  return LAYOUTS[:3] if kind == "cut" else LAYOUTS


@pytest.mark.parametrize(
  "sizes, window, reset, method",
  [
    ((1, 2, 1), None, True, "ring"),
    ((1, 4, 1), 16, False, "ring"),
    ((1, 8, 1), 16, True, "ring"),
    ((2, 4, 1), None, False, "ring"),
    ((4, 2, 1), 16, True, "all_gather"),
    # Positions over tp too, outside of attention; heads in it.
    ((2, 2, 2), None, True, "ring"),
  ],
)
def test_loss_and_gradients_are_those_of_whole_rows(
  folder, sizes, window, reset, method
):
  run = ring_loss(sizes, window, method)
  for kind in KINDS:
    _, *want = expected(folder, kind, window, reset)
    for layout in layouts_of(kind):
      batch = first_batch(folder, kind, sizes, layout=layout, reset=reset)
      assert error(run(PARAMS, batch), want) < 1e-5, (kind, layout)


# What each mistake makes of a sharded batch, given the one of whole rows.
MISTAKES = {
  "position_ids in row order": lambda batch, whole: {
    "position_ids": whole["position_ids"]
  },
  "row positions in row order": lambda batch, whole: {
    "row_positions": np.tile(np.arange(LENGTH, dtype=np.int32), (4, 1))
  },
  "segments in row order": lambda batch, whole: {
    "segment_ids": whole["segment_ids"]
  },
  "segments dropped": lambda batch, whole: {
    "segment_ids": np.ones_like(whole["segment_ids"])
  },
  "labels in row order": lambda batch, whole: {"labels": whole["labels"]},
  "labels shifted after the layout": lambda batch, whole: {
    "labels": np.roll(batch["input_ids"], -1, axis=1)
  },
  "weights in row order": lambda batch, whole: {
    "loss_mask": whole["loss_mask"]
  },
}


@pytest.mark.parametrize("layout", ["zigzag", "document_zigzag"])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_shows_in_the_gradients(folder, mistake, layout):
  sizes, window = (1, 4, 1), 16
  whole, *want = expected(folder, "packed", window, False)
  batch = first_batch(folder, "packed", sizes, layout=layout)
  wrong = MISTAKES[mistake](jax.device_get(batch), whole)
  batch |= jax.device_put(wrong, batch["labels"].sharding)
  got = ring_loss(sizes, window)(PARAMS, batch)
  assert error(got, want) > 0.1


def test_a_window_of_one_key_more_shows_in_the_gradients(folder):
  _, *want = expected(folder, "packed", 17, False)
  batch = first_batch(folder, "packed", (1, 4, 1), layout="zigzag")
  got = ring_loss((1, 4, 1), 16)(PARAMS, batch)
  assert error(got, want) > 0.1


def test_a_mean_of_means_shows_in_the_gradients(folder):
  """All of the model in shard_map, with a loss of each device's positions."""
  sizes, axes = (2, 4, 1), ("data", "cp")

  def on_device(params, batch, of_sums):
    attend = functools.partial(
      ring_attention.ring_attention,
      segment_ids=batch["segment_ids"],
      row_positions=batch["row_positions"],
      axis="cp",
    )
    total, count = transformer.loss_sums(
      params, batch, shape=SHAPE, labels_are_shifted=True, attend=attend
    )
    right = jax.lax.psum(total, axes) / jax.lax.psum(count, axes)
    wrong = jax.lax.pmean(total / jnp.maximum(count, 1), axes)
    return jnp.where(of_sums, right, wrong)

  whole = jax.shard_map(
    on_device,
    mesh=make_mesh(sizes),
    in_specs=(P(), P("data", "cp"), P()),
    out_specs=P(),
  )
  run = _jit(jax.value_and_grad(whole))
  _, *want = expected(folder, "online", None, True)
  batch = first_batch(folder, "online", sizes, layout="zigzag", reset=True)
  assert error(run(PARAMS, batch, True), want) < 1e-5
  assert error(run(PARAMS, batch, False), want) > 0.1


def test_explicit_axes_are_left_to_jit_around_the_model(folder):
  """The loader and attention take them; the model says no shardings."""
  sizes, explicit = (1, 2, 2), AxisType.Explicit
  mesh = make_mesh(sizes, explicit)
  batch = first_batch(
    folder, "packed", sizes, layout="zigzag", axis_type=explicit
  )
  assert jax.typeof(batch["labels"]).sharding.spec == P("data", ("cp", "tp"))

  @_jit
  @jax.value_and_grad
  def loss(params, batch):
    def mean(params, batch):
      attend = functools.partial(
        ring_attention.attention,
        segment_ids=batch["segment_ids"],
        row_positions=batch["row_positions"],
        mesh=jax.sharding.get_abstract_mesh(),
      )
      return _mean(params, batch, attend)

    out = NamedSharding(mesh, P())
    return jax.sharding.auto_axes(mean, out_sharding=out)(params, batch)

  _, *want = expected(folder, "packed", None, False)
  assert error(loss(PARAMS, batch), want) < 1e-5
