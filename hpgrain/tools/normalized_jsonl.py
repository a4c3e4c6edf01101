r"""A dataset's rows in, a JSON Lines file of their texts out, kept for later.

  {folder}/{name}.jsonl           {"text": "..."} a line, the keys asked for
  {folder}/{name}.manifest.json   its fingerprint: what it was made of
  {folder}/.{name}.lock, .tmp     while it is written

The name ends with a digest of all that decides the content, the commit among
it, and the fingerprint has it in full, so a file is never taken for one of
another dataset or revision. One that is there and fits is used again; it is
written under a temporary name, so that it is whole or not there.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpgrain.manifest import DatasetSource
from hpgrain.tools.durable import locked, publish, read_json, write_json
from hpgrain.tools.hub_cache import open_cached
from hpgrain.tools.hub_dataset import (
  load_rows,
  local_files,
  open_builder,
  open_rows,
)
from hpgrain.tools.hub_request import DatasetRequest
from hpgrain.tools.hub_revision import Revision, resolve_revision
from hpgrain.tools.jsonl_lines import file_digest, write_lines

if TYPE_CHECKING:
  from datasets import Dataset, DatasetBuilder

_FORMAT = 1
_SECONDS_BETWEEN_TRIES = 0.2
_LONGEST_STEM = 120


@dataclasses.dataclass(frozen=True)
class NormalizedJsonl:
  """A JSON Lines file that is whole.

  Attributes:
    path: where it lies.
    source: what it was made of.
    rows: of the dataset; a line each.
    reused: it was there already.
  """

  path: Path
  source: DatasetSource
  rows: int
  reused: bool


def fetch_jsonl(
  request: DatasetRequest, folder: Path, *, log_interval: int
) -> NormalizedJsonl:
  """Makes the file of a dataset's split, or finds it.

  Two runs with one folder: the second waits, then uses what the first made.

  Args:
    request: what is asked for.
    folder: where the file goes; made if missing.
    log_interval: rows between progress lines, as for `Progress`.

  Raises:
    OSError: the hub or the disk fails, or the dataset is not to be had.
    ValueError: there is no such dataset, revision, subset, split, column.
  """
  if request.is_local:
    builder = open_builder(request, commit=None)
    identity = _identity(request, files=local_files(builder), builder=builder)
    # A place of its own: datasets may not see that a file changed.
    request = dataclasses.replace(
      request, cache_dir=str(_local_cache(request) / _digest(identity))
    )
    return _made(
      request,
      folder,
      identity,
      lambda: _from_files(request, identity),
      log_interval,
    )

  def identify(commit: str) -> dict[str, Any]:
    return _identity(request, commit=commit)

  def have(commit: str) -> bool:
    identity = identify(commit)
    return _there(_path(request, folder, identity), identity) is not None

  revision = resolve_revision(request, have=have)
  return _made(
    request,
    folder,
    identify(revision.commit),
    lambda: _from_hub(request, revision),
    log_interval,
  )


def _from_files(
  request: DatasetRequest, identity: Mapping[str, Any]
) -> tuple["Dataset", str]:
  """The rows of files beside the hub, and the name of their subset."""
  builder = open_builder(request, commit=None)
  loaded = _loaded(builder, request)
  if local_files(builder) != identity["files"]:
    raise ValueError(
      f"The files of {request.name} changed while they were read. Wait until"
      " they are written, then run the same command again."
    )
  return loaded


def _from_hub(
  request: DatasetRequest, revision: Revision
) -> tuple["Dataset", str]:
  """The rows of a commit, and the name of their subset."""
  if revision.offline is not None:
    builder = open_cached(request, revision.commit, why=revision.offline)
    return open_rows(builder, request), str(builder.config.name)
  return _loaded(open_builder(request, commit=revision.commit), request)


def _loaded(
  builder: "DatasetBuilder", request: DatasetRequest
) -> tuple["Dataset", str]:
  return load_rows(builder, request), str(builder.config.name)


def _local_cache(request: DatasetRequest) -> Path:
  import datasets

  cache = request.cache_dir or datasets.config.HF_DATASETS_CACHE
  return Path(cache).expanduser() / "hpgrain"


def _made(
  request: DatasetRequest,
  folder: Path,
  identity: Mapping[str, Any],
  load: Callable[[], tuple["Dataset", str]],
  log_interval: int,
) -> NormalizedJsonl:
  """The file, by the lock's holder from `load`'s rows if it is not there."""
  path = _path(request, folder, identity)
  folder.mkdir(parents=True, exist_ok=True)
  with _waited_for(folder / f".{path.stem}.lock", path):
    there = _there(path, identity)
    if there is None:
      # What a killed run left.
      for left in folder.glob(f".{path.stem}.*.tmp"):
        left.unlink(missing_ok=True)
      rows, subset = load()
      written = write_lines(
        rows, request.keys, _temporary(path), log_interval=log_interval
      )
      _publish(path, {"identity": identity, "subset": subset, **written})
      reused = False
    else:
      written, subset, reused = there, there["subset"], True
    source = DatasetSource(
      id=request.name,
      subset=subset,
      split=request.split,
      commit=identity.get("commit"),
    )
    return NormalizedJsonl(path, source, written["rows"], reused)


def _identity(
  request: DatasetRequest,
  *,
  commit: str | None = None,
  files: Sequence[Mapping[str, Any]] | None = None,
  builder: "DatasetBuilder | None" = None,
) -> dict[str, Any]:
  """JSON of all that decides the file's content."""
  folder = os.path.realpath(request.name) if request.is_folder else None
  identity: dict[str, Any] = {
    "format": _FORMAT,
    "dataset": folder or request.name,
    "subset": request.subset,
    "split": request.split,
    "keys": list(request.keys),
    "data_dir": request.data_dir,
    "data_files": request.data_files and list(request.data_files),
  }
  if builder is None:
    return {**identity, "commit": commit}
  return {**identity, "files": files, "reader": [builder.name, builder.hash]}


