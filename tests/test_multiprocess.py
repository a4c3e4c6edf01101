"""Real JAX processes on this machine: 1, 2 and 4 of them, 8 devices in all."""

import contextlib
import itertools
import json
import os
import random
import socket
import subprocess
import sys
import time
from pathlib import Path

import ml_collections as mlc
import numpy as np
import pytest
import reference
from corpora import random_documents, write_pair

from hpgrain import build, shard

_WORKER = Path(__file__).parent / "multiprocess_worker.py"
_SEQ_LENGTH, _ROWS, _SEED = 16, 8, 11
_COUNTS = (1, 2, 4)
_STEPS = 3
_TIMEOUT = 150

# Devices are numbered by process, so the outermost axes lie across processes.
_MESHES = {
  "data_across": (("data", "cp", "tp"), (4, 2, 1)),
  "cp_across": (("cp", "data", "tp"), (4, 2, 1)),
  "tp_across": (("tp", "data", "cp"), (4, 2, 1)),
  "all_across": (("data", "cp", "tp"), (2, 2, 2)),
  "cp_and_tp_across": (("tp", "cp", "data"), (2, 2, 2)),
}


def _config(prefix, *, dataloader=None, path=None, training=None, **data):
  return {
    "training": {
      "global_batch_size": _ROWS,
      "seed": _SEED,
      **(training or {}),
    },
    "dataset": {
      "data_path": path or prefix,
      "data_config": {"seq_length": _SEQ_LENGTH, "split": "8,2,0", **data},
    },
    "dataloader": dataloader or {},
  }


def _indexed(prefix, order, folder=None):
  """A configuration whose rows need an index."""
  training = {"train_iters": _STEPS}
  if order == "megatron":
    training["train_samples"] = 100
  options = {"order": order}
  if folder is not None:
    options["data_cache_path"] = str(folder)
  return _config(prefix, training=training, **options)


def _tasks(prefix, folder, count):
  """What each process of a run of `count` does, in order."""
  data, cp = ("data", "cp", "tp"), ("cp", "data", "tp")
  common = {"config": _config(prefix), "split": "train", "steps": _STEPS}
  tasks = [
    {"run": "batches", "name": name, "axes": axes, "sizes": sizes, **common}
    for name, (axes, sizes) in _MESHES.items()
  ]
  # The end of finite data, both ways; valid pads.
  for name, split, dataloader in (
    ("drop", "train", {"epochs": 1}),
    ("pad", "train", {"epochs": 1, "end_of_data": "pad"}),
    ("valid", "valid", {}),
  ):
    tasks.append(
      {
        "run": "batches",
        "name": name,
        "split": split,
        "axes": data,
        "sizes": (4, 2, 1),
        "config": _config(prefix, dataloader=dataloader),
      }
    )
  # All processes build the same indices at once, in one folder.
  for order in ("megatron", "documents"):
    tasks.append(
      {
        "run": "batches",
        "name": order,
        "split": "train",
        "steps": _STEPS,
        "axes": cp,
        "sizes": (2, 4, 1),
        "config": _indexed(prefix, order, folder.parent / f"index_{count}"),
      }
    )
  saved = {"folder": str(folder), "axes": data, "sizes": (4, 1, 2), **common}
  if count == 2:
    tasks.append({"run": "save", "name": "save", "before": 5, **saved})
  else:
    other = {"axes": cp, "sizes": (2, 4, 1)}
    tasks.append({"run": "restore", "name": "restore", **saved, **other})
  if count == 4:
    sleeps = {"axes": data, "sizes": (2, 2, 2), "steps": 200, "sleep": 0.002}
    tasks.append({"run": "sleeps", "name": "sleeps", **common, **sleeps})
  return tasks


def _free_port():
  with socket.socket() as found:
    found.bind(("127.0.0.1", 0))
    return found.getsockname()[1]


