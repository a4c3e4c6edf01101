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
from typing import Any, NamedTuple

from hpgrain.tools.request import UnitRequest
from hpgrain.tools.task import Task, do_task, portable_error


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
  # A daemon, or it would keep alive a process whose work broke down.
  threading.Thread(
    target=_receive, args=(connection, tasks), daemon=True
  ).start()
  while True:
    task = tasks.get()
    try:
      summary = do_task(
        task,
        request,
        report=lambda *done: connection.send(Progress(*done)),
      )
    except Exception as error:
      connection.send(Failed(task.number, portable_error(error)))
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
  except BaseException:
    # Else the other end would wait for an answer for ever.
    traceback.print_exc()
    os._exit(1)


if __name__ == "__main__":
  main(sys.argv[1:])
