"""Runs code in forks of one process, which has the slow imports behind it.

  with Forked("import datasets", HF_HOME=folder) as forked:
    done = forked.run("print(1)")
    assert (done.status, done.out) == (0, "1\n")

What is read from the environment as a package is imported is the same for all
runs of one `Forked`. Each run is a process of its own otherwise, and may die.
"""

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Done:
  """How a run ended: its exit code (minus a signal's number), what it said."""

  status: int
  out: str
  err: str


class Forked:
  """A process that forks; `start` and `wait` let several run at once."""

  def __init__(self, before, **environment):
    """Starts it, and runs code before all forks."""
    self._folder = tempfile.TemporaryDirectory()
    self._process = subprocess.Popen(
      [sys.executable, __file__, before],
      env={**os.environ, **environment},
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      text=True,
    )

  def __enter__(self):
    return self

  def __exit__(self, *exception):
    self._process.stdin.close()
    self._process.wait()
    self._process.stdout.close()
    self._folder.cleanup()

  def run(self, code, *argv):
    """Runs code to its end, with `argv` as `sys.argv[1:]`."""
    return self.wait(self.start(code, *argv))

  def start(self, code, *argv):
    """Begins a run; returns what `wait` takes."""
    return self._ask(code=code, argv=argv, folder=self._folder.name)

  def wait(self, pid):
    """Waits for the end of a run."""
    status = self._ask(wait=pid)
    said = []
    for name in ("out", "err"):
      path = Path(self._folder.name, f"{pid}.{name}")
      said.append(path.read_text())
      path.unlink()
    return Done(status, *said)

  def _ask(self, **request):
    self._process.stdin.write(json.dumps(request) + "\n")
    self._process.stdin.flush()
    return json.loads(self._process.stdout.readline())


def _child(request):
  """Runs the code in this fork, and ends it."""
  for fd, name in ((1, "out"), (2, "err")):
    path = f"{request['folder']}/{os.getpid()}.{name}"
    os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY), fd)
  os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
  status = 0
  try:
    sys.argv[1:] = request["argv"]
    exec(request["code"], {"__name__": "forked"})
  except SystemExit as end:
    status = end.code if isinstance(end.code, int) else int(bool(end.code))
  except BaseException:
    traceback.print_exc()
    status = 70
  sys.stdout.flush()
  sys.stderr.flush()
  os._exit(status)


def _main():
  answers = os.fdopen(os.dup(1), "w")
  exec(sys.argv[1], {"__name__": "forked"})
  for line in sys.stdin:
    request = json.loads(line)
    if "wait" in request:
      _, status = os.waitpid(request["wait"], 0)
      answer = os.waitstatus_to_exitcode(status)
    else:
      answer = os.fork()
      if not answer:
        _child(request)
    answers.write(f"{answer}\n")
    answers.flush()


if __name__ == "__main__":
  _main()
