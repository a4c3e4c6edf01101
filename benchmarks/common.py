"""What the benchmark scripts share: a corpus, timing in turn, a table row.

  temporary folder -> corpus -> ours, peers and floors in turn, several times
                   -> medians, the ratio, the goal: one row of the table each

A machine that does other things too slows whoever runs at that moment, so
everything that is compared runs in one loop, in another order each time, and
a ratio is the median of the ratios within a turn.
"""

import argparse
import contextlib
import dataclasses
import datetime
import importlib.util
import io
import json
import logging
import mmap
import os
import platform
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

# Ids of the made-up corpora; every document ends with EOD.
VOCAB_SIZE = 50_000
EOD = 0

# What the scripts that grow with the documents take, unless told otherwise.
SIZES = (1_000_000, 10_000_000, 100_000_000)

_MEAN_LENGTH = 400
_CHUNK = 1 << 20

_CHILD = "--child"

HEADER = (
  "| row | work | ours | against | ratio | goal | |\n"
  "|---|---|---|---|---|---|---|"
)


@dataclasses.dataclass(frozen=True)
class Row:
  """One comparison.

  Attributes:
    row: of the table of goals, such as "P7".
    work: what was done.
    ours: our figure with its unit.
    against: the peer or floor, with its figure.
    ratio: what is held against the goal.
    goal: as text.
    met: None where there is no goal, or no peer.
  """

  row: str
  work: str
  ours: str
  against: str
  ratio: str
  goal: str
  met: bool | None

  def __str__(self) -> str:
    verdict = {True: "met", False: "MISSED", None: ""}[self.met]
    cells = (self.work, self.ours, self.against, self.ratio, self.goal, verdict)
    return f"| {self.row} | " + " | ".join(cells) + " |"


class Times:
  """Seconds an item, by name and turn."""

  def __init__(self, seconds: Mapping[str, list[float]]):
    self._seconds = {name: np.array(s) for name, s in seconds.items()}

  def __getitem__(self, name: str) -> float:
    """The median of one name."""
    return float(np.median(self._seconds[name]))

  def ratio(self, one: str, other: str) -> float:
    """The median over the turns of one by the other."""
    return float(np.median(self._seconds[one] / self._seconds[other]))

  def row(
    self,
    row: str,
    work: str,
    *,
    ours: str,
    peer: str,
    at_most: float | None = None,
    at_least: float | None = None,
    said: Callable[[float], str] | None = None,
  ) -> Row:
    """Compares two names: `at_most` times the peer, or faster `at_least`.

    The ratio is our time by the peer's; where we are to be faster, or are
    with no goal set, it says how many times faster. `said` writes a time;
    default `duration`.
    """
    said = said or duration
    ratio = self.ratio(ours, peer)
    faster = self.ratio(peer, ours)
    compared, goal, met = f"{ratio:.2f}x", "", None
    if at_most is not None:
      goal, met = f"<= {at_most:g}x", ratio <= at_most
    elif at_least is not None:
      goal, met = f">= {at_least:g}x faster", faster >= at_least
    if at_most is None and (at_least is not None or faster > 1):
      compared = f"{faster:.1f}x faster"
    return Row(
      row,
      work,
      said(self[ours]),
      f"{peer}: {said(self[peer])}",
      compared,
      goal,
      met,
    )


def microseconds(seconds: float) -> str:
  """Writes a time, as 3.21 us."""
  return f"{seconds * 1e6:.3g} us"


def duration(seconds: float) -> str:
  """Writes a time in the unit that suits it, as 3.21 ms."""
  for unit, name in ((1, "s"), (1e-3, "ms")):
    if seconds >= unit:
      return f"{seconds / unit:.3g} {name}"
  return microseconds(seconds)


def token_rate(seconds: float) -> str:
  """Writes the time of a token as a rate, as 3.21 Mtok/s."""
  return f"{1e-6 / seconds:.3g} Mtok/s"


def bytes_each(num_bytes: float, items: int) -> str:
  """Writes how many bytes an item takes, as 4.2 B/doc."""
  return f"{num_bytes / items:.1f} B/doc"


def in_turn(
  calls: Mapping[str, Callable[[int], Any]],
  *,
  repeats: int,
  times: int,
  items: int = 1,
  clock: Callable[[], float] = time.perf_counter,
) -> Times:
  """Times calls against each other.

  Args:
    calls: each is given the numbers 0 to times - 1, one a call.
    repeats: turns; each runs everything once.
    times: calls in a row within a turn.
    items: what a call counts for; figures are an item's.
    clock: `time.process_time` counts what processors did for this process, in
      all its threads: what one core would take, whoever else wants it.
  """
  names = list(calls)
  seconds: dict[str, list[float]] = {name: [] for name in names}
  for turn in range(-1, repeats):
    for shift in range(len(names)):
      name = names[(turn + shift) % len(names)]
      call = calls[name]
      began = clock()
      for i in range(times):
        call(i)
      # The first turn only warms up.
      if turn >= 0:
        elapsed = clock() - began
        seconds[name].append(elapsed / (times * items))
  return Times(seconds)


def missing(row: str, work: str, peer: str, goal: str) -> Row:
  """The row of a peer that is not installed."""
  return Row(
    row, work, "", f"{peer}: not installed (extra `bench`)", "", goal, None
  )


def is_installed(module: str) -> bool:
  """Whether a package can be imported."""
  return importlib.util.find_spec(module) is not None


@contextlib.contextmanager
def quiet() -> Iterable[None]:
  """Keeps what peers say while they are imported and built from the table."""
  with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def status_bytes(field: str) -> int:
  """Returns a figure of this process's memory, such as "RssAnon"."""
  for line in Path("/proc/self/status").read_text().splitlines():
    if line.startswith(f"{field}:"):
      return int(line.split()[1]) * 1024
  raise RuntimeError(f"This system does not tell {field}.")


