r"""Draws the pictures of docs/parallelism.md; draws nothing by hand.

Command to run:

python docs/draw_parallelism.py

It writes docs/figures/*.svg, the same bytes every time. Who holds what comes
from `shard.batch_layout` and `ContextLayout`, as for a batch; what a rank's
attention costs is counted in `parallelism_costs`.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

# Read when jax first makes its backend; someone who imports this decides.
if __name__ == "__main__":
  os.environ["JAX_PLATFORMS"] = "cpu"
  os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import draw_replica_read
import jax
import numpy as np
import parallelism_costs as costs
import svg_shapes as svg

from hpgrain import shard
from hpgrain.context_layout import DOCUMENT_ZIGZAG, LAYOUTS, ZIGZAG, Rooms

FOLDER = Path(__file__).parent / "figures"

NUM_ROWS, NUM_POSITIONS, MULTIPLE = 4, 16, 4
# Lengths of the documents of each row, for "document_zigzag".
DOCUMENTS = ((7, 4), (12, 3), (16,), (5, 6))


class Held(NamedTuple):
  """What a device holds.

  Attributes:
    place: its number on each axis of the mesh.
    rows: int32[n], of the batch.
    positions: int32[n, slots], of those rows.
  """

  place: dict[str, int]
  rows: np.ndarray
  positions: np.ndarray


def rooms() -> Rooms:
  """Returns the rooms of `DOCUMENTS`; what is left of a row is one, too."""
  found = []
  for lengths in DOCUMENTS:
    row = [-(-n // MULTIPLE) * MULTIPLE for n in lengths]
    found.append([*row, NUM_POSITIONS - sum(row)])
  splits = np.cumsum([0, *(len(row) for row in found)])
  return Rooms(splits, np.concatenate(found))


def held(name: str, *, sequence_parallel: bool = False) -> list[Held]:
  """Returns what d0, d1, ... hold of a batch on data 2 x cp 2 x tp 2.

  Args:
    name: of the layout.
    sequence_parallel: whether positions are split over (cp, tp).
  """
  sizes = {"data": 2, "cp": 2, "tp": 2}
  mesh = shard.make_mesh(tuple(sizes), sizes, jax.devices()[:8])
  context = shard.context_layout(mesh, name, segment_multiple=MULTIPLE)
  layout = shard.batch_layout(
    shard.batch_sharding(mesh, sequence_parallel=sequence_parallel),
    num_rows=NUM_ROWS,
    num_positions=NUM_POSITIONS,
    context=context,
  )
  order = context.order_of_rows(rooms(), NUM_POSITIONS)
  found = {}
  for part in layout.shards:
    rows = np.arange(*part.rows)
    for device in part.devices:
      found[device] = rows, order[rows, slice(*part.window)]
  return [
    Held(dict(zip(sizes, place)), *found[device])
    for place, device in np.ndenumerate(mesh.devices)
  ]


def draw_held(name: str, *, sequence_parallel: bool = False) -> str:
  """Draws who holds what under a layout."""
  found = held(name, sequence_parallel=sequence_parallel)
  packed = name == DOCUMENT_ZIGZAG
  bounds = rooms()
  empty = np.zeros((NUM_ROWS, NUM_POSITIONS), bool)
  document = np.zeros((NUM_ROWS, NUM_POSITIONS), int)
  for row, lengths in enumerate(DOCUMENTS if packed else ()):
    here = bounds.length[slice(*bounds.row_splits[row : row + 2])]
    document[row] = np.repeat(np.arange(len(here)), here)
    inside = np.arange(NUM_POSITIONS) - (np.cumsum(here) - here)[document[row]]
    empty[row] = inside >= np.array([*lengths, 0])[document[row]]
  holder = np.zeros((NUM_ROWS, NUM_POSITIONS, 2), int)
  for device in found:
    tp = device.place["tp"] if sequence_parallel else 0
    holder[device.rows[:, None], device.positions] = device.place["cp"], tp

  def row_of(
    corner: tuple[int, int], size: tuple[int, int], row: int, at: np.ndarray
  ) -> list[str]:
    fills = [
      svg.GREY
      if empty[row, i]
      else svg.COLOURS[holder[row, i, 0]][holder[row, i, 1]]
      for i in at
    ]
    here = document[row, at]
    edges = np.flatnonzero(here[1:] != here[:-1]) + 1
    return svg.cells(
      corner,
      size,
      numbers=at.tolist(),
      fills=fills,
      edges=edges.tolist(),
    )

  shapes = [
    svg.text(
      24, 70, "The batch, row after row: 4 rows of 16 positions", size=16
    ),
    *_legend(sequence_parallel=sequence_parallel, packed=packed),
  ]
  every = np.arange(NUM_POSITIONS)
  for row in range(NUM_ROWS):
    y = 84 + row * 30 + row // 2 * 12
    shapes.append(svg.text(24, y + 18, f"row {row}"))
    shapes += row_of((80, y), (34, 26), row, every)
  for share in range(2):
    y = 84 + share * 72
    shapes.append(svg.line([(636, y), (644, y), (644, y + 56), (636, y + 56)]))
    shapes.append(svg.text(654, y + 33, f"data {share}"))
  said = "The devices, row after row and slot after slot"
  shapes.append(svg.text(24, 254, said + "; numbers are positions", size=16))
  for i, device in enumerate(found):
    x, y = 24 + i % 4 * 216, 270 + i // 4 * 122
    place = ", ".join(f"{axis} {n}" for axis, n in device.place.items())
    shapes.append(svg.box(x, y, 204, 110, "#f6f8fa"))
    shapes.append(svg.text(x + 8, y + 22, f"d{i}", size=16, bold=True))
    shapes.append(
      svg.text(x + 196, y + 22, place, size=14, anchor="end", colour=svg.SOFT)
    )
    for j, row in enumerate(device.rows.tolist()):
      shapes.append(
        svg.text(x + 8, y + 52 + j * 34, str(row), size=14, colour=svg.SOFT)
      )
      shapes += row_of(
        (x + 24, y + 34 + j * 34), (22, 26), row, device.positions[j]
      )
  title = f"{name}: who holds what on data 2 x cp 2 x tp 2"
  if sequence_parallel:
    title = f"{name} with sequence parallelism, on data 2 x cp 2 x tp 2"
  return svg.picture(title, 526, shapes)


def _legend(*, sequence_parallel: bool, packed: bool) -> list[str]:
  entries = [
    (f"cp {cp}" + (f", tp {tp}" if sequence_parallel else ""), colour)
    for cp in range(2)
    for tp, colour in enumerate(svg.COLOURS[cp][: 1 + sequence_parallel])
  ]
  if packed:
    entries.append(("padding", svg.GREY))
  shapes = []
  for i, (said, colour) in enumerate(entries):
    y = 84 + i * 28
    shapes += [svg.box(744, y, 20, 20, colour), svg.text(772, y + 15, said)]
  if packed:
    y = 84 + len(entries) * 28
    shapes.append(svg.line([(754, y - 1), (754, y + 21)]))
    shapes.append(svg.text(772, y + 15, "another room"))
  return shapes


def _bars(
  y: int, title: str, unit: str, groups: Sequence[tuple[str, Sequence[float]]]
) -> list[str]:
  """Draws groups of bars, one a rank, above a line at y + 150."""
  shapes = [
    svg.text(24, y, title, size=16, bold=True),
    svg.text(24, y + 22, unit, size=14, colour=svg.SOFT),
  ]
  top = max(max(values) for _, values in groups)
  for i, (name, values) in enumerate(groups):
    x = 40 + i * 212
    for rank, value in enumerate(values):
      height = round(86 * value / top)
      left = x + rank * 44
      shapes.append(
        svg.box(left, y + 150 - height, 38, height, svg.COLOURS[rank][0])
      )
      said = f"{value:.2f}" if isinstance(value, float) else str(value)
      shapes.append(svg.number(left + 19, y + 144 - height, said))
    shapes.append(svg.line([(x - 6, y + 150), (x + 176, y + 150)], width=1))
    shapes.append(svg.text(x + 85, y + 170, name, anchor="middle"))
  return shapes


def draw_costs() -> str:
  """Draws what attention costs each rank by layout."""

  def shares(pairs: np.ndarray) -> list[float]:
    return [float(value) for value in pairs / pairs.mean()]

  fixed = [name for name in LAYOUTS if name != DOCUMENT_ZIGZAG]
  size = costs.NUM_POSITIONS
  packed = ", ".join(map(str, costs.PACKED[:-1])) + f" and {costs.PACKED[-1]}"
  unit = "pairs of a query and a key that it sees, relative to the mean"
  shapes = _bars(
    80,
    f"One document of {size} positions",
    unit,
    [(name, shares(costs.seen_pairs(name))) for name in fixed],
  )
  shapes += _bars(
    290,
    f"Documents of {packed}; the kernel skips what lies in others",
    unit,
    [
      (name, shares(costs.seen_pairs(name, lengths=costs.PACKED)))
      for name in LAYOUTS
    ],
  )
  shapes += _bars(
    500,
    f"Blocks of {costs.BLOCK} x {costs.BLOCK} that are not empty",
    f"one document of {size}; keys gathered in the order of the row",
    [(name, costs.splash_blocks(name).tolist()) for name in fixed],
  )
  for rank in range(costs.NUM_RANKS):
    x = 676 + rank % 2 * 90
    y = 90 + rank // 2 * 30
    shapes.append(svg.box(x, y, 20, 20, svg.COLOURS[rank][0]))
    shapes.append(svg.text(x + 28, y + 15, f"cp {rank}"))
  title = (
    "What causal attention costs each of 4 ranks: a step waits for the most"
  )
  return svg.picture(title, 694, shapes)


def pictures() -> dict[str, str]:
  """Returns every picture by the name of its file."""
  drawn = {f"holds_{name}.svg": draw_held(name) for name in LAYOUTS}
  drawn["holds_sequence_parallel.svg"] = draw_held(
    ZIGZAG, sequence_parallel=True
  )
  drawn["costs.svg"] = draw_costs()
  drawn["replica_read.svg"] = draw_replica_read.draw()
  return drawn


def main() -> None:
  """Writes the pictures."""
  FOLDER.mkdir(exist_ok=True)
  for name, drawn in pictures().items():
    (FOLDER / name).write_text(drawn, "utf-8")


if __name__ == "__main__":
  main()
