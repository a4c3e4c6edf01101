"""Starts the Beam pipeline that does units, and watches what it does.

  this process   watches the work folder, tells of progress, ends the pipeline
  a process      builds and runs it (`beam_pipeline`); Beam's own processes
                 are its children and end with it

The pipeline has a process of its own since Beam's local runner waits for ever
for a worker that the kernel killed, cannot be interrupted, and says much.
"""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from hpgrain.tools.inputs import Unit
from hpgrain.tools.request import UnitRequest
from hpgrain.tools.runners.job import Job, save_job
from hpgrain.tools.runners.watch import Watch
from hpgrain.tools.units import ReportProgress
from hpgrain.tools.work_folder import WorkFolder

_CODE = "from hpgrain.tools.runners import beam_pipeline; beam_pipeline.main()"
# Beam's name of the runner that needs nothing but this machine.
DIRECT = "DirectRunner"
# For a job on other machines to be cancelled.
_CANCEL_SECONDS = 20


def run_on_beam(
  units: Sequence[tuple[int, Unit]],
  request: UnitRequest,
  *,
  folder: WorkFolder,
  workers: int,
  beam_options: Sequence[str],
  report: ReportProgress,
  finished: Callable[[int, dict[str, Any]], None],
) -> None:
  """Prepares units by a Beam pipeline.

  Args:
    units: numbers and units to do.
    request: how.
    folder: where their files go; the workers must see it under this path.
    workers: processes of the local runner, unless the options say.
    beam_options: pipeline options; without --runner, or with
      --runner=DirectRunner, the pipeline runs on this machine.
    report: told of records, tokens and bytes that are done since.
    finished: told of each unit that is done, and its summary; may raise to
      stop.

  Raises:
    ChildProcessError: the pipeline failed.
    ValueError: a record or a file that cannot be used.
    OSError: a file could not be read or written.
  """
  job = save_job(units, request, folder=folder)
  watch = Watch(units, folder=folder, report=report, finished=finished)
  workers = max(1, min(workers, len(os.sched_getaffinity(0)), len(units)))
  options, local = complete_options(beam_options, workers=workers)
  try:
    with tempfile.TemporaryDirectory(prefix="hpgrain-beam-") as scratch:
      log = Path(scratch, "log") if local else None
      said = Path(scratch, "failure")
      with _pipeline((job, options, said), log=log) as process:
        code = None
        while code is None:
          with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(watch.pause)
          watch.look()
      watch.conclude(
        job, failure=(lambda: _failure(said, log)) if code else None
      )
  finally:
    job.end()
    folder.remove_temporaries()


def complete_options(
  options: Sequence[str], *, workers: int
) -> tuple[list[str], bool]:
  """The options with the runner named, and whether it is this machine's."""
  names = [option.partition("=")[0] for option in options]
  options = list(options)
  if "--runner" not in names:
    options.append(f"--runner={DIRECT}")
  at = max(i for i, option in enumerate(options) if "--runner" in option)
  runner = options[at].partition("=")[2] or "".join(options[at + 1 : at + 2])
  local = runner.lower() in (DIRECT.lower(), "direct")
  if local and not any(name.startswith("--direct_") for name in names):
    options += [
      "--direct_running_mode=multi_processing",
      f"--direct_num_workers={workers}",
    ]
  return options, local


@contextlib.contextmanager
def _pipeline(
  message: tuple[Job, list[str], Path], *, log: Path | None
) -> Iterator["subprocess.Popen[bytes]"]:
  """Starts the pipeline's process; ends it and its children."""
  path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
  with contextlib.ExitStack() as stack:
    # Where the work is elsewhere, Beam says where to look at it.
    output = sys.stderr if log is None else stack.enter_context(log.open("wb"))
    process = subprocess.Popen(
      [sys.executable, "-c", _CODE],
      stdin=subprocess.PIPE,
      stdout=output,
      stderr=output,
      env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(message[2].parent)},
      # An interrupt from the terminal is ours alone to act on.
      process_group=0,
    )
    stack.callback(_end, process, gently=log is None)
    assert process.stdin is not None, "it was asked for"
    # It lives as long as this pipe is open. If it died, its log says why.
    with contextlib.suppress(BrokenPipeError):
      process.stdin.write(pickle.dumps(message))
      process.stdin.flush()
    yield process


def _end(process: "subprocess.Popen[bytes]", *, gently: bool) -> None:
  if gently and process.poll() is None:
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
      process.wait(_CANCEL_SECONDS)
  # It, and whatever is left of its children.
  with contextlib.suppress(ProcessLookupError):
    os.killpg(process.pid, signal.SIGKILL)
  process.wait()
  assert process.stdin is not None, "it was asked for"
  with contextlib.suppress(BrokenPipeError):
    process.stdin.close()


def _failure(said: Path, log: Path | None) -> str:
  """What went wrong, and where all that Beam said about it is."""
  if log is None:
    text, where = "", "what it said is above"
  else:
    text = log.read_text(errors="replace").strip()
    kept = tempfile.NamedTemporaryFile(
      "w", prefix="hpgrain-beam-", suffix=".log", delete=False
    )
    with kept:
      kept.write(text)
    where = f"all that it said is in {kept.name}"
  # It may have died before it could say it.
  last = said.read_text() if said.exists() else text.rpartition("\n")[2]
  return f"The Beam pipeline failed ({where}): {last or 'it died.'}"
