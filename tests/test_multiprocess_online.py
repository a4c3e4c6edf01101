"""Real JAX processes, 1, 2 and 4 of them, whose data is tokenized meanwhile.

Every pipeline's batches are the slow reference's under each number, and what
two processes saved goes on under one and four, on another mesh.
"""

import itertools
from pathlib import Path

import numpy as np
import pytest
from online_data import SourceRecipe
from online_recipes import Data, Recipe, expected_fields
from promise import Leg
from promise_build import (
  Config,
  expected_plans,
  expected_streams,
  make_config,
)
from reference_online import Plans, Streams, Transform
from reference_packers import Packing
from test_multiprocess import _assert_equal, _batches, _numbers, _run

_ROWS, _POSITIONS = 8, 16
_COUNTS = (1, 2, 4)
_SAVED, _STEPS = 3, 3

_TEXT = Transform("plaintext", max_seq_len=8)
_IDS = Transform("pretokenized", max_seq_len=16)

# A blend of plans without an end; streams without one, of which no number
# divides a batch's rows; and streams that end, some earlier than others.
_PIPELINES = {
  "plans": (
    Recipe(
      mode="plans",
      transform=_TEXT,
      sources=(
        SourceRecipe("plaintext", 1, 70, form="json_lines", weight=3),
        SourceRecipe("plaintext", 2, 11, form="parquet", weight=0.5),
      ),
      packing=Packing(budget=_POSITIONS),
      plan_window=40,
    ),
    Config(),
  ),
  "streams": (
    Recipe(
      mode="streams",
      transform=_TEXT,
      sources=(
        SourceRecipe("plaintext", 3, 90, form="json_lines_gz", weight=1),
        SourceRecipe("plaintext", 4, 40, form="csv", weight=2),
      ),
      packing=Packing(budget=_POSITIONS, pack_window=5),
      num_streams=12,
      buffer=7,
    ),
    Config(by_number=False),
  ),
  "ending": (
    Recipe(
      mode="streams",
      transform=_IDS,
      sources=(SourceRecipe("pretokenized", 5, 150, form="arrow"),),
      packing=Packing(budget=_POSITIONS, packer="first_fit", min_buffered=3),
      num_streams=6,
      shuffle=False,
      epochs=1,
    ),
    Config(by_number=False),
  ),
}

# Devices are numbered by process, so the outermost axes lie across processes.
_MESHES = {
  "data_across": (("data", "cp", "tp"), (4, 1, 2)),
  "cp_across": (("cp", "data", "tp"), (2, 2, 2)),
}


def _leg(mesh, prefetch=2):
  axes, sizes = _MESHES[mesh]
  return Leg(
    axes=tuple(zip(axes, sizes, strict=True)),
    batch_size=_ROWS,
    num_batches=0,
    prefetch=prefetch,
  )


def _tasks(datas, folder, count):
  tasks = []
  for name, (recipe, config) in _PIPELINES.items():

    def task(run, of, mesh, *, name=name, recipe=recipe, config=config):
      axes, sizes = _MESHES[mesh]
      made = make_config(recipe, config, _leg(mesh), datas[name]).to_dict()
      # The worker makes the mesh.
      del made["mesh"]
      return {
        "run": run,
        "name": f"{name}_{of}",
        "config": made,
        "split": "train",
        "axes": axes,
        "sizes": sizes,
        "folder": str(folder / name),
      }

    steps = {} if recipe.epochs else {"steps": _STEPS}
    tasks += [{**task("batches", mesh, mesh), **steps} for mesh in _MESHES]
    if count == 2:
      saved = task("save", "save", "data_across")
      tasks.append({**saved, "before": _SAVED, "steps": _STEPS})
    else:
      tasks.append({**task("restore", "restore", "cp_across"), "steps": _STEPS})
  return tasks


@pytest.fixture(scope="module")
def datas(tmp_path_factory):
  root = tmp_path_factory.mktemp("records")
  return {
    name: Data(recipe, root / name) for name, (recipe, _) in _PIPELINES.items()
  }


@pytest.fixture(scope="module")
def runs(datas, tmp_path_factory):
  root: Path = tmp_path_factory.mktemp("runs")
  for count in (2, 1, 4):
    _run(_tasks(datas, root / "saved", count), count, root / str(count))
  return {count: root / str(count) for count in _COUNTS}


def _expected(datas, name):
  """(fields, rows consumed) of every batch from the first on."""
  recipe, config = _PIPELINES[name]
  order = datas[name].order()
  if recipe.mode == "plans":
    rows = Plans(order, recipe.packing, plan_window=recipe.plan_window)
    batches = expected_plans(recipe, config, rows, 0, _ROWS)
  else:
    rows = Streams(order, recipe.packing, num_streams=recipe.num_streams)
    endless = recipe.epochs is None
    batches = expected_streams(rows, 0, _ROWS, endless)
  for chosen, after in batches:
    yield expected_fields(recipe, chosen, _POSITIONS), after


@pytest.mark.parametrize("count", _COUNTS)
@pytest.mark.parametrize("mesh", _MESHES)
@pytest.mark.parametrize("name", _PIPELINES)
def test_global_arrays_are_the_reference_s(runs, datas, name, mesh, count):
  steps = None if _PIPELINES[name][0].epochs else _STEPS
  expected = list(itertools.islice(_expected(datas, name), steps))
  found = _batches(runs[count], f"{name}_{mesh}", count)
  _assert_equal(found, [fields for fields, _ in expected])
  # All processes end at one step.
  for numbers in _numbers(runs[count], f"{name}_{mesh}", count):
    assert numbers["steps"] == len(expected)
    assert numbers["rows"] == [0, *(after for _, after in expected)]


def test_streams_end_at_steps_of_their_own(datas):
  """Else the end would be told by any one process."""
  last = list(_expected(datas, "ending"))[-1][0]
  filled = last["segment_ids"].any(axis=1)
  assert filled.any() and not filled.all()


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("name", _PIPELINES)
def test_what_two_processes_saved_goes_on_under_another_number(
  runs, datas, name, count
):
  expected = itertools.islice(_expected(datas, name), _SAVED, _SAVED + _STEPS)
  wanted = [fields for fields, _ in expected]
  assert len(wanted) == _STEPS
  assert any((fields["segment_ids"] > 0).any() for fields in wanted)
  # What the two read on after they had begun to save is what others read.
  _assert_equal(_batches(runs[2], f"{name}_save", 2), wanted)
  _assert_equal(_batches(runs[count], f"{name}_restore", count), wanted)
  for numbers in _numbers(runs[count], f"{name}_restore", count):
    assert numbers["rows"] == _SAVED * _ROWS
  assert np.all([batch["loss_mask"].dtype == np.float32 for batch in wanted])
