"""A rearrangement of rows in, as an array, a mapping or a file.

`data_rearrange_map` says which row stands at each place of an epoch. Its
forms are a sequence of rows, one for each place; a mapping from places to
rows, other places keeping their own; and a file that holds either.
"""

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hpgrain.arguments import MAX_ROW, integer, row_numbers
from hpgrain.order import grouped, permutation_key, permute

# Rows to check at a time: a map may be larger than memory.
_CHUNK = 1 << 20

_FORMS = (
  "Give a list of integers, one row for each place, a mapping from places to"
  " rows, or the path of a .npy or .json file"
)


@dataclasses.dataclass(frozen=True)
class PartialMap:
  """A rearrangement of some places; the others keep their own row.

  Attributes:
    rows: the row that stands at each place named.
    where: what to call the map in messages.
  """

  rows: Mapping[int, int]
  where: str = "data_rearrange_map"

  def resolve(self, num_rows: int) -> np.ndarray:
    """Returns int64[num_rows]: the row at each place of an epoch.

    Raises:
      ValueError: for a place or a row outside [0, num_rows).
    """
    for place, row in self.rows.items():
      if not (0 <= place < num_rows and 0 <= row < num_rows):
        raise ValueError(
          f"{self.where} has row {row} at place {place}; both must lie in [0,"
          f" {num_rows}), the rows of an epoch."
        )
    whole = np.arange(num_rows, dtype=np.int64)
    whole[np.array([*self.rows], np.int64)] = [*self.rows.values()]
    return whole


def load_rearrange_map(
  value: Any, *, num_rows: int | None = None
) -> np.ndarray | PartialMap:
  """Reads a `data_rearrange_map` in any of its forms.

  Whether its rows exist is checked where the number of rows is known.

  Args:
    value: integers; a mapping of integers to integers, whose keys may be
      strings; or the path of a `.npy` file (one dimension of integers, mapped
      read-only) or a `.json` file (a list, or an object).
    num_rows: rows of an epoch, to resolve a mapping with; without it a
      mapping is returned as it is.

  Returns:
    Integers [places], not to be written to, or a `PartialMap`.

  Raises:
    ValueError: for anything else, naming the file.
  """
  where = "data_rearrange_map"
  if isinstance(value, (str, os.PathLike)):
    path = Path(value)
    where = f"data_rearrange_map {path}"
    value = _read(path, where)
  if hasattr(value, "items"):
    partial = PartialMap(_mapping(value.items(), where), where)
    return partial if num_rows is None else partial.resolve(num_rows)
  if isinstance(value, np.memmap):
    return _integers(value, where)
  if isinstance(value, (Sequence, np.ndarray)):
    array = np.array(_integers(value, where))
    array.setflags(write=False)
    return array
  raise ValueError(f"{where} is {value!r}. {_FORMS}.")


def resolve(
  order_map: Sequence[int] | np.ndarray | PartialMap, num_rows: int
) -> tuple[np.ndarray, str]:
  """Checks a map against the rows of an epoch.

  Args:
    order_map: from `load_rearrange_map`, or integers.
    num_rows: rows of an epoch, M.

  Returns:
    (integers [L], digest): each row in [0, M), and 32 hexadecimal digits of
    them, whatever type of integer holds them.

  Raises:
    ValueError: for an empty map, anything but integers, or a row outside
      [0, M).
  """
  if isinstance(order_map, PartialMap):
    order_map = order_map.resolve(num_rows)
  file = getattr(order_map, "filename", None)
  where = "data_rearrange_map" + (f" {file}" if file else "")
  order_map = _integers(order_map, where)
  digest = hashlib.blake2b(digest_size=16)
  for begin in range(0, len(order_map), _CHUNK):
    part = np.asarray(order_map[begin : begin + _CHUNK])
    wrong = np.flatnonzero((part < 0) | (part >= num_rows))
    if len(wrong):
      raise ValueError(
        f"{where} has row {part[wrong[0]]} at place {begin + wrong[0]}; rows"
        f" must lie in [0, {num_rows}), those of an epoch."
      )
    digest.update(part.astype("<i8").tobytes())
  return order_map, digest.hexdigest()


