"""Units' files appear in the work folder; the driver hears of each."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any

from hpgrain import object_store
from hpgrain.object_store import is_url
from hpgrain.tools.inputs import Unit
from hpgrain.tools.runners.job import Job
from hpgrain.tools.unit_file import read_summary
from hpgrain.tools.units import ReportProgress
from hpgrain.tools.work_folder import WorkFolder

# A name that another machine made may be seen later on a network file system:
# NFS keeps what it knows of a folder for 60 seconds.
VISIBLE_SECONDS = 75.0
# Looking takes this part of the time at most.
_PART = 0.1
_LEAST_PAUSE = 0.5


class Watch:
  """Counts the units of a job whose files are there.

  Attributes:
    left: the units whose files are not, by number.
    pause: seconds to wait before one looks again.
  """

  def __init__(
    self,
    units: Sequence[tuple[int, Unit]],
    *,
    folder: WorkFolder,
    report: ReportProgress,
    finished: Callable[[int, dict[str, Any]], None],
  ) -> None:
    """Begins with none.

    Args:
      units: numbers and units of the job.
      folder: where their files appear.
      report: told of records, tokens and bytes that are done since.
      finished: told of each unit's file and its summary; may raise.
    """
    self.left = dict(units)
    self.pause = _LEAST_PAUSE
    self._folder = folder
    self._report = report
    self._finished = finished

  def look(self) -> None:
    """Tells of the units that were finished since."""
    start = time.monotonic()
    numbers = sorted(self._folder.finished() & self.left.keys())
    for number, (summary, num_tokens) in zip(numbers, self._summaries(numbers)):
      unit = self.left.pop(number)
      self._report(summary["records"], num_tokens, unit.num_bytes)
      self._finished(number, summary)
    self.pause = max(_LEAST_PAUSE, (time.monotonic() - start) / _PART)

  def conclude(self, job: Job, *, failure: Callable[[], str] | None) -> None:
    """Makes sure that all is done, once the engine has ended.

    Args:
      job: the job.
      failure: tells what the engine says went wrong; None if nothing did.

    Raises:
      ChildProcessError: it failed, or ended and units are missing.
      ValueError: a record or a file that cannot be used.
      OSError: a file could not be read or written.
    """
    self.look()
    errors = job.errors(self.left) if self.left else []
    if errors:
      # What cannot be used ended the job, and so is why others failed.
      raise min(errors, key=lambda error: not isinstance(error, ValueError))
    if self.left and failure is not None:
      raise ChildProcessError(
        f"{failure().rstrip('.')}. {len(self.left)} units are not done."
      )
    until = time.monotonic() + VISIBLE_SECONDS
    while self.left and time.monotonic() < until:
      time.sleep(self.pause)
      self.look()
    if self.left:
      raise ChildProcessError(
        f"The engine says that it did all, but {len(self.left)} units have no"
        f" file in {self._folder.path}, the first of them unit"
        f" {min(self.left)}. Is it on a file system that all machines share?"
      )

  def _summaries(
    self, numbers: Sequence[int]
  ) -> Iterator[tuple[dict[str, Any], int]]:
    paths = map(self._folder.unit_path, numbers)
    if is_url(self._folder.path):
      return object_store.in_parallel(_read_object, paths)
    return map(_read_file, paths)


def _read_file(path: PurePath) -> tuple[dict[str, Any], int]:
  with Path(path).open("rb") as file:
    return read_summary(file, path)


def _read_object(path: PurePath) -> tuple[dict[str, Any], int]:
  with object_store.open_reader(str(path)) as file:
    return read_summary(file, path)
