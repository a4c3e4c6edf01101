"""P3: the first start of Megatron's order: all three indices from an `.idx`.

One epoch. Without a cache the indices stay in memory; with one they are
written there, and ours are on the disk (fsync) when the time ends, Megatron's
where the system has them. The `.bin` is a hole: no token is read.
"""

import argparse
import shutil
from collections.abc import Iterator
from pathlib import Path

import common
import megatron_peer
import numpy as np
import starts

# Of a start at so many documents: how many times faster than Megatron, and
# bytes a document above the arrays that are kept.
_GOAL_DOCUMENTS = 100_000_000
_IN_MEMORY_GOAL, _WRITTEN_GOAL = 5, 4
_MEMORY_GOAL = 8


def _rows(
  prefix: str, cache: Path | None, documents: int, repeats: int
) -> Iterator[common.Row]:
  names = starts.names()
  done: dict[str, list[starts.Start]] = {name: [] for name in names}
  for turn in range(repeats):
    for shift in range(len(names)):
      name = names[(turn + shift) % len(names)]
      done[name].append(starts.start(name, prefix, cache))
      if cache is not None:
        shutil.rmtree(cache)
  if len({one.checksum for each in done.values() for one in each}) > 1:
    raise RuntimeError(f"{' and '.join(names)} built different indices.")

  how = "in memory" if cache is None else "cache written"
  work = f"cold start, megatron order, {documents:.0e} documents, {how}"
  peer = megatron_peer.NAME
  has_goal = documents >= _GOAL_DOCUMENTS
  goal = None
  if has_goal:
    goal = _IN_MEMORY_GOAL if cache is None else _WRITTEN_GOAL
  if peer in names:
    times = common.Times(
      {name: [one.seconds for one in each] for name, each in done.items()}
    )
    yield times.row("P3", work, ours=starts.OURS, peer=peer, at_least=goal)
  else:
    text = "" if goal is None else f">= {goal}x faster"
    yield common.missing("P3", work, peer, text)
  extra = {
    name: float(np.median([one.extra_bytes for one in each]))
    for name, each in done.items()
  }
  yield common.Row(
    "P3",
    f"{work}: memory above the indices",
    common.bytes_each(extra[starts.OURS], documents),
    f"{peer}: {common.bytes_each(extra[peer], documents)}"
    if peer in extra
    else "",
    "",
    f"<= {_MEMORY_GOAL} B/doc" if has_goal else "",
    extra[starts.OURS] <= _MEMORY_GOAL * documents if has_goal else None,
  )


def measure(folder: Path, options: argparse.Namespace) -> Iterator[common.Row]:
  """Yields times and memory, without a cache and with one."""
  for documents in options.documents:
    prefix = common.write_corpus(
      folder, num_documents=documents, with_tokens=False
    )
    for cache in (None, folder / "cache"):
      yield from _rows(prefix, cache, documents, options.repeats)
    Path(f"{prefix}.idx").unlink()


if __name__ == "__main__":
  common.run(measure, documents=common.SIZES, repeats=3)