def _run(tasks, count, out):
  """Runs `count` processes to their end; none is left behind."""
  out.mkdir()
  plan = out / "plan.json"
  plan.write_text(
    json.dumps(
      {
        "num_processes": count,
        "port": _free_port(),
        "out": str(out),
        "tasks": tasks,
      }
    )
  )
  environment = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(sys.path),
    "TF_CPP_MIN_LOG_LEVEL": "2",
  }
  logs = [out / f"log_{i}.txt" for i in range(count)]
  with contextlib.ExitStack() as stack:
    workers = [
      subprocess.Popen(
        [sys.executable, str(_WORKER), str(plan), str(i)],
        stdout=stack.enter_context(log.open("w")),
        stderr=subprocess.STDOUT,
        env=environment,
      )
      for i, log in enumerate(logs)
    ]
    end = time.monotonic() + _TIMEOUT
    try:
      for worker in workers:
        worker.wait(max(end - time.monotonic(), 0.1))
    except subprocess.TimeoutExpired:
      pass
    finally:
      codes = [worker.poll() for worker in workers]
      for worker in workers:
        if worker.poll() is None:
          worker.kill()
          worker.wait()
  if any(codes):
    said = "\n".join(f"{log.name}: {log.read_text()[-3000:]}" for log in logs)
    raise AssertionError(f"exit codes {codes} (None: it hung)\n{said}")
  if None in codes:
    raise AssertionError(f"{codes}: a process hung for {_TIMEOUT} s")


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
  rng = random.Random(4)
  documents = random_documents(rng, num_documents=120, max_length=30)
  return write_pair(tmp_path_factory.mktemp("corpus") / "a", documents)


@pytest.fixture(scope="module")
def runs(prefix, tmp_path_factory):
  """The folders of what the processes of each run saw, by their number."""
  root = tmp_path_factory.mktemp("runs")
  folder = root / "checkpoints"
  # Two processes save what one and four restore.
  for count in (2, 1, 4):
    _run(_tasks(prefix, folder, count), count, root / str(count))
  return {count: root / str(count) for count in _COUNTS}


def _numbers(out, name, count):
  return [
    json.loads((out / f"{name}_{i}.json").read_text()) for i in range(count)
  ]


def _batches(out, name, count):
  """Puts the processes' pieces together; they must cover it, and agree."""
  batches, cover, devices = {}, {}, {}
  for process in range(count):
    with np.load(out / f"{name}_{process}.npz") as arrays:
      for key, values in arrays.items():
        step, field, rows, window, device = key.split("|")
        place = int(step), field
        if place not in batches:
          batches[place] = np.zeros((_ROWS, _SEQ_LENGTH), values.dtype)
          cover[place] = np.zeros((_ROWS, _SEQ_LENGTH), bool)
          devices[place] = set()
        span = tuple(
          slice(*map(int, text.split(":"))) for text in (rows, window)
        )
        held = batches[place][span]
        known = cover[place][span]
        assert (held[known] == values[known]).all(), "replicas differ"
        batches[place][span] = values
        cover[place][span] = True
        devices[place].add(int(device))
  assert all(covered.all() for covered in cover.values())
  assert all(len(held) == 8 for held in devices.values())
  steps = 1 + max((step for step, _ in batches), default=-1)
  fields = {field for _, field in batches}
  return [{f: batches[s, f] for f in fields} for s in range(steps)]


def _expected(prefix, split="train", **options):
  index = ("train", "valid").index(split)
  corpus = reference.read_corpus(prefix)
  source = reference.GPT(
    corpus,
    seq_length=_SEQ_LENGTH,
    seed=_SEED,
    name="a",
    bounds=reference.split_bounds("8,2,0", len(corpus.sequences))[index],
    shuffle=split == "train",
  )
  return reference.batches(
    source,
    fields=reference.Fields(_SEQ_LENGTH),
    batch_size=_ROWS,
    **options,
  )


def _assert_equal(found, expected):
  assert len(found) == len(expected)
  for one, other in zip(found, expected):
    assert one.keys() == other.keys()
    for name in one:
      assert one[name].dtype == other[name].dtype
      np.testing.assert_array_equal(one[name], other[name], err_msg=name)


@pytest.mark.parametrize("count", _COUNTS)
@pytest.mark.parametrize("name", _MESHES)
def test_global_arrays_are_those_of_one_process(runs, prefix, name, count):
  found = _batches(runs[count], name, count)
  wanted = itertools.islice(_expected(prefix), _STEPS)
  _assert_equal(found, [batch for _, batch in wanted])
  # And those of the loader in this very process.
  mesh = shard.make_mesh(("data", "cp", "tp"), {"data": 8, "cp": 1, "tp": 1})
  loader = build(mlc.ConfigDict(_config(prefix)), mesh).train
  with contextlib.closing(iter(loader)) as iterator:
    here = [
      {field: np.asarray(values) for field, values in batch.items()}
      for batch in itertools.islice(iterator, _STEPS)
    ]
  _assert_equal(found, here)


