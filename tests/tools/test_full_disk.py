import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_DRIVER = Path(__file__).with_name("full_disk.py")


def may_mount(folder):
  if shutil.which("unshare") is None:
    return False
  command = ["unshare", "-rm", "mount", "-t", "tmpfs", "x", folder]
  return not subprocess.run(
    command, capture_output=True, check=False
  ).returncode


def test_a_real_full_disk_is_told_and_gone_on_from(tmp_path, word_folder):
  if not may_mount(tmp_path):
    pytest.skip("mounting a small tmpfs in a namespace is not allowed here")
  done = subprocess.run(
    ["unshare", "-rm", sys.executable, _DRIVER, tmp_path, word_folder],
    capture_output=True,
    text=True,
    check=False,
    timeout=300,
    env={**os.environ, "TOKENIZERS_PARALLELISM": "false"},
  )
  assert done.returncode == 0, done.stderr[-3000:]
  finished = list(json.loads(done.stdout.splitlines()[-1]).values())
  # It was full at different moments: once with no unit, twice with all.
  assert finished[0] < finished[1] < finished[2] == finished[3]