def forget_peak() -> int:
  """Begins to look for the largest memory anew; returns what is used now.

  `status_bytes("VmHWM")` is the largest since. It counts what is mapped from
  files, too, as far as it was touched.
  """
  # 5 resets the peak (Linux, Documentation/filesystems/proc.rst).
  Path("/proc/self/clear_refs").write_text("5")
  return status_bytes("VmRSS")


def tree_bytes(root: int) -> int:
  """Memory of a process and all below it, what they share counted for each."""
  children: dict[int, list[int]] = {}
  held: dict[int, int] = {}
  for folder in Path("/proc").iterdir():
    if folder.name.isdigit():
      try:
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
      except OSError:
        # It ended meanwhile.
        continue
      children.setdefault(int(fields[1]), []).append(int(folder.name))
      held[int(folder.name)] = int(fields[21]) * mmap.PAGESIZE
  total, waiting = 0, [root]
  while waiting:
    process = waiting.pop()
    total += held.get(process, 0)
    waiting += children.get(process, [])
  return total


def in_child(script: str, **arguments: Any) -> Any:
  """Runs a script of ours in a process of its own, as `child` has it.

  Args:
    script: its path.
    arguments: handed over as JSON.

  Returns:
    What its function returned, by way of JSON.

  Raises:
    RuntimeError: it failed; with what it said.
  """
  command = [sys.executable, script, _CHILD, json.dumps(arguments)]
  done = subprocess.run(command, capture_output=True, text=True, check=False)
  if done.returncode:
    raise RuntimeError(f"{script} failed with {arguments}:\n{done.stderr}")
  return json.loads(done.stdout.splitlines()[-1])


def child(function: Callable[..., Any]) -> bool:
  """Calls a function and prints what it returns, if this is `in_child`.

  Returns:
    Whether it was.
  """
  if sys.argv[1:2] != [_CHILD]:
    return False
  print(json.dumps(function(**json.loads(sys.argv[2]))))
  return True


def document_lengths(rng: np.random.Generator, count: int) -> np.ndarray:
  """Returns int32[count], lognormal with a mean of 400 tokens, at least 2."""
  lengths = rng.lognormal(np.log(_MEAN_LENGTH) - 0.5, 1.0, count)
  return np.maximum(lengths, 2).astype(np.int32)


def write_corpus(
  folder: Path, *, num_documents: int, with_tokens: bool = True
) -> str:
  """Writes a `.idx`/`.bin` pair of uint16 and returns its prefix.

  Lengths are lognormal with a mean of 400 tokens. Without tokens the `.bin`
  has its size but takes no room on disk, and reads as zeros.
  """
  prefix = folder / f"corpus_{num_documents}"
  rng = np.random.default_rng(0)
  sections = [34, 34 + 4 * num_documents, 34 + 12 * num_documents]
  total = 0
  with (
    Path(f"{prefix}.idx").open("wb") as idx,
    Path(f"{prefix}.bin").open("wb") as tokens,
  ):
    idx.write(b"MMIDIDX\0\0" + np.uint64(1).tobytes() + np.uint8(8).tobytes())
    counts = np.array([num_documents, num_documents + 1], np.uint64)
    idx.write(counts.tobytes())
    for first in range(0, num_documents, _CHUNK):
      count = min(_CHUNK, num_documents - first)
      lengths = document_lengths(rng, count)
      ends = np.cumsum(lengths, dtype=np.int64)
      last = first + count == num_documents
      documents = np.arange(first, first + count + last, dtype=np.int64)
      parts = (lengths, 2 * (total + ends - lengths), documents)
      for section, (begin, part) in enumerate(zip(sections, parts)):
        idx.seek(begin + first * (4 if section == 0 else 8))
        idx.write(part.tobytes())
      if with_tokens:
        ids = rng.integers(1, VOCAB_SIZE, ends[-1], dtype=np.uint16)
        ids[ends - 1] = EOD
        tokens.write(ids.tobytes())
      total += int(ends[-1])
    tokens.truncate(2 * total)
  return str(prefix)


def touch(array: np.ndarray) -> None:
  """Reads a byte of every page, so that a mapping is warm."""
  np.add.reduce(array.view(np.uint8)[::4096])


def machine() -> str:
  """Says where and when this ran."""
  lines = Path("/proc/cpuinfo").read_text().splitlines()
  names = {line.split(": ")[1] for line in lines if "model name" in line}
  load = os.getloadavg()[0]
  today = datetime.datetime.now(datetime.UTC).date()
  return (
    f"{', '.join(names)}, {os.cpu_count()} cores, Python"
    f" {platform.python_version()}, {today}, load {load:.1f} at the end"
  )


def run(
  measure: Callable[[Path, argparse.Namespace], Iterable[Row]],
  **options: Any,
) -> None:
  """Runs a script: options from the command line, a folder, the table.

  Args:
    measure: (temporary folder, options) -> rows.
    options: further options and their defaults, numbers or texts; one whose
      default is a tuple takes one number or several.
  """
  parser = argparse.ArgumentParser()
  for name, default in options.items():
    flag = "--" + name.replace("_", "-")
    nargs = "+" if isinstance(default, tuple) else None
    kind = str if isinstance(default, str) else int
    parser.add_argument(flag, type=kind, nargs=nargs, default=default)
  arguments = parser.parse_args()
  with tempfile.TemporaryDirectory(prefix="hpgrain-benchmark-") as folder:
    rows = list(measure(Path(folder), arguments))
  print(HEADER)
  for row in rows:
    print(row)
  print(f"\n{machine()}")