@pytest.mark.parametrize("count", _COUNTS)
@pytest.mark.parametrize("name", _MESHES)
def test_a_process_reads_what_its_devices_hold(runs, name, count):
  axes, sizes = _MESHES[name]
  grid = np.arange(8).reshape(sizes)
  order = [axes.index(axis) for axis in ("data", "cp", "tp")]
  grid = grid.transpose(order)
  num_data, num_cp, _ = grid.shape
  rows, positions = _ROWS // num_data, _SEQ_LENGTH // num_cp
  for process, numbers in enumerate(_numbers(runs[count], name, count)):
    mine = grid // (8 // count) == process
    # Rectangles this process has a device of, replicas counted once.
    rectangles = int(mine.any(axis=2).sum())
    expected = rectangles * rows * (positions + 1) * 2
    assert numbers["gathered"] == expected, process


@pytest.mark.parametrize("count", _COUNTS)
@pytest.mark.parametrize("name", ["drop", "pad", "valid"])
def test_data_end_at_the_same_step_everywhere(runs, prefix, name, count):
  split = "valid" if name == "valid" else "train"
  end_of_data = "drop" if name == "drop" else "pad"
  expected = list(_expected(prefix, split, epochs=1, end_of_data=end_of_data))
  for numbers in _numbers(runs[count], name, count):
    assert numbers["steps"] == numbers["num_steps"] == len(expected)
    assert numbers["rows"] == [0, *(rows for rows, _ in expected)]
  found = _batches(runs[count], name, count)
  _assert_equal(found, [batch for _, batch in expected])
  # The last batch is not full, so that the ways differ.
  last, before = expected[-1][0], expected[-2][0]
  assert (last - before < _ROWS) == (end_of_data == "pad")


@pytest.mark.parametrize("count", [1, 4])
def test_a_checkpoint_of_two_processes_restores_under_another_number(
  runs, prefix, count
):
  wanted = [
    batch
    for _, batch in itertools.islice(
      _expected(prefix, start_row=5 * _ROWS), _STEPS
    )
  ]
  # What the two read on after they had begun to save ...
  _assert_equal(_batches(runs[2], "save", 2), wanted)
  # ... is what others read after restoring it.
  for numbers in _numbers(runs[count], "restore", count):
    assert numbers["rows"] == 5 * _ROWS
  _assert_equal(_batches(runs[count], "restore", count), wanted)


@pytest.mark.parametrize("count", _COUNTS)
@pytest.mark.parametrize("order", ["megatron", "documents"])
def test_processes_that_build_an_index_at_once_read_the_same_rows(
  runs, prefix, order, count
):
  mesh = shard.make_mesh(("data", "cp", "tp"), {"data": 8, "cp": 1, "tp": 1})
  loader = build(mlc.ConfigDict(_indexed(prefix, order)), mesh).train
  with contextlib.closing(iter(loader)) as iterator:
    here = [
      {field: np.asarray(values) for field, values in batch.items()}
      for batch in itertools.islice(iterator, _STEPS)
    ]
  _assert_equal(_batches(runs[count], order, count), here)


@pytest.mark.parametrize("count", _COUNTS)
def test_one_file_of_each_index_is_left(runs, count):
  folder = runs[count].parent / f"index_{count}"
  kinds = sorted(path.name.rsplit("-", 1)[0] for path in folder.iterdir())
  assert [kind for kind in kinds if kind.startswith("epoch")] == [
    "epoch_documents",
    "epoch_samples",
  ]
  assert [kind for kind in kinds if not kind.startswith("epoch")] == [
    "documents",
    "samples",
    "shuffle",
  ]


def test_each_process_writes_its_part(runs):
  folder = runs[2].parent / "checkpoints" / "1" / "data"
  parts = sorted(path.name for path in folder.glob("part_*"))
  assert parts == ["part_0_of_2.json", "part_1_of_2.json"]
  assert (folder / "data_manifest.json").exists()


def test_threads_that_dawdle_hang_no_process(runs, prefix):
  expected = [
    float(batch["loss_mask"].sum())
    for _, batch in itertools.islice(_expected(prefix), 200)
  ]
  for process, numbers in enumerate(_numbers(runs[4], "sleeps", 4)):
    with np.load(runs[4] / f"sleeps_{process}.npz") as arrays:
      # Both tp replicas of every position were added.
      assert (arrays["sums"] / 2).tolist() == expected
    assert numbers["other_threads"] == 1
