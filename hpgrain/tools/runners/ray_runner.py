"""Units as tasks of a Ray cluster, or of one that is started here.

A few more tasks than there are processors are given out at a time. Ray runs a
task again whose worker or machine died, which does no harm.
"""

import contextlib
import itertools
import logging
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from hpgrain.tools.inputs import Unit
from hpgrain.tools.request import UnitRequest
from hpgrain.tools.runners.job import Job, do_unit, save_job
from hpgrain.tools.runners.watch import Watch
from hpgrain.tools.units import ReportProgress
from hpgrain.tools.work_folder import WorkFolder

# Tasks given out for each processor: none waits for us.
_AHEAD = 2
_TRIES_AGAIN = 3
_CONNECT_SECONDS = 10
# Of a cluster that is started here: nothing listens, nothing is sent home.
_LOCAL_ENVIRONMENT = {
  "RAY_AUTH_MODE": "disabled",
  "RAY_USAGE_STATS_ENABLED": "0",
  "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


def run_on_ray(
  units: Sequence[tuple[int, Unit]],
  request: UnitRequest,
  *,
  folder: WorkFolder,
  workers: int,
  address: str | None,
  report: ReportProgress,
  finished: Callable[[int, dict[str, Any]], None],
) -> None:
  """Prepares units by the tasks of a Ray cluster.

  Args:
    units: numbers and units to do.
    request: how.
    folder: where their files go; the workers must see it under this path.
    workers: processors of a cluster that is started here.
    address: of a cluster that is there; None takes that of RAY_ADDRESS, or
      starts one on this machine for as long as it works.
    report: told of records, tokens and bytes that are done since.
    finished: told of each unit that is done, and its summary; may raise to
      stop.

  Raises:
    ChildProcessError: workers died again and again, or Ray failed.
    ConnectionError: there is no cluster at the address.
    ValueError: a record or a file that cannot be used.
    OSError: a file could not be read or written.
  """
  workers = max(1, min(workers, len(os.sched_getaffinity(0)), len(units)))
  with _cluster(address, workers):
    job = save_job(units, request, folder=folder)
    watch = Watch(units, folder=folder, report=report, finished=finished)
    try:
      failure = _do(job, units, watch)
      watch.conclude(job, failure=(lambda: failure) if failure else None)
    finally:
      job.end()
      folder.remove_temporaries()


def _do(
  job: Job, units: Sequence[tuple[int, Unit]], watch: Watch
) -> str | None:
  """Gives out all tasks; returns what went wrong, if something did."""
  task = ray.remote(
    num_cpus=1, max_retries=_TRIES_AGAIN, retry_exceptions=[OSError]
  )(do_unit)
  waiting = iter(units)
  under_way: list[ray.ObjectRef] = []
  try:
    while True:
      # Others may join or leave the cluster meanwhile.
      room = _AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
      for number, _ in itertools.islice(waiting, max(0, room - len(under_way))):
        under_way.append(task.remote(job, number))
      if not under_way:
        return None
      done, under_way = ray.wait(under_way, num_returns=1, timeout=watch.pause)
      ray.get(done)
      watch.look()
  except RayTaskError as error:
    # None where a worker could not even begin, as without this package.
    cause = error.cause
    said = f"{type(cause).__name__}: {cause}"
    if cause is None:
      said = str(error).strip().rpartition("\n")[2]
    return f"A Ray task failed: {said}."
  except RayError as error:
    said = str(error).strip().split("\n", 1)[0]
    return f"Ray failed: {type(error).__name__}: {said}"
  finally:
    for ref in under_way:
      with contextlib.suppress(RayError):
        ray.cancel(ref, force=True)


@contextlib.contextmanager
def _cluster(address: str | None, workers: int) -> Iterator[None]:
  """Connects to a cluster, or starts one; lets go of what it took."""
  if ray.is_initialized():
    # The caller's, who has chosen it.
    yield
    return
  options: dict[str, Any] = {
    "log_to_driver": False,
    "logging_level": logging.ERROR,
  }
  if address is None and "RAY_ADDRESS" not in os.environ:
    for name, value in _LOCAL_ENVIRONMENT.items():
      os.environ.setdefault(name, value)
    options |= {
      "address": "local",
      "num_cpus": workers,
      "include_dashboard": False,
    }
  else:
    options["address"] = address
    _check_address(address or os.environ["RAY_ADDRESS"])
  ray.init(**options)
  try:
    yield
  finally:
    ray.shutdown()


def _check_address(address: str) -> None:
  """Finds out soon that nothing listens there; Ray tries for minutes.

  Raises:
    ConnectionError: nothing does.
  """
  host, colon, port = address.removeprefix("ray://").rpartition(":")
  if not colon or not port.isdigit():
    # "auto", and other ways of finding a cluster.
    return
  try:
    socket.create_connection((host, int(port)), _CONNECT_SECONDS).close()
  except OSError as error:
    raise ConnectionError(
      f"No Ray cluster answers at {address} ({error}). Start one with `ray"
      " start --head`, or leave the address out to start one here."
    ) from None
