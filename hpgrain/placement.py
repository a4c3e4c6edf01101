r"""The fields of the shards in, global arrays on the devices out.

  shard (rows 0..1, slots 0..3)   input_ids   on d0 and its replica d1
                                  labels      on d0 and d1
                                  ...
  one call a field: every device that holds a shard takes it from the host

A call a field, and not one transfer of all: five fields of (8, 4096) on 8 CPU
devices took 0.7 ms so, one `jax.device_put` of all fields and shards 2.9 ms,
of whole fields 0.84 ms. One array [fields, rows, slots] took 0.2 ms, but with
its split into fields, which is a step's work besides, 0.7 ms as well
(`benchmarks/p15_placement.py`). A CPU device takes the memory of aligned fields
(`fields.empty_fields`) as it is, replicas too, so that there is nothing to
transfer. On accelerators none of it was measured: each device of a shard gets
a copy of each field, begun by the call and not waited for.

Memory. A CPU device may use the memory of `parts` as its own, and all replicas
of a shard the same. So whoever places fields never writes them again. That a
step is given the batch to overwrite (`donate_argnums`) is right nevertheless:
JAX knows which memory is not its own, and copies it first.

Time. The loader's thread places a batch as soon as it is made, while the caller
is in a step; with prefetch=0 there is no such thread, and a batch is made and
placed while the caller waits for it.
"""

from collections.abc import Mapping, Sequence

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from hpgrain.shard import BatchLayout


def place(
  layout: BatchLayout, parts: Sequence[Mapping[str, np.ndarray]]
) -> dict[str, jax.Array]:
  """Puts each shard's fields on its devices and joins them to global arrays.

  No collective is run, so any thread may call it: each device takes the
  rectangle it holds, and the global array is assembled from what is here. On
  CPU the arrays may share memory with `parts`, which must not be written
  again.

  Args:
    layout: of the batch.
    parts: for each of layout.shards its fields, [rows, positions] each.

  Returns:
    The fields as global arrays of layout.shape.
  """
  # A rectangle is known by its first row and position.
  held = {
    (part.rows[0], part.window[0]): fields
    for part, fields in zip(layout.shards, parts)
  }
  return {
    name: jax.make_array_from_callback(
      layout.shape,
      layout.sharding,
      # `start` is None where the mesh does not split that dimension.
      lambda index, name=name: held[index[0].start or 0, index[1].start or 0][
        name
      ],
      dtype=field.dtype,
    )
    for name, field in parts[0].items()
  }


def place_rows(layout: BatchLayout, parts: Sequence[np.ndarray]) -> jax.Array:
  """Does what `place` does for one value a row, int32[rows].

  Args:
    layout: of the batch.
    parts: for each of layout.shards the values of its rows.

  Returns:
    A global array of as many values as the batch has rows, split as they are.
  """
  held = {part.rows[0]: values for part, values in zip(layout.shards, parts)}
  sharding = layout.sharding
  return jax.make_array_from_callback(
    layout.shape[:1],
    NamedSharding(sharding.mesh, PartitionSpec(sharding.spec[0])),
    lambda index: held[index[0].start or 0],
    dtype=np.int32,
  )
