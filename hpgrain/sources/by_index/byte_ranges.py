r"""Places in files in, the bytes that lie there out: few reads for many.

  asked for   b.jsonl [40, 50)   a.jsonl [10, 20)   a.jsonl [22, 30)
  read        a.jsonl [10, 30)                      b.jsonl [40, 50)

Ranges are read in the order they lie in, neighbours at once. A file that was
written again since it was found is refused, and not read as if it had not.
"""

import collections
import os
import threading
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from hpgrain.tools.readers.files import (
  filesystem,
  is_remote,
  size_and_version,
)
from hpgrain.tools.readers.records import InputFile

# Files held open: a source may have thousands, and a blend many sources.
_OPEN_FILES = 32
# Bytes between two ranges that cost less to read than another read does.
_GAP = 1 << 12
_REMOTE_GAP = 1 << 18
_READ_BYTES = 1 << 24

_Range = tuple[int, int]


class ByteRanges:
  """Reads ranges of files, which are opened when they are needed.

  Several threads may use it at once.
  """

  def __init__(self, files: Sequence[InputFile]) -> None:
    """Opens nothing yet.

    Args:
      files: as they were found; each must stay as it is.
    """
    self._files = files
    self._open: collections.OrderedDict[int, _LocalFile | _RemoteFile] = (
      collections.OrderedDict()
    )
    self._lock = threading.Lock()

  def read(
    self, file: np.ndarray, start: np.ndarray, stop: np.ndarray
  ) -> list[bytes]:
    """Returns the bytes [start, stop) of files, in the order asked for.

    Args:
      file: int64[n], places in the list of files.
      start: int64[n].
      stop: int64[n].

    Raises:
      FileNotFoundError: a file is gone.
      ValueError: one was written again, or is shorter than it was.
    """
    order = np.lexsort((stop, start, file))
    pieces: list[bytes] = [b""] * len(order)
    numbers = file[order]
    begins = np.flatnonzero(np.diff(numbers, prepend=-1)).tolist()
    for begin, end in zip(begins, [*begins[1:], len(order)]):
      places = order[begin:end].tolist()
      ranges = list(
        zip(start[order[begin:end]].tolist(), stop[order[begin:end]].tolist())
      )
      found = self._of(int(numbers[begin]))
      for place, piece in zip(places, found.read(ranges)):
        pieces[place] = piece
    return pieces

  def _of(self, number: int) -> "_LocalFile | _RemoteFile":
    with self._lock:
      found = self._open.get(number)
      if found is not None:
        self._open.move_to_end(number)
        return found
    file = self._files[number]
    found = _RemoteFile(file) if is_remote(file.path) else _LocalFile(file)
    with self._lock:
      self._open[number] = found
      while len(self._open) > _OPEN_FILES:
        # Another thread may still read it: it is closed when nobody does.
        self._open.popitem(last=False)
    return found


class _LocalFile:
  """An open file, closed with its last user."""

  def __init__(self, file: InputFile) -> None:
    self._file = file
    self._fd = -1
    try:
      self._fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
      raise FileNotFoundError(_gone(file)) from None

  # The function is held here: at the interpreter's exit `os` may be gone.
  def __del__(self, close: Callable[[int], None] = os.close) -> None:
    if self._fd >= 0:
      close(self._fd)

  def read(self, ranges: Sequence[_Range]) -> Iterator[bytes]:
    """Yields the bytes of ranges that rise."""
    status = os.fstat(self._fd)
    if (status.st_size, str(status.st_mtime_ns)) != (
      self._file.size,
      self._file.version,
    ):
      raise ValueError(changed(self._file))
    for run in _runs(ranges, _GAP):
      begin, end = run[0][0], run[-1][1]
      block = os.pread(self._fd, end - begin, begin)
      while len(block) < end - begin:
        # One read gives 2 GB at most.
        more = os.pread(self._fd, end - begin - len(block), begin + len(block))
        if not more:
          raise ValueError(changed(self._file))
        block += more
      if len(run) == 1:
        yield block
      else:
        yield from (block[a - begin : b - begin] for a, b in run)


class _RemoteFile:
  """An object of a store, looked at once for its version."""

  def __init__(self, file: InputFile) -> None:
    self._file = file
    try:
      found = size_and_version(file.path)
    except FileNotFoundError:
      raise FileNotFoundError(_gone(file)) from None
    if found != (file.size, file.version):
      raise ValueError(changed(file))
    self._system, self._name = filesystem(file.path)

  def read(self, ranges: Sequence[_Range]) -> Iterator[bytes]:
    """Yields the bytes of ranges that rise."""
    runs = list(_runs(ranges, _REMOTE_GAP))
    blocks = self._system.cat_ranges(
      [self._name] * len(runs),
      [run[0][0] for run in runs],
      [run[-1][1] for run in runs],
      on_error="raise",
    )
    for run, block in zip(runs, blocks):
      begin = run[0][0]
      if len(block) < run[-1][1] - begin:
        raise ValueError(changed(self._file))
      yield from (bytes(block[a - begin : b - begin]) for a, b in run)


def changed(file: InputFile) -> str:
  """Says that a file is not the one that was found."""
  return (
    f"{file.path} was written again since it was opened, so its records are"
    " not where they were. Let it be whole before a run starts, and start the"
    " run again."
  )


def _gone(file: InputFile) -> str:
  return f"{file.path} is gone since it was found. Put it back."


def _runs(ranges: Sequence[_Range], gap: int) -> Iterator[list[_Range]]:
  """Yields neighbours that are read at once; `ranges` rise."""
  run: list[_Range] = []
  for begin, end in ranges:
    if run and (
      begin > run[-1][1] + gap
      or end - run[0][0] > max(_READ_BYTES, end - begin)
    ):
      yield run
      run = []
    run.append((begin, end))
  if run:
    yield run
