"""Kills a preparation at random moments until it is done, again and again.

Run as `python random_kills.py FOLDER TOKENIZER KILLS SEED RECORDS`. The
command runs with two worker processes on RECORDS records of about a kilobyte.
It is killed with SIGKILL: the process alone, the process and its workers, or a
worker; some time after it began, or just as the last unit is done, when the
pair is merged and published. Then the same command runs again, until it is
done.

After each kill, what lies under a final name is whole, and no unit that was
finished is made again (its file is the same one). At the end the bytes are
those of a run that nobody killed. Prints what happened, as JSON.

Each run is a fork of this process, so that nothing is loaded twice.
"""

import collections
import contextlib
import functools
import json
import os
import random
import signal
import sys
import time
import warnings
from pathlib import Path

from hpgrain.manifest import read_manifest
from hpgrain.tokenizer import import_transformers
from hpgrain.tools import engine, offline_preparation
from hpgrain.tools.options import Options

UNIT_BYTES = 1 << 14
LAYOUTS = (
  (),
  ("--pack-to-seq-len=63",),
  ("--shuffle=7", "--pack-to-seq-len=100", "--pack-tail=carry"),
  ("--partitions=2", "--keep-partition-files"),
  ("--partitions=2", "--keep-sequential-samples", "--shuffle=1"),
)


def write_input(path, records, rng):
  """Records of two texts, of all sizes, some of them empty."""
  with path.open("w") as file:
    for _ in range(records):
      texts = [
        " ".join(rng.choices("abcdex", k=rng.choice((0, 3, 30, 900))))
        for _ in range(2)
      ]
      json.dump(dict(zip(("text", "more"), texts)), file)
      file.write("\n")


class Run:
  """One run of the command, in a process group of its own."""

  def __init__(self, folder, flags):
    self._log = folder / "log.txt"
    self.pid = os.fork()
    if not self.pid:
      self._become(flags)

  def _become(self, flags):
    os.setsid()
    fd = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
      os.dup2(fd, stream)
    code = 99
    with contextlib.suppress(BaseException):
      code = offline_preparation.main(flags)
    sys.stdout.flush()
    os._exit(code)

  def workers(self):
    """Its worker processes."""
    path = Path(f"/proc/{self.pid}/task/{self.pid}/children")
    with contextlib.suppress(OSError):
      return [int(child) for child in path.read_text().split()]
    return []

  def ended(self):
    """Whether it has; without taking note of it."""
    state = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return state is not None

  def kill(self, how, rng):
    """Kills the process ("one"), a worker, or "all" of them."""
    workers = self.workers()
    if how == "worker" and workers:
      with contextlib.suppress(ProcessLookupError):
        os.kill(rng.choice(workers), signal.SIGKILL)
    else:
      os.kill(self.pid, signal.SIGKILL)
      for worker in workers if how == "all" else ():
        with contextlib.suppress(ProcessLookupError):
          os.kill(worker, signal.SIGKILL)
    return workers

  def wait(self, workers=()):
    """Waits for it and its workers; returns the exit code and what it said."""
    _, status = os.waitpid(self.pid, 0)
    until = time.monotonic() + 30
    while any(Path(f"/proc/{worker}").exists() for worker in workers):
      assert time.monotonic() < until, "a worker outlives the run"
      time.sleep(0.001)
    return os.waitstatus_to_exitcode(status), self._log.read_text()


