"""Real JAX processes that need the same rows, and share the making of them.

Their batches are the slow reference's, which `test_multiprocess_online` shows
of one process and of those that make all; each tokenizes its share, and what
was saved in one way goes on in the other, under another number of processes.
"""

import copy
import itertools
import json
import random
from pathlib import Path

import numpy as np
import pytest
import reference
from corpora import random_documents, write_pair
from online_data import SourceRecipe
from online_recipes import Data, Recipe
from promise import Leg
from promise_build import Config, make_config
from reference_online import Transform
from reference_packers import Packing
from test_multiprocess import _assert_equal, _batches, _numbers, _run
from test_multiprocess_online import _PIPELINES, _POSITIONS, _ROWS, _expected

_COUNTS = (4, 2)
_SAVED, _STEPS = 2, 3

# Devices are numbered by process, so the outermost axes lie across processes:
# with two processes the first, with four as many as it takes. (axes, sizes,
# positions over tp too, by number of processes the shares of a row's making).
_MESHES = {
  "cp": (("cp", "data", "tp"), (2, 2, 2), False, {2: 2, 4: 2}),
  "tp": (("tp", "data", "cp"), (4, 2, 1), False, {2: 2, 4: 4}),
  "both": (("tp", "cp", "data"), (2, 2, 2), True, {2: 2, 4: 4}),
}

# Rooms that divide over the ranks of cp, each document in a zigzag.
_ROOMS = Recipe(
  mode="plans",
  transform=Transform("plaintext", max_seq_len=8),
  sources=(SourceRecipe("plaintext", 6, 60, form="json_lines"),),
  packing=Packing(budget=_POSITIONS, segment_multiple=4),
  plan_window=30,
)
_RECIPES = {**_PIPELINES, "rooms": (_ROOMS, Config())}


def _config(recipe, config, data, *, how, sequence_parallel, layout):
  leg = Leg(axes=(), batch_size=_ROWS, num_batches=0)
  made = make_config(recipe, config, leg, data).to_dict()
  # The worker makes the mesh.
  made["mesh"] = {"sequence_parallel": sequence_parallel}
  made["dataloader"]["replica_read"] = how
  made["get_batch"]["context_parallel_layout"] = layout
  return made


def _tasks(datas, prefix, folders, count):
  """What each process does; the first run saves, the second restores."""
  tasks = []

  def add(run, name, mesh, how, *, pipeline, layout="contiguous", **rest):
    axes, sizes, sequence_parallel, _ = _MESHES[mesh]
    if pipeline == "cut":
      config = {
        "training": {"global_batch_size": _ROWS, "seed": 11},
        "mesh": {"sequence_parallel": sequence_parallel},
        "dataset": {
          "data_path": prefix,
          "data_config": {"seq_length": _POSITIONS, "split": "1,0,0"},
        },
        "dataloader": {"replica_read": how},
        "get_batch": {"context_parallel_layout": layout},
      }
    else:
      config = _config(
        *_RECIPES[pipeline],
        datas[pipeline],
        how=how,
        sequence_parallel=sequence_parallel,
        layout=layout,
      )
    tasks.append(
      {
        "run": run,
        "name": name,
        "config": copy.deepcopy(config),
        "split": "train",
        "axes": axes,
        "sizes": sizes,
        **rest,
      }
    )

  for pipeline, (recipe, _) in _PIPELINES.items():
    steps = {} if recipe.epochs else {"steps": _STEPS}
    for mesh in _MESHES:
      add("batches", f"{pipeline}_{mesh}", mesh, "split", pipeline=pipeline)
      # On one of them, axes that are seen in types.
      tasks[-1].update(steps, explicit=mesh == "both")
    for how in ("each", "split"):
      for mesh in ("cp", "tp"):
        name = f"tokens_{pipeline}_{mesh}_{how}"
        add("tokens", name, mesh, how, pipeline=pipeline, steps=_STEPS)
        dataloader = tasks[-1]["config"]["dataloader"]
        dataloader["prefetch"] = 0
        if recipe.mode == "streams":
          # As many to every row of a batch, so that they can be shared out.
          dataloader["num_streams"] = 2 * _ROWS
  for how in ("each", "split"):
    for pipeline, layout in (
      ("cut", "zigzag"),
      ("plans", "zigzag"),
      ("rooms", "document_zigzag"),
    ):
      add(
        "batches",
        f"{layout}_{pipeline}_{how}",
        "cp",
        how,
        pipeline=pipeline,
        layout=layout,
        steps=_STEPS,
      )
  for pipeline, saved_by in itertools.product(_PIPELINES, ("each", "split")):
    common = {
      "pipeline": pipeline,
      "folder": str(folders / f"{pipeline}_{saved_by}"),
      "steps": _STEPS,
    }
    if count == _COUNTS[0]:
      name = f"save_{pipeline}_{saved_by}"
      add("save", name, "both", saved_by, before=_SAVED, **common)
      continue
    for how in ("each", "split"):
      name = f"restore_{pipeline}_{saved_by}_{how}"
      add("restore", name, "cp", how, **common)
  return tasks


@pytest.fixture(scope="module")
def datas(tmp_path_factory):
  root = tmp_path_factory.mktemp("records")
  return {
    name: Data(recipe, root / name) for name, (recipe, _) in _RECIPES.items()
  }


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
  documents = random_documents(
    random.Random(4), num_documents=60, max_length=30
  )
  return write_pair(tmp_path_factory.mktemp("corpus") / "a", documents)


@pytest.fixture(scope="module")
def sources(datas, prefix):
  return datas, prefix


