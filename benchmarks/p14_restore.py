"""P14: restore, and the first batch after it, rows packed from token arrays.

  a run to some row -> its state -> what goes on there -> 8 rows

Grain packs the bins of the interrupted batch again. A stream of ours reads
what was waiting again; plans pack the window that the row lies in, their
lengths measured already. Each restore is a new iterator's, and all that is
asked is checked to be what the uninterrupted run gives.
"""

import argparse
import dataclasses
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import common
import numpy as np
import packing_data as data

from hpgrain.fields import FieldOptions
from hpgrain.sources.by_index.in_memory import InMemoryRecords

_NUM_ROWS = 8
_FIELDS = FieldOptions(reset_position_ids=True)
_MOST_SECONDS = 2e-3
# Rows before a restore: neither the first of Grain's bins nor the last, not
# the same in every call.
_AT = (1000, 1013, 1023, 1031, 1040)
_PEERS = (data.GRAIN_FIRST_FIT, data.GRAIN_BEST_FIT, data.GRAIN_CONCAT)


def _ids(opened: Any) -> np.ndarray:
  fields = opened.fields(
    (0, data.SEQ_LENGTH), num_rows=_NUM_ROWS, options=_FIELDS
  )
  return fields[data.IDS]


def _rows_from(row: int) -> np.ndarray:
  return np.arange(row, row + _NUM_ROWS)


def _streams(source: InMemoryRecords) -> Callable[[int], np.ndarray]:
  streams = data.streams([source])
  states = []
  for row in _AT:
    reader = streams.open([0])
    reader.rows([row - 1])
    states.append(json.dumps(reader.state()))
    reader.close()

  def restore(i: int) -> np.ndarray:
    reader = streams.open([0])
    reader.restore([json.loads(states[i])])
    ids = _ids(reader.rows(_rows_from(_AT[i])))
    reader.close()
    return ids

  return restore


def _plans(source: InMemoryRecords) -> Callable[[int], np.ndarray]:
  member = data.measured(source)
  places = [data.plans_of([member]).place(row) for row in _AT]

  def restore(i: int) -> np.ndarray:
    samples = data.plans_of([member])
    samples.seek(*places[i])
    return _ids(samples.open_rows(_rows_from(_AT[i])))

  return restore


def _grain(
  arrays: list[np.ndarray], packer: str
) -> Callable[[int], np.ndarray]:
  rows = data.grain_rows(data.grain_source(arrays), packer)
  states, iterator = [], iter(rows)
  for row in range(max(_AT) + 1):
    if row in _AT:
      states.append(iterator.get_state())
    next(iterator)

  def restore(i: int) -> np.ndarray:
    iterator = iter(rows)
    iterator.set_state(states[i])
    return np.stack([next(iterator)[data.IDS] for _ in range(_NUM_ROWS)])

  return restore


def _uninterrupted(
  name: str, source: InMemoryRecords, arrays: list[np.ndarray]
) -> Iterator[np.ndarray]:
  """Yields what follows each place without a restore."""
  if name in _PEERS:
    iterator = iter(data.grain_rows(data.grain_source(arrays), name))
    found = [next(iterator)[data.IDS] for _ in range(max(_AT) + _NUM_ROWS)]
    yield from (np.stack(found[row : row + _NUM_ROWS]) for row in _AT)
    return
  for row in _AT:
    if name == "one stream":
      reader = data.streams([source]).open([0])
      reader.rows(np.arange(row))
      yield _ids(reader.rows(_rows_from(row)))
    else:
      yield _ids(data.plans([source]).open_rows(_rows_from(row)))


def measure(_: Path, options: argparse.Namespace) -> Iterator[common.Row]:
  """Yields streams against Grain, and plans."""
  arrays = data.examples(data.example_lengths(options.examples))
  source = data.records(arrays, "arrays")
  calls = {"one stream": _streams(source), "plans": _plans(source)}
  calls |= {peer: _grain(arrays, peer) for peer in _PEERS}
  exact = {
    name: all(
      np.array_equal(restore(i), expected)
      for i, expected in enumerate(_uninterrupted(name, source, arrays))
    )
    for name, restore in calls.items()
  }
  if not (exact["one stream"] and exact["plans"]):
    raise RuntimeError("A restored run of ours gives other rows.")
  times = common.in_turn(
    calls, repeats=options.repeats, times=len(_AT), clock=time.process_time
  )
  for name in ("one stream", "plans"):
    work = f"restore and the first {_NUM_ROWS} rows, {name}"
    for peer in _PEERS:
      bins = "" if peer == data.GRAIN_CONCAT else f", {data.BINS} bins"
      row = times.row(
        "P14",
        work,
        ours=name,
        peer=peer,
        at_most=1 if peer == data.GRAIN_FIRST_FIT else None,
      )
      said = "" if exact[peer] else ", NOT exact"
      yield dataclasses.replace(row, against=row.against + bins + said)
  seconds = times["plans"]
  yield common.Row(
    "P14",
    f"restore and the first {_NUM_ROWS} rows, plans",
    common.duration(seconds),
    "",
    common.duration(seconds),
    f"<= {common.duration(_MOST_SECONDS)}",
    seconds <= _MOST_SECONDS,
  )


if __name__ == "__main__":
  common.run(measure, examples=50_000, repeats=15)
