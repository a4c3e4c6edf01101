"""The folder of a preparation under way, so that a killed one can go on.

  lock           held by the run; by several, each with a shard of its own
  request.json   what decides the units' content: another request is refused
  00000007.unit  a finished unit, which is never done again
  done.json      the pairs are published; what is left is to remove the rest

It lies beside the output, and is removed when the output is whole.
"""

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hpgrain.tools.durable import locked, read_json, sync_folder, write_json

_LOCK = "lock"
_REQUEST = "request.json"
_DONE = "done.json"
_UNIT = ".unit"
_TEMPORARY = ".tmp"


@dataclasses.dataclass(frozen=True)
class Shard:
  """The units that one of several machines does: i where i % count == index."""

  index: int = 0
  count: int = 1

  @property
  def name(self) -> str:
    """Of its lock and its temporary files."""
    return f"{self.index}-of-{self.count}"


class WorkFolder:
  """A folder of finished units."""

  def __init__(self, path: Path, shard: Shard) -> None:
    """Names the folder; `opened` opens it."""
    self.path = path
    self.shard = shard

  def unit_path(self, number: int) -> Path:
    """The file of a finished unit."""
    return self.path / f"{number:08d}{_UNIT}"

  def temporary_path(self, number: int) -> Path:
    """A name for a unit's file until it is finished, this process's own."""
    return self.path / (
      f"{number:08d}.{self.shard.name}.{os.getpid()}{_TEMPORARY}"
    )

  def finished(self) -> set[int]:
    """Numbers of the units that are finished."""
    return {
      int(entry.name.removesuffix(_UNIT))
      for entry in os.scandir(self.path)
      if entry.name.endswith(_UNIT)
    }

  def done(self) -> dict[str, Any] | None:
    """What `mark_done` kept."""
    return read_json(self.path / _DONE)

  def mark_done(self, content: Mapping[str, Any]) -> None:
    """Says that the output is about to be published, or is.

    From here on, what lies under the output's names is this request's own.
    """
    write_json(self.path / _DONE, content)

  def remove(self) -> None:
    """Removes the folder, what says that it is done last."""
    names = [entry.name for entry in os.scandir(self.path)]
    last = [name for name in (_REQUEST, _LOCK, _DONE) if name in names]
    for name in (*sorted(set(names) - set(last)), *last):
      (self.path / name).unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
      self.path.rmdir()
      sync_folder(self.path.parent)

  def remove_if_useless(self) -> None:
    """Removes the folder if no unit was finished in it, and it is ours."""
    if self.shard.count == 1 and self.path.is_dir() and not self.finished():
      self.remove()

  def remove_temporaries(self) -> None:
    """Removes what a killed run of the same shard left half written."""
    for entry in os.scandir(self.path):
      ours = self.shard.count == 1 or f".{self.shard.name}." in entry.name
      if ours and entry.name.endswith(_TEMPORARY):
        (self.path / entry.name).unlink(missing_ok=True)


@contextlib.contextmanager
def opened(
  path: Path, request: Mapping[str, Any], *, shard: Shard, restart: bool
) -> Iterator[WorkFolder]:
  """Makes or takes up a work folder, and holds its lock.

  Args:
    path: of the folder.
    request: JSON of what decides the units' content.
    shard: the part of the units to do.
    restart: remove what another request left, instead of refusing.

  Raises:
    BlockingIOError: another run works in it.
    ValueError: another request began in it.
  """
  folder = WorkFolder(path, shard)
  with contextlib.ExitStack() as stack:
    try:
      alone = shard.count == 1
      stack.enter_context(locked(path / _LOCK, shared=not alone))
      if not alone:
        stack.enter_context(locked(path / f"{shard.name}.lock"))
    except BlockingIOError:
      raise BlockingIOError(
        f"{path} is being written by another run of the same output. Wait"
        " until it is done, or choose another output prefix."
      ) from None
    folder.remove_temporaries()
    _agree(folder, request, restart=restart)
    yield folder


def _agree(
  folder: WorkFolder, request: Mapping[str, Any], *, restart: bool
) -> None:
  path = folder.path / _REQUEST
  there = read_json(path)
  if there == request:
    return
  if there is not None:
    if not restart:
      raise ValueError(
        f"{folder.path} holds the unfinished work of another request:"
        f" {_difference(there, request)}. Run the command that was used"
        f" there, remove that folder, or start over with --overwrite."
      )
    if folder.shard.count > 1:
      raise ValueError(
        f"{folder.path} holds the unfinished work of another request:"
        f" {_difference(there, request)}. Other shards may be at work there,"
        " so remove the folder yourself."
      )
    for entry in os.scandir(folder.path):
      if entry.name != _LOCK:
        (folder.path / entry.name).unlink()
  write_json(path, request)


def _difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
  """Names what differs, with both values; at most three things."""
  found = list(_differences(there, here, ""))
  more = f", and {len(found) - 3} more" if len(found) > 3 else ""
  return "; ".join(found[:3]) + more


def _differences(there: Any, here: Any, where: str) -> Iterator[str]:
  if there == here:
    return
  if isinstance(there, Mapping) and isinstance(here, Mapping):
    for key in dict.fromkeys([*there, *here]):
      name = f"{where}.{key}" if where else str(key)
      yield from _differences(there.get(key), here.get(key), name)
    return
  lists = isinstance(there, Sequence) and isinstance(here, Sequence)
  if lists and not isinstance(there, str) and not isinstance(here, str):
    if len(there) == len(here):
      for i, (a, b) in enumerate(zip(there, here)):
        yield from _differences(a, b, f"{where}[{i}]")
      return
    yield f"{where} has {len(there)} entries there and {len(here)} here"
    return
  yield f"{where} is {there!r} there and {here!r} here"
