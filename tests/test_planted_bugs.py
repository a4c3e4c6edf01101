"""Bugs planted in hpgrain: the promise's own test must find every one.

Each is a mistake that a loader can easily have. It is planted by replacing
one function, and the very property of `test_promise` is run, with the number
of examples it has there.
"""

import dataclasses

import hypothesis
import jax
import numpy as np
import pytest
import test_promise
from promise import Leg, Mismatch, Recipe, SourceRecipe, check

from hpgrain import (
  buckets,
  documents_order,
  fingerprint,
  gather,
  loader,
  shard,
  slices,
  stable_order,
)
from hpgrain.records import PAD_ID


def rows_by_process_index(monkeypatch):
  """A process takes the next rows in order of its index, not of its mesh."""
  batch_layout = shard.batch_layout

  def planted(sharding, **arguments):
    layout = batch_layout(sharding, **arguments)
    blocks = sorted({part.rows for part in layout.shards})
    height = blocks[0][1] - blocks[0][0]
    first = jax.process_index() * len(blocks) * height
    moved = {}
    for i, block in enumerate(blocks):
      begin = (first + i * height) % layout.shape[0]
      moved[block] = (begin, begin + height)
    shards = [
      dataclasses.replace(part, rows=moved[part.rows]) for part in layout.shards
    ]
    return dataclasses.replace(layout, shards=tuple(shards))

  monkeypatch.setattr(shard, "batch_layout", planted)


def window_one_short(monkeypatch):
  """The token after a window, its last position's label, is not read."""
  read_rows = gather.read_rows

  def planted(plans, *, columns, **arguments):
    begin, end = columns
    short = read_rows(plans, columns=(begin, end - 1), **arguments)
    return np.pad(short, ((0, 0), (0, 1)), constant_values=PAD_ID)

  monkeypatch.setattr(gather, "read_rows", planted)


def boundary_one_off(monkeypatch):
  """Documents begin one position later than they do."""
  segments = gather.segments

  def planted(plans):
    made = segments(plans)
    later = np.where(made.starts > 0, made.starts + 1, 0)
    return dataclasses.replace(made, starts=later)

  monkeypatch.setattr(gather, "segments", planted)


def epoch_left_out_of_the_key(monkeypatch):
  """Every epoch has the order of the first."""
  permutation_key = stable_order.permutation_key

  def planted(seed, name, epoch):
    del epoch
    return permutation_key(seed, name, 0)

  for order in (stable_order, documents_order):
    monkeypatch.setattr(order, "permutation_key", planted)


def state_one_batch_ahead(monkeypatch):
  """The state is that of the batch made last, not of the one handed out."""
  get_state = loader.LoaderIterator.get_state

  def planted(self):
    state = get_state(self)
    return {**state, "rows": state["rows"] + self._spec.layout.shape[0]}

  monkeypatch.setattr(loader.LoaderIterator, "get_state", planted)


def bucket_left_out_of_the_key(monkeypatch):
  """All buckets of a source have the same order."""
  bucket_key = buckets._key

  def planted(seed, name, epoch, bucket):
    del bucket
    return bucket_key(seed, name, epoch, 0)

  monkeypatch.setattr(buckets, "_key", planted)


def order_of_the_last_start(monkeypatch):
  """Megatron's order is made for what this start asks for."""

  def planted(self, saved):
    del self, saved

  monkeypatch.setattr(loader.LoaderIterator, "_adopt", planted)
  monkeypatch.setattr(fingerprint, "check", lambda *_: None)


def layout_ignored_for_segments(monkeypatch):
  """Tokens are permuted, and the segments of the row's order kept."""
  fields = slices.Slices.fields

  def planted(self, window):
    made = fields(self, window)
    return {**made, "segment_ids": self._make(window)["segment_ids"]}

  monkeypatch.setattr(slices.Slices, "fields", planted)


def window_of_another_rank(monkeypatch):
  """A device gets the slots of the next one."""
  fields = slices.Slices.fields

  def planted(self, window):
    begin, end = window
    size = self._num_positions
    moved = begin + (end - begin) * (end < size) - begin * (end == size)
    return fields(self, (moved, moved + end - begin))

  monkeypatch.setattr(slices.Slices, "fields", planted)


def labels_shifted_after_the_layout(monkeypatch):
  """The label of a slot is the next slot's id, not the next position's."""
  fields = slices.Slices.fields

  def planted(self, window):
    made = fields(self, window)
    kept = made["labels"][:, :-1] >= 0
    after = made["input_ids"][:, 1:]
    made["labels"][:, :-1] = np.where(kept, after, made["labels"][:, :-1])
    return made

  monkeypatch.setattr(slices.Slices, "fields", planted)


# Of every pipeline; `test_planted_online` plants them in packed rows.
OF_LAYOUTS = (
  layout_ignored_for_segments,
  window_of_another_rank,
  labels_shifted_after_the_layout,
)
PLANTED = (
  rows_by_process_index,
  window_one_short,
  boundary_one_off,
  epoch_left_out_of_the_key,
  state_one_batch_ahead,
  bucket_left_out_of_the_key,
  order_of_the_last_start,
  *OF_LAYOUTS,
)
# Which of the properties is to find them, if not that of plain documents.
OPTIONS = {order_of_the_last_start: {"order": "megatron", "blend": "weights"}}


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_the_promise_s_test_finds(plant, monkeypatch):
  plant(monkeypatch)
  # As in test_promise, but that the first example found is enough.
  prove = hypothesis.settings(
    phases=(hypothesis.Phase.generate,),
    report_multiple_bugs=False,
    database=None,
  )(
    hypothesis.given(
      test_promise.cases(kind="gpt", ends="never", **OPTIONS.get(plant, {}))
    )(test_promise.check_case)
  )
  with pytest.raises(Mismatch, match="leg"):
    prove()


# One small run for each bug, so that a find does not hang on the examples.
RECIPE = Recipe(
  kind="gpt", sources=(SourceRecipe(seed=1, rows=5, slack=3),), seq_length=8
)
RECIPES = {
  bucket_left_out_of_the_key: dataclasses.replace(RECIPE, data_sharding=2),
  order_of_the_last_start: dataclasses.replace(
    RECIPE, order="megatron", sampler_type="cyclic"
  ),
}
RUN = (
  Leg(
    axes=(("data", 2), ("cp", 2), ("tp", 2)),
    batch_size=4,
    num_batches=2,
    # The process of index 0 holds the last rows.
    processes=(1, 1, 1, 1, 0, 0, 0, 0),
    layout="zigzag",
    train_iters=5,
  ),
  Leg(
    axes=(("data", 4), ("cp", 2)),
    batch_size=4,
    num_batches=2,
    layout="striped",
    train_iters=1,
  ),
)


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_small_run_finds_it_and_passes_without_it(plant, tmp_path):
  recipe = RECIPES.get(plant, RECIPE)
  with pytest.MonkeyPatch.context() as patch:
    plant(patch)
    with pytest.raises(Mismatch, match="leg"):
      check(recipe, RUN, tmp_path)
  assert check(recipe, RUN, tmp_path) == 4
