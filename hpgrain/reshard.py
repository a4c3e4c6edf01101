r"""Rows that several processes need in, each made by one of them out.

  mesh (data 2, cp 2), cp across the processes P and Q, a batch of 4 rows

        made                      exchanged              wanted
        slots 0......7                                   0..3    4..7
  row 0   P P P P P P P P                                 P       Q
  row 1   Q Q Q Q Q Q Q Q     all-to-all over cp          P       Q
  row 2   P P P P P P P P                                 P       Q
  row 3   Q Q Q Q Q Q Q Q                                 P       Q

Axes that split no rows make processes need the same ones. Here those rows are
split over such axes too, as whole rows, made so by one process each, and then
moved by the devices to where the batch's sharding wants them. Axes inside one
process are left alone: a process makes a row once, however many of its
devices hold it.

What is moved is told by `shard_map` and not left to the partitioner: asked for
a sharding of other axes it gathers the whole batch on every device ("SPMD
involuntary full rematerialization").
"""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from hpgrain import shard
from hpgrain.context_layout import ROW_ORDER, ContextLayout

# Parts of an axis: steps along one change the process, along the other not.
_ACROSS = "across {}"
_WITHIN = "within {}"


def _processes(mesh: Mesh) -> np.ndarray:
  """Returns which process has each device, int64 in the mesh's shape."""
  numbers = [device.process_index for device in mesh.devices.flat]
  return np.array(numbers, np.int64).reshape(mesh.devices.shape)


