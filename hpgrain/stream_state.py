r"""Where streams and sources stand, as JSON, and what of several saves to take.

  {"num_streams": V,
   "streams": {"<v>": [rows, at, arrived, "hex bits of used", offset]},
   "sources": [position, ...], "sources_at": g}

No token is in it. Every stream stands where it does after its last row,
whoever held it, so of several states of one save the one with the most rows
says where. Sources are read from a place that no stream needs anything before.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from hpgrain.arguments import MAX_ROW, integer
from hpgrain.stream_packer import Position

_KEYS = ("num_streams", "streams", "sources", "sources_at")


def first_position(stream: int) -> Position:
  """Returns where a stream begins."""
  return Position(rows=0, at=stream, arrived=0, used=0, offset=0)


def encode(position: Position) -> list[Any]:
  """Returns a stream's position as JSON, of the same types always."""
  return [
    position.rows,
    position.at,
    position.arrived,
    format(position.used, "x"),
    position.offset,
  ]


def make_state(
  num_streams: int,
  positions: Mapping[int, Position],
  *,
  sources_at: int,
  sources: Sequence[Any],
) -> dict[str, Any]:
  """Returns a process's state.

  Args:
    num_streams: V.
    positions: of each stream that it holds.
    sources_at: the record before which each source stands.
    sources: where, as JSON.
  """
  return {
    "num_streams": num_streams,
    "streams": {str(v): encode(p) for v, p in positions.items()},
    "sources": list(sources),
    "sources_at": sources_at,
  }


def merge(
  states: Sequence[Mapping[str, Any]], streams: Sequence[int], num_streams: int
) -> tuple[dict[int, Position], int, list[Any]]:
  """Finds where streams go on after a save.

  Args:
    states: of all processes of the save.
    streams: those that are held now.
    num_streams: V.

  Returns:
    Each stream's position, the record to read from, and every source's
    position before it.

  Raises:
    ValueError: one is no state, of another number of streams, or none has
      one of the streams.
  """
  for state in states:
    _check(state, num_streams)
  positions = {v: _latest(states, v) for v in streams}
  oldest = min((p.at for p in positions.values()), default=MAX_ROW)
  usable = [state for state in states if state["sources_at"] <= oldest]
  if not usable:
    raise ValueError(
      f"No part of this state says where its sources are before record"
      f" {oldest}, which a stream needs. A part is missing: restore an earlier"
      " save."
    )
  newest = max(usable, key=lambda state: state["sources_at"])
  return positions, newest["sources_at"], list(newest["sources"])


def _check(state: Mapping[str, Any], num_streams: int) -> None:
  if not isinstance(state, Mapping) or sorted(state) != sorted(_KEYS):
    raise ValueError(
      f"A state of row streams has the keys {', '.join(_KEYS)}, got"
      f" {state!s:.200}."
    )
  if state["num_streams"] != num_streams:
    raise ValueError(
      f"This state is of {state['num_streams']} streams, and there are"
      f" {num_streams}: their rows are others. Take with_num_streams of the"
      " saved number."
    )
  integer("A state's sources_at", state["sources_at"], minimum=0)


def _latest(states: Sequence[Mapping[str, Any]], stream: int) -> Position:
  found = [
    _decode(state["streams"][str(stream)], stream)
    for state in states
    if str(stream) in state["streams"]
  ]
  if not found:
    raise ValueError(
      f"No part of this state has stream {stream}: a process's part is"
      " missing. Restore an earlier save."
    )
  return max(found, key=lambda position: position.rows)


def _decode(entry: Any, stream: int) -> Position:
  try:
    rows, at, arrived, used, offset = entry
    return Position(
      rows=integer("rows", rows, minimum=0),
      at=integer("at", at, minimum=0),
      arrived=integer("arrived", arrived, minimum=0),
      used=int(used, 16),
      offset=integer("offset", offset, minimum=0),
    )
  except (TypeError, ValueError) as error:
    raise ValueError(
      f"Stream {stream} of this state is no [rows, at, arrived, bits, offset]:"
      f" {entry!s:.200} ({error})."
    ) from None
