"""P2: where samples begin, over documents in shuffled order and as stored.

Both walk over lengths in memory. The floor is what a walk in shuffled order
cannot do without: each document's length, at random, here by NumPy's `take`.
Megatron's call holds its own checks, of the lengths before it and of what
comes out; ours checks as it walks.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import common
import megatron_peer
import numpy as np

from hpgrain import index

_SEQ_LENGTH = 4096
_GATHER = "gather of the lengths"
# How many times faster than Megatron; for documents in shuffled order, where
# they are so many that lengths come from memory.
_SHUFFLED_GOAL, _SHUFFLED_DOCUMENTS = 3.5, 100_000_000
_IN_ORDER_GOAL = 1


def _rows(
  work: str,
  lengths: np.ndarray,
  document_index: np.ndarray,
  *,
  goal: float | None,
  repeats: int,
) -> Iterator[common.Row]:
  num_tokens = int(lengths.sum(dtype=np.int64))

  def ours(i: int) -> np.ndarray:
    return index.sample_index(
      lengths,
      document_index,
      seq_length=_SEQ_LENGTH,
      num_epochs=1,
      tokens_per_epoch=num_tokens,
    )

  def megatron(i: int) -> np.ndarray:
    return megatron_peer.build_sample_index(
      lengths,
      document_index,
      seq_length=_SEQ_LENGTH,
      num_tokens=num_tokens,
    )

  # As wide as NumPy wants it, so that it converts nothing while it is timed.
  places = document_index.astype(np.intp)
  out = np.empty_like(lengths)
  calls: dict[str, Callable[[int], object]] = {
    "ours": ours,
    _GATHER: lambda i: lengths.take(places, out=out, mode="clip"),
  }
  has_peer = megatron_peer.is_installed()
  if has_peer:
    calls[megatron_peer.NAME] = megatron
    if not np.array_equal(megatron(0), ours(0)):
      raise RuntimeError(f"{megatron_peer.NAME} has other samples: {work}.")
  times = common.in_turn(calls, repeats=repeats, times=1)
  if has_peer:
    yield times.row(
      "P2", work, ours="ours", peer=megatron_peer.NAME, at_least=goal
    )
  else:
    text = "" if goal is None else f">= {goal:g}x faster"
    yield common.missing("P2", work, megatron_peer.NAME, text)
  yield times.row("P2", work, ours="ours", peer=_GATHER)


def measure(folder: Path, options: argparse.Namespace) -> Iterator[common.Row]:
  """Yields both orders for each number of documents."""
  del folder
  if megatron_peer.is_installed():
    megatron_peer.load()
  for documents in options.documents:
    lengths = common.document_lengths(np.random.default_rng(0), documents)
    order = np.arange(documents, dtype=np.int32)
    work = f"sample index, {documents:.0e} documents, seq {_SEQ_LENGTH}"
    yield from _rows(
      f"{work}, in order",
      lengths,
      order,
      goal=_IN_ORDER_GOAL,
      repeats=options.repeats,
    )
    index.shuffle(order, np.random.RandomState(1))
    yield from _rows(
      f"{work}, shuffled",
      lengths,
      order,
      goal=_SHUFFLED_GOAL if documents >= _SHUFFLED_DOCUMENTS else None,
      repeats=options.repeats,
    )


if __name__ == "__main__":
  common.run(measure, documents=common.SIZES, repeats=5)
