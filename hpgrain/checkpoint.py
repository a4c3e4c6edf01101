"""Saves a loader's state beside the model, restores it under any topology.

  with ocp.CheckpointManager(folder) as manager:
    manager.save(step, args=ocp.args.Composite(
      model=ocp.args.StandardSave(model), data=CheckpointSave(batches)))
    manager.restore(step, args=ocp.args.Composite(
      model=ocp.args.StandardRestore(), data=CheckpointRestore(batches)))

Each process writes its part of the state, in the background; whoever restores
reads all parts, so the process counts need not agree. Beside them stands
`data_manifest.json`, the full list behind the state's fingerprint. Orbax's v1
API saves the iterator itself and needs neither class.
"""

import asyncio
import dataclasses
import json
import logging
from collections.abc import Awaitable
from typing import Any

import jax
import orbax.checkpoint as ocp
from etils import epath

from hpgrain.loader_iterator import LoaderIterator
from hpgrain.stream_batches import STREAM_PARTS

MANIFEST_NAME = "data_manifest.json"

_FORMAT = 1

_log = logging.getLogger(__name__)


def _part_name(process: int, num_processes: int) -> str:
  return f"part_{process}_of_{num_processes}.json"


def _texts(item: LoaderIterator) -> dict[str, str]:
  """Returns what this process writes, file name -> text, as of now."""
  if not isinstance(item, LoaderIterator):
    raise ValueError(
      "CheckpointSave takes the iterator of an hpgrain loader, iter(loader),"
      f" got {type(item).__name__}."
    )
  process, num_processes = jax.process_index(), jax.process_count()
  part = {
    "format": _FORMAT,
    "process": process,
    "num_processes": num_processes,
    "state": item.get_state(),
  }
  text = json.dumps(part, separators=(",", ":"))
  texts = {_part_name(process, num_processes): text}
  if process == 0:
    texts[MANIFEST_NAME] = json.dumps(item.parts, indent=2)
  return texts


def _write(directory: epath.Path, texts: dict[str, str]) -> None:
  for name, text in texts.items():
    (directory / name).write_text(text)


def read_state(
  directory: epath.PathLike,
) -> tuple[dict[str, Any], dict[str, Any] | None]:
  """Reads and merges the parts of a saved state.

  Returns:
    The state, and the manifest's parts (None if they cannot be had: they
    only tell what a mismatch is about, so they stop no restore).

  Raises:
    ValueError: for no parts, a missing part, parts of different saves, or a
      file that cannot be read, by name.
  """
  directory = epath.Path(directory)
  parts = {}
  for path in sorted(directory.glob("part_*_of_*.json")):
    try:
      part = json.loads(path.read_text())
      key = (part["process"], part["num_processes"])
      parts[key] = (path.name, part["state"])
    except (ValueError, KeyError, TypeError) as error:
      raise ValueError(
        f"{path} is not a part of a loader state: {error!r}. It was cut short"
        " or written by something else; restore an earlier step."
      ) from error
  if not parts:
    raise ValueError(
      f"{directory} holds no part of a loader state (part_0_of_1.json, ...)."
      " Was the data saved with this checkpoint? Pass"
      " data=hpgrain.checkpoint.CheckpointSave(batches) when saving."
    )
  counts = {num_processes for _, num_processes in parts}
  if len(counts) > 1:
    raise ValueError(
      f"{directory} holds parts of saves by {sorted(counts)} processes; one"
      " save has one count. Remove what does not belong to it."
    )
  (num_processes,) = counts
  missing = [
    _part_name(process, num_processes)
    for process in range(num_processes)
    if (process, num_processes) not in parts
  ]
  if missing:
    raise ValueError(
      f"{directory} lacks {', '.join(missing)} of {num_processes} parts; the"
      " save did not complete. Restore an earlier step."
    )
  # Every process saves the same state, whatever rows it held; but of row
  # streams it adds those that it ran.
  streams = []
  first_name, first = parts[0, num_processes]
  for name, state in parts.values():
    streams += state.get(STREAM_PARTS, [])
    if _common(state) != _common(first):
      raise ValueError(
        f"{directory}: {first_name} and {name} hold different states, rows"
        f" {first.get('rows')} and {state.get('rows')}. The processes did not"
        " save the same step; restore an earlier one."
      )
  merged = _common(first)
  if STREAM_PARTS in first:
    merged[STREAM_PARTS] = streams
  return merged, _read_manifest(directory / MANIFEST_NAME)


