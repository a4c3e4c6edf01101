r"""Records with numbers: what a source that has an index looks like.

  records   0 1 2 3 4 5 6 7 8 9      read([7, 2, 7]) -> records 7, 2, 7
  splits    [ train   ][valid][t]    views of the same records
  shards    [  0 ][  1  ][  2   ]    likewise

A record is a mapping of what the source has, such as {"text": ...}; what
becomes of it is a transform's business.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from hpgrain.arguments import integer, row_numbers
from hpgrain.splits import split_bounds

Record = Mapping[str, Any]


class Records(Protocol):
  """A source of records, any of which can be read by itself.

  It can be pickled, which opens it again in another process, and several
  threads may read it at once.

  Attributes:
    name: stands for the source in orders, states and reports.
    identity: JSON of what the records are, not of where they lie: copied data
      are the same data.
    cache_identity: that, and what changes when they are written again.
  """

  name: str

  @property
  def identity(self) -> dict[str, Any]:
    """JSON of what the records are."""
    ...

  @property
  def cache_identity(self) -> dict[str, Any]:
    """JSON of what the records are, and of when they were written."""
    ...

  def __len__(self) -> int:
    """Number of records."""
    ...

  def read(self, indices: np.ndarray) -> list[Record]:
    """Returns the records int64[n] `indices`, in that order.

    Raises:
      IndexError: there is no such record.
      ValueError: one cannot be read (names its place and what is wrong, never
        the text), or its file was written again. The others can be read.
    """
    ...

  def place(self, index: int) -> str:
    """Where a record lies, for messages: file, number from 1, byte."""
    ...


def record_numbers(
  indices: np.ndarray | Sequence[int], *, num_records: int, name: str
) -> np.ndarray:
  """Returns indices as int64[n].

  Raises:
    IndexError: there is no such record.
    TypeError: they are not integers.
  """
  numbers = row_numbers(indices).reshape(-1)
  if numbers.size and numbers.max() >= num_records:
    raise IndexError(
      f"{name} has {num_records} records, from 0; got {numbers.max()}."
    )
  return numbers


@dataclasses.dataclass(frozen=True)
class Spliced:
  """A run of another source's records, numbered from 0.

  Attributes:
    records: the source.
    begin: its first record that is taken.
    end: the record after the last one.
  """

  records: Records
  begin: int
  end: int

  def __post_init__(self) -> None:
    """Checks the bounds.

    Raises:
      ValueError: they are no range of the source's records.
    """
    if not 0 <= self.begin <= self.end <= len(self.records):
      raise ValueError(
        f"[{self.begin}, {self.end}) is no range of the {len(self.records)}"
        f" records of {self.records.name}."
      )

  @property
  def name(self) -> str:
    """The source's name."""
    return self.records.name

  @property
  def identity(self) -> dict[str, Any]:
    """The source's, and the range."""
    return {**self.records.identity, **self._range()}

  @property
  def cache_identity(self) -> dict[str, Any]:
    """The source's, and the range."""
    return {**self.records.cache_identity, **self._range()}

  def __len__(self) -> int:
    """Number of records."""
    return self.end - self.begin

  def read(self, indices: np.ndarray) -> list[Record]:
    """As `Records.read`."""
    numbers = record_numbers(indices, num_records=len(self), name=self.name)
    return self.records.read(numbers + self.begin)

  def place(self, index: int) -> str:
    """As the source has it, whose numbers it counts in."""
    return self.records.place(int(index) + self.begin)

  def _range(self) -> dict[str, Any]:
    # Ranges of ranges lie one in the other.
    inner = self.records.identity.get("ranges", [])
    return {"ranges": [*inner, [self.begin, self.end]]}


def split_records(
  records: Records, split: str
) -> tuple[Spliced | None, Spliced | None, Spliced | None]:
  """Returns the records of train, valid and test, one after the other.

  Args:
    records: what to split.
    split: up to three weights, such as "969,30,1"; see `hpgrain.splits`.

  Returns:
    A view of each; None where the weight is 0, and a view of nothing where
    the share rounds to nothing.

  Raises:
    ValueError: the split cannot be read.
  """
  train, valid, test = [
    None if bounds is None else Spliced(records, *bounds)
    for bounds in split_bounds(split, len(records))
  ]
  return train, valid, test


def shard_records(
  records: Records, *, num_shards: int, shard_id: int
) -> Spliced:
  """Returns one of `num_shards` runs, which differ by one record at most.

  Raises:
    ValueError: there is no such shard.
  """
  count = integer("num_shards", num_shards, minimum=1)
  shard = integer("shard_id", shard_id, minimum=0, maximum=count - 1)
  return Spliced(
    records,
    len(records) * shard // count,
    len(records) * (shard + 1) // count,
  )
