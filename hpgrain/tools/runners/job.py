"""Units to do, written to the work folder, and the call that does one.

  driver    save_job -> {folder}/0f3c... .job   the units and the request
  worker    do_unit(job, number)                anywhere, as often as one likes
  driver    job.end()                           what is left is not done

What travels to a worker is a `Job`, a path and a digest, and a number: engines
limit the size of what they are told, and a tokenizer is megabytes.

A unit that cannot be done leaves a note, so that the driver says what was
wrong in the words that a local run says it in, whatever an engine makes of it.
"""

import base64
import dataclasses
import functools
import hashlib
import os
import pickle
import secrets
import socket
import tempfile
import threading
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from hpgrain.manifest import tool_name
from hpgrain.object_store import is_url
from hpgrain.tools import storage
from hpgrain.tools.encoder_spec import EncoderSpec, installed_version
from hpgrain.tools.inputs import BadRecordError, Unit
from hpgrain.tools.request import UnitRequest
from hpgrain.tools.task import Task, do_task, portable_error
from hpgrain.tools.work_folder import WorkFolder

_SUFFIX = ".job"
_NOTE = ".error"
# A worker process has one core, as a rule.
_ENVIRONMENT = {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"}
# One unit at a time in a process, which so has one encoder, however many
# threads an engine starts in it.
_one_at_a_time = threading.Lock()


@dataclasses.dataclass(frozen=True)
class Job:
  """Where a job is written.

  Attributes:
    folder: where it is, and where the units' files go.
    name: of its file.
    digest: of that file's content.
  """

  folder: WorkFolder
  name: str
  digest: str

  def end(self) -> None:
    """Ends the job: a worker does nothing more for it."""
    storage.remove([self.folder.path / self.name])

  def going_on(self) -> bool:
    """Whether it has not been ended."""
    return storage.exists(self.folder.path / self.name)

  def errors(self, numbers: Collection[int]) -> list[Exception]:
    """What ended the work on units of these numbers, in their order."""
    names = storage.list_files(self.folder.path)
    paths = [_note_path(self.folder, number) for number in sorted(numbers)]
    notes = [storage.read_json(path) for path in paths if path.name in names]
    return [_error(note) for note in notes if note is not None]


@dataclasses.dataclass(frozen=True)
class _Content:
  """What a job's file holds."""

  tool: str
  request: UnitRequest
  units: Mapping[int, Unit]


def save_job(
  units: Sequence[tuple[int, Unit]],
  request: UnitRequest,
  *,
  folder: WorkFolder,
) -> Job:
  """Writes a job to its work folder, and removes what earlier ones left."""
  ours = {_note_path(folder, number).name for number, _ in units}
  storage.remove(
    folder.path / name
    for name in storage.list_files(folder.path)
    if name in ours or name.endswith(f".{folder.shard.name}{_SUFFIX}")
  )
  units = [(number, _located(unit)) for number, unit in units]
  content = _Content(tool_name(), request, dict(units))
  text = base64.b85encode(pickle.dumps(content)).decode()
  name = f"{secrets.token_hex(8)}.{folder.shard.name}{_SUFFIX}"
  storage.write_json(folder.path / name, {"pickled": text})
  here = folder.path
  if not is_url(here):
    here = Path(here).absolute()
  return Job(folder.at(here), name, _digest(text))


def unit_numbers(job: Job) -> list[int]:
  """The numbers of a job's units; none if it has ended."""
  return list(_content(job).units) if job.going_on() else []


def do_unit(job: Job, number: int) -> None:
  """Does a unit of a job, unless it is done or the job has ended.

  A record or a file that cannot be used ends the job. All other errors are
  raised, so that the engine may try again.

  Raises:
    OSError: a file could not be read or written.
  """
  with _one_at_a_time:
    if not job.going_on() or storage.exists(job.folder.unit_path(number)):
      return
    try:
      _do(Task(number, _content(job).units[number], job.folder), job)
    except Exception as error:
      try:
        storage.write_json(_note_path(job.folder, number), _note(error))
      except OSError:
        # As on a full disk; the engine may still tell of it.
        raise error from None
      if not isinstance(error, ValueError):
        raise
      job.end()


def _do(task: Task, job: Job) -> None:
  request = _content(job).request
  if not is_url(job.folder.path):
    do_task(task, request)
    return
  with tempfile.TemporaryDirectory(prefix="hpgrain-") as scratch:
    do_task(task, request, scratch=Path(scratch))


@functools.lru_cache(maxsize=1)
def _content(job: Job) -> _Content:
  """The job's content, once for a process.

  Raises:
    ValueError: it is not what was written, or is of other versions.
  """
  for name, value in _ENVIRONMENT.items():
    os.environ.setdefault(name, value)
  path = job.folder.path / job.name
  text = (storage.read_json(path) or {}).get("pickled", "")
  if _digest(text) != job.digest:
    raise ValueError(
      f"{path} on {socket.gethostname()} is not what was written there. Is the"
      " work folder on a file system that all machines share?"
    )
  content: _Content = pickle.loads(base64.b85decode(text))
  if content.tool != tool_name():
    raise ValueError(
      f"{socket.gethostname()} has {tool_name()}, and the job is from"
      f" {content.tool}. Install the same on all machines."
    )
  _check_version(content.request.encoder)
  return content


def _check_version(spec: EncoderSpec) -> None:
  """Refuses an encoder that may give other ids than the driver's."""
  name, version = installed_version(spec)
  if version != spec.version:
    raise ValueError(
      f"{socket.gethostname()} has {name} {version}, and the job asks for"
      f" {spec.version}: ids may differ. Install the same on all machines."
    )


def _digest(text: str) -> str:
  return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _located(unit: Unit) -> Unit:
  """The unit with a path that means the same in other processes."""
  if is_url(unit.file.path):
    return unit
  file = dataclasses.replace(
    unit.file, path=os.fspath(Path(unit.file.path).absolute())
  )
  return dataclasses.replace(unit, file=file)


def _note_path(folder: WorkFolder, number: int) -> PurePath:
  return folder.path / f"{number:08d}{_NOTE}"


def _note(error: Exception) -> dict[str, Any]:
  error = portable_error(error)
  note: dict[str, Any] = {
    "kind": type(error).__name__,
    "message": str(error),
    "host": socket.gethostname(),
  }
  if isinstance(error, OSError):
    note |= {
      "kind": "OSError",
      "errno": error.errno,
      "message": error.strerror,
      "filename": error.filename and os.fspath(error.filename),
    }
  return note


def _error(note: Mapping[str, Any]) -> Exception:
  """The error that a note is of."""
  message = note["message"]
  for kind in (BadRecordError, ValueError):
    if note["kind"] == kind.__name__:
      return kind(message)
  at = f"{message} (on {note['host']})"
  if note["kind"] == "OSError":
    return OSError(note["errno"], at, note["filename"])
  return RuntimeError(at)
