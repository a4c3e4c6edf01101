"""P15: a batch of 5 fields, [8, 4096] each, onto 8 CPU devices.

All begin with fields in NumPy arrays and end when the devices have them. Ours
begins with the arrays that `make_fields` makes, one set a shard.
"""

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = (
  os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
)

import common
import jax
import numpy as np

from hpgrain import placement, shard
from hpgrain.fields import FieldOptions, make_fields
from hpgrain.records import BATCH_DTYPES, Segments

_ROWS, _POSITIONS = _SHAPE = (8, 4096)
_WORK = "batch to devices, 5 x (8, 4096), 8 devices"


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
    parts.append(
      make_fields(
        tokens[slice(*part.rows)],
        segments,
        window=part.window,
        seq_length=_POSITIONS,
        num_rows=count,
        options=FieldOptions(),
      )
    )
  return parts


def measure(_: Path, options: argparse.Namespace) -> Iterator[common.Row]:
  """Yields ours against JAX's two ways, and against copying the bytes."""
  mesh = shard.make_mesh(("data",), {"data": 8})
  sharding = shard.batch_sharding(mesh)
  layout = shard.batch_layout(
    sharding, num_rows=_ROWS, num_positions=_POSITIONS
  )
  rng = np.random.default_rng(0)
  tokens = rng.integers(0, 1000, (_ROWS, _POSITIONS + 1), dtype=np.int32)
  parts = _shards_of_batch(layout, tokens)
  fields = {
    name: np.concatenate([part[name] for part in parts])
    for name in BATCH_DTYPES
  }
  copies = {name: np.empty_like(field) for name, field in fields.items()}
  fused_sharding = jax.NamedSharding(mesh, jax.P(None, "data", None))
  fused_field = np.stack([field.view(np.int32) for field in fields.values()])

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

  def fused(_: int) -> jax.Array:
    return jax.block_until_ready(
      jax.make_array_from_callback(
        fused_field.shape, fused_sharding, lambda index: fused_field[index]
      )
    )

  def memcpy(_: int) -> None:
    for name, field in fields.items():
      np.copyto(copies[name], field)

  placed: Any = ours(0)
  for name, field in fields.items():
    np.testing.assert_array_equal(placed[name], field)
  times = common.in_turn(
    {
      "ours": ours,
      "make_array_from_callback": callback,
      "make_array_from_process_local_data": process_local,
      "memcpy": memcpy,
      "one fused array": fused,
    },
    repeats=options.repeats,
    times=options.batches,
  )
  yield times.row(
    "P15", _WORK, ours="ours", peer="make_array_from_callback", at_most=1
  )
  for peer in (
    "make_array_from_process_local_data",
    "memcpy",
    "one fused array",
  ):
    yield times.row("P15", _WORK, ours="ours", peer=peer)


if __name__ == "__main__":
  common.run(measure, batches=20, repeats=41)
