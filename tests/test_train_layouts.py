"""launch/train.py under context-parallel layouts, with dense attention masks.

A run whose layout changes from one start to the next trains on the rows of a
run in the row's order, and its losses are that run's.
"""

import random
import subprocess
import sys
from pathlib import Path

import corpora
import jax
import optax
import pytest
from train_runs import (
  ROOT,
  digest_lines,
  finish,
  losses_of,
  make_folder,
  rows_of,
  went_on_from,
)

import hpgrain
from hpgrain import shard
from hpgrain.config import base_config

sys.path.insert(0, str(Path(__file__).parent.parent / "launch"))

import steps
import transformer

SHAPE = transformer.Shape(vocabulary=128, layers=1, width=16, heads=2)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
  documents = corpora.random_documents(
    random.Random(0), num_documents=40, max_length=10, vocab_size=128
  )
  return corpora.write_pair(tmp_path_factory.mktemp("pair") / "a", documents)


def first_loss(pair, **get_batch):
  """The summed loss of the first batch of packed documents, over two ranks."""
  axes, sizes = ("data", "cp"), {"data": 4, "cp": 2}
  config = base_config()
  config.training.global_batch_size = 4
  config.mesh.update(axes=axes, tp=1, **sizes)
  config.dataset.train_data_path = pair
  config.dataset.data_config.update(seq_length=16, vocab_size=128)
  config.dataloader.update(type="dynamic", segment_multiple=4, overlong="split")
  config.get_batch.update(reset_position_ids=True, **get_batch)
  mesh = shard.make_mesh(axes, sizes, jax.devices())
  loader = hpgrain.build(config, mesh).train
  run = steps.make_steps(
    SHAPE, optimizer=optax.sgd(0.1), mesh=mesh, seed=0, loader=loader
  )
  batches = iter(loader)
  batch = next(batches)
  batches.close()
  # Large enough that what is attended to matters more than rounding.
  params = jax.tree.map(lambda x: 5 * x, run.init()["params"])
  total, count = run.evaluate(params, batch)
  assert count > 0
  return float(total)


@pytest.fixture(scope="module")
def wanted(pair):
  """By window, the loss of rows in order."""
  return {
    window: first_loss(pair, attention_mode="dense", sliding_window=window)
    for window in (None, 3)
  }


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("layout", ["zigzag", "striped", "document_zigzag"])
def test_masks_follow_the_layout(pair, wanted, layout, window):
  found = first_loss(
    pair, context_parallel_layout=layout, sliding_window=window
  )
  assert found == pytest.approx(wanted[window], rel=1e-5)
  assert wanted[None] != pytest.approx(wanted[3], rel=1e-3)


def train(folder, name, layout, num_steps, attention_mode="dense", **options):
  return finish(
    folder,
    name,
    f"--config.training.train_iters={num_steps}",
    f"--config.get_batch.context_parallel_layout={layout}",
    f"--config.get_batch.attention_mode={attention_mode}",
    "--config.get_batch.reset_position_ids=True",
    **options,
  )


def test_a_run_goes_on_under_another_layout(tmp_path):
  folder = make_folder(tmp_path)
  whole = train(folder, "whole", "contiguous", 6).workdir
  train(folder, "moved", "zigzag", 3)
  # Of segment ids the example makes the mask itself.
  run = train(folder, "moved", "striped", 6, "segment_ids", num_processes=2)
  assert went_on_from(run) == 3
  expected, found = (rows_of(digest_lines(w)) for w in (whole, run.workdir))
  assert found == expected and len(expected) == 6 * 8
  losses = losses_of(whole)
  assert sorted(losses) == list(range(1, 7))
  assert losses_of(run.workdir) == pytest.approx(losses, rel=1e-4)
  # As a user compares them.
  files = [str(w / "digests.jsonl") for w in (whole, run.workdir)]
  compared = subprocess.run(
    [sys.executable, "launch/digests.py", *files],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=False,
  )
  assert compared.returncode == 0, compared.stderr
  assert "48 of 48 common rows are equal" in compared.stdout
