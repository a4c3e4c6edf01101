"""P5: the stable order: start-up, memory, row -> plan, blend position.

Corpora of 1e6 and 1e8 documents, of which only the index exists (the `.bin`
is a hole): nothing here reads a token. Nobody else has such an order; what
has to be flat is shown beside what it is compared with.
"""

import argparse
import gc
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import common
import numpy as np

from hpgrain.blend import StableBlend
from hpgrain.samples import GPTSamples

_SEQ_LENGTH = 4096
_STARTS = 3
_CHILD = "--start"


def _private_bytes() -> int:
  """Memory of this process that no file backs."""
  for line in Path("/proc/self/status").read_text().splitlines():
    if line.startswith("RssAnon"):
      return int(line.split()[1]) * 1024
  raise RuntimeError("This system does not tell RssAnon.")


def _start(prefix: str) -> None:
  """In a process of its own: opens a corpus and plans one row; prints."""
  gc.disable()
  before = _private_bytes()
  began = time.perf_counter()
  samples = GPTSamples(prefix, seq_length=_SEQ_LENGTH, seed=1)
  samples.plan(0)
  seconds = time.perf_counter() - began
  print(json.dumps([seconds, _private_bytes() - before]))


def _starts(prefix: str) -> tuple[float, float]:
  """Returns the medians of (seconds, bytes) over fresh processes."""
  figures = []
  for _ in range(_STARTS):
    command = [sys.executable, __file__, _CHILD, prefix]
    out = subprocess.run(command, capture_output=True, text=True, check=True)
    figures.append(json.loads(out.stdout))
  seconds, memory = np.median(figures, axis=0)
  return float(seconds), float(memory)


def _start_rows(prefix: str, documents: int) -> Iterator[common.Row]:
  seconds, memory = _starts(prefix)
  work = f"stable order, {documents:.0e} documents: start and first plan"
  yield common.Row(
    "P5", work, f"{seconds * 1e3:.2f} ms", "", "", "<= 10 ms", seconds <= 10e-3
  )
  yield common.Row(
    "P5",
    f"{work}, memory",
    f"{memory / 2**20:.2f} MiB",
    "",
    "",
    "<= 1 MB",
    memory <= 1e6,
  )


def _plan_rows(prefix: str, documents: int, repeats: int) -> common.Row:
  """Times plans of rows at random, in pages that were touched before."""
  samples = GPTSamples(prefix, seq_length=_SEQ_LENGTH, seed=1)
  reader = samples.corpus.reader
  for column in (reader.pointers, reader.lengths, reader.document_indices):
    common.touch(column)
  batch, batches = 1024, 16
  rng = np.random.default_rng(2)
  rows = rng.integers(0, len(samples), (repeats + 1, batches, batch))
  turn = [-1]

  def plan(i: int) -> None:
    # New rows each turn, or they would come from the processor's cache.
    turn[0] += i == 0
    samples.plan_rows(rows[turn[0], i])

  times = common.in_turn(
    {"plan": plan}, repeats=repeats, times=batches, items=batch
  )
  return common.Row(
    "P5",
    f"row -> plan, {documents:.0e} documents, batches of {batch}",
    common.microseconds(times["plan"]),
    "",
    "",
    "<= 1.5 us",
    times["plan"] <= 1.5e-6,
  )


def _blend_rows(repeats: int) -> Iterator[common.Row]:
  for sources, limit in ((128, 0.2e-6), (1024, 0.4e-6)):
    rng = np.random.default_rng(sources)
    blend = StableBlend(rng.lognormal(0, 1, sources).tolist())
    for size in (8, 4096):
      positions = rng.integers(0, 10**10, (64, size))
      times = common.in_turn(
        {"locate": lambda i, b=blend, p=positions: b.locate(p[i])},
        repeats=repeats,
        times=64,
        items=size,
      )
      yield common.Row(
        "P5",
        f"blend position, {sources} sources, batches of {size}",
        common.microseconds(times["locate"]),
        "",
        "",
        f"<= {limit * 1e6:g} us",
        times["locate"] <= limit,
      )


def measure(folder: Path, options: argparse.Namespace) -> Iterator[common.Row]:
  """Yields start-up, memory and plans of both corpora, then blends."""
  for documents in (1_000_000, options.documents):
    prefix = common.write_corpus(
      folder, num_documents=documents, with_tokens=False
    )
    yield from _start_rows(prefix, documents)
    yield _plan_rows(prefix, documents, options.repeats)
    Path(f"{prefix}.idx").unlink()
  yield from _blend_rows(options.repeats)


if __name__ == "__main__":
  if sys.argv[1:2] == [_CHILD]:
    _start(sys.argv[2])
  else:
    common.run(measure, documents=100_000_000, repeats=15)
