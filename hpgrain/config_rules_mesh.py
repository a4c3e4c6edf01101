"""Rules of the mesh: the keys that describe it, and the mesh that is given.

  check_mesh   config.mesh by itself: axes and sizes of a mesh to be made
  check_sizes  config.mesh against a mesh that is given
  check_fits   the rows of a configuration against a mesh

The rows are the configuration's alone, so a mesh that does not fit them is
refused, never made to fit, and before any data is opened. Each error names
the keys that can be turned, and their numbers.
"""

import math
from collections.abc import Mapping
from typing import Any

import ml_collections as mlc

from hpgrain.config_uses import batch_rows, is_online, is_packed
from hpgrain.context_layout import ContextLayout


def sizes(mesh: mlc.ConfigDict) -> dict[str, Any]:
  """Returns mesh.<axis> for every axis that mesh.sizes gives a size.

  Raises:
    ValueError: there are not as many sizes as axes, or a key of an axis says
      another size.
  """
  if not mesh.sizes:
    return {}
  if len(mesh.sizes) != len(mesh.axes):
    raise ValueError(
      f"mesh.sizes has {len(mesh.sizes)} sizes {mesh.sizes!r} for the"
      f" {len(mesh.axes)} axes of mesh.axes {mesh.axes!r}. Give one for each,"
      " in their order, or leave it empty and set a key of each axis's name."
    )
  given = dict(zip(mesh.axes, mesh.sizes))
  for name, size in given.items():
    said = mesh.get(name)
    if said not in (None, 1, -1, size):
      raise ValueError(
        f"mesh.sizes gives {name!r} the size {size}, but mesh.{name} is"
        f" {said}. Say it once."
      )
  return {f"mesh.{name}": size for name, size in given.items()}


def check_mesh(mesh: mlc.ConfigDict) -> None:
  """Raises ValueError at the first contradiction in `config.mesh`."""
  axes = mesh.axes
  if not axes or len(set(axes)) < len(axes):
    raise ValueError(f"mesh.axes must be unlike names, got {axes!r}.")
  for name in axes:
    size = mesh.get(name)
    if not isinstance(size, int) or isinstance(size, bool):
      raise ValueError(
        f"mesh.axes names {name!r}, so mesh.{name} must say its number of"
        f" devices; got {size!r}. Set it to 1 or more, or -1 for those left; or"
        " give all sizes in mesh.sizes, in the order of mesh.axes."
      )
    if size < 1 and size != -1:
      raise ValueError(f"mesh.{name} must be -1 or at least 1, got {size}.")
  rest = [name for name in axes if mesh[name] == -1]
  if len(rest) > 1:
    raise ValueError(
      f"Only one axis can take the devices left (-1); mesh has {rest!r}."
    )
  for name in ("cp", "tp"):
    if name not in axes and mesh[name] != 1:
      raise ValueError(
        f"mesh.{name} is {mesh[name]}, but mesh.axes is {axes!r}. Add {name!r}"
        " to it or leave the size at 1."
      )
  wrong = [n for n in mesh.data_axes if n not in axes or n in ("cp", "tp")]
  if wrong or not mesh.data_axes:
    raise ValueError(
      f"mesh.data_axes must be some of mesh.axes {axes!r} other than cp and"
      f" tp, got {mesh.data_axes!r}."
    )
  if len(set(mesh.data_axes)) < len(mesh.data_axes):
    raise ValueError(
      f"mesh.data_axes names each axis once, got {mesh.data_axes!r}."
    )
  if mesh.sequence_parallel and "tp" not in axes:
    raise ValueError(
      f"mesh.sequence_parallel shares positions over tp, but mesh.axes is"
      f" {axes!r}. Add 'tp' to it or turn sequence_parallel off."
    )


def check_fits(
  config: mlc.ConfigDict,
  mesh: Mapping[str, int],
  *,
  parts: tuple[int, int],
  context: ContextLayout,
) -> None:
  """Raises ValueError at the first thing of `config` that a mesh cannot hold.

  Args:
    config: what `config.check` returned.
    mesh: the size of each of its axes.
    parts: over how many parts it splits rows and positions.
    context: which position of its row each slot holds.
  """
  mesh = dict(mesh)
  _check_labels(config, mesh, parts[1])
  _check_rows(config, mesh, parts[0])
  _check_positions(config, mesh, parts[1], context)
  _check_shares(config, mesh, parts[0])


