"""P17: what Grain and the loader cost an element, beyond making it.

An element of ours is a whole batch. Its stages are timed by the loader
itself; what is left of the time of a `next` is Grain's and ours. The peer's
elements are numbers, so that all of its time is overhead.
"""

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"

import common
import grain
import jax

from hpgrain import loader, shard
from hpgrain.batch import FieldOptions
from hpgrain.mock import MockSamples

_WORK = "overhead of an element"


def _peer(options: grain.ReadOptions, prefetch: int) -> grain.DatasetIterator:
  elements = grain.MapDataset.range(1 << 40).to_iter_dataset(options)
  if prefetch:
    elements = elements.pipe(
      grain.experimental.ThreadPrefetchIterDataset,
      prefetch_buffer_size=prefetch,
    )
  return iter(elements)


def _ours(prefetch: int) -> loader.LoaderIterator:
  mesh = shard.make_mesh(("data",), {"data": 1}, jax.devices()[:1])
  layout = shard.batch_layout(
    shard.batch_sharding(mesh), num_rows=1, num_positions=8
  )
  samples = MockSamples(seq_length=8, vocab_size=16, seed=0)
  spec = loader.BatchSpec(samples, layout, FieldOptions())
  return iter(loader.Loader(spec, prefetch=prefetch))


def measure(_: Path, options: argparse.Namespace) -> Iterator[common.Row]:
  """Yields ours against threads=0 and against the default."""
  names = {
    0: ("ours", "grain, num_threads=0"),
    2: ("ours, prefetch 2", "grain, num_threads=0, prefetch 2"),
  }
  default = "grain, default ReadOptions"
  iterators: dict[str, grain.DatasetIterator] = {}
  for prefetch, (ours, peer) in names.items():
    iterators[ours] = _ours(prefetch)
    iterators[peer] = _peer(grain.ReadOptions(num_threads=0), prefetch)
  iterators[default] = _peer(grain.ReadOptions(), 0)

  seconds: dict[str, list[float]] = {name: [] for name in iterators}
  for turn in range(-1, options.repeats):
    for name, iterator in iterators.items():
      stages = 0.0
      began = time.perf_counter()
      for _ in range(options.elements):
        next(iterator)
        if isinstance(iterator, loader.LoaderIterator):
          times = iterator.last_times
          stages += times["plan"] + times["read"] + times["place"]
      elapsed = time.perf_counter() - began - stages
      if turn >= 0:
        seconds[name].append(elapsed / options.elements)
  for iterator in iterators.values():
    iterator.close()
  times = common.Times(seconds)
  for ours, peer in names.values():
    yield times.row("P17", _WORK, ours=ours, peer=peer, at_most=1.2)
    yield times.row("P17", _WORK, ours=ours, peer=default)


if __name__ == "__main__":
  common.run(measure, elements=500, repeats=21)
