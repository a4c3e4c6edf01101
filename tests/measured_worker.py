"""Sources that cost next to nothing, and processes that measure them.

  python tests/measured_worker.py COMMAND FOLDER ARGUMENT ...

prints a line of JSON at the end.
"""

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from index_cache_worker import (
  Intruder,
  Warnings,
  _die_after,
  _die_before,
  names,
)

from hpgrain.examples import Examples
from hpgrain.index_cache import IndexCache
from hpgrain.measured import MeasuredRecords
from hpgrain.transforms.counters import Counters

# Of the small source, and where it is measured a hundred times.
CHUNKS, FEW = 12, 2


def no_fsync(fd):
  """Nothing: whoever is killed has no need of the disk."""


def start(command, *arguments, before=()):
  """Starts a process with one of the commands below."""
  return subprocess.Popen(
    [*before, sys.executable, __file__, command, *map(str, arguments)],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
  )


class Numbers:
  """Records that are their own numbers, and take no memory."""

  name = "numbers"

  def __init__(self, num_records, version=1):
    self._num_records = num_records
    self.identity = {"format": "numbers"}
    self.cache_identity = {**self.identity, "version": version}

  def __len__(self):
    return self._num_records

  def read(self, indices):
    return indices.tolist()

  def place(self, index):
    return f"numbers, record {index + 1}"


class Spread:
  """Record r makes examples of these many positions, and all hold its number.

  Attributes:
    seen: the first record of each call.
  """

  def __init__(self, counts=(1,), sizes=(2,), weighted=False, log=None):
    self.one_to_one = max(counts) <= 1
    self.counters = Counters()
    self.seen = []
    self._counts, self._sizes = np.array(counts), np.array(sizes)
    self._weighted = weighted
    self._log, self.seconds = log, 0

  @property
  def identity(self):
    return {
      "transform": "spread",
      "counts": self._counts.tolist(),
      "sizes": self._sizes.tolist(),
      "weighted": self._weighted,
    }

  def __call__(self, records, place):
    records = np.asarray(records, np.int64)
    self.seen += records[:1].tolist()
    if self._log is not None:
      self._log(records)
    time.sleep(self.seconds)
    counts = self._counts[records % len(self._counts)]
    owners = np.repeat(records, counts)
    number = np.arange(len(owners)) - np.repeat(
      np.cumsum(counts) - counts, counts
    )
    lengths = self._sizes[(owners + number) % len(self._sizes)]
    ids = np.repeat(owners, lengths).astype(np.int32)
    made = Examples(
      record_splits=np.concatenate([[0], np.cumsum(counts)]),
      example_splits=np.concatenate([[0], np.cumsum(lengths)]),
      input_ids=ids,
      labels=np.where(ids % 3 == 0, -100, ids + 1).astype(np.int32),
      weights=np.float32(ids % 3 / 2) if self._weighted else None,
    )
    self.counters.add(
      made,
      dropped={"empty": int((counts == 0).sum())},
      tokens_dropped={"odd": int((records % 2).sum())},
    )
    return made


def peak_bytes():
  """The most memory that this process ever held."""
  (line,) = [
    line
    for line in Path("/proc/self/status").read_text("utf-8").splitlines()
    if line.startswith("VmHWM")
  ]
  return int(line.split()[1]) * 1024


def peak(folder, num_records, kind="one"):
  """Measures many records; tells how much memory grew."""
  os.fsync = no_fsync
  counts = (1, 0, 3, 1) if kind == "several" else (1, 1, 0, 1)
  cache = None if folder == "-" else IndexCache(folder)
  measured = MeasuredRecords(
    Numbers(int(num_records)), Spread(counts, (3, 1, 2)), cache=cache
  )
  before = peak_bytes()
  start = time.monotonic()
  measured.measure()
  seconds = time.monotonic() - start
  # As rows are planned: a window of records after the other.
  rng = np.random.default_rng(0)
  for _ in range(100):
    records = rng.integers(0, int(num_records), 1024)
    first, _ = measured.examples(records)
    measured.lengths(first)
  return {
    "grown": peak_bytes() - before,
    "seconds": seconds,
    "counters": measured.counters,
  }


