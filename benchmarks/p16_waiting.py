"""P16: the share of a training step spent waiting for data.

Runs launch/train.py on configs of ours, as their readers would, with
`--profile`: the loader's own counters, step by step. Of the quick start, whose
corpora are tokenized already, and of text that is tokenized while training,
read by number and in turn.
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
# Config -> what it is in the table.
_RUNS = {
  "quickstart": "the quick start",
  "online_mapping_dynamic": "text tokenized meanwhile, by number, packed",
  "online_iterable_dynamic": "text tokenized meanwhile, in turn, packed",
}
_LIMIT = 0.01


def _run(
  folder: Path, config: str, work: str, options: argparse.Namespace
) -> common.Row:
  """Returns the wait over the step, the first step left out."""
  command = [
    sys.executable,
    str(_ROOT / "launch" / "train.py"),
    f"--config={_ROOT / 'configs' / config}.py",
    f"--workdir={folder / config}",
    f"--profile={folder / config / 'profile'}",
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
  profile = folder / config / "profile" / "step_times_0.json"
  seconds = {
    stage: np.array(values[1:])
    for stage, values in json.loads(profile.read_text())["seconds"].items()
  }
  wait, step = seconds["wait"], seconds["step"]
  share = float(wait.sum() / (wait.sum() + step.sum()))
  behind = sum(seconds[name].mean() for name in ("plan", "read", "place"))
  return common.Row(
    "P16",
    f"waiting for data in the training loop, {work}, {len(wait)} steps",
    f"wait {common.microseconds(wait.mean())} a step",
    f"step {common.microseconds(step.mean())}; plan + read + place behind it"
    f" {common.microseconds(behind)}",
    f"{share:.2%}",
    f"<= {_LIMIT:.0%}",
    share <= _LIMIT,
  )


def measure(folder: Path, options: argparse.Namespace) -> Iterator[common.Row]:
  """Yields each config's."""
  for config, work in _RUNS.items():
    if not options.config or config == options.config:
      yield _run(folder, config, work, options)


if __name__ == "__main__":
  common.run(measure, steps=100, config="")
