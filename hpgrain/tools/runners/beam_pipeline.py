"""The Beam pipeline that does units, and the process that runs it.

  Create([job]) -> the numbers of its units -> Reshuffle -> do_unit

Nothing comes back through the pipeline: a unit's file is all that counts, and
a task that an engine runs twice, or again, does no harm.
"""

import functools
import logging
import os
import pickle
import re
import signal
import sys
import threading
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import FrameType

import apache_beam as beam
from apache_beam.options.pipeline_options import (
  PipelineOptions,
  StandardOptions,
)
from apache_beam.runners.runner import PipelineState

from hpgrain.tools.runners.job import Job, do_unit, unit_numbers

# DirectRunner may fetch another runner, Prism, from the network; this is what
# it takes otherwise.
_LOCAL = "FnApiRunner"
_DEATH = re.compile(r"Worker subprocess exited with return code (-?\d+)")


class DoUnits(beam.DoFn):
  """Does the units whose numbers it is given."""

  def __init__(self, job: Job) -> None:
    """Of a job, which workers read from the work folder."""
    super().__init__()
    self._job = job
    self._units = beam.metrics.Metrics.counter("hpgrain", "units")

  def process(self, number: int) -> None:
    """Does one."""
    do_unit(self._job, number)
    self._units.inc()


def list_units(job: Job) -> Iterable[int]:
  """The numbers of the units of a job."""
  return unit_numbers(job)


def run(job: Job, options: list[str]) -> str:
  """Runs the pipeline to its end.

  Args:
    job: the units.
    options: pipeline options.

  Returns:
    The state it ended in; see `PipelineState`.
  """
  parsed = PipelineOptions(options)
  runner = parsed.view_as(StandardOptions).runner
  if runner.lower() in ("directrunner", "direct"):
    runner = _LOCAL
  pipeline = beam.Pipeline(runner=runner, options=parsed)
  (
    pipeline
    | "Job" >> beam.Create([job])
    | "Units" >> beam.FlatMap(list_units)
    | "Spread" >> beam.Reshuffle()
    | "Do" >> beam.ParDo(DoUnits(job))
  )
  result = pipeline.run()
  try:
    return result.wait_until_finish()
  except BaseException:
    # Whoever runs it elsewhere does not know that we end.
    result.cancel()
    raise


def main() -> None:
  """Runs the job that is told on the standard input.

  What went wrong is written to the file that is told with it.
  """
  job, options, failure = pickle.load(sys.stdin.buffer)
  threading.Thread(target=_end_with_driver, daemon=True).start()
  threading.excepthook = functools.partial(_on_error_in_thread, failure)
  signal.signal(signal.SIGTERM, _interrupt)
  logging.basicConfig(level=logging.WARNING, format="%(message)s")
  # States and addresses of jobs elsewhere.
  logging.getLogger("apache_beam.runners").setLevel(logging.INFO)
  try:
    state = run(job, options)
    said = f"It ended as {state}."
  except Exception as error:
    traceback.print_exc()
    state = PipelineState.FAILED
    # Beam puts whole tracebacks into it.
    said = str(error).strip().rpartition("\n")[2] or type(error).__name__
  if state != PipelineState.DONE:
    failure.write_text(said)
    sys.exit(1)


def _end_with_driver() -> None:
  """Ends this process and its children when the driver's does."""
  while os.read(0, 1):
    pass
  os.killpg(0, signal.SIGKILL)


def _on_error_in_thread(failure: Path, error: threading.ExceptHookArgs) -> None:
  """Ends this process where Beam would wait for a dead worker."""
  death = _DEATH.search(str(error.exc_value))
  if death is None:
    threading.__excepthook__(error)
    return
  how = f"ended with exit code {death[1]}"
  # As a shell says it.
  if int(death[1]) in (-signal.SIGKILL, 128 + signal.SIGKILL):
    how = (
      "was killed by SIGKILL. The kernel does that when memory runs out: see"
      " dmesg, and take fewer --workers"
    )
  failure.write_text(f"A worker process {how}.")
  os._exit(1)


def _interrupt(number: int, frame: FrameType | None) -> None:
  raise KeyboardInterrupt
