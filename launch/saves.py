"""A run's checkpoints: model, data and a note of what made them, together.

  {workdir}/checkpoints/STEP/   model   parameters, optimizer, step
                                data    the loader's state
                                meta    step, rows, the model's shape

They are written behind the run's back, appear under their name when they are
whole, and the last two are kept. What a kill leaves half-written is removed
by the next start.
"""

from collections.abc import Mapping
from typing import Any

import jax
import orbax.checkpoint as ocp
from absl import logging
from etils import epath
from orbax.checkpoint import checkpoint_managers

from hpgrain import checkpoint, manifest

# What a checkpoint of this trainer holds.
_ITEMS = ("model", "data", "meta")


class Saves:
  """The checkpoints of one workdir. Every process makes the same calls."""

  def __init__(self, folder: epath.Path, *, shape: Mapping[str, Any]) -> None:
    """Opens the folder, or makes it.

    Args:
      folder: absolute.
      shape: numbers of the model, by name; a checkpoint of others is refused.
    """
    self._folder = folder
    self._shape = dict(shape)
    _write_without_slicing()
    self._manager = ocp.CheckpointManager(
      folder,
      options=ocp.CheckpointManagerOptions(
        preservation_policy=checkpoint_managers.LatestN(2),
        cleanup_tmp_directories=True,
      ),
    )

  def latest(self) -> int:
    """Returns the step of the newest whole checkpoint, 0 for none."""
    return self._manager.latest_step() or 0

  def path(self, step: int) -> epath.Path:
    """Returns where the checkpoint of `step` lies."""
    return self._folder / str(step)

  def save(self, step: int, *, state: Any, batches: Any) -> None:
    """Saves what follows from here; returns before it is written.

    Both states are taken now: the next step may change or donate them.
    """
    args = ocp.args.Composite(
      model=ocp.args.StandardSave(state),
      data=checkpoint.CheckpointSave(batches),
      meta=ocp.args.JsonSave(
        {
          "step": step,
          "rows": int(batches.rows),
          "shape": self._shape,
          "tool": manifest.tool_name(),
        }
      ),
    )
    # `force` because the caller decides when to save, not the manager.
    self._manager.save(step, args=args, force=True)

  def restore_data(self, step: int, batches: Any) -> None:
    """Puts the iterator where it was, after checking that it may go there.

    Raises:
      ValueError: if the checkpoint is of other data or another model, or
        cannot be read.
    """
    saved = self._read(step).get("shape", {})
    for name, value in self._shape.items():
      if saved.get(name) != value:
        raise ValueError(
          f"The model's {name} is {value}, but {self.path(step)} was saved"
          f" with {saved.get(name)}. Set it back, or train into another"
          " --workdir."
        )
    args = ocp.args.Composite(data=checkpoint.CheckpointRestore(batches))
    self._manager.restore(step, args=args)

  def _read(self, step: int) -> dict[str, Any]:
    """Returns the note of a checkpoint in which nothing small is missing.

    Raises:
      ValueError: if an item is missing, or data or meta cannot be read.
    """
    folder = self.path(step)
    missing = [name for name in _ITEMS if not (folder / name).exists()]
    if missing:
      raise ValueError(
        f"{folder} has no {' and no '.join(missing)}: it is not a checkpoint"
        f" of this trainer, whose checkpoints hold {', '.join(_ITEMS)}. Train"
        " into another --workdir, or move that folder away."
      )
    try:
      checkpoint.read_state(folder / "data")
      args = ocp.args.Composite(meta=ocp.args.JsonRestore())
      meta = self._manager.restore(step, args=args).meta
    except ValueError as error:
      before = [other for other in self._manager.all_steps() if other < step]
      then = f"go on from step {max(before)}" if before else "begin anew"
      message = f"{error} Remove the folder {folder} to {then}."
      raise ValueError(message) from error
    return meta

  def restore_model(self, step: int, abstract: Any) -> Any:
    """Returns the state, laid out as `abstract` says whatever it was."""
    args = ocp.args.Composite(model=ocp.args.StandardRestore(abstract))
    return self._manager.restore(step, args=args).model

  def close(self) -> None:
    """Waits until all is written; every process must call it."""
    self._manager.wait_until_finished()
    self._manager.close()


def _write_without_slicing() -> None:
  """Lets one replica write an array, not each a slice of it.

  Slicing compiles once for every shape of array, which makes the first save
  of a small model take ten seconds instead of a few milliseconds.
  """
  verbosity = logging.get_verbosity()
  # It warns that a handler is replaced, which is what is asked for.
  logging.set_verbosity(logging.ERROR)
  ocp.type_handlers.register_type_handler(
    jax.Array,
    ocp.type_handlers.ArrayHandler(use_replica_parallel=False),
    override=True,
  )
  logging.set_verbosity(verbosity)