def _common(state: dict[str, Any]) -> dict[str, Any]:
  """What all processes must agree on."""
  return {key: state[key] for key in state if key != STREAM_PARTS}


def _read_manifest(path: epath.Path) -> dict[str, Any] | None:
  """Returns the parts behind a fingerprint, None where they are not whole."""
  if not path.exists():
    return None
  try:
    saved = json.loads(path.read_text())
    if all(isinstance(part, dict) for part in saved.values()):
      return saved
    reason = "it holds something else"
  except (ValueError, AttributeError) as error:
    reason = repr(error)
  _log.warning(
    "%s is not a list of a fingerprint's parts (%s). The state beside it is"
    " whole and is restored; if it does not fit this run, the message cannot"
    " say what the saved values were.",
    path,
    reason,
  )
  return None


class LoaderCheckpointHandler(ocp.AsyncCheckpointHandler):
  """Writes and reads a loader's state in Orbax's folders."""

  async def async_save(
    self, directory: epath.Path, args: "CheckpointSave"
  ) -> list[ocp.future.Future]:
    """Takes the state now, on the caller's thread; writes it behind."""
    texts = _texts(args.item)

    async def write() -> None:
      await asyncio.to_thread(_write, directory, texts)

    return [
      ocp.future.CommitFutureAwaitingContractedSignals(
        write(), name="hpgrain_loader_state"
      )
    ]

  def save(self, directory: epath.Path, args: "CheckpointSave") -> None:
    """Writes the state before it returns."""
    _write(directory, _texts(args.item))

  def restore(
    self, directory: epath.Path, args: "CheckpointRestore"
  ) -> LoaderIterator:
    """Sets the iterator in `args` to the saved state and returns it."""
    if args is None or not isinstance(args.item, LoaderIterator):
      raise ValueError(
        "Restoring a loader's state needs the iterator to restore: pass"
        " data=hpgrain.checkpoint.CheckpointRestore(iter(loader)), or leave"
        " the item out of the Composite."
      )
    args.item.restore(*read_state(directory))
    return args.item

  @classmethod
  def typestr(cls) -> str:
    """The name Orbax keeps in a checkpoint; it must never change."""
    return "hpgrain.checkpoint.LoaderCheckpointHandler"


@ocp.args.register_with_handler(LoaderCheckpointHandler, for_save=True)
@dataclasses.dataclass
class CheckpointSave(ocp.args.CheckpointArgs):
  """Saves `item`, the iterator of a loader."""

  item: Any = None


@ocp.args.register_with_handler(LoaderCheckpointHandler, for_restore=True)
@dataclasses.dataclass
class CheckpointRestore(ocp.args.CheckpointArgs):
  """Restores `item`, the iterator of a loader, in place."""

  item: Any = None


def save_part(item: LoaderIterator, directory: Any) -> Awaitable[None]:
  """Takes the state now; returns the writing, for Orbax's v1 API."""
  texts = _texts(item)

  async def write() -> None:
    created = await directory.await_creation()
    await asyncio.to_thread(_write, created, texts)

  return write()


def load_parts(item: LoaderIterator, directory: Any) -> Awaitable[None]:
  """Returns the reading and setting of a state, for Orbax's v1 API."""

  async def read() -> None:
    item.restore(*await asyncio.to_thread(read_state, directory))

  return read()
