"""Real JAX processes, 1, 2 and 4 of them, under each context-parallel layout.

What their devices hold is, in the layout's order, what one process reads whose
mesh splits no row, and so are the digests. What two processes saved under one
layout goes on under others.
"""

import contextlib
import dataclasses
import itertools
import json
import random
import sys
from pathlib import Path

import ml_collections as mlc
import numpy as np
import pytest
import reference_layouts
from corpora import random_documents, write_pair
from online_data import SourceRecipe
from online_recipes import Data, Recipe
from promise import Leg
from promise_build import Config, make_config
from reference_online import Transform
from reference_packers import Packing
from test_multiprocess import _assert_equal, _batches, _numbers, _run

from hpgrain import build, shard

sys.path.insert(0, str(Path(__file__).parent.parent / "launch"))

import digests

_ROWS, _POSITIONS, _MULTIPLE = 8, 16, 8
_COUNTS = (1, 2, 4)
_SAVED, _STEPS = 2, 2

_PLANS = Recipe(
  mode="plans",
  transform=Transform("pretokenized", max_seq_len=14),
  sources=(
    SourceRecipe("pretokenized", 1, 70, form="json_lines", weight=3),
    SourceRecipe("pretokenized", 2, 30, form="parquet", weight=1),
  ),
  packing=Packing(budget=_POSITIONS, segment_multiple=_MULTIPLE),
  plan_window=40,
  reset_position_ids=True,
)
_ONLINE = {
  "plans": (_PLANS, Config()),
  "streams": (
    dataclasses.replace(
      _PLANS,
      mode="streams",
      packing=dataclasses.replace(_PLANS.packing, pack_window=5),
      num_streams=12,
      buffer=7,
      eod_mask_loss=True,
    ),
    Config(by_number=False),
  ),
}

# Devices are numbered by process, so the outermost axes lie across processes.
_MESHES = {
  "cp_across": (("cp", "data", "tp"), (4, 2, 1)),
  "data_across": (("data", "cp", "tp"), (4, 2, 1)),
  # Positions are split over (cp, tp).
  "sequence": (("cp", "tp", "data"), (2, 2, 2)),
}
# (pipeline, layout, mesh)
_CASES = (
  ("cut", "contiguous", "sequence"),
  ("cut", "zigzag", "cp_across"),
  ("cut", "zigzag", "sequence"),
  ("cut", "striped", "data_across"),
  ("packed", "document_zigzag", "cp_across"),
  ("packed", "zigzag", "data_across"),
  ("plans", "document_zigzag", "sequence"),
  ("plans", "striped", "cp_across"),
  ("streams", "document_zigzag", "data_across"),
  ("streams", "zigzag", "cp_across"),
  ("streams", "striped", "sequence"),
)
_PIPELINES = ("cut", "packed", "plans", "streams")
# Saved by two processes, and restored under others: (layout, mesh).
_SAVE = ("zigzag", "data_across")
_RESTORE = {
  "cut": ("striped", "cp_across"),
  "packed": ("document_zigzag", "sequence"),
  "plans": ("document_zigzag", "cp_across"),
  "streams": ("striped", "cp_across"),
}


def _config(datas, pipeline, layout, mesh):
  """The configuration, but for the axes of the mesh."""
  if pipeline in _ONLINE:
    recipe, config = _ONLINE[pipeline]
    leg = Leg(
      axes=(("data", 8), ("cp", 1)),
      batch_size=_ROWS,
      num_batches=0,
      layout=layout,
    )
    made = make_config(recipe, config, leg, datas[pipeline]).to_dict()
  else:
    data = {"seq_length": _POSITIONS, "vocab_size": 100, "eod_id": 0}
    made = {
      "training": {"global_batch_size": _ROWS, "seed": 11},
      "dataset": {"train_data_path": datas["corpus"], "data_config": data},
      "get_batch": {
        "reset_position_ids": pipeline == "packed",
        "context_parallel_layout": layout,
      },
    }
    if pipeline == "packed":
      made["dataloader"] = {
        "type": "dynamic",
        "segment_multiple": _MULTIPLE,
        "overlong": "split",
      }
  made["mesh"] = {"sequence_parallel": mesh == "sequence"}
  return made


def _tasks(datas, folder, count):
  def task(run, name, pipeline, layout, mesh):
    axes, sizes = _MESHES[mesh]
    return {
      "run": run,
      "name": name,
      "config": _config(datas, pipeline, layout, mesh),
      "split": "train",
      "axes": axes,
      "sizes": sizes,
      "steps": _STEPS,
      "folder": str(folder / pipeline),
    }

  tasks = [task("digests", "-".join(case), *case) for case in _CASES]
  for name in _PIPELINES:
    if count == 2:
      saved = task("save", f"{name}_save", name, *_SAVE)
      tasks.append({**saved, "before": _SAVED})
    else:
      tasks.append(task("restore", f"{name}_restore", name, *_RESTORE[name]))
  return tasks


