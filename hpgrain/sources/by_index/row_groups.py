r"""Tables that are read group by group: row numbers in, records out.

first_row  0        100        250           groups of 100, 150, ... rows
asked for  [260, 3, 7, 255]
read       group 0: rows 3, 7; group 2: rows 10, 5     each group once
"""

import collections
import itertools
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from hpgrain.order import grouped
from hpgrain.sources.records import Record
from hpgrain.tools.readers.json_texts import not_utf8
from hpgrain.tools.readers.records import BadRecordError

# Of groups that are kept for the next batch; the last one is, in any case.
HELD_BYTES = 1 << 27
# What a column of strings surely holds; their offsets have 32 bits.
_TAKEN_BYTES = 1 << 31


class HeldGroups:
  """The groups that were read last, up to so many bytes.

  Several threads may use it; one at a time reads.
  """

  def __init__(self, max_bytes: int = HELD_BYTES) -> None:
    """Holds nothing yet."""
    self._max_bytes = max_bytes
    self._bytes = 0
    self._held: collections.OrderedDict[int, Any] = collections.OrderedDict()
    self._lock = threading.Lock()

  def get(self, group: int, read: Callable[[int], Any]) -> Any:
    """Returns a group's table: held, or read."""
    with self._lock:
      if group in self._held:
        self._held.move_to_end(group)
        return self._held[group]
      table = read(group)
      self._held[group] = table
      self._bytes += table.nbytes
      while self._bytes > self._max_bytes and len(self._held) > 1:
        self._bytes -= self._held.popitem(last=False)[1].nbytes
      return table


def read_grouped(
  numbers: np.ndarray,
  first_row: np.ndarray,
  read_rows: Callable[[int, np.ndarray], list[Record]],
) -> list[Record]:
  """Returns records in the order asked for, each group's in one call.

  Args:
    numbers: int64[n].
    first_row: int64[groups + 1], rows before each group.
    read_rows: (group, int64[k] rows in it) -> their records.
  """
  records: list[Record] = [{}] * len(numbers)
  # Empty groups are stepped over.
  groups = np.searchsorted(first_row, numbers, side="right") - 1
  for group, places in grouped(groups):
    rows = numbers[places] - first_row[group]
    for place, record in zip(places.tolist(), read_rows(group, rows)):
      records[place] = record
  return records


def table_rows(
  table: Any, rows: np.ndarray, *, place: Callable[[int], str], first: int
) -> list[Record]:
  """Returns rows of an Arrow table as mappings.

  Args:
    table: a `pyarrow.Table`.
    rows: int64[n].
    place: a record's place, for messages.
    first: the number of the table's first row in the source.

  Raises:
    BadRecordError: a string is not UTF-8.
  """
  import pyarrow as pa

  try:
    return _chosen(pa, table, rows).to_pylist()
  except UnicodeDecodeError:
    for row in rows.tolist():
      try:
        table.slice(row, 1).to_pylist()
      except UnicodeDecodeError as error:
        # From None: the cause holds the text.
        raise BadRecordError(
          f"{place(first + row)} {not_utf8(error)}"
        ) from None
    raise AssertionError("each row by itself is UTF-8") from None


def _chosen(pa: ModuleType, table: Any, rows: np.ndarray) -> Any:
  """The rows int64[n] of a table, in that order."""
  if table.nbytes * len(rows) < _TAKEN_BYTES:
    return table.take(pa.array(rows))
  # Taking would copy them to one column, which may not hold them all.
  bounds = np.flatnonzero(np.diff(rows, prepend=-2, append=-2) != 1)
  return pa.concat_tables(
    [
      table.slice(int(rows[begin]), end - begin)
      for begin, end in itertools.pairwise(bounds.tolist())
    ]
  )


def pyarrow_for(path: str) -> ModuleType:
  """The package that reads Parquet and Arrow.

  Raises:
    ValueError: it is not installed.
  """
  try:
    import pyarrow as pa
    import pyarrow.ipc
    import pyarrow.parquet
  except ImportError:
    raise ValueError(
      f"{path} is read with the package pyarrow, which is not installed."
      " Install it (pip install pyarrow), or convert the file to JSON Lines."
    ) from None
  return pa


def broken(path: str, error: BaseException) -> str:
  """Says that a library cannot read a file; its words may quote the data."""
  return (
    f"{path} cannot be read ({type(error).__name__}). It is broken, was not"
    " written to its end, or is of another format than its name says."
  )