def check_sizes(configured: mlc.ConfigDict, mesh: Mapping[str, int]) -> None:
  """Refuses a mesh of other sizes than those that were asked for.

  A mesh that the caller made is what it is, and `config.mesh` need not say it
  again: a cp or tp of 1 is what nobody set, and -1 says nothing. But what is
  said must hold.

  Args:
    configured: `config.mesh`.
    mesh: the size of each of its axes.

  Raises:
    ValueError: another size was asked for.
  """
  in_order = dict(zip(configured.axes, configured.sizes))
  for name, asked in _asked(configured, mesh).items():
    size = mesh.get(name, 1)
    if asked in (-1, size):
      continue
    found = f"has size {size}" if name in mesh else "is missing"
    said, remedy = f"mesh.{name} is {asked}", f"set mesh.{name}={size}"
    if name in in_order:
      said = f"mesh.sizes gives {name!r} the size {asked}"
      remedy = "leave mesh.sizes empty: a mesh that is given says its own"
    raise ValueError(
      f"{said}, but the axis {name!r} {found} in the mesh {dict(mesh)} that was"
      f" given. Make the mesh of mesh.axes and their sizes, or {remedy}. Axes"
      " of other names hold replicas."
    )


def _asked(
  configured: mlc.ConfigDict, mesh: Mapping[str, int]
) -> dict[str, Any]:
  """Returns the sizes that `config.mesh` says of a mesh that is given."""
  shared = ["cp"] + (["tp"] if configured.sequence_parallel else [])
  asked = {name: configured[name] for name in shared if configured[name] != 1}
  for name in mesh:
    # No size but these has a default.
    if name in configured and name not in ("data", "cp", "tp"):
      asked[name] = configured[name]
  return asked | dict(zip(configured.axes, configured.sizes))


def _check_labels(
  config: mlc.ConfigDict, mesh: dict[str, int], parts: int
) -> None:
  if parts > 1 and not config.get_batch.labels_are_shifted:
    raise ValueError(
      "get_batch.labels_are_shifted=False needs whole rows: the mesh"
      f" {mesh} splits positions over {parts} parts, and the last label of a"
      " part would need the next part's first token. Set it to True."
    )


def _check_rows(
  config: mlc.ConfigDict, mesh: dict[str, int], parts: int
) -> None:
  rows = batch_rows(config)
  if rows % parts == 0:
    return
  batch, micro = (
    config.training.global_batch_size,
    config.training.micro_batch_size,
  )
  said, least = f"training.global_batch_size={batch}", parts
  if is_online(config) or is_packed(config):
    # A packed row stands for as many examples as a micro batch has.
    said += f" / training.micro_batch_size={micro}"
    least = parts * micro
  raise ValueError(
    f"{rows} rows of a batch ({said}) do not divide over {parts} parts of the"
    f" mesh {mesh}, which shares rows out over mesh.data_axes"
    f" {config.mesh.data_axes!r}. Take a global_batch_size that is a multiple"
    f" of {least}, or other sizes in config.mesh."
  )


def _check_positions(
  config: mlc.ConfigDict,
  mesh: dict[str, int],
  parts: int,
  context: ContextLayout,
) -> None:
  if is_online(config) or is_packed(config):
    # Rows of examples are padded to what the mesh splits.
    return
  positions = config.dataset.data_config.seq_length
  multiple = math.lcm(parts, context.multiple)
  if positions % multiple == 0:
    return
  axes = "(cp, tp)" if config.mesh.sequence_parallel else "cp"
  said = f"{axes} takes multiples of {parts}"
  if not context.is_identity:
    said += (
      f", get_batch.context_parallel_layout={context.name!r} on cp="
      f"{context.num_ranks} multiples of {context.multiple}"
    )
  raise ValueError(
    f"{positions} positions of a row (dataset.data_config.seq_length) do not"
    f" divide over {parts} parts of the mesh {mesh}: {said}. Take a seq_length"
    f" that is a multiple of {multiple}, or other sizes in config.mesh."
  )


def _check_shares(
  config: mlc.ConfigDict, mesh: dict[str, int], parts: int
) -> None:
  """Refuses a mesh that tears the shares of equal cost.

  A batch is whole blocks of balance_rows, and a block balance_shares runs.
  """
  shares = config.dataloader.balance_shares
  if shares is None:
    return
  block, rows = config.dataloader.balance_rows, batch_rows(config)
  total = rows // block * shares
  if total % parts == 0:
    return
  raise ValueError(
    f"dataloader.balance_shares={shares} makes {total} shares of"
    f" {block // shares} rows that cost alike of the {rows} rows of a batch,"
    f" but the mesh {mesh} splits them over {parts} parts of"
    f" {rows // parts} rows (mesh.data_axes {config.mesh.data_axes!r}): a share"
    f" would be torn, and its balance lost. Set balance_shares to a multiple of"
    f" {parts}, which changes the order of rows, or share rows out over fewer"
    " devices."
  )
