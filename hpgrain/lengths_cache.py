r"""What a scan found, in the index cache: sizes, then the table itself.

  measured_sizes     examples, the most of a record, weighted?, bytes of JSON
  measured_lengths   lengths | first_example | counters, as JSON

Two entries, since an entry's shapes must be known to ask for it.
"""

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from hpgrain.chunk_file import Chunk
from hpgrain.index_cache import IndexCache
from hpgrain.lengths_table import LengthsTable, own_lengths
from hpgrain.scan_counters import merge_counters

_Shapes = dict[str, tuple[np.dtype, tuple[int, ...]]]
_SIZES: _Shapes = {"sizes": (np.dtype(np.int64), (4,))}
Chunks = Callable[[], Iterable[Chunk]]


@dataclasses.dataclass(frozen=True)
class Measured:
  """What all records of a source came to.

  Attributes:
    table: of their examples.
    weighted: whether any example has weights.
    counters: see `scan_counters.merge_counters`.
  """

  table: LengthsTable
  weighted: bool
  counters: Mapping[str, Any]


class LengthsCache:
  """What is kept under one key."""

  def __init__(
    self, cache: IndexCache, *, key: Mapping[str, Any], num_records: int
  ) -> None:
    """Holds the key.

    Args:
      cache: where it is kept.
      key: JSON that decides the examples.
      num_records: of the source.
    """
    self._cache, self._key, self._num_records = cache, dict(key), num_records

  def find(self) -> Measured | None:
    """Returns what is kept, or None."""
    found = self._cache.find("measured_sizes", key=self._key, arrays=_SIZES)
    if found is None:
      return None
    sizes = found["sizes"]
    arrays = self._cache.find(
      "measured_lengths", key=self._key, arrays=self._shapes(sizes)
    )
    return None if arrays is None else _measured(sizes, arrays)

  def get(self, chunks: Chunks) -> Measured:
    """Returns what is kept, or makes it of chunks, which are gone through.

    Args:
      chunks: yields all of them, in order. Its errors pass through.
    """
    sizes = self._cache.get(
      "measured_sizes",
      key=self._key,
      arrays=_SIZES,
      build=lambda: {"sizes": _sizes(chunks())},
    )["sizes"]
    arrays = self._cache.get(
      "measured_lengths",
      key=self._key,
      arrays=self._shapes(sizes),
      build=lambda: self._build(sizes, chunks()),
    )
    return _measured(sizes, arrays)

  def _shapes(self, sizes: np.ndarray) -> _Shapes:
    examples, most, _, text_bytes = sizes.tolist()
    one_to_one = most <= 1
    shapes: _Shapes = {
      "lengths": (
        np.dtype(np.int32),
        (self._num_records if one_to_one else examples,),
      ),
      "counters": (np.dtype(np.uint8), (text_bytes,)),
    }
    if not one_to_one:
      shapes["first_example"] = (np.dtype(np.int64), (self._num_records + 1,))
    return shapes

  def _build(
    self, sizes: np.ndarray, chunks: Iterable[Chunk]
  ) -> dict[str, np.ndarray]:
    arrays = {
      name: np.zeros(shape, dtype)
      for name, (dtype, shape) in self._shapes(sizes).items()
    }
    first, lengths = arrays.get("first_example"), arrays["lengths"]
    record = example = 0
    counters = merge_counters([])
    for chunk in chunks:
      counts = chunk.counts
      if first is None:
        made = own_lengths(counts, chunk.lengths)
      else:
        made = chunk.lengths
        ends = np.cumsum(counts, dtype=np.int64) + example
        first[record + 1 : record + 1 + len(counts)] = ends
      lengths[example : example + len(made)] = made
      record, example = record + len(counts), example + len(made)
      counters = merge_counters([counters, chunk.counters])
    arrays["counters"] = np.frombuffer(_text(counters), np.uint8)
    return arrays


def _sizes(chunks: Iterable[Chunk]) -> np.ndarray:
  examples = most = weighted = 0
  counters = merge_counters([])
  for chunk in chunks:
    examples += len(chunk.lengths)
    most = max(most, chunk.most)
    weighted |= chunk.weighted
    counters = merge_counters([counters, chunk.counters])
  return np.array([examples, most, weighted, len(_text(counters))], np.int64)


def _text(counters: Mapping[str, Any]) -> bytes:
  return json.dumps(counters).encode("ascii")


def _measured(sizes: np.ndarray, arrays: Mapping[str, np.ndarray]) -> Measured:
  return Measured(
    table=LengthsTable(arrays["lengths"], arrays.get("first_example")),
    weighted=bool(sizes[2]),
    counters=json.loads(arrays["counters"].tobytes()),
  )
