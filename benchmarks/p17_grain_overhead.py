"""P17: what Grain and the loader cost an element, beyond making it.

An element of ours is a whole batch. Its stages (plan, read, fields, place)
are replaced by nothing here, and the peer's elements are numbers, so that all
of the time is overhead: Grain's, and the loader's own.
"""

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

os.environ["JAX_PLATFORMS"] = "cpu"

import common
import grain
import jax

from hpgrain import batches, loader, shard
from hpgrain.fields import FieldOptions
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
  spec = batches.BatchSpec(samples, layout, FieldOptions())
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
  made = ([], dict.fromkeys(("plan", "read", "place"), 0.0))
  with (
    mock.patch.object(batches, "make_shards", lambda *_, **__: made),
    mock.patch.object(shard, "place", lambda *_: {}),
  ):
    times = common.in_turn(
      {
        name: lambda _, iterator=iterator: next(iterator)
        for name, iterator in iterators.items()
      },
      repeats=options.repeats,
      times=options.elements,
    )
    for iterator in iterators.values():
      iterator.close()
  for prefetch, (ours, peer) in names.items():
    work = f"{_WORK}, prefetch {prefetch}"
    yield times.row("P17", work, ours=ours, peer=peer, at_most=1.2)
    yield times.row("P17", work, ours=ours, peer=default)


if __name__ == "__main__":
  common.run(measure, elements=500, repeats=21)