@pytest.fixture(scope="module")
def runs(datas, prefix, tmp_path_factory):
  root: Path = tmp_path_factory.mktemp("runs")
  for count in _COUNTS:
    tasks = _tasks(datas, prefix, root / "saved", count)
    _run(tasks, count, root / str(count))
  return {count: root / str(count) for count in _COUNTS}


@pytest.mark.parametrize("count", _COUNTS)
@pytest.mark.parametrize("mesh", _MESHES)
@pytest.mark.parametrize("name", _PIPELINES)
def test_split_batches_are_the_reference_s(runs, datas, name, mesh, count):
  steps = None if _PIPELINES[name][0].epochs else _STEPS
  expected = list(itertools.islice(_expected(datas, name), steps))
  found = _batches(runs[count], f"{name}_{mesh}", count)
  _assert_equal(found, [fields for fields, _ in expected])
  # All processes end at one step.
  for numbers in _numbers(runs[count], f"{name}_{mesh}", count):
    assert numbers["steps"] == len(expected)
    assert numbers["rows"] == [0, *(after for _, after in expected)]


def _zigzag(fields):
  """Two ranks of cp: the first has the first and the last quarter."""
  quarter = _POSITIONS // 4
  order = np.r_[0:quarter, 3 * quarter : 4 * quarter, quarter : 3 * quarter]
  return {name: values[:, order] for name, values in fields.items()}


@pytest.mark.parametrize("count", _COUNTS)
@pytest.mark.parametrize("how", ["each", "split"])
@pytest.mark.parametrize("name", ["cut", "plans"])
def test_split_rows_are_in_the_order_of_their_layout(
  runs, sources, name, how, count
):
  datas, prefix = sources
  if name == "plans":
    batches = (fields for fields, _ in _expected(datas, name))
  else:
    source = reference.GPT(
      reference.read_corpus(prefix),
      seq_length=_POSITIONS,
      seed=11,
      name="a",
      shuffle=True,
    )
    made = reference.batches(
      source, fields=reference.Fields(_POSITIONS), batch_size=_ROWS
    )
    batches = (fields for _, fields in made)
  wanted = [_zigzag(fields) for fields in itertools.islice(batches, _STEPS)]
  found = _batches(runs[count], f"zigzag_{name}_{how}", count)
  _assert_equal(found, wanted)


@pytest.mark.parametrize("count", _COUNTS)
def test_split_documents_are_in_the_zigzags_that_each_makes(runs, count):
  each, split = (
    _batches(runs[count], f"document_zigzag_rooms_{how}", count)
    for how in ("each", "split")
  )
  assert len(each) == _STEPS
  _assert_equal(split, each)
  # Not in the order of the rows: a document's positions do not ascend.
  positions = each[0]["position_ids"]
  same = each[0]["segment_ids"][:, 1:] == each[0]["segment_ids"][:, :-1]
  assert (np.diff(positions)[same] > 1).any()


@pytest.mark.parametrize("count", _COUNTS)
@pytest.mark.parametrize("mesh", ["cp", "tp"])
@pytest.mark.parametrize("name", _PIPELINES)
def test_each_process_tokenizes_its_share(runs, name, mesh, count):
  shares = _MESHES[mesh][3][count]
  each, split = (
    [
      numbers["tokens"]
      for numbers in _numbers(runs[count], f"tokens_{name}_{mesh}_{how}", count)
    ]
    for how in ("each", "split")
  )
  assert min(each) > 0
  # A little more than that where a record's examples lie in rows of several
  # processes, or less where streams read ahead.
  share = sum(each) / shares
  assert 0.75 * share < sum(split) < 1.2 * share
  assert max(split) < 1.5 * share / count


@pytest.mark.parametrize("count", _COUNTS)
def test_time_of_the_exchange_is_counted(runs, count):
  for how in ("each", "split"):
    for numbers in _numbers(runs[count], f"tokens_plans_cp_{how}", count):
      seconds = numbers["stats"]["exchange_seconds"]
      assert seconds > 0 if how == "split" else seconds == 0


@pytest.mark.parametrize("saved_by", ["each", "split"])
@pytest.mark.parametrize("name", _PIPELINES)
def test_what_one_way_saved_goes_on_in_the_other(runs, datas, name, saved_by):
  saving, restoring = _COUNTS
  expected = itertools.islice(_expected(datas, name), _SAVED, _SAVED + _STEPS)
  wanted = [fields for fields, _ in expected]
  assert any((fields["segment_ids"] > 0).any() for fields in wanted)
  found = _batches(runs[saving], f"save_{name}_{saved_by}", saving)
  _assert_equal(found, wanted)
  for how in ("each", "split"):
    restored = f"restore_{name}_{saved_by}_{how}"
    _assert_equal(_batches(runs[restoring], restored, restoring), wanted)
    for numbers in _numbers(runs[restoring], restored, restoring):
      assert numbers["rows"] == _SAVED * _ROWS


@pytest.mark.parametrize("name", _PIPELINES)
def test_both_ways_save_the_same(runs, name):
  """But that fewer processes save the same stream."""
  states = []
  for how in ("each", "split"):
    folder = runs[_COUNTS[0]].parent / "saved" / f"{name}_{how}" / "1" / "data"
    parts = [
      json.loads((folder / f"part_{i}_of_{_COUNTS[0]}.json").read_text())
      for i in range(_COUNTS[0])
    ]
    state = [part["state"] for part in parts]
    streams = [
      set(entry) for one in state for entry in _streams(one.pop("parts", []))
    ]
    states.append((state, streams))
  (each, all_streams), (split, shared) = states
  assert split == each
  if name != "plans":
    found = [stream for held in shared for stream in held]
    assert set(found) == set().union(*all_streams)
    assert sum(map(len, all_streams)) > len(found)


def _streams(parts):
  return [part["streams"] for part in parts]
