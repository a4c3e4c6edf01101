"""Draws how rows that several processes need are made once, and exchanged.

Who makes what comes from `reshard.find_exchange`, of a mesh of devices that
stand for those of four processes. `draw_parallelism` writes the picture.
"""

import dataclasses

import svg_shapes as svg

from hpgrain import reshard, shard

NUM_ROWS, NUM_POSITIONS = 4, 16


@dataclasses.dataclass(frozen=True, order=True)
class _Device:
  """Stands for a device of some process, of which a mesh may be made."""

  id: int
  process_index: int
  platform: str = "cpu"
  device_kind: str = "cpu"


def shares() -> list[tuple[shard.BatchLayout, shard.BatchLayout]]:
  """Returns what each of 4 processes makes and wants, where they split rows.

  The mesh is data 2 x cp 2 x tp 2; a process has the devices of one cp rank.
  """
  sizes = {"data": 2, "cp": 2, "tp": 2}
  devices = [_Device(i, i // 2) for i in range(8)]
  wanted = shard.batch_sharding(shard.make_mesh(tuple(sizes), sizes, devices))
  exchange = reshard.find_exchange(wanted)
  assert exchange is not None
  found = []
  for process in range(4):
    made, held = (
      shard.batch_layout(
        sharding,
        num_rows=NUM_ROWS,
        num_positions=NUM_POSITIONS,
        devices=[d for d in devices if d.process_index == process],
      )
      for sharding in (exchange.made, wanted)
    )
    found.append((made, held))
  return found


def draw() -> str:
  """Draws how rows that several processes need are made once."""
  layouts = shares()
  maker = {
    row: process
    for process, (made, _) in enumerate(layouts)
    for part in made.shards
    for row in range(*part.rows)
  }
  shapes = [
    svg.text(24, 72, "Made: whole rows, each by one process", size=16),
    svg.text(604, 72, "Handed out: as the mesh has it", size=16),
    svg.text(500, 96, "exchange", anchor="middle", colour=svg.SOFT),
  ]
  for process, both in enumerate(layouts):
    y = 88 + process * 104
    for x, width, layout, w in (
      (24, 404, both[0], 22),
      (604, 272, both[1], 28),
    ):
      names = ", ".join(f"d{d.id}" for d in layout.shards[0].devices)
      shapes += [
        svg.box(x, y, width, 94, "#f6f8fa"),
        svg.text(x + 8, y + 20, f"process {process}", bold=True),
        svg.text(
          x + width - 8, y + 20, names, size=14, anchor="end", colour=svg.SOFT
        ),
      ]
      for part in layout.shards:
        for i, row in enumerate(range(*part.rows)):
          top = y + 28 + i * 31
          slots = range(*part.window)
          shapes.append(
            svg.text(x + 8, top + 18, str(row), size=14, colour=svg.SOFT)
          )
          shapes += svg.cells(
            (x + 32, top),
            (w, 26),
            numbers=slots,
            fills=[svg.COLOURS[maker[row]][0]] * len(slots),
          )
    rows = {row for part in both[1].shards for row in range(*part.rows)}
    for other in sorted({maker[row] for row in rows}):
      shapes.append(
        svg.arrow(
          (432, 135 + other * 104),
          (600, 135 + process * 104),
          dashed=other == process,
        )
      )
  for y, said in (
    (
      526,
      "Colours: rows, by the process that makes them. Numbers: slots. Dashed:"
      " stays in the process.",
    ),
    (
      548,
      "tp 0 and tp 1 lie in one process and hold the same rows: nothing is"
      " divided between them.",
    ),
  ):
    shapes.append(svg.text(24, y, said, size=14))
  title = "replica_read=split, on data 2 x cp 2 x tp 2 in 4 processes"
  return svg.picture(title, 568, shapes)
