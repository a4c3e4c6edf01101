import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_DRIVER = Path(__file__).with_name("crash_driver.py")


_LARGE = pytest.mark.skipif(
  os.environ.get("HPGRAIN_TEST_LARGE") != "1",
  reason="takes its time; HPGRAIN_TEST_LARGE=1 runs it",
)


@pytest.mark.parametrize(
  ("mode", "layout"),
  [
    ("kill", "packed"),
    ("kill", "replaced"),
    ("full", "dealt"),
    pytest.param("kill", "dealt", marks=_LARGE),
    pytest.param("kill", "in_another_folder", marks=_LARGE),
    pytest.param("full", "packed", marks=_LARGE),
    pytest.param("full", "replaced", marks=_LARGE),
    pytest.param("full", "in_another_folder", marks=_LARGE),
  ],
)
def test_no_place_to_fail_at_leaves_a_half_pair_or_loses_work(
  tmp_path, bpe_folder, mode, layout
):
  done = subprocess.run(
    [sys.executable, _DRIVER, tmp_path, bpe_folder, mode, layout],
    capture_output=True,
    text=True,
    check=False,
    env={**os.environ, "TOKENIZERS_PARALLELISM": "false"},
  )
  assert done.returncode == 0, done.stderr[-3000:]
  kinds, unseen = json.loads(done.stdout.splitlines()[-1])
  # Only locks are opened for writing in another way; and the .idx, which is
  # locked first and then written through a file that is seen.
  assert {name.split("_document.")[-1] for name in unseen} == {
    "lock",
    "idx.partial",
  }
  least = {"write": 10, "fsync": 10}
  if mode == "kill":
    least |= {"rename": 8, "remove": 8, "rmdir": 1, "mkdir": 1}
  else:
    least |= {"create": 8, "mkdir": 1}
  assert all(kinds[kind] >= count for kind, count in least.items()), kinds
