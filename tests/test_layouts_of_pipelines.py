"""Every pipeline's batches under every layout are its contiguous batches.

What the devices hold, put side by side and in the order of the row, equals the
batch of the same configuration on a mesh that splits no row: labels at the
edges of slices, positions, segments and weights included.
"""

import contextlib
import dataclasses
import itertools
import json
import random

import jax
import ml_collections as mlc
import numpy as np
import pytest
from corpora import random_documents, write_pair
from online_data import SourceRecipe
from online_recipes import Data
from online_recipes import Recipe as OnlineRecipe
from promise import Leg, Recipe, make_config, write_sources
from promise import SourceRecipe as Corpus
from promise_build import Config
from promise_build import make_config as make_online_config
from reference_online import Transform
from reference_packers import Packing

import hpgrain
from hpgrain import context_parallel, shard

ROWS, STEPS = 4, 3

positions_of = jax.jit(context_parallel.row_positions, static_argnums=1)

# (axes, sequence_parallel); the first is that of the row as it is.
WHOLE = ((("data", 2), ("tp", 4)), False)
MESHES = (
  ((("data", 2), ("cp", 2), ("tp", 2)), False),
  ((("data", 2), ("cp", 2), ("tp", 2)), True),
  ((("cp", 4), ("data", 2)), False),
)
LAYOUTS = ("contiguous", "zigzag", "striped", "document_zigzag")

CUT = Recipe(
  kind="gpt", sources=(Corpus(seed=1, rows=13, slack=3),), seq_length=16
)
CORPORA = {
  "stable": dataclasses.replace(CUT, reset_position_ids=True),
  "documents": dataclasses.replace(CUT, order="documents", eod_mask_loss=True),
  "megatron": dataclasses.replace(
    CUT, order="megatron", reset_attention_mask=False, train_samples=40
  ),
  "precut": dataclasses.replace(
    CUT, kind="precut", reset_position_ids=True, eod_mask_loss=True
  ),
  "mock": dataclasses.replace(CUT, kind="mock", sources=()),
  # The last window ends where the row's tokens do.
  "no_extra_token": dataclasses.replace(CUT, extra=0, epochs=1),
}

PLANS = OnlineRecipe(
  mode="plans",
  transform=Transform("pretokenized", max_seq_len=24),
  sources=(SourceRecipe("pretokenized", 1, 60, form="json_lines"),),
  packing=Packing(budget=32, segment_multiple=8),
  plan_window=20,
  reset_position_ids=True,
)
STREAMS = dataclasses.replace(
  PLANS,
  mode="streams",
  packing=Packing(budget=32, segment_multiple=8, pack_window=5),
  num_streams=8,
  eod_mask_loss=True,
)


def packing(**changes):
  return dataclasses.replace(PLANS.packing, **changes)


ONLINE = {
  "plans": (PLANS, Config()),
  "own_row": (
    dataclasses.replace(
      PLANS,
      packing=packing(budget=8, overlong="own_row"),
      length_buckets=(24,),
      reset_position_ids=False,
    ),
    Config(),
  ),
  "pad": (
    dataclasses.replace(
      PLANS, packing=packing(packer="pad", budget=24), length_buckets=(8, 24)
    ),
    Config(),
  ),
  # Rows that no cp divides: they are padded for it.
  "odd": (
    dataclasses.replace(
      PLANS, packing=Packing(budget=27, packer="first_fit", overlong="split")
    ),
    Config(),
  ),
  "concat": (
    dataclasses.replace(PLANS, packing=Packing(budget=30, packer="concat")),
    Config(),
  ),
  "fixed": (
    dataclasses.replace(
      PLANS,
      transform=Transform("pretokenized", max_seq_len=40),
      packing=Packing(budget=80, packer="fixed", examples_per_row=2),
    ),
    Config(micro_batch_size=2),
  ),
  "balanced": (dataclasses.replace(PLANS, balance=(2, 4)), Config()),
  "ending": (
    dataclasses.replace(PLANS, epochs=1),
    Config(end_of_data="pad"),
  ),
  "streams": (STREAMS, Config()),
  "ending_streams": (dataclasses.replace(STREAMS, epochs=1), Config()),
}
# Whose rows have rooms that can be divided.
DIVIDES = {
  "packed_documents",
  "plans",
  "own_row",
  "pad",
  "balanced",
  "ending",
  "streams",
  "ending_streams",
}
PIPELINES = (*CORPORA, "packed_documents", *ONLINE)
CASES = [
  (name, layout)
  for name in PIPELINES
  for layout in LAYOUTS
  if layout != "document_zigzag" or name in DIVIDES
]


def leg_of(mesh, layout):
  axes, sequence_parallel = mesh
  return Leg(
    axes=axes,
    batch_size=ROWS,
    num_batches=STEPS,
    sequence_parallel=sequence_parallel,
    layout=layout,
    prefetch=0,
    train_iters=10,
  )


