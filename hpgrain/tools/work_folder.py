"""The folder of a preparation under way, so that a killed one can go on.

  lock           held by the run; by several, each with a shard of its own
  request.json   what decides the units' content: another request is refused
  00000007.unit  a finished unit, which is never done again
  done.json      the pairs are published; what is left is to remove the rest

It lies beside the output, and is removed when the output is whole.

On an object store there is no lock. Two runs of one request then do some work
twice, with the same bytes; one of another request is refused by request.json,
which the first of them creates. Should it have gone (a run ended meanwhile),
units are still not mixed up: their names tell the request.

  00000007.9f2c51d0a3b4.unit
"""

import contextlib
import copy
import dataclasses
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from hpgrain.tools import storage
from hpgrain.tools.durable import locked, process_name
from hpgrain.tools.scratch import check_space
from hpgrain.tools.unit_file import UnitReader

_LOCK = "lock"
_REQUEST = "request.json"
_DONE = "done.json"
_PUBLISHED = "published"
_UNIT = ".unit"
_TEMPORARY = ".tmp"
_SHARD_LOCK = re.compile(r"\d+-of-(\d+)\.lock")


@dataclasses.dataclass(frozen=True)
class Shard:
  """The units that one of several machines does: i where i % count == index."""

  index: int = 0
  count: int = 1

  @property
  def name(self) -> str:
    """Of its lock and its temporary files."""
    return f"{self.index}-of-{self.count}"


class RefusedError(ValueError):
  """The folder holds another request's work, which this one may not touch."""


class WorkFolder:
  """A folder of finished units.

  Attributes:
    path: of the folder, on a disk or a store.
    shard: the part of the units that is done here.
    scratch: a local folder for what goes to a store or comes from one; None
      where all is local.
  """

  def __init__(
    self,
    path: PurePath,
    shard: Shard,
    *,
    scratch: Path | None = None,
    request: Mapping[str, Any] | None = None,
  ) -> None:
    """Names the folder; `opened` opens it.

    Raises:
      ValueError: it is on a store and there is no scratch folder, though
        there is a request to work on.
    """
    self.path = path
    self.shard = shard
    self.scratch = scratch
    self._suffix = _UNIT
    self._temporaries = path
    if storage.is_url(path) and request is not None:
      if scratch is None:
        raise ValueError(f"{path} needs a local scratch folder, got None.")
      self._suffix = f".{_mark(request)}{_UNIT}"
      self._temporaries = scratch

  def at(self, path: PurePath) -> "WorkFolder":
    """The same folder by another name of it."""
    folder = copy.copy(self)
    folder.path = path
    if not storage.is_url(path):
      folder._temporaries = path
    return folder

  def unit_path(self, number: int) -> PurePath:
    """The file of a finished unit."""
    return self.path / f"{number:08d}{self._suffix}"

  def temporary_path(self, number: int) -> Path:
    """A local name for a unit's file until it is finished, our own."""
    return Path(self._temporaries) / (
      f"{number:08d}.{self.shard.name}.{process_name()}{_TEMPORARY}"
    )

  def finished(self) -> set[int]:
    """Numbers of the units that are finished."""
    return {
      int(name.removesuffix(self._suffix))
      for name in storage.list_files(self.path)
      if name.endswith(self._suffix)
    }

  def shard_counts(self) -> set[int]:
    """Into how many shards the work was divided; empty if that is not known.

    On a store it is not: there are no locks.
    """
    found = map(_SHARD_LOCK.fullmatch, storage.list_files(self.path))
    return {int(lock[1]) for lock in found if lock is not None}

  def fetch_units(self, count: int) -> list[Path]:
    """Local files of the first units, brought here from a store.

    Raises:
      FileNotFoundError: one is not there.
      OSError: the scratch folder's disk is too small.
      ValueError: one is not whole.
    """
    paths = [self.unit_path(number) for number in range(count)]
    if not storage.is_url(self.path):
      return [Path(path) for path in paths]
    assert self.scratch is not None, "a store's folder has one"
    sizes = storage.list_files(self.path)
    # As much again for what is made of them.
    check_space(
      self.scratch, 2 * sum(sizes.get(path.name, 0) for path in paths)
    )
    fetched = storage.fetch(paths, self.scratch)
    for path, local in zip(paths, fetched):
      try:
        UnitReader(local).close()
      except ValueError:
        raise ValueError(
          f"{path} is not the whole file of a prepared unit. Remove it, and"
          " run the same command again."
        ) from None
    return fetched

  def done(self) -> dict[str, Any] | None:
    """What `mark_done` kept."""
    return storage.read_json(self.path / _DONE)

  def mark_done(
    self, content: Mapping[str, Any], *, overwrite: bool = False
  ) -> None:
    """Says that the output is about to be published, or is.

    From here on, what lies under the output's names is this request's own.

    Args:
      content: JSON of what is published; "published" says whether it is.
      overwrite: say it even if others, who may be at work, said otherwise. On
        a disk there are none: the lock is ours.

    Raises:
      FileExistsError: another run is about to publish something else.
    """
    path = self.path / _DONE
    if content[_PUBLISHED] or overwrite or not storage.is_url(path):
      storage.write_json(path, content)
      return
    there = storage.create_json(path, content)
    if _without_state(there) != _without_state(content):
      raise FileExistsError(
        f"{self.path} says that another run makes the same output in another"
        f" way: {_difference(there, content)}. Let it end; if it has died, use"
        " its command, or start over with --overwrite."
      )

  def remove(self) -> None:
    """Removes the folder, what says that it is done last."""
    names = list(storage.list_files(self.path))
    last = [name for name in (_REQUEST, _LOCK, _DONE) if name in names]
    storage.remove(self.path / name for name in sorted(set(names) - set(last)))
    for name in last:
      storage.remove([self.path / name])
    storage.remove_folder(self.path)

  def remove_if_useless(self) -> None:
    """Removes the folder if no unit was finished in it, and it is ours."""
    if self.shard.count > 1:
      return
    if not self.has_units():
      self.remove()

  def has_units(self) -> bool:
    """Whether any unit is finished, of whatever request."""
    names = storage.list_files(self.path)
    return any(name.endswith(_UNIT) for name in names)

  def remove_units(self) -> None:
    """Removes the request's finished units."""
    storage.remove(self.unit_path(number) for number in self.finished())

  def remove_temporaries(self) -> None:
    """Removes what a killed run of the same shard left half written."""
    ours = "." if self.shard.count == 1 else f".{self.shard.name}."
    storage.remove(
      self._temporaries / name
      for name in storage.list_files(self._temporaries)
      if ours in name and name.endswith(_TEMPORARY)
    )


