"""Engines that map the units: this machine's processes, Beam, or Ray.

  units ---> local   processes of this machine (`hpgrain.tools.engine`)
        ---> beam    an Apache Beam pipeline: Dataflow, Flink, Spark, ...
        ---> ray     tasks of a Ray cluster

All of them call `hpgrain.tools.task.do_task`, so none decides a byte.
"""

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

from hpgrain.tools import engine
from hpgrain.tools.encoder_spec import Encoder
from hpgrain.tools.inputs import Unit
from hpgrain.tools.options import Options
from hpgrain.tools.request import UnitRequest
from hpgrain.tools.units import ReportProgress
from hpgrain.tools.work_folder import WorkFolder

_PACKAGES = {"beam": "apache_beam", "ray": "ray"}


def check_runner(options: Options) -> None:
  """Refuses an engine whose package is not there.

  Raises:
    ValueError: it is not installed.
  """
  package = _PACKAGES.get(options.runner)
  if package is not None and importlib.util.find_spec(package) is None:
    raise ValueError(
      f"--runner={options.runner} needs the package {package}, which is not"
      f" installed. Get it with: pip install 'hpgrain[{options.runner}]'"
    )


def run_units(
  units: Sequence[tuple[int, Unit]],
  request: UnitRequest,
  *,
  options: Options,
  folder: WorkFolder,
  report: ReportProgress,
  finished: Callable[[int, dict[str, Any]], None],
  open_encoder: Callable[[], Encoder],
) -> None:
  """Prepares units by `options.runner`, in any order.

  Args:
    units: numbers and units to do.
    request: how.
    options: the engine and what it is told.
    folder: where the units' files go.
    report: told of records, tokens and bytes that are done since.
    finished: told of each unit that is done, and its summary; may raise to
      stop.
    open_encoder: opens `request.encoder` in this process.

  Raises:
    ChildProcessError: a worker process died, or the engine failed.
    ValueError: a record or a file that cannot be used.
    OSError: a file could not be read or written.
  """
  if options.runner == "local":
    engine.run_units(
      units,
      request,
      folder=folder,
      workers=options.workers,
      report=report,
      finished=finished,
      open_encoder=open_encoder,
    )
    return
  if not units:
    return
  # Only now: they take seconds to import, and are extras.
  if options.runner == "beam":
    from hpgrain.tools.runners.beam_runner import run_on_beam

    run_on_beam(
      units,
      request,
      folder=folder,
      workers=options.workers,
      beam_options=options.beam_options,
      report=report,
      finished=finished,
    )
  else:
    from hpgrain.tools.runners.ray_runner import run_on_ray

    run_on_ray(
      units,
      request,
      folder=folder,
      workers=options.workers,
      address=options.ray_address,
      report=report,
      finished=finished,
    )
