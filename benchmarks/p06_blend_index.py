"""P6: Megatron's blend written out: the source of each position, and its row.

Megatron looks at every source for every position. The weights are lognormal,
as those of unlike sources are, or all equal, as a folder's files have them.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import common
import megatron_peer
import numpy as np

from hpgrain import _kernels, index

# (sources, how many times faster than Megatron for weights that differ)
_GOALS = ((2, 1), (16, 1), (128, 2), (1024, 8))
# From so many sources on a tenth of the positions: Megatron takes its time.
_MANY_SOURCES = 1024


def _megatron(weights: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
  from megatron.core.datasets import helpers

  source = np.zeros(size, np.int16)
  sample = np.zeros(size, np.int64)
  helpers.build_blending_indices(
    source, sample, weights, len(weights), size, False
  )
  return source, sample


def _row(
  work: str,
  weights: np.ndarray,
  size: int,
  *,
  goal: float | None,
  repeats: int,
) -> common.Row:
  calls: dict[str, Callable[[int], object]] = {
    "ours": lambda i: index.blend_index(weights, size)
  }
  has_peer = megatron_peer.is_installed()
  if has_peer:
    calls[megatron_peer.NAME] = lambda i: _megatron(weights, size)
    for ours, theirs in zip(
      index.blend_index(weights, size), _megatron(weights, size)
    ):
      if not np.array_equal(ours, theirs):
        raise RuntimeError(f"{megatron_peer.NAME} has other rows: {work}.")
  times = common.in_turn(calls, repeats=repeats, times=1, items=size)
  if has_peer:
    return times.row(
      "P6", work, ours="ours", peer=megatron_peer.NAME, at_least=goal
    )
  text = "" if goal is None else f">= {goal:g}x faster"
  return common.missing("P6", work, megatron_peer.NAME, text)


def measure(folder: Path, options: argparse.Namespace) -> Iterator[common.Row]:
  """Yields both kinds of weights for each number of sources."""
  del folder
  if megatron_peer.is_installed():
    megatron_peer.load()
  for sources, goal in _GOALS:
    size = options.samples // (10 if sources >= _MANY_SOURCES else 1)
    lognormal = np.random.default_rng(sources).lognormal(0, 1, sources)
    work = f"blend index, {sources} sources, {size:.0e} positions"
    yield _row(
      f"{work}, a position ({_kernels.isa()})",
      lognormal / lognormal.sum(),
      size,
      goal=goal,
      repeats=options.repeats,
    )
    yield _row(
      f"{work}, equal weights",
      np.full(sources, 1 / sources),
      size,
      goal=None,
      repeats=options.repeats,
    )


if __name__ == "__main__":
  common.run(measure, samples=10_000_000, repeats=5)
