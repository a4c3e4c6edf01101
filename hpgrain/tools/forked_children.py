"""Forks that end with the process that made them, whoever makes them."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator

_SECONDS_BETWEEN_LOOKS = 0.5
# The process whose forks follow it; none where forks are let be.
_parents: list[int] = []
_hooked: list[bool] = []


@contextlib.contextmanager
def ended_with_us() -> Iterator[None]:
  """Has forks made meanwhile end when this process dies.

  Libraries fork pools that would outlive a parent that is killed, wait for
  ever, and hold its locks. Such a fork also leaves an interrupt of the
  terminal to its parent, and ends at once where that ends it.
  """
  if not _hooked:
    _hooked.append(True)
    os.register_at_fork(after_in_child=_in_child)
  _parents.append(os.getpid())
  try:
    yield
  finally:
    _parents.pop()


def _in_child() -> None:
  if not _parents:
    return
  signal.signal(signal.SIGTERM, signal.SIG_DFL)
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  parent, _parents[-1] = _parents[-1], os.getpid()
  # A thread that looks, since the kernel's own signal at a parent's death
  # (PR_SET_PDEATHSIG) comes at the end of the thread that forked.
  threading.Thread(target=_end_after, args=[parent], daemon=True).start()


def _end_after(parent: int) -> None:
  while os.getppid() == parent:
    time.sleep(_SECONDS_BETWEEN_LOOKS)
  os._exit(1)
