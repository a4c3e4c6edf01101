"""One of several JAX processes: runs a plan of tasks, leaves what it saw.

python multiprocess_worker.py PLAN.json PROCESS_ID

The plan names the coordinator, the number of processes, and tasks that every
process runs in the same order. What a process's devices hold goes to
`{out}/{task}_{process}.npz`, numbers to `.json` beside it.
"""

import json
import os
import random
import sys
import threading
import time
from pathlib import Path

_PLAN = json.loads(Path(sys.argv[1]).read_text())
_PROCESS = int(sys.argv[2])
_NUM_PROCESSES = _PLAN["num_processes"]
_OUT = Path(_PLAN["out"])

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = (
  f"--xla_force_host_platform_device_count={8 // _NUM_PROCESSES}"
)

import jax  # noqa: E402
import numpy as np  # noqa: E402
import orbax.checkpoint as ocp  # noqa: E402

from hpgrain import _kernels, build, shard  # noqa: E402
from hpgrain.checkpoint import CheckpointRestore, CheckpointSave  # noqa: E402
from hpgrain.loader import Loader  # noqa: E402


def _mesh(task):
  axes = tuple(task["axes"])
  mesh = shard.make_mesh(axes, dict(zip(axes, task["sizes"])))
  if task.get("explicit"):
    types = (jax.sharding.AxisType.Explicit,) * len(axes)
    mesh = jax.sharding.Mesh(mesh.devices, axes, axis_types=types)
  return mesh


def _loader(task, mesh):
  import ml_collections as mlc

  return getattr(build(mlc.ConfigDict(task["config"]), mesh), task["split"])


def _save(task, arrays, numbers):
  np.savez(_OUT / f"{task['name']}_{_PROCESS}.npz", **arrays)
  path = _OUT / f"{task['name']}_{_PROCESS}.json"
  path.write_text(json.dumps(numbers))


def _held(batch, step, arrays):
  """Notes what each local device holds: step|field|rows|window|device."""
  for name, array in batch.items():
    for held in array.addressable_shards:
      spans = [
        ":".join(map(str, index.indices(size)[:2]))
        for index, size in zip(held.index, array.shape)
      ]
      key = "|".join([str(step), name, *spans, str(held.device.id)])
      arrays[key] = np.asarray(held.data)


def run_batches(task):
  """Reads some batches; notes them, the bytes gathered, and the state."""
  loader = _loader(task, _mesh(task))
  iterator = iter(loader)
  arrays, states = {}, [iterator.get_state()["rows"]]
  _kernels.reset_gathered_bytes()
  steps = 0
  for batch in iterator:
    _held(batch, steps, arrays)
    states.append(iterator.get_state()["rows"])
    steps += 1
    if steps == task.get("steps"):
      break
  iterator.close()
  # Whatever was prefetched has been read too; a second, exact count.
  iterator = iter(Loader(loader.spec, prefetch=0))
  _kernels.reset_gathered_bytes()
  next(iterator)
  gathered = _kernels.gathered_bytes()
  iterator.close()
  _save(
    task,
    arrays,
    {
      "steps": steps,
      "num_steps": loader.num_steps,
      "rows": states,
      "gathered": gathered,
    },
  )


def run_save(task):
  """Saves model and data, asynchronously, and goes on reading."""
  mesh = _mesh(task)
  iterator = iter(_loader(task, mesh))
  replicated = jax.NamedSharding(mesh, jax.P())
  model = jax.jit(lambda: jax.numpy.arange(4.0), out_shardings=replicated)()
  arrays = {}
  with ocp.CheckpointManager(task["folder"]) as manager:
    for _ in range(task["before"]):
      next(iterator)
    manager.save(
      1,
      args=ocp.args.Composite(
        model=ocp.args.StandardSave({"w": model}), data=CheckpointSave(iterator)
      ),
    )
    for step in range(task["steps"]):
      _held(next(iterator), step, arrays)
  _save(task, arrays, {"rows": iterator.rows})
  iterator.close()