def small(folder, *, log=None, seconds=0, keep=False, chunks=CHUNKS):
  """A source of some chunks, which is to be measured."""
  transform = Spread((1, 0, 3), (3, 1, 2), weighted=True, log=log)
  transform.seconds = seconds
  return MeasuredRecords(
    Numbers(8 * chunks - 3),
    transform,
    cache=IndexCache(folder),
    keep_tokens=keep,
    chunk_records=8,
  )


def told(measured):
  """All that is known of a source."""
  records = np.arange(measured.num_records)
  first, count = measured.examples(records)
  return {
    "first": first.tolist(),
    "count": count.tolist(),
    "lengths": measured.lengths(np.arange(count.sum())).tolist(),
    "counters": measured.counters,
  }


def log_of(folder):
  """(process, first record of a chunk), as chunks were begun."""
  path = Path(folder) / "log"
  text = path.read_text("utf-8") if path.exists() else ""
  return [tuple(map(int, line.split())) for line in text.splitlines()]


def slow(folder, number, processes=1):
  """Measures slowly, when told to; logs each chunk as it is begun.

  The first takes as long as all processes take to begin one.
  """
  fd = os.open(
    Path(folder) / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666
  )

  def log(records):
    os.write(fd, f"{number} {records[0]}\n".encode())
    while len({process for process, _ in log_of(folder)}) < int(processes):
      time.sleep(0.001)

  measured = small(Path(folder) / "cache", log=log, seconds=0.004, keep=True)
  print("ready", flush=True)
  sys.stdin.readline()
  measured.measure()
  # Kept tokens are there, whoever wrote them, or will be.
  return told(measured)


def hindered(folder, keep):
  """Measures where the folder may fail; tells what was said."""
  with Warnings() as texts:
    measured = small(folder, keep=keep == "keep")
    answer = told(measured)
    read = measured.read([5, 0])
  return {
    "told": answer,
    "read": read.input_ids.tolist(),
    "calls": len(measured.transform.seen),
    "warnings": texts,
    "left": names(folder),
  }


def read_only(folder, keep):
  """The same without the right to write."""
  # What is loaded late may lie where only root may read.
  with tempfile.TemporaryDirectory() as other:
    hindered(other, keep)
  if not os.geteuid():
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
  return hindered(folder, keep)


def limited(folder, keep):
  """The same where no file may be larger than a chunk's, the tables' are."""
  resource.setrlimit(resource.RLIMIT_FSIZE, (700, 700))
  return hindered(folder, keep)


def killed_everywhere(folder, keep):
  """Kills a process before and after many of its calls of the system.

  Each in a folder of its own, where another one then goes on.
  """
  os.fsync = no_fsync
  answers = []
  for die in (_die_before, _die_after):
    step = 8 if keep == "keep" else 3
    for n in range(1 + (die is _die_after), 1000, step):
      place = Path(folder) / f"{die.__name__}-{n}"
      if not _killed_at(n, die, place, keep == "keep"):
        break
      done = [
        name for name in names(place) if name.startswith("measured_chunk")
      ]
      last = "kept_ids" if keep == "keep" else "measured_lengths"
      whole = any(
        name.startswith(last) and name.endswith((".idx", ".hpgrain"))
        for name in names(place)
      )
      with Warnings() as texts:
        measured = small(place, keep=keep == "keep", chunks=FEW)
        answer = told(measured)
        calls = len(measured.transform.seen)
        read = measured.read([5, 0])
      answers.append(
        {
          "told": answer,
          "read": read.input_ids.tolist(),
          "done": sum(not name.endswith(".partial") for name in done),
          "all": whole,
          "calls": calls,
          "then": names(place),
          "warnings": texts,
        }
      )
  return answers


def _killed_at(n, die, place, keep):
  pid = os.fork()
  if not pid:
    with Intruder(n, die), Warnings():
      small(place, keep=keep, chunks=FEW).measure()
    os._exit(0)
  return os.waitpid(pid, 0)[1] == signal.SIGKILL


if __name__ == "__main__":
  print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))
