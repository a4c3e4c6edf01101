"""Sources that cost next to nothing, and processes that measure them.

  python tests/measured_worker.py COMMAND FOLDER [NUMBER]

prints a line of JSON at the end.
"""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np

from hpgrain.examples import Examples
from hpgrain.index_cache import IndexCache
from hpgrain.measured import MeasuredRecords
from hpgrain.transforms.counters import Counters


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
    return indices

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
    records = np.asarray(records)
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


def peak(folder, num_records):
  """Measures many records; how much memory grew, of how many bytes of table.

  Also with examples that are several a record, and in memory.
  """
  several = len(sys.argv) > 4 and sys.argv[4] == "several"
  counts = (1, 0, 3, 1) if several else (1, 1, 0, 1)
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


def slow(folder, number):
  """Measures 64 chunks slowly; logs each as it is begun."""
  fd = os.open(
    Path(folder) / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666
  )

  def log(records):
    os.write(fd, f"{number} {records[0]}\n".encode())

  transform = Spread((1, 0, 3), (3, 1, 2), weighted=True, log=log)
  transform.seconds = 0.005
  measured = MeasuredRecords(
    Numbers(64 * 8 - 3),
    transform,
    cache=IndexCache(Path(folder) / "cache"),
    keep_tokens=True,
    chunk_records=8,
  )
  print("ready", flush=True)
  sys.stdin.readline()
  measured.measure()
  return measured.counters


if __name__ == "__main__":
  print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:4])))