def run_restore(task):
  """Restores another run's data and reads on."""
  iterator = iter(_loader(task, _mesh(task)))
  with ocp.CheckpointManager(task["folder"]) as manager:
    manager.restore(
      1, args=ocp.args.Composite(data=CheckpointRestore(iterator))
    )
  restored = iterator.rows
  arrays = {}
  for step in range(task["steps"]):
    _held(next(iterator), step, arrays)
  _save(task, arrays, {"rows": restored})
  iterator.close()


def run_tokens(task):
  """Counts the tokens that this process makes of records for some batches."""
  from hpgrain.transforms.plaintext import PlaintextTransform
  from hpgrain.transforms.pretokenized import PretokenizedTransform

  loader = _loader(task, _mesh(task))
  if hasattr(loader.samples, "measure"):
    # What is measured once before the first batch is not meant.
    loader.samples.measure()
  made = []

  def counted(transform):
    def call(self, records, place):
      examples = transform(self, records, place)
      made.append(len(examples.input_ids))
      return examples

    return call

  kinds = (PlaintextTransform, PretokenizedTransform)
  before = [kind.__call__ for kind in kinds]
  try:
    for kind in kinds:
      kind.__call__ = counted(kind.__call__)
    # Not what is made ahead.
    iterator = iter(loader)
    for _ in range(task["steps"]):
      next(iterator)
    stats = iterator.stats()
    iterator.close()
  finally:
    for kind, call in zip(kinds, before):
      kind.__call__ = call
  _save(task, {}, {"tokens": sum(made), "stats": stats})


def run_digests(task):
  """Digests batches as `launch/train.py` does, and notes what is held."""
  sys.path.append(str(Path(__file__).parent.parent / "launch"))
  import digests

  loader = _loader(task, _mesh(task))
  log = digests.DigestLog(_OUT / f"{task['name']}_digests.jsonl")
  iterator = iter(Loader(loader.spec, prefetch=0))
  arrays = {}
  _kernels.reset_gathered_bytes()
  for step in range(task["steps"]):
    first_row = iterator.rows
    batch = next(iterator)
    _held(batch, step, arrays)
    layout = loader.context_layout
    log.append(batch, step=step + 1, first_row=first_row, layout=layout)
  gathered = _kernels.gathered_bytes()
  iterator.close()
  log.close()
  _save(task, arrays, {"gathered": gathered})


def run_sleeps(task):
  """Steps with a collective each, while every thread dawdles at random."""
  mesh = _mesh(task)
  loader = _loader(task, mesh)
  samples = loader.samples
  rng = random.Random(_PROCESS)
  plan_rows, read = samples.plan_rows, samples.read
  threads = set()

  def dawdle(function):
    def slow(*arguments):
      threads.add(threading.get_ident())
      time.sleep(rng.random() * task["sleep"])
      return function(*arguments)

    return slow

  samples.plan_rows, samples.read = dawdle(plan_rows), dawdle(read)
  total = jax.jit(
    jax.shard_map(
      lambda x: jax.lax.psum(x.sum(), mesh.axis_names),
      mesh=mesh,
      in_specs=loader.spec.layout.sharding.spec,
      out_specs=jax.P(),
      # Replicas over tp add up too, on purpose.
      check_vma=False,
    )
  )
  sums = []
  iterator = iter(loader)
  for step in range(task["steps"]):
    batch = next(iterator)
    time.sleep(random.random() * task["sleep"])
    sums.append(float(total(batch["loss_mask"])))
    if step % 10 == 0:
      json.dumps(iterator.get_state())
  iterator.close()
  _save(
    task,
    {"sums": np.array(sums)},
    {"other_threads": len(threads - {threading.get_ident()})},
  )


_RUNS = {
  "batches": run_batches,
  "save": run_save,
  "restore": run_restore,
  "digests": run_digests,
  "tokens": run_tokens,
  "sleeps": run_sleeps,
}


def main():
  if _NUM_PROCESSES > 1:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
      f"127.0.0.1:{_PLAN['port']}",
      num_processes=_NUM_PROCESSES,
      process_id=_PROCESS,
      heartbeat_timeout_seconds=10,
    )
  assert jax.process_count() == _NUM_PROCESSES
  assert len(jax.devices()) == 8
  for task in _PLAN["tasks"]:
    _RUNS[task["run"]](task)


if __name__ == "__main__":
  main()
