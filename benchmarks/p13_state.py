"""P13: what a checkpoint holds, and what many sources cost, rows packed.

  plans     a row number, and where to look for it
  streams   of each where its records wait and which are used, and of each
            source where it is read

Bytes are those of compact JSON. A run's numbers grow, so plans are looked at
in their billionth row. Grain packs 32 bins of its mix of as many sources:
datasets read in turn, as our streams, or by number, as our plans.
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"

import common
import grain
import jax
import numpy as np
import packing_data as data

from hpgrain import shard
from hpgrain.batches import BatchSpec
from hpgrain.fields import FieldOptions
from hpgrain.loader import Loader
from hpgrain.stream_batches import STREAM_PARTS, StreamSpec

_NUM_ROWS = 8
_NUM_STREAMS = 64
_MANY = 128
_MOST = 256
# A place in plans of a long run: so many rows, about 1,600 a window.
_LATE = {"rows": 1_000_000_007, "window": 625_000, "first_row": 1_000_000_000}
_SLOWER = 1.1

_Parts = Sequence[Sequence[np.ndarray]]


def _size(state: Any) -> int:
  return len(json.dumps(state, separators=(",", ":")))


def _layout() -> shard.BatchLayout:
  mesh = shard.make_mesh(("data",), {"data": 1}, jax.devices()[:1])
  return shard.batch_layout(
    shard.batch_sharding(mesh),
    num_rows=_NUM_ROWS,
    num_positions=data.SEQ_LENGTH,
  )


def _ours(kind: str, parts: _Parts) -> grain.DatasetIterator:
  """Returns a loader's iterator over so many sources."""
  sources = [data.records(part, f"source_{i}") for i, part in enumerate(parts)]
  spec: BatchSpec | StreamSpec
  if kind == "plans":
    samples = data.plans(sources, shuffle=True)
    spec = BatchSpec(samples, _layout(), FieldOptions())
  else:
    rows = data.streams(sources, num_streams=_NUM_STREAMS)
    spec = StreamSpec(rows, _layout(), FieldOptions())
  return iter(Loader(spec, prefetch=0))


def _grain(kind: str, parts: _Parts) -> grain.DatasetIterator:
  """Returns Grain's iterator over rows packed of so many sources."""
  sources = [data.grain_source(part).repeat() for part in parts]
  options = grain.ReadOptions(num_threads=0)
  weights = [1.0] * len(parts)
  elements: grain.IterDataset
  if kind == "by number":
    elements = grain.MapDataset.mix(sources, weights).to_iter_dataset(options)
  else:
    elements = grain.IterDataset.mix(
      [source.to_iter_dataset(options) for source in sources], weights
    )
  return iter(data.grain_packed(elements, data.GRAIN_FIRST_FIT))


def _batch(iterator: grain.DatasetIterator, *, rows: int) -> Callable[..., Any]:
  return lambda _: [next(iterator) for _ in range(rows)]


def _plan_rows(state: dict[str, Any], of_one: int) -> Iterator[common.Row]:
  size = _size(state)
  yield common.Row(
    "P13",
    f"state of plans, {_MANY} sources, row 1e9",
    f"{size} B",
    f"one source: {of_one} B",
    f"{size} B",
    f"<= {_MOST} B",
    size <= _MOST,
  )


def _stream_rows(
  state: dict[str, Any], of_one: dict[str, Any], peer: int, peer_of_one: int
) -> Iterator[common.Row]:
  (part,), (one,) = state[STREAM_PARTS], of_one[STREAM_PARTS]
  entries = part["streams"].values()
  # An entry's third number is the pieces that it looks back on.
  most = max(_size(entry) - entry[2] / 4 for entry in entries)
  span = max(entry[2] for entry in entries)
  yield common.Row(
    "P13",
    f"state of a stream, {_MANY} sources, above a quarter of its waiting span",
    f"{most:.0f} B, the span at most {span}",
    "",
    f"{most:.0f} B",
    f"<= {_MOST} B",
    most <= _MOST,
  )
  size, small = _size(state), _size(of_one)
  places, place = _size(part["sources"]), _size(one["sources"])
  yield common.Row(
    "P13",
    f"state of {_NUM_STREAMS} streams, {_MANY} sources",
    f"{size} B, of which sources {places} B",
    f"one source: {small} B, of which sources {place} B",
    f"{size - small} B more",
    "flat",
    size - small <= 2 * _NUM_STREAMS,
  )
  yield common.Row(
    "P13",
    f"state of {_NUM_STREAMS} streams, {_MANY} sources",
    f"{size} B",
    f"grain, mix of IterDatasets, one iterator: {peer} B; one source:"
    f" {peer_of_one} B",
    "",
    "",
    None,
  )


def measure(_: Path, options: argparse.Namespace) -> Iterator[common.Row]:
  """Yields bytes of states, then times."""
  arrays = data.examples(data.example_lengths(options.examples))
  size = len(arrays) // _MANY
  many = [arrays[i * size : (i + 1) * size] for i in range(_MANY)]
  numbers = {1: [arrays], _MANY: many}
  iterators = {
    (kind, n): make(kind, parts)
    for make, kinds in (
      (_ours, ("plans", "streams")),
      (_grain, ("by number", "in turn")),
    )
    for kind in kinds
    for n, parts in numbers.items()
  }
  rows = dict.fromkeys(iterators, 1)
  rows |= {key: _NUM_ROWS for key in iterators if key[0] in _KINDS_OF_GRAIN}
  times = common.in_turn(
    {
      key: _batch(iterator, rows=rows[key])
      for key, iterator in iterators.items()
    },
    repeats=options.repeats,
    times=options.batches,
    clock=time.process_time,
  )
  states = {key: it.get_state() for key, it in iterators.items()}
  for n in numbers:
    # The same iterator, much later.
    late = iterators["plans", n]
    late.set_state({**states["plans", n], **_LATE})
    next(late)
    states["plans", n] = late.get_state()
  peers = {n: _size(states["in turn", n]) for n in numbers}
  yield from _plan_rows(states["plans", _MANY], _size(states["plans", 1]))
  yield from _stream_rows(
    states["streams", _MANY], states["streams", 1], peers[_MANY], peers[1]
  )
  for kind, name in _NAMES.items():
    is_ours = kind not in _KINDS_OF_GRAIN
    ratio = times.ratio((kind, _MANY), (kind, 1))
    yield common.Row(
      "P13",
      f"next(), {_MANY} sources, {name}, a batch of {_NUM_ROWS} rows",
      common.duration(times[kind, _MANY]),
      f"one source: {common.duration(times[kind, 1])}",
      f"{ratio:.2f}x",
      f"<= {_SLOWER:g}x" if is_ours else "",
      ratio <= _SLOWER if is_ours else None,
    )
  for iterator in iterators.values():
    iterator.close()


_KINDS_OF_GRAIN = ("by number", "in turn")
_NAMES = {
  "plans": "plans",
  "streams": "streams",
  "by number": "grain, mix of MapDatasets",
  "in turn": "grain, mix of IterDatasets",
}

if __name__ == "__main__":
  common.run(measure, examples=51_200, batches=100, repeats=7)
