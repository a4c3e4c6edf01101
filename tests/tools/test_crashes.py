import os
import subprocess
import sys
from pathlib import Path

import pytest

_DRIVER = Path(__file__).with_name("crash_driver.py")


@pytest.mark.parametrize(("mode", "least"), [("kill", 60), ("full", 40)])
def test_no_place_to_fail_at_leaves_a_half_pair_or_loses_work(
  tmp_path, bpe_folder, mode, least
):
  done = subprocess.run(
    [sys.executable, _DRIVER, tmp_path, bpe_folder, mode],
    capture_output=True,
    text=True,
    check=False,
    env={**os.environ, "TOKENIZERS_PARALLELISM": "false"},
  )
  assert done.returncode == 0, done.stderr[-3000:]
  assert int(done.stdout.splitlines()[-1]) >= least
