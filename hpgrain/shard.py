"""A mesh and the size of a batch in, who holds which part of it out.

  batch [rows, positions]  over a mesh (data 2, cp 2)

           positions 0..3   4..7
    rows 0..1   d0          d1       a shard is one such rectangle and the
    rows 2..3   d2          d3       devices that hold it, replicas together

What a process reads and where it goes comes from the NamedSharding alone.
Nothing here changes a row or its order; a mesh that does not fit the batch is
refused when the layout is made.
"""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from hpgrain.context_layout import CONTIGUOUS, ROW_ORDER, ContextLayout
from hpgrain.nearest import did_you_mean

CONTEXT_AXIS = "cp"
TENSOR_AXIS = "tp"


@dataclasses.dataclass(frozen=True)
class Shard:
  """A rectangle of the batch and the devices that hold it.

  Attributes:
    rows: [begin, end) in the batch.
    window: [begin, end) slots of those rows; without a context-parallel layout
      slots are positions.
    devices: which hold this rectangle, each the same.
  """

  rows: tuple[int, int]
  window: tuple[int, int]
  devices: tuple[Any, ...]


# Rows [begin, end), and the windows of slots that are held of them.
RowGroup = tuple[tuple[int, int], list[tuple[int, int]]]


def _row_groups(shards: Sequence[Shard]) -> list[RowGroup]:
  return [
    (rows, [part.window for part in group])
    for rows, group in itertools.groupby(shards, lambda part: part.rows)
  ]


@dataclasses.dataclass(frozen=True)
class BatchLayout:
  """How a batch lies on the mesh.

  Attributes:
    sharding: of every [rows, positions] field.
    shape: (rows, positions) of the global batch.
    shards: what this process's devices hold, each rectangle once.
    context: which position of its row each slot holds.
  """

  sharding: NamedSharding
  shape: tuple[int, int]
  shards: tuple[Shard, ...]
  context: ContextLayout = ROW_ORDER

  def row_groups(self) -> list[RowGroup]:
    """Returns the shards' rows, each once, and their windows; in order."""
    return _row_groups(self.shards)

  def without_devices(self) -> "HostLayout":
    """Returns the rectangles alone, which other processes can be told."""
    return HostLayout(
      self.shape,
      tuple(Shard(part.rows, part.window, ()) for part in self.shards),
      self.context,
    )


@dataclasses.dataclass(frozen=True)
class HostLayout:
  """The rectangles of a `BatchLayout`, for processes without its devices.

  Attributes:
    shape: (rows, positions) of the global batch.
    shards: its rectangles, without devices.
    context: which position of its row each slot holds.
  """

  shape: tuple[int, int]
  shards: tuple[Shard, ...]
  context: ContextLayout = ROW_ORDER

  def row_groups(self) -> list[RowGroup]:
    """Returns the shards' rows, each once, and their windows; in order."""
    return _row_groups(self.shards)

  def without_devices(self) -> "HostLayout":
    """Returns itself."""
    return self


def make_mesh(
  axes: Sequence[str],
  sizes: Mapping[str, int],
  devices: Sequence[Any] | None = None,
) -> Mesh:
  """Makes a mesh of named axes, outermost first.

  Args:
    axes: the axes' names.
    sizes: each axis's size; one may be -1 and takes the devices left.
    devices: default all there are, on every process.

  Raises:
    ValueError: if the sizes do not use every device exactly once.
  """
  devices = jax.devices() if devices is None else list(devices)
  missing = [axis for axis in axes if axis not in sizes]
  if missing:
    raise ValueError(
      f"Mesh axes {missing} have no size; give each of {tuple(axes)} one."
    )
  shape = [int(sizes[axis]) for axis in axes]
  if shape.count(-1) > 1 or any(size < 1 and size != -1 for size in shape):
    raise ValueError(
      "Mesh sizes are positive, and one at most may be -1, got"
      f" {dict(zip(axes, shape))}."
    )
  fixed = math.prod(size for size in shape if size != -1)
  if -1 in shape and len(devices) % fixed == 0:
    shape[shape.index(-1)] = len(devices) // fixed
  if math.prod(shape) != len(devices):
    raise ValueError(
      f"A mesh of {dict(zip(axes, shape))} does not use the"
      f" {len(devices)} devices exactly once; the sizes (config.mesh) must"
      f" multiply to {len(devices)}, or one of them be -1 to take the rest."
    )
  # jax.make_mesh would choose Explicit axes; a loader leaves types to `jit`.
  return Mesh(
    np.array(devices).reshape(shape),
    tuple(axes),
    axis_types=(AxisType.Auto,) * len(axes),
  )