def rearranged_rows(
  rows: np.ndarray | Sequence[int],
  *,
  num_rows: int,
  order_map: np.ndarray | None,
  permute_seed: int | None,
  wraps: bool,
) -> np.ndarray:
  """Returns which rows stand at places `rows`.

  Args:
    rows: int64[n], places from 0 on, in any order.
    num_rows: rows of an epoch, M, at least 1.
    order_map: integers [L], L >= 1, each in [0, M); None takes the rows as
      they stand, L = M.
    permute_seed: keys how each epoch's places are permuted; None leaves them.
    wraps: whether every epoch reads rows [0, M); if not, epoch e reads rows
      [e * M, (e + 1) * M).

  Returns:
    int64[n].

  Raises:
    IndexError: for a place below 0 or beyond the last row there is.
  """
  rows = row_numbers(rows)
  places = num_rows if order_map is None else len(order_map)
  epoch, place = np.divmod(rows, places)
  if not wraps and len(rows):
    last = int(epoch.max())
    if (last + 1) * num_rows > MAX_ROW:
      raise IndexError(f"Rows end at 2^62, got a row of epoch {last}.")
  if permute_seed is not None:
    for e, chosen in grouped(epoch):
      key = permutation_key(permute_seed, "cyclic", e)
      place[chosen] = permute(place[chosen], places, key=key)
  if order_map is not None:
    place = np.asarray(order_map[place]).astype(np.int64)
  return place if wraps else place + epoch * num_rows


def _integers(values: Sequence[int] | np.ndarray, where: str) -> np.ndarray:
  """Returns a map's rows as an array of one dimension, without a copy.

  Raises:
    ValueError: for none, another number of dimensions, or anything but
      integers.
  """
  if not isinstance(values, np.ndarray):
    for place, row in enumerate(values):
      integer(f"{where}: the row at place {place}", row)
    # Without a dtype, an empty list would be one of floats.
    values = np.array(values, np.int64 if len(values) == 0 else None)
  if values.ndim != 1 or values.dtype.kind not in "iu":
    raise ValueError(
      f"{where} has shape {values.shape} and dtype {values.dtype}; it must be"
      " integers of one dimension, one row for each place."
    )
  if not len(values):
    raise ValueError(
      f"{where} is empty: no row would ever be read. Leave it out to read all"
      " rows in their own order."
    )
  return values


def _mapping(items: Iterable[tuple[Any, Any]], where: str) -> dict[int, int]:
  """Returns places and rows as integers."""
  rows: dict[int, int] = {}
  for key, row in items:
    place = key
    if isinstance(key, str):
      # The keys of JSON objects are strings: "7", but not "07" or "+7".
      digits = key.isdecimal() and len(key) < 20
      place = int(key) if digits else key
      if str(place) != key or isinstance(place, str):
        raise ValueError(f"{where}: place {key!r} is no integer from 0 on.")
    place = integer(f"{where}: a place", place, minimum=0)
    if place in rows:
      raise ValueError(f"{where} names place {place} twice.")
    rows[place] = integer(f"{where}: the row at place {place}", row, minimum=0)
  return rows


class _Pairs(list):
  """A JSON object's (key, value) pairs, keys that occur twice kept."""

  def items(self) -> "_Pairs":
    return self


def _read(path: Path, where: str) -> Any:
  """Returns what a map's file holds."""
  if path.suffix not in (".npy", ".json"):
    raise ValueError(
      f"{where}: a map's file ends with .npy or .json. {_FORMS}."
    )
  try:
    if path.suffix == ".json":
      value = json.loads(path.read_text("utf-8"), object_pairs_hook=_Pairs)
      if not isinstance(value, list):
        raise ValueError("neither a list nor an object")
      return value
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    if not isinstance(array, np.ndarray):
      array.close()
      raise ValueError("an archive of arrays, not one array")
    return array
  except (OSError, EOFError, ValueError, RecursionError) as error:
    raise ValueError(
      f"{where} cannot be read: {str(error).rstrip('.')}. A map's file is a"
      " .npy of integers of one dimension, or a .json list of rows or object"
      " of places and rows."
    ) from error
