"""One unit's whole work as a call: what every engine, anywhere, maps.

It may be called twice for a unit, at once or later, on any machine: each call
writes a file of its own, and gives it the unit's name when it is whole.
"""

import dataclasses
import traceback
from pathlib import Path
from typing import Any, NamedTuple

from hpgrain.tools.encoder_spec import Encoder
from hpgrain.tools.inputs import BadRecordError, Unit
from hpgrain.tools.request import UnitRequest
from hpgrain.tools.units import ReportProgress, prepare_unit
from hpgrain.tools.work_folder import WorkFolder


class Task(NamedTuple):
  """A unit to do: its number, itself, and the folder for its file."""

  number: int
  unit: Unit
  folder: WorkFolder


@dataclasses.dataclass
class _Opened:
  """The encoder that this process has."""

  request: UnitRequest | None = None
  encoder: Encoder | None = None


_opened = _Opened()


def do_task(
  task: Task,
  request: UnitRequest,
  *,
  encoder: Encoder | None = None,
  scratch: Path | None = None,
  report: ReportProgress = lambda records, tokens, num_bytes: None,
) -> dict[str, Any]:
  """Prepares one unit.

  Not to be called by two threads at once without an `encoder` for each.

  Args:
    task: the unit.
    request: how.
    encoder: `request.encoder`, opened; None takes this process's own, which
      is opened once for a request.
    scratch: a local folder for what goes to a store, where the task's folder
      does not know one of this machine.
    report: told of records, tokens and bytes that are done since.

  Returns:
    The summary that is kept in the unit's file; see `prepare_unit`.

  Raises:
    ValueError: a record or a file that cannot be used.
    OSError: a file could not be read or written.
  """
  temporary = task.folder.temporary_path(task.number)
  if scratch is not None:
    temporary = scratch / temporary.name
  return prepare_unit(
    task.unit,
    request,
    encoder=_encoder(request) if encoder is None else encoder,
    path=task.folder.unit_path(task.number),
    temporary=temporary,
    report=report,
  )


def portable_error(error: Exception) -> Exception:
  """The error, as one that can be sent and says enough."""
  if isinstance(error, OSError):
    return OSError(error.errno, error.strerror or str(error), error.filename)
  if isinstance(error, ValueError):
    kind = BadRecordError if isinstance(error, BadRecordError) else ValueError
    return kind(str(error))
  # Ours to mend, so where it comes from matters.
  return RuntimeError("".join(traceback.format_exception(error)))


def _encoder(request: UnitRequest) -> Encoder:
  if _opened.encoder is None or _opened.request is not request:
    _opened.encoder = request.encoder.open()
    _opened.request = request
  return _opened.encoder