@contextlib.contextmanager
def opened(
  path: PurePath,
  request: Mapping[str, Any],
  *,
  shard: Shard,
  restart: bool,
  scratch: Path | None = None,
) -> Iterator[WorkFolder]:
  """Makes or takes up a work folder, and holds its lock if it is on a disk.

  Args:
    path: of the folder.
    request: JSON of what decides the units' content.
    shard: the part of the units to do.
    restart: remove what another request left, instead of refusing.
    scratch: a local folder for what goes to a store or comes from one.

  Raises:
    BlockingIOError: another run works in it.
    ValueError: another request began in it.
  """
  folder = WorkFolder(path, shard, scratch=scratch, request=request)
  with contextlib.ExitStack() as stack:
    if not storage.is_url(path):
      _lock(stack, Path(path), shard)
      folder.remove_temporaries()
    _agree(folder, request, restart=restart)
    yield folder


def _lock(stack: contextlib.ExitStack, path: Path, shard: Shard) -> None:
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


def _agree(
  folder: WorkFolder, request: Mapping[str, Any], *, restart: bool
) -> None:
  path = folder.path / _REQUEST
  there = storage.create_json(path, request)
  while there != request:
    # Where there is a lock, nobody else is at work, and nothing is lost.
    nothing = not storage.is_url(folder.path) and not folder.has_units()
    if not restart and not nothing:
      raise RefusedError(
        f"{folder.path} holds the unfinished work of another request:"
        f" {_difference(there, request)}. Run the command that was used"
        f" there, remove that folder, or start over with --overwrite."
      )
    if folder.shard.count > 1:
      raise RefusedError(
        f"{folder.path} holds the unfinished work of another request:"
        f" {_difference(there, request)}. Other shards may be at work there,"
        " so remove the folder yourself."
      )
    names = storage.list_files(folder.path)
    storage.remove(folder.path / name for name in names if name != _LOCK)
    # Another run may do the same on a store; then it is asked again.
    there = storage.create_json(path, request)


def _mark(request: Mapping[str, Any]) -> str:
  """Names a request, in 12 hex digits."""
  text = json.dumps(request, sort_keys=True)
  return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def _without_state(content: Mapping[str, Any]) -> dict[str, Any]:
  """What is published, whether or not it is yet."""
  return {key: value for key, value in content.items() if key != _PUBLISHED}


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