def packed_documents(folder, leg):
  """A configuration of whole documents of a tokenized corpus."""
  prefix = folder / "a"
  if not prefix.with_suffix(".idx").exists():
    rng = random.Random(0)
    write_pair(prefix, random_documents(rng, num_documents=60, max_length=20))
  return mlc.ConfigDict(
    {
      "training": {"global_batch_size": ROWS},
      "mesh": {
        "axes": tuple(leg.sizes),
        "sequence_parallel": leg.sequence_parallel,
        **leg.sizes,
      },
      "dataset": {
        "train_data_path": str(prefix),
        "data_config": {"seq_length": 32, "vocab_size": 100, "eod_id": 0},
      },
      "dataloader": {
        "type": "dynamic",
        "segment_multiple": 8,
        "overlong": "split",
        "prefetch": 0,
      },
      "get_batch": {
        "reset_position_ids": True,
        "context_parallel_layout": leg.layout,
      },
    }
  )


@pytest.fixture(scope="module")
def configure(tmp_path_factory):
  """A function (pipeline, leg) -> configuration; data are written once."""
  root = tmp_path_factory.mktemp("data")
  written = {}

  def make(name, leg, *, num_workers=0):
    folder = root / name
    folder.mkdir(exist_ok=True)
    if name == "packed_documents":
      return packed_documents(folder, leg)
    if name in CORPORA:
      recipe = CORPORA[name]
      if name not in written:
        written[name] = write_sources(recipe, folder)
      return make_config(recipe, leg, written[name], first_row=0)
    recipe, config = ONLINE[name]
    if name not in written:
      written[name] = Data(recipe, folder)
    return make_online_config(
      recipe, config, leg, written[name], num_workers=num_workers
    )

  return make


def read(config, leg):
  """The loader, its first batches as host arrays, and the state after them."""
  mesh = shard.make_mesh(tuple(leg.sizes), leg.sizes)
  loader = hpgrain.build(config, mesh).train
  with contextlib.closing(iter(loader)) as iterator:
    batches = [
      {name: np.asarray(values) for name, values in batch.items()}
      for batch in itertools.islice(iterator, STEPS)
    ]
    state = json.loads(json.dumps(iterator.get_state()))
  return loader, batches, state


@pytest.fixture(scope="module")
def contiguous(configure):
  """A function pipeline -> its batches where no row is split."""
  made = {}

  def get(name):
    if name not in made:
      leg = leg_of(WHOLE, "contiguous")
      made[name] = read(configure(name, leg), leg)
    return made[name]

  return get


def check(configure, contiguous, name, leg, **options):
  """Compares a leg's batches with those of a mesh that splits no row."""
  _, wanted, state = contiguous(name)
  loader, batches, reached = read(configure(name, leg, **options), leg)
  context = loader.context_layout
  assert (context.name, context.num_ranks) == (leg.layout, leg.sizes["cp"])
  # Where it stands does not depend on the layout either.
  assert reached["rows"] == state["rows"]
  assert reached["fingerprint"] == state["fingerprint"]
  moved = False
  assert len(batches) == len(wanted) == STEPS
  for slots, want in zip(batches, wanted, strict=True):
    width, length = (b["input_ids"].shape[1] for b in (want, slots))
    assert length % leg.position_multiple == 0
    assert 0 <= length - width < leg.position_multiple
    positions = np.broadcast_to(
      positions_of(slots["segment_ids"], context), (ROWS, length)
    )
    order = np.argsort(positions, axis=1)
    assert slots.keys() == want.keys()
    for field, values in slots.items():
      rows = np.take_along_axis(values, order, axis=1)
      np.testing.assert_array_equal(rows[:, :width], want[field], field)
      moved = moved or not np.array_equal(rows, values)
      # What the mesh asks for is padding.
      if field != "position_ids":
        padding = -100 if field == "labels" else 0
        assert (rows[:, width:] == padding).all()
  assert moved == (leg.layout != "contiguous")


@pytest.mark.parametrize(("name", "layout"), CASES)
def test_slices_put_together_are_the_contiguous_batch(
  configure, contiguous, name, layout
):
  for mesh in MESHES:
    check(configure, contiguous, name, leg_of(mesh, layout))


def test_workers_make_the_same(configure, contiguous):
  # Three have streams of some rows each, of others none.
  leg = leg_of(MESHES[1], "document_zigzag")
  check(configure, contiguous, "streams", leg, num_workers=3)


def test_the_data_has_what_is_to_be_checked(contiguous):
  """Rows of padding, gaps, several documents, and weights of 0."""
  for name in ("ending", "ending_streams"):
    batches = contiguous(name)[1]
    assert all((b["segment_ids"] > 0).any() for b in batches)
  for name in ("plans", "streams", "packed_documents"):
    segments = np.concatenate([b["segment_ids"] for b in contiguous(name)[1]])
    assert segments.max() > 1
    gaps = (segments[:, :-1] == 0) & (segments[:, 1:] > 0)
    assert gaps.any()
  widths = {b["input_ids"].shape[1] for b in contiguous("own_row")[1]}
  assert widths <= {8, 24} and 24 in widths
