r"""Records of several sources in, batches that share a transform out.

  sources   a b c        transforms  T T U      where equal ones are one
  block     a0 b0 a1 c0
  batches   a0 a1 b0 of T, c0 of U

Two transforms of one identity make the same examples, so a batch has records
of all their sources: with many sources a call each would cost more than the
records do.
"""

import json
from collections.abc import Sequence

import numpy as np

from hpgrain.blended_records import SourceRecords
from hpgrain.examples import Examples
from hpgrain.sources.records import Record
from hpgrain.transforms.transform import Transform


class RecordBatch:
  """Records that one call of a transform takes; names their places.

  Attributes:
    records: n of them.
    number: int64[n], the blended record that each is.
    source: int64[n], the number of its source.
  """

  def __init__(
    self,
    parts: Sequence[tuple[SourceRecords, np.ndarray]],
    *,
    names: Sequence[str],
    num_streams: int,
  ):
    """Takes records of sources, those of a stream one after the other.

    Args:
      parts: what sources gave, and int64[k], which of it to take. They were
        wanted when they were read.
      names: of all sources.
      num_streams: V; record g is stream g % V's.
    """
    self._parts, self._names = tuple(parts), names
    records: list[Record | None] = []
    for part, chosen in parts:
      records += [part.records[i] for i in chosen.tolist()]
    none = np.zeros(0, np.int64)
    number = np.concatenate(
      [none, *(part.number[chosen] for part, chosen in parts)]
    )
    sizes = [len(chosen) for _, chosen in parts]
    self._ends = np.cumsum(sizes)
    self._order = np.lexsort((number, number % num_streams))
    self.number = number[self._order]
    source = np.repeat([part.source for part, _ in parts], sizes)
    self.source = source[self._order]
    found = [records[i] for i in self._order.tolist()]
    self.records = [record for record in found if record is not None]
    assert len(self.records) == len(self.number), "all were wanted"

  def __len__(self) -> int:
    """Number of records."""
    return len(self.number)

  def place(self, i: int) -> str:
    """Returns where record i lies."""
    taken = int(self._order[i])
    which = int(np.searchsorted(self._ends, taken, side="right"))
    part, chosen = self._parts[which]
    before = int(self._ends[which]) - len(chosen)
    return part.place(int(chosen[taken - before]))

  def place_of(self, examples: Examples, example: int) -> str:
    """Returns where the record of an example lies, and its source."""
    splits = examples.record_splits
    record = int(np.searchsorted(splits, example, side="right")) - 1
    return f"Source {self._names[self.source[record]]!r}, {self.place(record)}"


class SharedTransforms:
  """The transforms of sources, equal ones taken as one."""

  def __init__(self, transforms: Sequence[Transform]):
    """Holds them; which are equal is found when they are needed first."""
    self._transforms = tuple(transforms)
    self._groups: list[int] | None = None

  def batches(
    self,
    parts: Sequence[tuple[SourceRecords, np.ndarray]],
    *,
    names: Sequence[str],
    num_streams: int,
  ) -> list[tuple[Transform, RecordBatch]]:
    """Returns the records of a block, by the transform that takes them.

    Args:
      parts: as `RecordBatch` takes them; those without a record are left out.
      names: as `RecordBatch` takes them.
      num_streams: likewise.
    """
    grouped: dict[int, list[tuple[SourceRecords, np.ndarray]]] = {}
    for part, chosen in parts:
      if len(chosen):
        group = self._group_of(part.source)
        grouped.setdefault(group, []).append((part, chosen))
    return [
      (
        self._transforms[group],
        RecordBatch(found, names=names, num_streams=num_streams),
      )
      for group, found in grouped.items()
    ]

  def _group_of(self, source: int) -> int:
    """The first source whose transform equals this one's."""
    if len(self._transforms) == 1:
      return 0
    if self._groups is None:
      seen: dict[str, int] = {}
      # An identity may load a tokenizer, which equal objects do once.
      known = {
        id(t): json.dumps(t.identity, sort_keys=True)
        for t in {id(t): t for t in self._transforms}.values()
      }
      self._groups = [
        seen.setdefault(known[id(transform)], i)
        for i, transform in enumerate(self._transforms)
      ]
    return self._groups[source]
