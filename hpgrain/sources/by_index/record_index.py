r"""Text files in, where each of their records begins out: 8 bytes a record.

  a.jsonl  {..}\n{..}\n\n{..}\n          bounds   0 5 11 17 | 0 8
  b.jsonl  {..}                          records  0 1  2     3

The bounds of a file are the starts of its records and the end of the last;
between two lie a record and what is left out after it. They are found in one
pass over the files, and kept by an `IndexCache`.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from hpgrain import _kernels
from hpgrain.index_cache import IndexCache
from hpgrain.tools.readers.files import (
  check_compression,
  open_stored,
  reading,
)
from hpgrain.tools.readers.records import InputFile

_BOM = b"\xef\xbb\xbf"
# Small enough to stay in a core's cache from reading to looking.
_BLOCK = 1 << 20
# A bar for what takes longer.
_SILENT_SECONDS = 2.0


@dataclasses.dataclass(frozen=True)
class RecordIndex:
  """Where records lie.

  Attributes:
    bounds: int64[m], one file's after another's.
    first_record: int64[files + 1], records of the files before each.
    shift: int64[files]; record i of a source lies in bytes [bounds[i +
      shift], bounds[i + shift + 1]) of its file.
    first_bound: int64[files + 1], where each file's bounds begin.
  """

  bounds: np.ndarray
  first_record: np.ndarray
  shift: np.ndarray
  first_bound: np.ndarray

  def __len__(self) -> int:
    """Number of records."""
    return int(self.first_record[-1])

  def locate(
    self, records: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns (file, start, stop), int64[n] each, of records int64[n]."""
    # Files without records are stepped over.
    file = np.searchsorted(self.first_record, records, side="right") - 1
    place = records + self.shift[file]
    return file, self.bounds[place], self.bounds[place + 1]

  def header(self, file: int) -> tuple[int, int] | None:
    """The bytes [start, stop) of a file's first row; None where it has none."""
    begin, end = self.first_bound[file : file + 2]
    if end - begin < 2:
      return None
    return int(self.bounds[begin]), int(self.bounds[begin + 1])


def find_records(
  files: Sequence[InputFile],
  *,
  kind: str,
  header_rows: int,
  key: Mapping[str, Any],
  cache: IndexCache,
) -> RecordIndex:
  """Returns where the records of files lie: from the cache, or looked up.

  Args:
    files: plain ones, as they were found.
    kind: of `_kernels.RecordStarts`.
    header_rows: rows at a file's beginning that are no records, 0 or 1.
    key: JSON of what the files are, and when they were written.
    cache: where the index is kept.

  Raises:
    FileNotFoundError: a file is gone.
    ValueError: one was written again, is compressed, or is an array that does
      not end or not fill its file.
  """
  key = {"kind": kind, "files": dict(key)}
  found: list[tuple[np.ndarray, np.ndarray]] = []

  def scanned() -> tuple[np.ndarray, np.ndarray]:
    if not found:
      found.append(_scan(files, kind))
    return found[0]

  # Two entries: how long the second is must be known to ask for it.
  counts = cache.get(
    "record_counts",
    key=key,
    arrays={"num_bounds": (np.dtype(np.int64), (len(files),))},
    build=lambda: {"num_bounds": scanned()[0]},
  )["num_bounds"]
  bounds = cache.get(
    "record_bounds",
    key=key,
    arrays={"bounds": (np.dtype(np.int64), (int(counts.sum()),))},
    build=lambda: {"bounds": scanned()[1]},
  )["bounds"]
  num_records = np.maximum(counts - 1 - header_rows, 0)
  first_record = np.concatenate([[0], np.cumsum(num_records)])
  first_bound = np.concatenate([[0], np.cumsum(counts)])
  return RecordIndex(
    bounds=bounds,
    first_record=first_record,
    shift=first_bound[:-1] + header_rows - first_record[:-1],
    first_bound=first_bound,
  )


def _scan(
  files: Sequence[InputFile], kind: str
) -> tuple[np.ndarray, np.ndarray]:
  """Returns (num_bounds int64[files], bounds int64[m])."""
  bounds = _Growing()
  counts = np.zeros(len(files), np.int64)
  with tqdm(
    total=sum(file.size for file in files),
    desc="Finding records",
    unit="B",
    unit_scale=True,
    # None: on a terminal only.
    disable=None,
    delay=_SILENT_SECONDS,
  ) as bar:
    for number, file in enumerate(files):
      before = len(bounds)
      for starts, num_bytes in _file_bounds(file, kind):
        bounds.extend(starts)
        bar.update(num_bytes)
      counts[number] = len(bounds) - before
  return counts, bounds.array()


def _file_bounds(
  file: InputFile, kind: str
) -> Iterator[tuple[np.ndarray, int]]:
  """Yields (the bounds that a block shows, bytes of the block)."""
  with reading(file), contextlib.closing(open_stored(file.path)) as stored:
    check_compression(file, stored)
    # A byte order mark belongs to no record.
    begin = len(_BOM) if stored.read(len(_BOM)) == _BOM else 0
    stored.seek(begin)
    records = _kernels.RecordStarts(kind, begin)
    block = np.empty(_BLOCK, np.uint8)
    num_elements = 0
    while num_bytes := stored.readinto(block.data):
      starts = records.feed(block[:num_bytes])
      num_elements += len(starts)
      yield starts, num_bytes
    if kind == "json_array":
      check_array(file, records, num_elements)
    else:
      yield np.array([records.offset], np.int64), 0


def check_array(
  file: InputFile, records: _kernels.RecordStarts, num_elements: int
) -> None:
  """Checks an array at the end of its file.

  Args:
    file: of the array.
    records: what followed the file, to its end.
    num_elements: starts that it gave.

  Raises:
    ValueError: the array does not end, or not fill its file.
  """
  if not records.closed:
    whole = max(num_elements - 1, 0)
    raise ValueError(
      f"{file.path} ends at byte {records.offset} inside its JSON array, after"
      f" {whole} whole elements. It was not written to its end; get it again."
    )
  if records.rest >= 0:
    raise ValueError(
      f"{file.path} goes on after its JSON array, at byte offset"
      f" {records.rest}. A .json file must be one array of objects, or one"
      " object a line."
    )


class _Growing:
  """Numbers that are appended, in one piece of memory."""

  def __init__(self) -> None:
    self._held = np.empty(1024, np.int64)
    self._size = 0

  def __len__(self) -> int:
    return self._size

  def extend(self, values: np.ndarray) -> None:
    """Appends int64[n]."""
    size = self._size + len(values)
    if size > len(self._held):
      # The system moves pages, so that there is no second copy in memory.
      self._held.resize(size + size // 8, refcheck=False)
    self._held[self._size : size] = values
    self._size = size

  def array(self) -> np.ndarray:
    """The numbers; nothing is appended any more."""
    self._held.resize(self._size, refcheck=False)
    return self._held
