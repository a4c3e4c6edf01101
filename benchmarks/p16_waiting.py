"""P16: the share of a training step spent waiting for data.

Runs launch/train.py on the quick start's config, as its reader would, with
`--profile`: the loader's own counters, step by step.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import common
import numpy as np

_ROOT = Path(__file__).resolve().parent.parent
_WORK = "waiting for data in the quick start's training loop"
_LIMIT = 0.01


def measure(folder: Path, options: argparse.Namespace) -> Iterator[common.Row]:
  """Yields the wait over the step, the first step left out."""
  command = [
    sys.executable,
    str(_ROOT / "launch" / "train.py"),
    f"--config={_ROOT / 'configs' / 'quickstart.py'}",
    f"--workdir={folder / 'run'}",
    f"--profile={folder / 'profile'}",
    f"--config.training.train_iters={options.steps}",
    "--config.training.eval_interval=0",
    "--config.training.eval_iters=0",
    "--config.training.checkpoint_interval=0",
  ]
  done = subprocess.run(
    command, cwd=_ROOT, capture_output=True, text=True, check=False
  )
  if done.returncode:
    raise RuntimeError(f"launch/train.py failed:\n{done.stderr[-3000:]}")
  profile = json.loads((folder / "profile" / "step_times_0.json").read_text())
  seconds = {
    stage: np.array(values[1:]) for stage, values in profile["seconds"].items()
  }
  wait, step = seconds["wait"], seconds["step"]
  share = float(wait.sum() / (wait.sum() + step.sum()))
  behind = sum(seconds[name].mean() for name in ("plan", "read", "place"))
  yield common.Row(
    "P16",
    f"{_WORK}, {len(wait)} steps",
    f"wait {common.microseconds(wait.mean())} a step",
    f"step {common.microseconds(step.mean())}; plan + read + place behind it"
    f" {common.microseconds(behind)}",
    f"{share:.2%}",
    f"<= {_LIMIT:.0%}",
    share <= _LIMIT,
  )


if __name__ == "__main__":
  common.run(measure, steps=100)
