import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_DRIVER = Path(__file__).with_name("random_kills.py")


def kill_at_random(folder, tokenizer, **numbers):
  done = subprocess.run(
    [sys.executable, _DRIVER, folder, tokenizer, *map(str, numbers.values())],
    capture_output=True,
    text=True,
    check=False,
    env={**os.environ, "TOKENIZERS_PARALLELISM": "false"},
  )
  assert done.returncode == 0, done.stderr[-3000:]
  return json.loads(done.stdout.splitlines()[-1])


def test_a_few_random_kills_lose_nothing_and_repeat_nothing(
  tmp_path, word_folder
):
  counts = kill_at_random(tmp_path, word_folder, kills=4, seed=1, records=300)
  assert counts["kills"] >= 4
  assert counts["outputs"] >= 1


@pytest.mark.skipif(
  os.environ.get("HPGRAIN_TEST_LARGE") != "1",
  reason="200 kills take minutes; HPGRAIN_TEST_LARGE=1 runs them",
)
def test_two_hundred_random_kills(tmp_path, word_folder):
  counts = kill_at_random(
    tmp_path, word_folder, kills=200, seed=0, records=3000
  )
  assert counts["kills"] >= 200
  # Each way to die, in each phase, was tried a few times.
  for how in ("one", "all", "worker"):
    assert counts[f"killed {how}, at any time"] > 10
  assert counts["killed one, late"] > 5
