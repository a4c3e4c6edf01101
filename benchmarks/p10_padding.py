"""P10: how much of packed rows of 4096 is padding.

Row streams see an example's neighbours (a lookahead of 64), plans a window of
16,384, the floor (best-fit-decreasing, offline) all examples at once. Grain's
BestFit fills 32 bins at a time. No time is measured, so a busy machine
changes nothing.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import common
import numpy as np
import packing_data as data

from hpgrain import pack
from hpgrain.sources.by_index.in_memory import InMemoryRecords

_OFFLINE = "offline best-fit-decreasing"
# By whether lengths are uniform: what streams may pad, in percent, and what
# plans may pad above the floor, in points.
_GOALS = {False: (0.17, 0.3), True: (3.4, 0.5)}


def _padding(num_tokens: int, num_rows: int) -> float:
  """Returns what part of rows holds no token, in percent."""
  return 100 * (1 - num_tokens / (num_rows * data.SEQ_LENGTH))


def _streams(sources: Sequence[InMemoryRecords], num_rows: int) -> float:
  reader = data.streams(sources).open([0])
  reader.rows(np.arange(num_rows))
  counters = reader.counters()
  return 100 * counters["padded"] / (num_rows * data.SEQ_LENGTH)


def _plans(sources: Sequence[InMemoryRecords]) -> float:
  samples = data.plans(sources, shuffle=True, epochs=1)
  num_rows = len(samples)
  counters = samples.counters(num_rows)
  return 100 * counters["padded"] / (num_rows * data.SEQ_LENGTH)


def _grain(arrays: Sequence[np.ndarray], num_rows: int) -> float:
  rows = iter(data.grain_rows(data.grain_source(arrays), data.GRAIN_BEST_FIT))
  segments = f"{data.IDS}_segment_ids"
  filled = sum(
    int(np.count_nonzero(next(rows)[segments])) for _ in range(num_rows)
  )
  return _padding(filled, num_rows)


def measure(_: Path, options: argparse.Namespace) -> Iterator[common.Row]:
  """Yields streams and plans for each kind of lengths."""
  for uniform, (stream_goal, plan_goal) in _GOALS.items():
    lengths = data.example_lengths(options.examples, uniform=uniform)
    # What the ids are does not matter, so all share the memory of one array.
    row = np.ones(data.SEQ_LENGTH, np.int32)
    arrays = [row[:length] for length in lengths.tolist()]
    sources = [data.records(arrays, "arrays")]
    offline = pack.best_fit_decreasing(lengths, budget=data.SEQ_LENGTH)
    floor = _padding(int(lengths.sum(dtype=np.int64)), len(offline))
    # Rows of streams and of Grain, well before the last, which stay short.
    num_rows = min(options.rows, len(offline) // 2 // data.BINS * data.BINS)
    streams = _streams(sources, num_rows)
    plans = _plans(sources)
    peer = _grain(arrays, num_rows)
    kind = "uniform, 1 to 4096" if uniform else "lognormal, mean 400"
    yield common.Row(
      "P10",
      f"padding, streams, lengths {kind}",
      f"{streams:.2f} %",
      f"{data.GRAIN_BEST_FIT}, {data.BINS} bins: {peer:.2f} %",
      f"{peer / streams:.1f}x less",
      f"<= {stream_goal:g} %",
      streams <= stream_goal,
    )
    yield common.Row(
      "P10",
      f"padding, plans, lengths {kind}",
      f"{plans:.2f} %",
      f"{_OFFLINE}: {floor:.2f} %",
      f"{plans - floor:.2f} points more",
      f"<= {plan_goal:g} points more",
      plans - floor <= plan_goal,
    )
    yield common.Row(
      "P10",
      f"padding, plans, lengths {kind}",
      f"{plans:.2f} %",
      f"{data.GRAIN_BEST_FIT}, {data.BINS} bins: {peer:.2f} %",
      f"{peer / plans:.1f}x less",
      "",
      None,
    )


if __name__ == "__main__":
  common.run(measure, examples=200_000, rows=3200)
