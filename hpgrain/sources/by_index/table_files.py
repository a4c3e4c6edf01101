r"""Files of tables: which group of which file a record lies in.

a.parquet  groups of 3, 2 rows      first_row   0 3 5 | 9
b.parquet  a group of 4 rows        group       0 1 2
"""

import collections
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hpgrain.sources.by_index import digests
from hpgrain.sources.by_index.byte_ranges import changed
from hpgrain.sources.records import record_numbers
from hpgrain.tools.readers.files import reading, size_and_version
from hpgrain.tools.readers.records import InputFile

# Files held open: a source may have thousands, and a blend many sources.
OPEN_FILES = 32


class TableFiles:
  """What Parquet, Arrow and ArrayRecord sources know of their files.

  Attributes:
    files: in order.
    first_row: int64[groups + 1], records of the source before each group.
    identity: JSON of what the records are.
    cache_identity: that, and when the files were written.
  """

  def __init__(
    self,
    files: Sequence[InputFile],
    form: str,
    group_rows: Callable[[InputFile], Sequence[int]],
  ) -> None:
    """Looks at each file's table of contents.

    Args:
      files: as they were found.
      form: the format's name.
      group_rows: the records of each group of a file.

    Raises:
      FileNotFoundError: a file is gone.
      ValueError: one was written again, or is broken.
    """
    self.files = tuple(files)
    counts: list[int] = []
    first_group = [0]
    for file in files:
      with reading(file):
        counts.extend(group_rows(file))
      first_group.append(len(counts))
    self.first_row = np.concatenate(
      [[0], np.cumsum(np.array(counts, np.int64))]
    )
    self._first_group = np.array(first_group, np.int64)
    self.identity: dict[str, Any] = {
      "format": form,
      "num_records": len(self),
      "num_bytes": sum(file.size for file in files),
      "digest": digests.files_digest(files),
    }
    self.cache_identity: dict[str, Any] = {
      **self.identity,
      "versions": digests.versions_digest(files),
    }

  def __len__(self) -> int:
    """Number of records."""
    return int(self.first_row[-1])

  def locate(self, group: int) -> tuple[int, int]:
    """Returns (file, group in the file) of a group of the source."""
    file = int(np.searchsorted(self._first_group, group, side="right") - 1)
    return file, int(group - self._first_group[file])

  def place(self, index: int, *, name: str) -> str:
    """File and number in it of a record."""
    number = int(record_numbers([index], num_records=len(self), name=name)[0])
    group = int(np.searchsorted(self.first_row, number, side="right") - 1)
    file, _ = self.locate(group)
    before = int(self.first_row[self._first_group[file]])
    return f"{self.files[file].path}, record {number - before + 1}"

  def check_unchanged(self, numbers: np.ndarray) -> None:
    """Refuses files of the records int64[n] that were written again.

    Raises:
      FileNotFoundError: one is gone.
      ValueError: one was.
    """
    before = self.first_row[self._first_group]
    files = np.searchsorted(before, numbers, side="right") - 1
    for file in np.unique(files).tolist():
      known = self.files[file]
      if size_and_version(known.path) != (known.size, known.version):
        raise ValueError(changed(known))


class OpenFiles:
  """The files that were read last, held open. For one thread at a time."""

  def __init__(
    self,
    files: Sequence[InputFile],
    open_file: Callable[[str], Any],
    *,
    close: Callable[[Any], None] | None = None,
  ) -> None:
    """Opens nothing yet.

    Args:
      files: of a source.
      open_file: opens one by its path.
      close: what is done with one that is held no more; None where it goes
        with its last user.
    """
    self._files = tuple(files)
    self._open_file, self._close = open_file, close
    self._held: collections.OrderedDict[int, Any] = collections.OrderedDict()

  def __len__(self) -> int:
    """Number of files that are held."""
    return len(self._held)

  def get(self, file: int) -> Any:
    """Returns an open file; raises as opening it does."""
    if file not in self._held:
      self._held[file] = self._open_file(self._files[file].path)
    self._held.move_to_end(file)
    while len(self._held) > OPEN_FILES:
      gone = self._held.popitem(last=False)[1]
      if self._close is not None:
        self._close(gone)
    return self._held[file]
