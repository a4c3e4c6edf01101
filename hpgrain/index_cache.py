r"""Arrays that are slow to build: a key in, read-only arrays out, built once.

  get(kind, key) -> in the folder? -> map it
                    else build() -> write it -> map it
                                    \-> if that fails: keep it in memory

A file is found by its content's key alone, and is an optimisation, never a
requirement: nothing waits for another process, and no state of the folder is
an error of the run.
"""

import contextlib
import dataclasses
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hpgrain import index_cache_file, index_cache_folder
from hpgrain.index_cache_file import Entry
from hpgrain.log import log_once

_log = logging.getLogger(__name__)

# The first thing that failed in each folder; the others are not said.
_failures: dict[Path, str] = {}


@dataclasses.dataclass(frozen=True)
class CacheEvent:
  """One thing that was asked for.

  Attributes:
    kind: which stage's arrays.
    path: the file they are mapped from; None in memory.
    built: whether they were built, and not found.
    seconds: it took, waiting for another thread's build of it included.
    num_bytes: of the arrays.
  """

  kind: str
  path: Path | None
  built: bool
  seconds: float
  num_bytes: int


class IndexCache:
  """A folder of built arrays, or none.

  Threads may share it. It can be pickled; `events` stay behind.

  Attributes:
    folder: where the files are; None keeps everything in memory.
    events: what was asked for so far, in the order it was ready.
  """

  def __init__(self, folder: str | os.PathLike[str] | None) -> None:
    """Looks at nothing yet: folders are made when there is something to write.

    Args:
      folder: of any file system, shared by as many runs as you like; None
        builds in memory.

    Raises:
      ValueError: for a URL, or an empty name.
    """
    self.folder = None if folder is None else _as_folder(os.fspath(folder))
    self.events: list[CacheEvent] = []
    self._lock = threading.Lock()
    self._turns: dict[str, threading.Lock] = {}
    self._tidied = False

  def __reduce__(self) -> tuple[type["IndexCache"], tuple[Path | None]]:
    """Leaves out locks and events."""
    return IndexCache, (self.folder,)

  def get(
    self,
    kind: str,
    *,
    key: Mapping[str, Any],
    arrays: Mapping[str, tuple[np.dtype, tuple[int, ...]]],
    build: Callable[[], Mapping[str, np.ndarray]],
  ) -> dict[str, np.ndarray]:
    """Returns the arrays of a key: mapped from the folder, or built.

    Args:
      kind: names the stage; lower-case letters, digits and "_".
      key: everything that decides the content, as JSON.
      arrays: name -> (dtype, shape) of what `build` returns.
      build: makes the arrays. Its errors pass through, and leave nothing.

    Returns:
      Read-only, little-endian, C-contiguous arrays.

    Raises:
      RuntimeError: `build` returned something else than `arrays` says.
    """
    start = time.monotonic()
    entry = index_cache_file.describe(kind, key=key, arrays=arrays)
    with self._turn(entry.name):
      found, path, built = self._find_or_build(entry, build)
    self._note(
      CacheEvent(kind, path, built, time.monotonic() - start, entry.num_bytes)
    )
    return found

  def find(
    self,
    kind: str,
    *,
    key: Mapping[str, Any],
    arrays: Mapping[str, tuple[np.dtype, tuple[int, ...]]],
  ) -> dict[str, np.ndarray] | None:
    """Returns the arrays of a key as `get` does, or None where none are kept.

    Args:
      kind: as for `get`.
      key: as for `get`.
      arrays: as for `get`.
    """
    if self.folder is None:
      return None
    entry = index_cache_file.describe(kind, key=key, arrays=arrays)
    try:
      return _read(self.folder / entry.name, entry)
    except OSError as error:
      self.report(error)
    return None

  def report(self, error: OSError) -> None:
    """Says, once a folder, that it cannot be used, and what then happens."""
    what = error.strerror or str(error)
    where = error.filename2 or error.filename
    cause = f"{what}: {where}" if where else what
    # The same cause each time, so that one is logged a folder.
    log_once(
      _log,
      logging.WARNING,
      "The index cache %s cannot be used (%s). Indices that are missing there"
      " are built in memory, by every process for itself and at every start."
      " Make room there or take the right to write, name another folder in"
      " data_cache_path, or leave it unset to build in memory silently.",
      self.folder,
      _failures.setdefault(self.folder, cause),
    )

  def _note(self, event: CacheEvent) -> None:
    self.events.append(event)
    _log.info(
      "Index %s: %s in %.3f s, %.1f MB, %s",
      event.kind,
      "built" if event.built else "loaded",
      event.seconds,
      event.num_bytes / 1e6,
      "in memory" if event.path is None else event.path,
    )

  def _find_or_build(
    self, entry: Entry, build: Callable[[], Mapping[str, np.ndarray]]
  ) -> tuple[dict[str, np.ndarray], Path | None, bool]:
    """Returns (arrays, the file they are mapped from, whether built)."""
    if self.folder is None:
      return index_cache_file.as_stored(entry, build()), None, True
    path = self.folder / entry.name
    readable = True
    try:
      found = _read(path, entry)
      if found is not None:
        return found, path, False
    except OSError as error:
      # It may be sound, and others may read it: it is not ours to replace.
      readable = False
      self.report(error)
    built = index_cache_file.as_stored(entry, build())
    if readable:
      try:
        return self._write(path, entry, built), path, True
      except OSError as error:
        self.report(error)
    return built, None, True

  def _write(
    self, path: Path, entry: Entry, built: Mapping[str, np.ndarray]
  ) -> dict[str, np.ndarray]:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not self._tidied:
      index_cache_folder.remove_abandoned(path.parent)
      self._tidied = True
    # Building may have taken long enough for another process to be done.
    found = _read(path, entry)
    if found is None:
      index_cache_folder.publish(path.parent, entry, built)
      found = _read(path, entry)
    if found is None:
      raise FileNotFoundError(f"{path} is not there as it was written")
    return found

  def _turn(self, name: str) -> contextlib.AbstractContextManager[Any]:
    """One thread at a time builds an entry; the others then find it."""
    if self.folder is None:
      return contextlib.nullcontext()
    with self._lock:
      return self._turns.setdefault(name, threading.Lock())


def _read(path: Path, entry: Entry) -> dict[str, np.ndarray] | None:
  """Maps a file; one that is not what it should be does not count, once said.

  Raises:
    OSError: it cannot be read.
  """
  try:
    return index_cache_file.read(path, entry)
  except ValueError as error:
    log_once(
      _log,
      logging.WARNING,
      "%s is damaged or foreign (%s): it is not used, and is replaced where"
      " that is possible.",
      path,
      error,
    )
  return None


def _as_folder(folder: str) -> Path:
  # A Path made from a URL has lost one of the slashes.
  if "://" in folder or re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", folder):
    raise ValueError(
      f"The index cache is for folders of a file system, got {folder!r}. Name"
      " one in data_cache_path, or leave it unset: indices are then built in"
      " memory."
    )
  if not folder.strip() or "\0" in folder:
    raise ValueError(
      f"The index cache needs the name of a folder, got {folder!r}. Name one"
      " in data_cache_path, or leave it unset (None) to build in memory."
    )
  try:
    return Path(folder).expanduser().absolute()
  except RuntimeError as error:
    raise ValueError(
      f"The index cache's folder {folder!r} cannot be found ({error}). Write"
      " its path out."
    ) from error
