"""Units in, their files out: as many processes as there are cores for them.

  this process --- unit 0 ---> worker 0   read, parse, tokenize, write
               --- unit 1 ---> worker 1
               <-- done 0 ----            its next one waits there already

A worker that dies ends the run, which keeps what is finished. Interrupting
this process ends the workers.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from hpgrain.tools.encoder_spec import Encoder
from hpgrain.tools.inputs import Unit
from hpgrain.tools.request import UnitRequest
from hpgrain.tools.task import Task, do_task
from hpgrain.tools.units import ReportProgress
from hpgrain.tools.work_folder import WorkFolder
from hpgrain.tools.worker import Failed, Finished, Progress

# Below this, starting processes costs more than they save; the tokenizer uses
# all cores by itself meanwhile.
SMALL_INPUT_BYTES = 32 << 20
# Units that a worker has or waits to begin: it never waits for us.
_AHEAD = 2
# A path of its own for what we import, and no second level of threads.
_CODE = (
  "import sys; sys.path[:] = {path!r}; from hpgrain.tools import worker;"
  " worker.main(sys.argv[1:])"
)
_ENVIRONMENT = {
  "TOKENIZERS_PARALLELISM": "false",
  "RAYON_NUM_THREADS": "1",
  "OMP_NUM_THREADS": "1",
  "OPENBLAS_NUM_THREADS": "1",
}


def num_processes(units: Sequence[tuple[int, Unit]], workers: int) -> int:
  """How many worker processes to start; 1: this process does it all."""
  total = sum(unit.num_bytes for _, unit in units)
  if total <= SMALL_INPUT_BYTES:
    return 1
  # Two even on one core: one reads or writes while the other computes.
  cores = max(2, len(os.sched_getaffinity(0)))
  return max(1, min(workers, cores, len(units)))


def run_units(
  units: Sequence[tuple[int, Unit]],
  request: UnitRequest,
  *,
  folder: WorkFolder,
  workers: int,
  report: ReportProgress,
  finished: Callable[[int, dict[str, Any]], None],
  open_encoder: Callable[[], Encoder],
) -> None:
  """Prepares units, in any order.

  Args:
    units: numbers and units to do.
    request: how.
    folder: where their files go.
    workers: the most processes to use.
    report: told of records, tokens and bytes that are done since.
    finished: told of each unit that is done, and its summary; may raise to
      stop.
    open_encoder: opens `request.encoder` in this process.

  Raises:
    ChildProcessError: a worker process died.
    ValueError: a record or a file that cannot be used.
    OSError: a file could not be read or written.
  """
  tasks = [Task(number, unit, folder) for number, unit in units]
  count = num_processes(units, workers)
  if count > 1:
    _run_in_workers(
      tasks,
      request,
      folder=folder,
      count=count,
      report=report,
      finished=finished,
    )
    return
  encoder = None
  for task in tasks:
    if encoder is None:
      encoder = open_encoder()
    summary = do_task(task, request, encoder=encoder, report=report)
    finished(task.number, summary)


def _run_in_workers(
  tasks: Sequence[Task],
  request: UnitRequest,
  *,
  folder: WorkFolder,
  count: int,
  report: ReportProgress,
  finished: Callable[[int, dict[str, Any]], None],
) -> None:
  waiting = iter(tasks)
  workers: dict[Connection, _Worker] = {}
  try:
    for _ in range(count):
      worker = _Worker()
      workers[worker.connection] = worker
    # All of them start meanwhile: the request is larger than a socket holds.
    for worker in workers.values():
      worker.send(request)
    for _ in range(_AHEAD):
      for worker in workers.values():
        worker.give(waiting)
    while any(worker.tasks for worker in workers.values()):
      for connection in wait(list(workers)):
        worker = workers[connection]
        match worker.receive():
          case Progress() as progress:
            report(*progress)
          case Finished(number, summary):
            del worker.tasks[number]
            worker.give(waiting)
            finished(number, summary)
          case Failed(_, error):
            raise error
  finally:
    for worker in workers.values():
      worker.end()
    folder.remove_temporaries()


class _Worker:
  """A process, and the units that it has."""

  def __init__(self) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
      self._process = subprocess.Popen(
        [
          sys.executable,
          "-c",
          _CODE.format(path=sys.path),
          str(theirs.fileno()),
        ],
        pass_fds=[theirs.fileno()],
        stdin=subprocess.DEVNULL,
        env={**os.environ, **_ENVIRONMENT},
        # An interrupt from the terminal is ours alone to act on.
        process_group=0,
      )
    self.connection = Connection(ours.detach())
    self.tasks: dict[int, Task] = {}

  def give(self, waiting: Iterator[Task]) -> None:
    """Sends the next task, if there is one."""
    task = next(waiting, None)
    if task is not None:
      self.tasks[task.number] = task
      self.send(task)

  def receive(self) -> Progress | Finished | Failed:
    """The next message.

    Raises:
      ChildProcessError: the process died.
    """
    try:
      return self.connection.recv()
    except (EOFError, OSError):
      raise self._death() from None

  def end(self) -> None:
    """Ends the process at once, whatever it does."""
    self._process.kill()
    self._process.wait()
    self.connection.close()

  def send(self, message: UnitRequest | Task) -> None:
    """Sends a message.

    Raises:
      ChildProcessError: the process died.
    """
    try:
      self.connection.send(message)
    except OSError:
      raise self._death() from None

  def _death(self) -> ChildProcessError:
    code = self._process.wait()
    how = f"ended with exit code {code}"
    if code < 0:
      how = f"was killed by {signal.Signals(-code).name}"
    at = ""
    if self.tasks:
      unit = next(iter(self.tasks.values())).unit
      at = f" at work on {unit.file.path}, {unit.kind} from {unit.start} on,"
    why = ""
    if code == -signal.SIGKILL:
      why = (
        " The kernel does that when memory runs out: see dmesg, and take fewer"
        " --workers."
      )
    return ChildProcessError(
      f"Worker process {self._process.pid}{at} {how}.{why}"
    )
