"""launch/train.py with attention over context-parallel devices.

Losses are those of dense attention and positions in order, whatever the
layout, and the rows are the same.
"""

import random
import sys
from pathlib import Path

import corpora
import jax
import jax.numpy as jnp
import optax
import pytest
from train_runs import digest_lines, finish, losses_of, make_folder, rows_of

import hpgrain
from hpgrain import attention_adapters, shard
from hpgrain.attention_adapters import context_parallel
from hpgrain.config import base_config

sys.path.insert(0, str(Path(__file__).parent.parent / "launch"))

import steps
import transformer

AXES = ("data", "cp", "tp")
SHAPE = transformer.Shape(vocabulary=128, layers=1, width=16, heads=2)
# Documents that are packed into rows of 16 positions.
PACKED = {
  "dataloader.type": "dynamic",
  "dataloader.overlong": "split",
  "dataloader.segment_multiple": 4,
  "training.train_iters": 4,
  "get_batch.sliding_window": 5,
}
SEQUENCE_PARALLEL = {
  "mesh.data": 2,
  "mesh.cp": 2,
  "mesh.tp": 2,
  "mesh.sequence_parallel": True,
}


def train(folder, name, *, num_processes=1, **options):
  flags = {**PACKED, **options.pop("mesh", {})}
  flags |= {"get_batch.context_parallel_layout": options["layout"]}
  flags |= {"model.attention": options["attention"]}
  said = (f"--config.{key}={value}" for key, value in flags.items())
  run = finish(folder, name, *said, num_processes=num_processes)
  losses = losses_of(run.workdir)
  assert list(losses) == [1, 2, 3, 4]
  return list(losses.values()), rows_of(digest_lines(run.workdir))


def test_runs_in_any_layout_lose_alike(tmp_path):
  folder = make_folder(tmp_path)
  want, rows = train(folder, "plain", layout="contiguous", attention="dense")
  got, others = train(
    folder,
    "ring",
    layout="document_zigzag",
    attention="ring",
    mesh=SEQUENCE_PARALLEL,
  )
  assert got == pytest.approx(want, rel=1e-4)
  assert others == rows
  got, others = train(
    folder,
    "gathered",
    layout="zigzag",
    attention="all_gather",
    num_processes=2,
    mesh={"mesh.data": 1, "mesh.cp": 4},
  )
  assert got == pytest.approx(want, rel=1e-4)
  assert others == rows


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
  prefix = tmp_path_factory.mktemp("pair") / "documents"
  documents = corpora.random_documents(
    random.Random(0), num_documents=40, max_length=10, vocab_size=128
  )
  return corpora.write_pair(prefix, documents)


def first_loss(pair, *, method="dense", eod_id=None, **keys):
  """Returns the eval step's summed loss of the first batch, and both."""
  sizes = dict(zip(AXES, (2, 4, 1), strict=True))
  config = base_config()
  config.training.global_batch_size = 4
  config.mesh.update(sizes)
  config.dataset.data_path = pair
  config.dataset.data_config.update(
    seq_length=16,
    vocab_size=128,
    split="1,0,0",
    create_ltor_fields_in_dataloader=eod_id is not None,
    eod_id=eod_id,
  )
  config.get_batch.update(keys)
  mesh = shard.make_mesh(AXES, sizes, jax.devices())
  loader = hpgrain.build(config, mesh).train
  run = steps.make_steps(
    SHAPE,
    optimizer=optax.sgd(0.1),
    mesh=mesh,
    seed=0,
    loader=loader,
    method=method,
  )
  batches = iter(loader)
  batch = next(batches)
  batches.close()
  # Large enough that what is attended to matters more than rounding.
  params = jax.tree.map(lambda x: 5 * x, run.init()["params"])
  total, count = run.evaluate(params, batch)
  assert count > 0
  return float(total), params, batch


COMPRESSED = {
  "attention_mode": "compressed",
  "attention_adapter": "context_parallel",
}


@pytest.fixture(scope="module")
def wanted(pair):
  """By window, the loss with dense masks; the windows lose unlike."""
  found = {
    window: first_loss(pair, sliding_window=window)[0] for window in (3, 4)
  }
  assert found[3] != pytest.approx(found[4], rel=1e-3)
  return found


@pytest.mark.parametrize(
  "layout, method, made",
  [
    ("contiguous", "ring", {}),
    ("striped", "ring", {}),
    ("striped", "ring", COMPRESSED),
    ("zigzag", "all_gather", COMPRESSED),
  ],
)
def test_the_window_is_the_one_that_dense_masks_have(
  pair, wanted, layout, method, made
):
  options = {"context_parallel_layout": layout, "method": method, **made}
  window = {"sliding_window": 2, "window_keys": "reference"}
  got, _, batch = first_loss(pair, **options, **window)
  assert got == pytest.approx(wanted[3], rel=1e-5)
  assert batch["segment_ids"].max() > 1


@pytest.mark.parametrize("name", ["segment_ids", "row_positions"])
def test_the_ring_reads_what_the_adapter_made(pair, wanted, monkeypatch, name):
  def other(inputs):
    made = context_parallel.adapt(inputs)
    # As if all were one segment, or all slots in the order of the row.
    slots = jnp.broadcast_to(jnp.arange(16), inputs.segment_ids.shape)
    planted = {"segment_ids": jnp.ones_like(slots), "row_positions": slots}
    return {**made, name: planted[name]}

  monkeypatch.setitem(attention_adapters.ADAPTERS, "context_parallel", other)
  options = {"context_parallel_layout": "striped", "method": "ring"}
  got, *_ = first_loss(pair, sliding_window=3, **options, **COMPRESSED)
  assert got != pytest.approx(wanted[3], rel=1e-3)


def test_a_mask_that_is_true_where_attention_is_masked_is_turned_around(pair):
  got, params, batch = first_loss(pair, eod_id=0)
  # Rows are full, so Megatron's mask hides what the segments do.
  want, _ = jax.jit(
    lambda params, batch: transformer.loss_sums(
      params, batch, shape=SHAPE, labels_are_shifted=True
    )
  )(params, batch)
  assert got == pytest.approx(float(want), rel=1e-5)


@pytest.mark.parametrize(
  "keys, said",
  [
    (
      {"method": "ring", "attention_mode": "dense"},
      "attention_mode='dense' makes an S x S mask that nothing",
    ),
    (
      {"method": "ring", "eod_id": 0},
      "create_ltor_fields_in_dataloader=True makes an S x S mask that nothing",
    ),
    (
      {"method": "dense", "sliding_window": 2, **COMPRESSED},
      "model.attention='dense' would not read the packed_seq_params of"
      " get_batch.attention_adapter='context_parallel'",
    ),
    (
      {**COMPRESSED, "attention_adapter": "test_train_ring:no_kernel"},
      "attention_adapter='a function of yours'",
    ),
    (
      {
        "method": "all_gather",
        "attention_mode": "compressed",
        "attention_adapter": "transformer_engine",
        "context_parallel_layout": "striped",
      },
      "model.attention='all_gather' would not .*='transformer_engine'",
    ),
  ],
)
def test_what_nothing_would_read_is_refused(pair, keys, said):
  with pytest.raises(ValueError, match=said):
    first_loss(pair, **keys)


def no_kernel(*, cu_seq_lens, **others):
  del others
  return cu_seq_lens
