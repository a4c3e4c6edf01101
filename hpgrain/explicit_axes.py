r"""What is made of a batch in `jit`, on meshes whose axes are Explicit too.

  segment_ids [rows@data, S@cp] -> S x S mask   Auto: XLA sees to the rest
                                                Explicit: which S is split?

A mesh of `jax.make_mesh` has Explicit axes: the sharding of an array is part of
its type, and an operation whose result could lie in two ways is an error. Here
what a batch gives is made as on Auto axes, and its results get the batch's own
axes: rows those of the rows, and one dimension of S positions (queries, not
keys) those of the positions.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

_Made = TypeVar("_Made")


def made_of_batch(
  make: Callable[[Mapping[str, jax.Array]], _Made],
  fields: Mapping[str, jax.Array],
  sharding: NamedSharding,
) -> _Made:
  """Returns `make(fields)`; inside `jit`.

  Args:
    make: returns a pytree of arrays; what is no array stays as it is.
    fields: of a batch, [rows, S] each.
    sharding: of the fields.
  """
  if AxisType.Explicit not in sharding.mesh.axis_types:
    return make(fields)
  fields = dict(fields)
  shape = next(iter(fields.values())).shape
  others: list[Any] = []

  def arrays_of(fields: Mapping[str, jax.Array]) -> list[jax.Array]:
    leaves, tree = jax.tree.flatten(make(fields))
    are = [isinstance(leaf, jax.Array) for leaf in leaves]
    others[:] = tree, are, leaves
    return [leaf for leaf, is_array in zip(leaves, are) if is_array]

  made = jax.eval_shape(
    arrays_of,
    {
      name: jax.ShapeDtypeStruct(values.shape, values.dtype)
      for name, values in fields.items()
    },
  )
  # Sharded by axes of the mesh that the arrays are traced with.
  mesh = sharding.mesh.abstract_mesh
  wanted = jax.tree.map(
    lambda x: NamedSharding(mesh, _spec(x.shape, shape, sharding.spec)), made
  )
  as_auto = jax.sharding.auto_axes(
    arrays_of, axes=mesh.axis_names, out_sharding=wanted
  )
  arrays = iter(as_auto(fields))
  tree, are, leaves = others
  return jax.tree.unflatten(
    tree,
    [next(arrays) if known else leaf for leaf, known in zip(leaves, are)],
  )


def _spec(
  made: tuple[int, ...], batch: tuple[int, ...], spec: PartitionSpec
) -> PartitionSpec:
  """Returns how something made of a batch is split, by its shape."""
  rows, positions = batch
  if not made or made[0] != rows:
    return PartitionSpec()
  axes = [None] * len(made)
  axes[0] = spec[0]
  if positions in made[1:]:
    axes[made.index(positions, 1)] = spec[1]
  return PartitionSpec(*axes)
