import os
import signal
import subprocess
import sys
import time
from pathlib import Path

# Forks as a library's pool does, and waits for ever in both.
CODE = """
import contextlib, os, signal, time
from hpgrain.tools.forked_children import ended_with_us

with ended_with_us() if {inside} else contextlib.nullcontext():
  child = os.fork()
if not child:
  time.sleep(600)
print(child, flush=True)
time.sleep(600)
"""


def forked(*, inside):
  """A process that forked, and its fork's number."""
  parent = subprocess.Popen(
    [sys.executable, "-c", CODE.format(inside=inside)],
    stdout=subprocess.PIPE,
    text=True,
  )
  return parent, int(parent.stdout.readline())


def running(pid):
  """Whether a process is there and did not end."""
  try:
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
  except FileNotFoundError:
    return False
  return stat.rsplit(")", 1)[1].split()[0] != "Z"


def killed(parent):
  parent.kill()
  parent.wait()
  parent.stdout.close()


def test_a_fork_ends_with_a_parent_that_is_killed():
  parent, child = forked(inside=True)
  assert running(child)
  killed(parent)
  end = time.monotonic() + 20
  while running(child) and time.monotonic() < end:
    time.sleep(0.05)
  assert not running(child)


def test_a_fork_of_another_time_is_let_be():
  parent, child = forked(inside=False)
  killed(parent)
  time.sleep(1)
  assert running(child)
  os.kill(child, signal.SIGKILL)


def test_a_fork_leaves_interrupts_to_its_parent_and_ends_quietly():
  parent, child = forked(inside=True)
  os.kill(child, signal.SIGINT)
  time.sleep(0.3)
  assert running(child)
  os.kill(child, signal.SIGTERM)
  end = time.monotonic() + 20
  while running(child) and time.monotonic() < end:
    time.sleep(0.05)
  assert not running(child)
  killed(parent)
