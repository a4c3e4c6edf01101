"""Starts launch/train.py as a user would, and reads what it leaves."""

import dataclasses
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import corpora
import pytest

ROOT = Path(__file__).parent.parent
ROWS = 8
STEPS = 80

CONFIG = """
from hpgrain.config import base_config


def get_config():
  config = base_config()
  config.dataset.data_path = (
    *(0.7, "{workdir}/../a"), *(0.3, "{workdir}/../b"),
  )
  config.dataset.data_config.update(
    seq_length=16, vocab_size=128, split="80,20,0"
  )
  config.training.update(
    global_batch_size=ROWS, train_iters=STEPS, log_interval=1,
    checkpoint_interval=3, eval_iters=0,
  )
  config.mesh.update(data=4, cp=2)
  config.model.update(layers=1, width=16, heads=2)
  config.optimizer.learning_rate = 1e-2
  return config
"""


def make_folder(path: Path) -> Path:
  """Writes two corpora and a config; runs add their workdirs and a cache."""
  rng = random.Random(0)
  for name in "ab":
    documents = corpora.random_documents(
      rng, num_documents=120, max_length=40, vocab_size=128
    )
    corpora.write_pair(path / name, documents)
  text = CONFIG.replace("ROWS", str(ROWS)).replace("STEPS", str(STEPS))
  (path / "config.py").write_text(text)
  return path


@dataclasses.dataclass
class Run:
  """One start of launch/train.py, in one process or several."""

  workdir: Path
  processes: list[subprocess.Popen]
  outputs: list[Path]

  def output(self, process: int = 0) -> str:
    return self.outputs[process].read_text()

  def wait(self, *, timeout: float = 240) -> list[int]:
    """Waits for the end; returns the exit codes."""
    end = time.monotonic() + timeout
    try:
      return [
        process.wait(max(0.1, end - time.monotonic()))
        for process in self.processes
      ]
    except subprocess.TimeoutExpired:
      self.kill()
      pytest.fail(f"still running after {timeout} s:\n{self.output()}")

  def kill(self) -> None:
    """Kills all processes at once, as a machine that goes away does."""
    for process in self.processes:
      process.send_signal(signal.SIGKILL)
    for process in self.processes:
      process.wait()

  def wait_until(self, reached: Callable[[], bool]) -> bool:
    """Waits for a moment; False if the run ended before it."""
    end = time.monotonic() + 240
    while not reached():
      if any(process.poll() is not None for process in self.processes):
        return False
      if time.monotonic() > end:
        self.kill()
        pytest.fail(f"nothing happened:\n{self.output()}")
      time.sleep(0.002)
    return True


def start(
  folder: Path,
  name: str,
  *flags: str,
  num_processes: int = 1,
  program: Sequence[str] = ("launch/train.py",),
  config: Path | None = None,
) -> Run:
  """Starts a run of a config, or the folder's, in a workdir of that name."""
  workdir = folder / name
  workdir.mkdir(exist_ok=True)
  env = os.environ | {
    "JAX_PLATFORMS": "cpu",
    "JAX_COMPILATION_CACHE_DIR": str(folder / "cache"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
  }
  # Says how well to compile, for runs so short, and not how many devices there
  # are: the trainer is to find that out by itself.
  env["XLA_FLAGS"] = " ".join(
    ("--xla_backend_optimization_level=0",
     "--xla_llvm_disable_expensive_passes=true")
  )  # fmt: skip
  command = [
    *(sys.executable, *program),
    f"--config={config or folder / 'config.py'}",
    f"--workdir={workdir}",
    "--log_batch_digest",
    *flags,
  ]
  address = f"127.0.0.1:{_free_port()}"
  processes, outputs = [], []
  for process in range(num_processes):
    more = [
      f"--coordinator_address={address}",
      f"--num_processes={num_processes}",
      f"--process_id={process}",
    ]
    outputs.append(workdir / f"output_{process}.txt")
    with outputs[-1].open("w") as output:
      processes.append(
        subprocess.Popen(
          command + (more if num_processes > 1 else []),
          cwd=ROOT,
          env=env,
          stdout=output,
          stderr=subprocess.STDOUT,
        )
      )
  return Run(workdir, processes, outputs)


def finish(
  folder: Path,
  name: str,
  *flags: str,
  num_processes: int = 1,
  config: Path | None = None,
) -> Run:
  """Runs to the end and expects success."""
  run = start(folder, name, *flags, num_processes=num_processes, config=config)
  codes = run.wait()
  assert codes == [0] * num_processes, run.output()
  return run


def _free_port() -> int:
  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    return free.getsockname()[1]


def read_lines(path: Path) -> list[dict]:
  """Reads whole lines; one that is being written does not count."""
  if not path.exists():
    return []
  text = path.read_text()
  return [json.loads(line) for line in text[: text.rfind("\n") + 1].split("\n")
          if line]  # fmt: skip


def digest_lines(workdir: Path) -> list[dict]:
  return read_lines(workdir / "digests.jsonl")


def rows_of(lines: Sequence[dict]) -> dict[int, str]:
  """Row number -> digest; a row that comes again must be the same."""
  rows: dict[int, str] = {}
  for line in lines:
    assert line["rows"] == sum(d is not None for d in line["row_digests"])
    for row, digest in enumerate(line["row_digests"], line["first_row"]):
      if digest is None:
        continue
      assert rows.setdefault(row, digest) == digest, (row, line["step"])
  return rows


def losses_of(workdir: Path) -> dict[int, float]:
  """Step -> loss; a step that comes again gives the newest."""
  lines = read_lines(workdir / "metrics.jsonl")
  return {line["step"]: line["loss"] for line in lines if "loss" in line}


def went_on_from(run: Run) -> int:
  found = re.search(r"going on from .*/checkpoints/(\d+),", run.output())
  return int(found[1]) if found else 0