def num_runs(processes: np.ndarray, dimension: int) -> int:
  """Returns into how few equal runs an axis falls that lie in one process.

  Args:
    processes: which process has each device of a mesh.
    dimension: of the axis.
  """
  size = processes.shape[dimension]
  lines = np.moveaxis(processes, dimension, -1).reshape(-1, size)
  for runs in range(1, size):
    if size % runs == 0:
      parts = lines.reshape(-1, runs, size // runs)
      if (parts == parts[:, :, :1]).all():
        return runs
  return size


def _axes(entry: Any) -> tuple[str, ...]:
  """Returns the axes of an entry of a PartitionSpec."""
  if entry is None:
    return ()
  return (entry,) if isinstance(entry, str) else tuple(entry)


@dataclasses.dataclass(frozen=True)
class Exchange:
  """How rows that one process made reach all that need them.

  Attributes:
    made: of [rows, slots], each row in one process; another mesh of the same
      devices.
    wanted: of [rows, slots], where the batch is to be.
    across: the axes of `made` that split rows, and those of `wanted` do not;
      outermost first.
    positions: the axes of `made`'s mesh that split slots in `wanted`;
      outermost first.
  """

  made: NamedSharding
  wanted: NamedSharding
  across: tuple[str, ...]
  positions: tuple[str, ...]

  @property
  def num_shares(self) -> int:
    """Over how many the rows are shared that several processes need."""
    return math.prod(self.made.mesh.shape[axis] for axis in self.across)

  def __call__(self, fields: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """Returns fields as `wanted`.

    All processes run this together, in the same order as whatever else they
    run together: call it on the thread that runs the steps.

    Args:
      fields: [rows, slots] each, as `made`.
    """
    moved = jitted(self)(dict(fields))
    # In their own order; jit sorts names.
    return {name: moved[name] for name in fields}

  def moved(self, fields: dict[str, jax.Array]) -> dict[str, jax.Array]:
    """Does it on one device: rows of its share in, its slots of all out."""
    # One collective for all fields of a type.
    names: dict[Any, list[str]] = {}
    for name, values in fields.items():
      names.setdefault(values.dtype, []).append(name)
    out = {}
    for chosen in names.values():
      stacked = self._moved_array(jnp.stack([fields[name] for name in chosen]))
      out.update(zip(chosen, stacked))
    return out

  def _moved_array(self, x: jax.Array) -> jax.Array:
    """Does it for [fields, rows, slots]."""
    sizes = self.made.mesh.shape
    num_fields, num_rows, _ = x.shape
    x = x.reshape(num_fields, num_rows, *(sizes[a] for a in self.positions), -1)
    dimensions = {axis: 2 + i for i, axis in enumerate(self.positions)}
    # Slots that only other devices of this process want are not sent.
    for axis, dimension in dimensions.items():
      if axis not in self.across:
        x = jax.lax.dynamic_index_in_dim(x, jax.lax.axis_index(axis), dimension)
    # The innermost first, as it is what splits the rows last.
    for axis in reversed(self.across):
      if axis in dimensions:
        x = jax.lax.all_to_all(x, axis, dimensions[axis], 1, tiled=True)
      else:
        x = jax.lax.all_gather(x, axis, axis=1, tiled=True)
    return x.reshape(num_fields, x.shape[1], -1)


@functools.lru_cache(maxsize=16)
def jitted(exchange: Exchange) -> Any:
  """Returns what runs an exchange; loaders of one mesh compile it once."""
  data = _axes(exchange.wanted.spec[0])
  moved = jax.shard_map(
    exchange.moved,
    mesh=exchange.made.mesh,
    in_specs=exchange.made.spec,
    out_specs=PartitionSpec(data, exchange.positions or None),
    # That all who gather have the same is not seen by the check.
    check_vma=False,
  )
  return jax.jit(moved, out_shardings=exchange.wanted)


def find_exchange(sharding: NamedSharding) -> Exchange | None:
  """Returns how rows are made once; None where no two processes need one.

  Args:
    sharding: of [rows, slots], as `shard.batch_sharding` makes it.
  """
  mesh, spec = sharding.mesh, sharding.spec
  data, positions = (_axes(entry) for entry in spec)
  processes = _processes(mesh)
  names: list[str] = []
  shape: list[int] = []
  across: dict[str, str] = {}
  parts: dict[str, tuple[str, ...]] = {}
  for dimension, (axis, size) in enumerate(mesh.shape.items()):
    if axis in data:
      names.append(axis)
      shape.append(size)
      continue
    runs = num_runs(processes, dimension)
    if runs > 1:
      across[axis] = _ACROSS.format(axis)
    pair = (_ACROSS.format(axis), runs), (_WITHIN.format(axis), size // runs)
    names += [name for name, _ in pair]
    shape += [count for _, count in pair]
    parts[axis] = tuple(name for name, count in pair if count > 1)
  if not across:
    return None
  # The devices' order stays. Axes of a loader's own need no types.
  finer = Mesh(
    mesh.devices.reshape(shape), names, axis_types=(AxisType.Auto,) * len(names)
  )
  shared = tuple(across.values())
  return Exchange(
    made=NamedSharding(finer, PartitionSpec((*data, *shared), None)),
    wanted=sharding,
    across=shared,
    positions=tuple(name for axis in positions for name in parts[axis]),
  )


def exchange_between(
  made: NamedSharding, wanted: NamedSharding
) -> Exchange | None:
  """Returns what brings rows of a `batch_layout` to where they are wanted.

  Args:
    made: the layout's sharding.
    wanted: what `batch_layout` was given.

  Returns:
    None where they are there already.

  Raises:
    ValueError: if the layout was made for another sharding.
  """
  if made == wanted:
    return None
  exchange = find_exchange(wanted)
  if exchange is None or exchange.made != made:
    raise ValueError(
      f"Rows are made as {made}, which is no split of {wanted}. Give the"
      " sharding that the layout was made of by reshard.batch_layout."
    )
  return exchange


def batch_layout(
  sharding: NamedSharding,
  *,
  replica_read: str,
  num_rows: int,
  num_positions: int,
  context: ContextLayout = ROW_ORDER,
) -> shard.BatchLayout:
  """Returns the rectangles of a batch that this process makes.

  Args:
    sharding: of [rows, positions], where the batch is to be.
    replica_read: "each" process makes what its devices hold, or those that
      need the same rows "split" them, to exchange them by `find_exchange`.
    num_rows: rows of the global batch.
    num_positions: of a row.
    context: which position of its row each slot holds.

  Raises:
    ValueError: if rows or positions do not divide over the mesh, or rows not
      over the processes that need the same ones.
  """
  size = {"num_rows": num_rows, "num_positions": num_positions}
  held = shard.batch_layout(sharding, **size, context=context)
  exchange = find_exchange(sharding) if replica_read == "split" else None
  if exchange is None:
    return held
  row_parts, _ = shard.num_parts(sharding)
  shares = exchange.num_shares
  if num_rows // row_parts % shares:
    said = {
      axis: exchange.made.mesh.shape[_ACROSS.format(axis)]
      for axis in sharding.mesh.axis_names
      if _ACROSS.format(axis) in exchange.across
    }
    raise ValueError(
      f"dataloader.replica_read='split': of {num_rows} rows of a batch"
      f" (training.global_batch_size) over {row_parts} parts of the mesh"
      f" {dict(sharding.mesh.shape)} each has {num_rows // row_parts}, which"
      f" {shares} runs of one process's devices ({said}) need and cannot share"
      " evenly."
      f" Use a multiple of {row_parts * shares} rows, or replica_read='each',"
      " with which each of them makes all."
    )
  # A share is whole rows; their slots are in the order of `context` already.
  return shard.batch_layout(exchange.made, **size, context=context)
