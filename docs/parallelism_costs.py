r"""Counts what docs/parallelism.md says that layouts cost, and prints it.

Command to run:

python docs/parallelism_costs.py

What attention costs is counted in pairs of a query and a key that it sees,
from the positions that `ContextLayout` gives each rank. No time is measured.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from hpgrain.context_layout import (
  DOCUMENT_ZIGZAG,
  LAYOUTS,
  ContextLayout,
  Rooms,
)
from hpgrain.fields import FieldOptions
from hpgrain.mock import MockSamples
from hpgrain.packing import PackingOptions, pack_window
from hpgrain.slices import Slices

NUM_POSITIONS, NUM_RANKS, BLOCK = 1024, 4, 128
# A packed row: the lengths of its documents, and what is left is padding.
PACKED = (512, 256, 128, 64, 64)


def positions_of_ranks(
  name: str, *, lengths: Sequence[int] = (NUM_POSITIONS,)
) -> np.ndarray:
  """Returns int32[NUM_RANKS, n]: which positions of a row each rank holds.

  Args:
    name: of the layout.
    lengths: of the row's documents, multiples of 2 x NUM_RANKS that fill it.
  """
  multiple = 2 * NUM_RANKS
  context = ContextLayout(name, NUM_RANKS, multiple)
  rooms = Rooms(np.array([0, len(lengths)]), np.array(lengths))
  order = context.order_of_rows(rooms, NUM_POSITIONS)
  return order.reshape(NUM_RANKS, -1)


def seen_pairs(
  name: str, *, lengths: Sequence[int] = (NUM_POSITIONS,)
) -> np.ndarray:
  """Returns int64[NUM_RANKS]: keys that the queries of each rank see.

  A query sees the keys of its own document up to its own.
  """
  begin = np.repeat(np.cumsum(lengths) - lengths, lengths)
  seen = np.arange(NUM_POSITIONS) - begin + 1
  return seen[positions_of_ranks(name, lengths=lengths)].sum(axis=1)


def ring_pairs(name: str) -> np.ndarray:
  """Returns int64[steps, NUM_RANKS]: pairs in each step of ring attention.

  In step i rank r has the keys of rank r - i. The row is one document.
  """
  held = positions_of_ranks(name)
  return np.array(
    [
      [
        (held[rank][:, None] >= held[rank - step][None]).sum()
        for rank in range(NUM_RANKS)
      ]
      for step in range(NUM_RANKS)
    ]
  )


def splash_blocks(name: str) -> np.ndarray:
  """Returns int64[NUM_RANKS]: blocks of BLOCK x BLOCK that are not empty.

  Queries stand in the order of the layout and keys in that of the row, as for
  a kernel whose keys were gathered from all ranks. The row is one document.
  """
  held = positions_of_ranks(name).reshape(NUM_RANKS, -1, BLOCK)
  last = held.max(axis=2)[:, :, None]
  keys = np.arange(0, NUM_POSITIONS, BLOCK)
  return (last >= keys).sum(axis=(1, 2))


def lognormal_lengths() -> np.ndarray:
  """Returns int32[16384]: lengths of documents, lognormal, of mean 400."""
  rng = np.random.default_rng(0)
  lengths = rng.lognormal(np.log(400) - 0.5, 1.0, 16384)
  return np.maximum(lengths, 1).astype(np.int32)


def padding_share(multiple: int, *, budget: int = 4096) -> float:
  """Returns how much of packed rows is padding.

  Args:
    multiple: dataloader.segment_multiple.
    budget: positions of a row; documents are cut where they are longer.
  """
  lengths = lognormal_lengths()
  options = PackingOptions(
    budget=budget, segment_multiple=multiple, overlong="split"
  )
  pieces, row_splits = pack_window(lengths, options)
  assert pieces.length.sum() == lengths.sum()
  return 1 - lengths.sum() / ((len(row_splits) - 1) * budget)


class _Counted:
  """Rows that count the positions they are asked for."""

  def __init__(self, samples: MockSamples) -> None:
    self._opened = samples.open_rows([0])
    self.windows: list[tuple[int, int]] = []

  def fields(self, window: tuple[int, int], **how: Any) -> Any:
    """Returns positions [a, b), and remembers them."""
    self.windows.append(window)
    return self._opened.fields(window, **how)


def windows_read(name: str) -> list[list[tuple[int, int]]]:
  """Returns the windows of a row's positions that each rank reads.

  Each rank is a process of its own.
  """
  samples = MockSamples(seq_length=NUM_POSITIONS, seed=0, vocab_size=100)
  each, found = NUM_POSITIONS // NUM_RANKS, []
  for rank in range(NUM_RANKS):
    rows, window = _Counted(samples), (rank * each, (rank + 1) * each)
    Slices(
      rows,
      context=ContextLayout(name, NUM_RANKS),
      num_positions=NUM_POSITIONS,
      num_rows=1,
      windows=[window],
      options=FieldOptions(),
    ).fields(window)
    found.append(rows.windows)
  return found


def _say(title: str, rows: Iterable[Sequence[Any]]) -> None:
  print(f"\n{title}")
  for row in rows:
    print("  " + "  ".join(f"{cell!s:>15}" for cell in row))


def main() -> None:
  """Prints every number."""
  fixed = [name for name in LAYOUTS if name != DOCUMENT_ZIGZAG]
  _say(
    f"pairs a rank, {NUM_POSITIONS} positions, one document",
    ([name, *seen_pairs(name)] for name in fixed),
  )
  _say(
    f"the same, documents of {PACKED}",
    ([name, *seen_pairs(name, lengths=PACKED)] for name in LAYOUTS),
  )
  _say(
    "ring attention: the most pairs of a rank in each step, and their sum",
    (
      [name, *ring_pairs(name).max(axis=1), ring_pairs(name).max(axis=1).sum()]
      for name in fixed
    ),
  )
  _say(
    f"blocks of {BLOCK} that are not empty",
    ([name, *splash_blocks(name)] for name in fixed),
  )
  _say("windows read", ([name, *windows_read(name)] for name in fixed))
  _say(
    "padding by segment_multiple, 4096 positions a row",
    ([m, f"{padding_share(m):.2%}"] for m in (1, 2, 4, 8, 16, 32, 64, 128)),
  )


if __name__ == "__main__":
  main()