@pytest.fixture(scope="module")
def datas(tmp_path_factory):
  root = tmp_path_factory.mktemp("data")
  documents = random_documents(
    random.Random(4), num_documents=150, max_length=24
  )
  made = {name: Data(r, root / name) for name, (r, _) in _ONLINE.items()}
  return {"corpus": write_pair(root / "a", documents), **made}


@pytest.fixture(scope="module")
def runs(datas, tmp_path_factory):
  """The folders of what the processes of each run saw, by their number."""
  root: Path = tmp_path_factory.mktemp("runs")
  for count in (2, 1, 4):
    _run(_tasks(datas, root / "saved", count), count, root / str(count))
  return {count: root / str(count) for count in _COUNTS}


@pytest.fixture(scope="module")
def rows(datas):
  """Batches of each pipeline in this process, on a mesh that splits no row."""
  mesh = shard.make_mesh(("data", "cp"), {"data": 8, "cp": 1})
  made = {}
  for name in _PIPELINES:
    config = _config(datas, name, "contiguous", "data_across")
    loader = build(mlc.ConfigDict(config), mesh).train
    with contextlib.closing(iter(loader)) as iterator:
      made[name] = [
        {field: np.asarray(values) for field, values in batch.items()}
        for batch in itertools.islice(iterator, _SAVED + _STEPS)
      ]
  return made


def _in_slots(batches, layout, mesh):
  axes, sizes = _MESHES[mesh]
  ranks = dict(zip(axes, sizes, strict=True))["cp"]
  return [
    reference_layouts.in_slots(fields, layout, ranks, multiple=_MULTIPLE)
    for fields in batches
  ]


@pytest.mark.parametrize("count", _COUNTS)
@pytest.mark.parametrize("case", _CASES, ids="-".join)
def test_devices_hold_the_rows_in_the_layout_s_order(runs, rows, case, count):
  pipeline, layout, mesh = case
  wanted = rows[pipeline][:_STEPS]
  found = _batches(runs[count], "-".join(case), count)
  slots = _in_slots(wanted, layout, mesh)
  _assert_equal(found, slots)
  moved = any((a["labels"] != b["labels"]).any() for a, b in zip(found, wanted))
  assert moved == (layout != "contiguous")


@pytest.mark.parametrize("count", _COUNTS)
@pytest.mark.parametrize("case", _CASES, ids="-".join)
def test_digests_are_those_of_whole_rows(runs, rows, case, count):
  lines = (runs[count] / f"{'-'.join(case)}_digests.jsonl").read_text()
  expected = [
    digests.digest_batch(fields, step=step + 1, first_row=step * _ROWS)
    for step, fields in enumerate(rows[case[0]][:_STEPS])
  ]
  assert [json.loads(line) for line in lines.splitlines()] == expected


def test_the_rows_are_worth_comparing(rows):
  for name in _PIPELINES:
    segments = np.concatenate([b["segment_ids"] for b in rows[name]])
    assert segments.max() > 1
    if name != "cut":
      # A gap before a document, and padding at a row's end.
      assert ((segments[:, :-1] == 0) & (segments[:, 1:] > 0)).any()
      assert (segments[:, -1] == 0).any()


@pytest.mark.parametrize("count", _COUNTS)
def test_a_process_reads_the_chunks_of_its_ranks(runs, count):
  # Four ranks, two data shards of 4 rows each in every process; chunks of 2.
  numbers = _numbers(runs[count], "cut-zigzag-cp_across", count)
  ranks = 4 // count
  for process, found in enumerate(numbers):
    windows = 1 if (process + 1) * ranks == 4 else 2
    tokens = _ROWS * (ranks * 4 + windows)
    assert found["gathered"] == _STEPS * tokens * 2, process
  numbers = _numbers(runs[count], "packed-document_zigzag-cp_across", count)
  bytes_read = [found["gathered"] for found in numbers]
  (whole,) = [
    found["gathered"]
    for found in _numbers(runs[1], "packed-document_zigzag-cp_across", 1)
  ]
  if count == 1:
    assert bytes_read == [whole]
  else:
    # A quarter of each document, or half of it, and a label of each chunk.
    assert all(found < whole for found in bytes_read)
    assert whole <= sum(bytes_read) <= 2 * whole


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("name", _PIPELINES)
def test_what_two_processes_saved_goes_on_under_another_layout(
  runs, rows, name, count
):
  wanted = rows[name][_SAVED:]
  assert len(wanted) == _STEPS
  # What the two read on after they had begun to save is what others read.
  _assert_equal(_batches(runs[2], f"{name}_save", 2), _in_slots(wanted, *_SAVE))
  found = _batches(runs[count], f"{name}_restore", count)
  _assert_equal(found, _in_slots(wanted, *_RESTORE[name]))
  for numbers in _numbers(runs[count], f"{name}_restore", count):
    assert numbers["rows"] == _SAVED * _ROWS
