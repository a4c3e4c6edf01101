"""Rows tokenized while training are a function of data, config and seed alone.

Hypothesis draws what decides the rows (`Recipe`) and what must not (`Leg`),
and every field of every row is compared with the slow reference's.
"""

import dataclasses
import json
import tempfile
from pathlib import Path

import grain
import hypothesis
import numpy as np
import pytest
from hypothesis import given, reject
from online_cases import build_cases, cases
from online_data import SourceRecipe
from online_recipes import Data, Leg, NoRows, Recipe
from promise import Leg as MeshLeg
from promise_build import Config, check_build, make_config
from promise_online import check
from reference_online import Transform
from reference_packers import Packing

from hpgrain import build, hand_over, shard


def check_case(case):
  recipe, chosen = case
  with tempfile.TemporaryDirectory() as folder:
    try:
      check(recipe, chosen, Path(folder))
    except NoRows:
      reject()


def check_build_case(case):
  with tempfile.TemporaryDirectory() as folder:
    try:
      check_build(*case, Path(folder))
    except NoRows:
      reject()


def prove(examples, strategy, check_one):
  scale = hypothesis.settings.default.max_examples / 15
  count = hypothesis.settings(max_examples=max(1, int(examples * scale)))
  count(given(strategy)(check_one))()


def test_rows_of_plans_are_the_reference_s():
  prove(35, cases(mode="plans"), check_case)


def test_rows_of_streams_are_the_reference_s():
  prove(35, cases(mode="streams"), check_case)


@pytest.mark.parametrize("mode", ["plans", "streams"])
def test_batches_of_a_configuration_are_the_reference_s(mode):
  prove(15, build_cases(mode=mode), check_build_case)


# A blend that ends with the first of its sources.
SOURCES = (
  SourceRecipe("plaintext", 1, 30, form="json_lines", weight=2.0),
  SourceRecipe("plaintext", 2, 12, form="parquet", weight=1.0),
)
PLANS = Recipe(
  mode="plans",
  transform=Transform("plaintext", max_seq_len=8),
  sources=SOURCES,
  packing=Packing(budget=16),
  plan_window=20,
  epochs=3,
)
STREAMS = dataclasses.replace(
  PLANS,
  mode="streams",
  packing=Packing(budget=16, pack_window=6),
  num_streams=3,
  buffer=5,
)
LEG = MeshLeg(
  axes=(("data", 2), ("cp", 2), ("tp", 2)), batch_size=4, num_batches=2
)


@pytest.mark.parametrize("recipe", [PLANS, STREAMS], ids=["plans", "streams"])
def test_workers_come_and_go(recipe, tmp_path):
  # More of them than there are streams.
  recipe = dataclasses.replace(recipe, num_streams=1)
  config = Config(by_number=recipe.mode == "plans", num_workers=(2, 0))
  assert check_build(recipe, config, [LEG] * 2, tmp_path) == 4


class HostBatches(grain.IterDataset):
  """A loader's batches as host arrays, which Grain's check compares."""

  def __init__(self, loader):
    super().__init__()
    self._loader = loader

  def __iter__(self):
    return _HostIterator(iter(self._loader))


class _HostIterator(grain.DatasetIterator):
  def __next__(self):
    return {name: np.asarray(a) for name, a in next(self._parent).items()}

  def get_state(self):
    return json.loads(json.dumps(self._parent.get_state()))

  def set_state(self, state):
    self._parent.set_state(state)


@pytest.mark.parametrize("recipe", [PLANS, STREAMS], ids=["plans", "streams"])
def test_a_loader_goes_on_from_each_of_its_states(recipe, tmp_path):
  data = Data(recipe, tmp_path)
  config = Config(by_number=recipe.mode == "plans")
  mesh = shard.make_mesh(tuple(LEG.sizes), LEG.sizes)
  loader = build(make_config(recipe, config, LEG, data), mesh).train
  grain.experimental.assert_equal_output_after_checkpoint(HostBatches(loader))


def test_streams_whose_records_wait_in_a_file(tmp_path, monkeypatch):
  """Every other stream gets long records, which wait for the others' rows."""
  recipe = dataclasses.replace(
    STREAMS,
    transform=Transform("pretokenized", max_seq_len=16),
    sources=(
      SourceRecipe("pretokenized", 1, 3000, max_size=2, weight=1.0),
      SourceRecipe("pretokenized", 2, 3000, max_size=90, weight=1.0),
    ),
    num_streams=64,
    epochs=None,
    buffer=100,
  )
  handed_over = []
  put = hand_over.HandOver.put

  def spied(self, tokens, waiting):
    handed_over.append(self)
    return put(self, tokens, waiting)

  monkeypatch.setattr(hand_over.HandOver, "put", spied)
  leg = Leg(batch_size=48, num_batches=2, handover_bytes=20_000)
  other = Leg(
    batch_size=20,
    num_batches=3,
    row_parts=2,
    owners=(0, 1),
    handover_bytes=0,
  )
  assert check(recipe, [leg, other, leg], tmp_path) == 7
  spilled = [held.spilled_bytes for held in dict.fromkeys(handed_over)]
  assert len(spilled) == 4
  assert all(spilled)
