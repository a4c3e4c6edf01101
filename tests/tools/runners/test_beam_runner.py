import subprocess
import sys

import pytest

from hpgrain.tools.runners.beam_runner import complete_options

OURS = ["--direct_running_mode=multi_processing", "--direct_num_workers=3"]


@pytest.mark.parametrize(
  ("given", "complete", "local"),
  [
    ([], ["--runner=DirectRunner", *OURS], True),
    (["--runner=direct"], ["--runner=direct", *OURS], True),
    (
      ["--runner", "DirectRunner", "--x"],
      ["--runner", "DirectRunner", "--x", *OURS],
      True,
    ),
    (
      ["--direct_num_workers=1"],
      ["--direct_num_workers=1", "--runner=DirectRunner"],
      True,
    ),
    (["--runner=FlinkRunner"], ["--runner=FlinkRunner"], False),
    (["--runner", "DataflowRunner"], ["--runner", "DataflowRunner"], False),
  ],
)
def test_beam_runs_on_this_machine_unless_told_otherwise(
  given, complete, local
):
  assert complete_options(given, workers=3) == (complete, local)


# As the local runner of Beam raises it, in a thread that nobody waits for.
_DEATH = """
import functools, pathlib, sys, threading, time
from hpgrain.tools.runners import beam_pipeline
def die():
  raise RuntimeError(f"Worker subprocess exited with return code {sys.argv[2]}")
threading.excepthook = functools.partial(
  beam_pipeline._on_error_in_thread, pathlib.Path(sys.argv[1])
)
other = threading.Thread(target=lambda: 1 / 0)
other.start()
other.join()
threading.Thread(target=die).start()
time.sleep(60)
"""


def test_a_worker_that_died_ends_the_pipeline(tmp_path):
  pytest.importorskip("apache_beam", reason="hpgrain[beam] is not installed")
  said = tmp_path / "said"
  done = subprocess.run(
    [sys.executable, "-c", _DEATH, said, "137"],
    capture_output=True,
    text=True,
    check=False,
    timeout=55,
  )
  assert done.returncode == 1
  # Other errors are not hidden.
  assert "ZeroDivisionError" in done.stderr
  assert said.read_text() == (
    "A worker process was killed by SIGKILL. The kernel does that when memory"
    " runs out: see dmesg, and take fewer --workers."
  )
