"""P4: a start of Megatron's order whose indices are in the cache.

Ours opens the pair, finds the three indices and plans a batch of 8 rows;
Megatron opens its datasets, with all three indices, and reads no row. Each
start is a process of its own, and every file's pages are in memory.
"""

import argparse
import shutil
from collections.abc import Iterator
from pathlib import Path

import common
import megatron_peer
import starts

_NUM_ROWS = 8
_GOAL = 10e-3


def _times(prefix: str, folder: Path, repeats: int) -> common.Times:
  """Fills a cache for each, then starts them in turn."""
  names = starts.names()
  caches = {name: folder / f"cache_{i}" for i, name in enumerate(names)}
  for name, cache in caches.items():
    starts.start(name, prefix, cache)
  seconds: dict[str, list[float]] = {name: [] for name in names}
  for turn in range(repeats):
    for shift in range(len(names)):
      name = names[(turn + shift) % len(names)]
      one = starts.start(name, prefix, caches[name], plan_rows=_NUM_ROWS)
      seconds[name].append(one.seconds)
  for cache in caches.values():
    shutil.rmtree(cache)
  return common.Times(seconds)


def measure(folder: Path, options: argparse.Namespace) -> Iterator[common.Row]:
  """Yields ours against Megatron, and the largest against the smallest."""
  ours, peer = starts.OURS, megatron_peer.NAME
  found: dict[int, float] = {}
  for documents in options.documents:
    prefix = common.write_corpus(
      folder, num_documents=documents, with_tokens=False
    )
    times = _times(prefix, folder, options.repeats)
    Path(f"{prefix}.idx").unlink()
    found[documents] = times[ours]
    work = f"warm start, megatron order, {documents:.0e} documents"
    yield common.Row(
      "P4",
      f"{work}, to the plan of {_NUM_ROWS} rows",
      common.duration(times[ours]),
      "",
      "",
      f"<= {_GOAL * 1e3:g} ms",
      times[ours] <= _GOAL,
    )
    if peer in starts.names():
      yield times.row("P4", work, ours=ours, peer=peer)
    else:
      yield common.missing("P4", work, peer, "")
  small, large = min(found), max(found)
  if small < large:
    yield common.Row(
      "P4",
      f"warm start, megatron order, {large:.0e} documents",
      common.duration(found[large]),
      f"{small:.0e} documents: {common.duration(found[small])}",
      f"{found[large] / found[small]:.2f}x",
      "flat",
      None,
    )


if __name__ == "__main__":
  common.run(measure, documents=common.SIZES, repeats=5)