class Kills:
  """Many runs, and what became of them."""

  def __init__(self, folder, tokenizer, rng):
    self.folder, self.rng = folder, rng
    self.counts = collections.Counter()
    self._flags = [
      f"--dataset-name-or-path={folder}/in.jsonl",
      "--json-keys=text",
      f"--tokenizer-name-or-path={tokenizer}",
      "--tokenizer-backend=huggingface",
      "--workers=2",
      "--log-interval=0",
    ]
    self._expected = {}
    self.seconds = 0.0
    self.total = -(-(folder / "in.jsonl").stat().st_size // UNIT_BYTES)

  def flags(self, layout, out):
    """The command's flags; a layout with many lines has two keys."""
    flags = [*self._flags, *layout, f"--output-prefix={out}/x"]
    if "--shuffle=1" not in layout:
      flags[1:2] = ["--json-keys", "text", "more"]
    return flags

  def expected(self, layout):
    """The files of a run that nobody kills."""
    if layout not in self._expected:
      out = self.folder / f"whole{len(self._expected)}"
      start = time.monotonic()
      code, said = Run(self.folder, self.flags(layout, out)).wait()
      self.seconds = time.monotonic() - start
      assert code == 0, said
      self._expected[layout] = finals(out)
    return self._expected[layout]

  def go_to_the_end(self, layout, out):
    """Runs and kills until the output is there."""
    expected = self.expected(layout)
    made = 0
    while True:
      parts = next(iter(out.glob("*.parts")), out / "none")
      before, whole = units(parts), finals(out) == expected
      run = Run(self.folder, self.flags(layout, out))
      code, said = self.disturb(run, out)
      found = finals(out)
      check_final(found, expected, out)
      parts = next(iter(out.glob("*.parts")), out / "none")
      after = units(parts)
      if code == 0:
        total, done, reused = work(said)
        assert done == (0 if whole else total - len(before)), said
        assert reused == total - done, said
        self.counts["runs that ended"] += 1
        made += done
        break
      killed = code == -signal.SIGKILL or "was killed by SIGKILL" in said
      assert killed, f"exit code {code}: {said}"
      self.counts["kills"] += 1
      gone = not parts.exists()
      if found == expected:
        self.counts["kills when all was there"] += 1
        # Those that are not there any more were made, and then removed.
        made += 0 if whole else self.total - len(before)
        if gone or not any(parts.iterdir()):
          self.finish(layout, out)
          break
        continue
      if gone:
        # Before the first unit.
        assert not before
        continue
      for name, file in before.items():
        assert after.get(name) == file, f"unit {name} was made again"
      made += len(set(after) - set(before))
    return made

  def finish(self, layout, out):
    """What is whole is not made again."""
    code, said = Run(self.folder, self.flags(layout, out)).wait()
    assert code == 1 and "The output exists" in said, said

  def disturb(self, run, out):
    """Kills a run at a random moment, if it has not ended."""
    how = self.rng.choice(("one", "all", "worker"))
    delay = self.rng.uniform(0, self.seconds)
    late = self.rng.random() < 0.3
    start = time.monotonic()
    if late:
      delay = self.rng.uniform(0, 0.05)
      while not run.ended() and len(units_below(out)) < self.total:
        time.sleep(0.0005)
      start = time.monotonic()
    while not run.ended() and time.monotonic() - start < delay:
      time.sleep(0.0005)
    if run.ended():
      return run.wait()
    self.counts[f"killed {how}, {'late' if late else 'at any time'}"] += 1
    return run.wait(run.kill(how, self.rng))


def work(said):
  """Units, those done and those reused, from the summary."""
  line = next(x for x in said.splitlines() if x.startswith("units "))
  done, _, reused, _, _, total = line.split()[1:]
  return int(total), int(done), int(reused)


def units(parts):
  """The finished units, and the file that each is."""
  if not parts.exists():
    return {}
  found = {}
  for path in parts.glob("*.unit"):
    with contextlib.suppress(FileNotFoundError):
      status = path.stat()
      found[path.name] = status.st_ino, status.st_mtime_ns
  return found


def units_below(out):
  """The finished units of the work that is under way."""
  return [path for parts in out.glob("*.parts") for path in units(parts)]


def finals(folder):
  """The files under final names, and their bytes."""
  if not folder.exists():
    return {}
  return {
    path.name: path.read_bytes()
    for path in folder.iterdir()
    if path.is_file() and path.suffix not in (".tmp", ".partial")
  }


def check_final(found, expected, out):
  """What looks whole must be whole."""
  for name, data in found.items():
    assert data == expected[name], f"{name} is not what it must be"
    prefix = out / name.removesuffix(".idx").removesuffix(".manifest.json")
    if name.endswith(".idx"):
      assert f"{prefix.name}.bin" in found, "an .idx without its .bin"
    if name.endswith(".manifest.json"):
      assert read_manifest(prefix) is not None


def main(folder, tokenizer, kills, seed, records):
  """Returns the counts."""
  warnings.simplefilter("ignore")
  engine.SMALL_INPUT_BYTES = 0
  offline_preparation.Options = functools.partial(
    Options, unit_bytes=UNIT_BYTES
  )
  import_transformers().AutoTokenizer.from_pretrained(tokenizer)
  rng = random.Random(seed)
  write_input(folder / "in.jsonl", records, rng)
  job = Kills(folder, tokenizer, rng)
  while job.counts["kills"] < kills:
    out = folder / f"out{job.counts['outputs']}"
    out.mkdir()
    made = job.go_to_the_end(rng.choice(LAYOUTS), out)
    assert made == job.total, f"{made} units were made of {job.total}"
    job.counts["outputs"] += 1
    job.counts["units"] += made
    for path in out.iterdir():
      assert path.is_file(), f"{path} is left"
      path.unlink()
  return dict(sorted(job.counts.items()))


if __name__ == "__main__":
  print(
    json.dumps(main(Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:])))
  )
