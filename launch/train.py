r"""Trains a small transformer on the batches of a config's pipeline.

Commands to run:

python launch/train.py --config=configs/quickstart.py --workdir=/tmp/hpgrain

the same again goes on where a killed run was, on another mesh if you like:

python launch/train.py --config=configs/quickstart.py --workdir=/tmp/hpgrain \
    --config.mesh.data=2 --config.mesh.cp=2 --config.mesh.tp=2

two processes, each in a shell of its own with --process_id=0 and 1:

python launch/train.py --config=configs/quickstart.py --workdir=/tmp/hpgrain \
    --coordinator_address=127.0.0.1:9911 --num_processes=2 --process_id=0
"""

from collections.abc import Sequence

import jax
import machines
import run_folder
import step_times
import trainer
from absl import app, flags, logging
from ml_collections import config_flags
from progress import say

from hpgrain import shard
from hpgrain.config import with_workdir
from hpgrain.tools import embedded_example

_CONFIG = config_flags.DEFINE_config_file(
  "config",
  None,
  "The experiment: a file of configs/, with an argument after a colon where"
  " it takes one. Any key can be set after it, such as"
  " --config.training.train_iters=3.",
  lock_config=True,
)
_WORKDIR = flags.DEFINE_string(
  "workdir",
  None,
  "Folder of this run and of no other at the same time: checkpoints/,"
  " metrics.jsonl, and data/ where the config prepares its own. If it has a"
  " checkpoint, the run goes on from there.",
)
_COORDINATOR = flags.DEFINE_string(
  "coordinator_address",
  None,
  "host:port on which process 0 listens, to train in several processes; goes"
  " with --num_processes and --process_id.",
)
_NUM_PROCESSES = flags.DEFINE_integer(
  "num_processes", None, "How many processes train together."
)
_PROCESS_ID = flags.DEFINE_integer(
  "process_id", None, "Which of them this one is, from 0."
)
_DISTRIBUTED = flags.DEFINE_bool(
  "distributed",
  False,
  "Find the other processes through the cluster (Cloud TPU, Slurm, Open MPI)"
  " instead of the three flags above.",
)
_CONNECT_TIMEOUT = flags.DEFINE_integer(
  "connect_timeout",
  300,
  "Seconds that the processes wait for each other when they start.",
  lower_bound=1,
)
_SIMULATE_DEVICES = flags.DEFINE_integer(
  "simulate_devices",
  None,
  "CPU devices of this process. Unset: as many as the sizes of config.mesh ask"
  " for, so a mesh can be tried without its machines.",
)
_LOG_DIGESTS = flags.DEFINE_bool(
  "log_batch_digest",
  False,
  "Write a digest of every batch, read back from the devices, to"
  " digests.jsonl in the workdir, and to the log. Two runs got the same rows"
  " if `python launch/digests.py A B` says so, whatever their meshes.",
)
_PROFILE = flags.DEFINE_string(
  "profile",
  None,
  "Folder for the time of every stage of every step, as JSON and a picture"
  " (needs the extra `plots`): plan (which pieces), read (tokens and fields),"
  " place (on devices), all behind the run, then wait (for the batch) and step."
  " Each step is then waited for, which costs a little speed.",
)


def main(argv: Sequence[str]) -> None:
  """Connects, prepares, trains."""
  if len(argv) > 1:
    raise app.UsageError(f"Flags only, got {argv[1:]}.")
  if not flags.FLAGS["verbosity"].present:
    # Orbax says a page of INFO a checkpoint; --verbosity=0 shows it.
    logging.set_verbosity(logging.WARNING)
  workdir = run_folder.resolve(_WORKDIR.value)
  config = with_workdir(_CONFIG.value, str(workdir))
  times = step_times.StepTimes(_PROFILE.value) if _PROFILE.value else None
  machines.start(
    config.mesh,
    coordinator_address=_COORDINATOR.value,
    num_processes=_NUM_PROCESSES.value,
    process_id=_PROCESS_ID.value,
    cluster=_DISTRIBUTED.value,
    connect_timeout=_CONNECT_TIMEOUT.value,
    simulate_devices=_SIMULATE_DEVICES.value,
  )
  mesh = shard.make_mesh(
    config.mesh.axes, {axis: config.mesh[axis] for axis in config.mesh.axes}
  )
  sizes = " x ".join(f"{axis} {size}" for axis, size in mesh.shape.items())
  say(
    f"mesh {sizes} on {mesh.devices.flat[0].platform} devices,"
    f" {jax.process_count()} process(es); workdir {workdir}"
  )
  with machines.leave_together():
    run_folder.make(workdir)
    if jax.process_index() == 0:
      run_folder.lock(workdir)
    if config.prepare == "embedded_example":
      # Every process may ask; one does it, under a lock.
      embedded_example.prepare(str(workdir / "data"))
    trainer.train(
      config,
      mesh=mesh,
      workdir=workdir,
      log_digests=_LOG_DIGESTS.value,
      times=times,
    )


if __name__ == "__main__":
  jax.config.config_with_absl()
  flags.mark_flags_as_required(["config", "workdir"])
  app.run(main)
