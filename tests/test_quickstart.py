"""The README's main command: it prepares, trains, and really learns."""

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hpgrain import IndexedReader
from hpgrain.index import split_bounds

ROOT = Path(__file__).parent.parent
SHARES = {"library_text_document": 0.7, "tests_text_document": 0.3}


def quickstart(workdir: Path, program: str = "launch/train.py") -> str:
  """Runs the command to its end; returns what it printed."""
  env = os.environ | {"JAX_PLATFORMS": "cpu"}
  # It is to find out by itself how many devices the config needs.
  env.pop("XLA_FLAGS", None)
  done = subprocess.run(
    [
      *(sys.executable, program),
      "--config=configs/quickstart.py",
      f"--workdir={workdir}",
    ],
    cwd=ROOT,
    env=env,
    capture_output=True,
    text=True,
    timeout=900,
    check=False,
  )
  assert done.returncode == 0, done.stdout + done.stderr
  return done.stdout


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
  path = tmp_path_factory.mktemp("quickstart") / "run"
  output = quickstart(path)
  assert "mesh data 4 x cp 2 x tp 1 on cpu devices, 1 process" in output
  assert output.splitlines()[-1].startswith("done: step ")
  return path


def unigram_entropy(data: Path) -> float:
  """Nats a token of valid holds for one who knows the frequencies alone."""
  share = np.zeros(8192)
  for name, weight in SHARES.items():
    reader = IndexedReader(str(data / name))
    begin, end = split_bounds("95, 5, 0", len(reader))[1]
    tokens = np.concatenate(reader[begin:end])
    share += weight * np.bincount(tokens, minlength=8192) / len(tokens)
  share = share[share > 0]
  return float(-(share * np.log(share)).sum())


def valid_loss(workdir: Path) -> float:
  lines = (workdir / "metrics.jsonl").read_text().splitlines()
  losses = [
    line["valid_loss"] for line in map(json.loads, lines)
    if "valid_loss" in line
  ]  # fmt: skip
  return losses[-1]


def learned(workdir: Path) -> bool:
  """Whether valid is half a nat below what frequencies alone give."""
  loss = valid_loss(workdir)
  assert math.isfinite(loss)
  return loss < unigram_entropy(workdir / "data") - 0.5


def test_the_quick_start_learns(workdir):
  assert learned(workdir), valid_loss(workdir)


def test_labels_shifted_once_more_would_not_have_learned(workdir, tmp_path):
  shutil.copytree(workdir / "data", tmp_path / "data")
  quickstart(tmp_path, "tests/shift_labels_again.py")
  assert not learned(tmp_path), valid_loss(tmp_path)


def test_the_quick_start_hardly_waits_for_data(workdir):
  lines = (workdir / "metrics.jsonl").read_text().splitlines()
  shares = [
    line["wait_share"] for line in map(json.loads, lines)
    if "wait_share" in line
  ]  # fmt: skip
  # A machine that does other things too makes a line stand out.
  assert np.median(shares) <= 0.01, shares