def batch_sharding(
  mesh: Mesh,
  *,
  data_axes: Sequence[str] = ("data",),
  sequence_parallel: bool = False,
) -> NamedSharding:
  """Returns the sharding of [rows, positions]: rows over data, positions cp.

  Axes of the mesh that are named neither here nor `cp` hold replicas, as
  `tp` does unless sequence_parallel splits positions over (cp, tp).

  A mesh without `cp` leaves positions whole.

  Raises:
    ValueError: if the mesh lacks a data axis, or the `tp` that positions are
      to be split over: a misspelt name would give devices rows, or positions,
      that are others' to hold.
  """
  names, data_axes = mesh.axis_names, tuple(data_axes)
  _check_data_axes(data_axes, names)
  if sequence_parallel and TENSOR_AXIS not in names:
    raise ValueError(
      f"mesh.sequence_parallel splits positions over ({CONTEXT_AXIS!r},"
      f" {TENSOR_AXIS!r}), but the mesh has axes {names}. Name one of them"
      f" {TENSOR_AXIS!r} (size 1 will do), or turn sequence_parallel off."
    )
  rows = data_axes
  wanted = [CONTEXT_AXIS] + ([TENSOR_AXIS] if sequence_parallel else [])
  positions = tuple(axis for axis in wanted if axis in names)
  return NamedSharding(mesh, PartitionSpec(rows, positions or None))


def _check_data_axes(
  data_axes: tuple[str, ...], names: tuple[str, ...]
) -> None:
  """Refuses data axes that the mesh lacks, or that cannot split rows."""
  advice = (
    " Name in mesh.data_axes the axes that split rows, and no other; one of"
    " size 1 will do."
  )
  if not data_axes:
    raise ValueError(f"No axis of the mesh {names} splits rows.{advice}")
  missing = [axis for axis in data_axes if axis not in names]
  if missing:
    others = [name for name in names if name not in data_axes]
    raise ValueError(
      f"The mesh has axes {names}, but mesh.data_axes is {data_axes}: there is"
      f" no {missing[0]!r}.{did_you_mean(missing[0], others)}{advice}"
    )
  twice = len(set(data_axes)) < len(data_axes)
  if twice or {CONTEXT_AXIS, TENSOR_AXIS} & set(data_axes):
    raise ValueError(
      f"mesh.data_axes are unlike axes other than {CONTEXT_AXIS!r} and"
      f" {TENSOR_AXIS!r}, got {data_axes}.{advice}"
    )


def num_parts(sharding: NamedSharding) -> tuple[int, int]:
  """Returns over how many parts rows and positions are split."""

  def parts(axes: Any) -> int:
    axes = () if axes is None else (axes,) if isinstance(axes, str) else axes
    return math.prod(sharding.mesh.shape[axis] for axis in axes)

  return parts(sharding.spec[0]), parts(sharding.spec[1])


def context_layout(
  mesh: Mesh, name: str = CONTIGUOUS, *, segment_multiple: int = 1
) -> ContextLayout:
  """Returns a context-parallel layout over the `cp` axis of a mesh.

  Args:
    mesh: without the axis there is one rank.
    name: one of `context_layout.LAYOUTS`.
    segment_multiple: what the rooms of packed rows are multiples of.

  Raises:
    ValueError: for an unknown name, or rooms that do not divide.
  """
  ranks = mesh.shape.get(CONTEXT_AXIS, 1)
  return ContextLayout(name, ranks, segment_multiple)


def positions_multiple(
  sharding: NamedSharding, context: ContextLayout = ROW_ORDER
) -> int:
  """Returns what the positions of a batch must be a multiple of."""
  _, parts = num_parts(sharding)
  return math.lcm(parts, context.multiple)


def batch_layout(
  sharding: NamedSharding,
  *,
  num_rows: int,
  num_positions: int,
  devices: Sequence[Any] | None = None,
  context: ContextLayout = ROW_ORDER,
) -> BatchLayout:
  """Returns the rectangles of a batch that `devices` hold.

  Args:
    sharding: of [rows, positions].
    num_rows: rows of the global batch.
    num_positions: of a row.
    devices: default this process's.
    context: which position of its row each slot holds.

  Raises:
    ValueError: if rows or positions do not divide over the mesh, or this
      process has none of its devices. `config_rules_mesh` says it before,
      with the keys of a configuration.
  """
  row_parts, _ = num_parts(sharding)
  position_parts = positions_multiple(sharding, context)
  said = ""
  if not context.is_identity:
    said = f", context_parallel_layout={context.name!r}"
  for what, count, multiple in (
    ("rows", num_rows, row_parts),
    ("positions", num_positions, position_parts),
  ):
    if count % multiple:
      raise ValueError(
        f"{count} {what} of a batch do not divide over the mesh"
        f" {dict(sharding.mesh.shape)} (spec {sharding.spec}{said}); use a"
        f" multiple of {multiple}, or another mesh."
      )
  shape = (num_rows, num_positions)
  indices = sharding.devices_indices_map(shape)
  if devices is None:
    devices = sharding.addressable_devices
  held = set(devices)
  holders: dict[tuple[tuple[int, int], tuple[int, int]], list[Any]] = {}
  for device, (rows, window) in indices.items():
    if device in held:
      rectangle = (
        rows.indices(num_rows)[:2],
        window.indices(num_positions)[:2],
      )
      holders.setdefault(rectangle, []).append(device)
  shards = tuple(
    Shard(rows, window, tuple(holders[rows, window]))
    for rows, window in sorted(holders)
  )
  if not shards:
    raise ValueError(
      f"This process holds no device of the mesh {dict(sharding.mesh.shape)};"
      " a mesh of batches has devices of every process that builds loaders."
    )
  return BatchLayout(sharding, shape, shards, context)
