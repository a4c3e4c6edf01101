"""P15: a batch of 5 fields, [8, 4096] each, onto 8 CPU devices.

All begin with fields in NumPy arrays and end when the devices have them. Ours
begins with the arrays that `make_fields` makes, one set a shard, and so does
what takes all of them at once; a fused array is made of them beforehand, and
its split is a step's work. A CPU device takes memory as it is where it lies on
a line of the cache, so nothing is transferred here: what is timed is calls.
"""

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = (
  os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
)

import common
import jax
import numpy as np

from hpgrain import placement, shard
from hpgrain.fields import FieldOptions, make_fields
from hpgrain.records import BATCH_DTYPES as _DTYPES
from hpgrain.records import Segments

_ROWS, _POSITIONS = _SHAPE = (8, 4096)

# Eight shards, and four with a replica each.
_MESHES = ({"data": 8}, {"data": 2, "cp": 2, "tp": 2})


def _shards_of_batch(
  layout: shard.BatchLayout, tokens: np.ndarray
) -> list[dict[str, np.ndarray]]:
  """Makes each shard's fields, as the loader does."""
  parts = []
  for part in layout.shards:
    count = part.rows[1] - part.rows[0]
    segments = Segments(
      row_splits=np.arange(count + 1),
      starts=np.zeros(count, np.int64),
      lengths=np.full(count, _POSITIONS + 1),
    )
    begin, end = part.window
    parts.append(
      make_fields(
        np.ascontiguousarray(tokens[slice(*part.rows), begin : end + 1]),
        segments,
        window=part.window,
        seq_length=_POSITIONS,
        num_rows=count,
        options=FieldOptions(),
      )
    )
  return parts


def measure(_: Path, options: argparse.Namespace) -> Iterator[common.Row]:
  """Yields ours against JAX's ways, and against copying the bytes."""
  for sizes in _MESHES:
    yield from _measure(sizes, options)


def _measure(
  sizes: dict[str, int], options: argparse.Namespace
) -> Iterator[common.Row]:
  mesh = shard.make_mesh(tuple(sizes), sizes)
  sharding = shard.batch_sharding(mesh)
  layout = shard.batch_layout(
    sharding, num_rows=_ROWS, num_positions=_POSITIONS
  )
  rng = np.random.default_rng(0)
  tokens = rng.integers(0, 1000, (_ROWS, _POSITIONS + 1), dtype=np.int32)
  parts = _shards_of_batch(layout, tokens)
  fields = {name: np.empty(_SHAPE, dtype) for name, dtype in _DTYPES.items()}
  for part, made in zip(layout.shards, parts):
    for name, field in made.items():
      fields[name][slice(*part.rows), slice(*part.window)] = field
  copies = {name: np.empty_like(field) for name, field in fields.items()}
  fused_sharding = jax.NamedSharding(mesh, jax.P(None, *sharding.spec))
  # Of each shard, as `one fused array` needs it; 4 bytes an item.
  fused_parts = [
    np.stack([field.view(np.int32) for field in made.values()])
    for made in parts
  ]
  where = {
    device: i for i, part in enumerate(layout.shards) for device in part.devices
  }
  fused_of = {
    (part.rows[0], part.window[0]): made
    for part, made in zip(layout.shards, fused_parts)
  }

  def ours(_: int) -> dict[str, jax.Array]:
    return jax.block_until_ready(placement.place(layout, parts))

  def callback(_: int) -> dict[str, jax.Array]:
    return jax.block_until_ready(
      {
        name: jax.make_array_from_callback(
          _SHAPE, sharding, lambda index, field=field: field[index]
        )
        for name, field in fields.items()
      }
    )

  def process_local(_: int) -> dict[str, jax.Array]:
    return jax.block_until_ready(
      {
        name: jax.make_array_from_process_local_data(sharding, field, _SHAPE)
        for name, field in fields.items()
      }
    )

  def one_put(_: int) -> dict[str, jax.Array]:
    """All fields of all shards in one call, one array each."""
    held = jax.device_put(
      [parts[i][name] for name in fields for i in where.values()],
      list(where) * len(fields),
    )
    arrays = {}
    for number, name in enumerate(fields):
      begin = number * len(where)
      arrays[name] = jax.make_array_from_single_device_arrays(
        _SHAPE, sharding, held[begin : begin + len(where)]
      )
    return jax.block_until_ready(arrays)

  def fuse() -> jax.Array:
    return jax.make_array_from_callback(
      (len(fields), *_SHAPE),
      fused_sharding,
      lambda index: fused_of[index[1].start or 0, index[2].start or 0],
    )

  def fused(_: int) -> jax.Array:
    return jax.block_until_ready(fuse())

  @jax.jit
  def split(fields_in_one: jax.Array) -> dict[str, jax.Array]:
    return {
      name: jax.lax.bitcast_convert_type(values, dtype)
      for (name, dtype), values in zip(_DTYPES.items(), fields_in_one)
    }

  def fused_and_split(_: int) -> dict[str, jax.Array]:
    return jax.block_until_ready(split(fuse()))

  def memcpy(_: int) -> None:
    for name, field in fields.items():
      np.copyto(copies[name], field)

  for placed in (ours(0), one_put(0), fused_and_split(0)):
    for name, field in fields.items():
      np.testing.assert_array_equal(placed[name], field)
  ways = {
    "ours": ours,
    "make_array_from_callback": callback,
    "make_array_from_process_local_data": process_local,
    "one device_put of all": one_put,
    "one fused array": fused,
    "one fused array, split on the devices": fused_and_split,
    "memcpy": memcpy,
  }
  times = common.in_turn(ways, repeats=options.repeats, times=options.batches)
  said = " x ".join(f"{axis} {size}" for axis, size in sizes.items())
  work = f"batch to devices, 5 x (8, 4096), {said}"
  for peer in list(ways)[1:]:
    at_most = 1 if peer == "make_array_from_callback" else None
    yield times.row("P15", work, ours="ours", peer=peer, at_most=at_most)


if __name__ == "__main__":
  common.run(measure, batches=20, repeats=41)