def _digest(identity: Mapping[str, Any]) -> str:
  data = json.dumps(identity, sort_keys=True).encode()
  return hashlib.blake2b(data, digest_size=8).hexdigest()


def _path(
  request: DatasetRequest, folder: Path, identity: Mapping[str, Any]
) -> Path:
  name = request.name
  if request.is_folder:
    name = Path(os.path.realpath(name)).name
  parts = [name.replace("/", "___"), request.subset, request.split]
  stem = "-".join(part for part in parts if part)
  stem = re.sub(r"[^\w.-]", "_", stem, flags=re.ASCII)[:_LONGEST_STEM]
  return folder / f"{stem.lstrip('._')}-{_digest(identity)}.jsonl"


def _fingerprint_path(path: Path) -> Path:
  return path.with_name(f"{path.stem}.manifest.json")


def _there(path: Path, identity: Mapping[str, Any]) -> dict[str, Any] | None:
  """The fingerprint of a file that is there, whole and of this identity."""
  found = read_json(_fingerprint_path(path))
  if not path.is_file() or not isinstance(found, dict):
    return None
  if found.get("identity") != identity:
    _tell(f"{path} is of another dataset or revision: it is written again.")
    return None
  status = path.stat()
  same = status.st_size == found["bytes"]
  if same and str(status.st_mtime_ns) != found["changed"]:
    # A copy, or another content of the same size.
    with path.open("rb") as file:
      same = file_digest(file) == found["digest"]
  if not same:
    _tell(f"{path} was changed after it was written: it is written again.")
    return None
  return found


@contextlib.contextmanager
def _waited_for(lock: Path, path: Path) -> Iterator[None]:
  """Holds a lock, for which it waits where another run holds it."""
  told = False
  while True:
    with contextlib.ExitStack() as stack:
      try:
        stack.enter_context(locked(lock))
      except BlockingIOError:
        if not told:
          _tell(f"Waiting for another run that makes {path}.")
        told = True
      else:
        try:
          yield
        finally:
          lock.unlink(missing_ok=True)
        return
    time.sleep(_SECONDS_BETWEEN_TRIES)


def _publish(path: Path, fingerprint: Mapping[str, Any]) -> None:
  """Gives the written lines their name, after their fingerprint."""
  temporary = _temporary(path)
  try:
    # It fits no other file, so it proves nothing until the lines are there.
    write_json(_fingerprint_path(path), fingerprint)
    publish(temporary, path)
  finally:
    temporary.unlink(missing_ok=True)


def _temporary(path: Path) -> Path:
  return path.with_name(f".{path.stem}.{os.getpid()}.tmp")


def _tell(text: str) -> None:
  print(text, file=sys.stderr, flush=True)
