"""Context-parallel layouts by their definition, a position at a time.

What `hpgrain.context_layout` must give, whatever it does to be fast.
"""

from collections.abc import Mapping, Sequence

import numpy as np

LAYOUTS = ("contiguous", "zigzag", "striped", "document_zigzag")


def zigzag(positions: Sequence[int], rank: int, num_ranks: int) -> list[int]:
  """What a rank holds of positions cut into 2 * num_ranks chunks."""
  each = len(positions) // (2 * num_ranks)
  assert len(positions) == each * 2 * num_ranks
  held = []
  for chunk in (rank, 2 * num_ranks - 1 - rank):
    for i in range(each):
      held.append(positions[chunk * each + i])
  return held


def order(
  name: str,
  num_ranks: int,
  num_positions: int,
  rooms: Sequence[int] = (),
) -> list[int]:
  """The position that each slot of a row holds; `rooms` of each segment."""
  positions = list(range(num_positions))
  if num_ranks == 1 or name == "contiguous":
    return positions
  held = []
  for rank in range(num_ranks):
    if name == "striped":
      held += [p for p in positions if p % num_ranks == rank]
    elif name == "zigzag":
      held += zigzag(positions, rank, num_ranks)
    else:
      begin = 0
      for room in rooms:
        held += zigzag(positions[begin : begin + room], rank, num_ranks)
        begin += room
      assert begin == num_positions
  return held


def rooms(
  lengths: Sequence[int], multiple: int, num_positions: int
) -> list[int]:
  """The rooms of segments of such lengths, and of the padding behind them."""
  found = []
  for length in lengths:
    room = length
    while room % multiple:
      room += 1
    found.append(room)
  if sum(found) < num_positions:
    found.append(num_positions - sum(found))
  return found


def lengths(segment_ids: Sequence[int]) -> list[int]:
  """How many positions each segment of a row has."""
  found = [0] * max(segment_ids, default=0)
  for segment in segment_ids:
    if segment:
      found[segment - 1] += 1
  return found


def segment_ids(
  lengths: Sequence[int], multiple: int, num_positions: int
) -> list[int]:
  """A row of segments of such lengths: 1, 2, ..., 0 where there is none."""
  row = []
  for number, length in enumerate(lengths):
    row += [number + 1] * length
    while len(row) % multiple:
      row.append(0)
  return row + [0] * (num_positions - len(row))


def in_slots(
  fields: Mapping[str, np.ndarray],
  name: str,
  num_ranks: int,
  *,
  multiple: int = 1,
) -> dict[str, np.ndarray]:
  """Fields [row, position] as [row, slot].

  Args:
    fields: with segment_ids, of a segment each document where rows have orders
      of their own.
    name: of the layout.
    num_ranks: of the context-parallel group.
    multiple: what the rooms of segments are multiples of.
  """
  made = {field: np.empty_like(values) for field, values in fields.items()}
  for row, ids in enumerate(fields["segment_ids"].tolist()):
    held = order(
      name, num_ranks, len(ids), rooms(lengths(ids), multiple, len(ids))
    )
    for slot, position in enumerate(held):
      for field, values in fields.items():
        made[field][row, slot] = values[row, position]
  return made
