"""A process of `engine`: units in through a socket, their files out.

It ends when its socket does, so nothing outlives the process that began it.
"""

import os
import queue
import sys
import threading
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from hpgrain.tools.inputs import Unit
from hpgrain.tools.request import UnitRequest
from hpgrain.tools.units import prepare_unit


class Task(NamedTuple):
  """A unit to do: its number, itself, its file, and the temporary file's."""

  number: int
  unit: Unit
  path: Path
  temporary: Path


class Progress(NamedTuple):
  """Records, tokens and bytes of the input that are done since."""

  records: int
  tokens: int
  num_bytes: int


class Finished(NamedTuple):
  """A unit is done."""

  number: int
  summary: dict[str, Any]


class Failed(NamedTuple):
  """A unit cannot be done."""

  number: int
  error: Exception


def main(arguments: Sequence[str]) -> None:
  """Takes the request, then tasks, from the socket named by its number."""
  connection = Connection(int(arguments[0]))
  request: UnitRequest = connection.recv()
  tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()
  threading.Thread(target=_receive, args=(connection, tasks)).start()
  encoder = None
  while True:
    task = tasks.get()
    try:
      if encoder is None:
        encoder = request.encoder.open()
      summary = prepare_unit(
        task.unit,
        request,
        encoder=encoder,
        path=task.path,
        temporary=task.temporary.with_suffix(f".{os.getpid()}.tmp"),
        report=lambda *done: connection.send(Progress(*done)),
      )
    except Exception as error:
      connection.send(Failed(task.number, _sendable(error)))
    else:
      connection.send(Finished(task.number, summary))


def _receive(connection: Connection, tasks: "queue.SimpleQueue[Task]") -> None:
  """Queues tasks; ends the process when there can be no more."""
  try:
    while True:
      tasks.put(connection.recv())
  except (EOFError, OSError):
    # Whatever is being done is not wanted any more.
    os._exit(0)


def _sendable(error: Exception) -> Exception:
  """The error, as one that can be sent and says enough."""
  if isinstance(error, OSError):
    return OSError(error.errno, error.strerror or str(error), error.filename)
  if isinstance(error, ValueError):
    return ValueError(str(error))
  # Ours to mend, so where it comes from matters.
  return RuntimeError("".join(traceback.format_exception(error)))


if __name__ == "__main__":
  main(sys.argv[1:])
