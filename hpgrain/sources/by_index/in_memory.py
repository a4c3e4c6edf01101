r"""What is in memory, by number: a list, columns, or anything with a length.

[{"text": "a"}, {"text": "b"}]                    mappings
["a", "b"], column="text"                         values of one column
{"text": ["a", "b"], "score": array([1, 2])}      columns of one length
an object with __len__ and __getitem__            as a list
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from hpgrain.sources.by_index import digests
from hpgrain.sources.records import Record, record_numbers
from hpgrain.tools.readers.records import BadRecordError


class RandomAccess(Protocol):
  """What has a length and gives an item by number."""

  def __len__(self) -> int:
    """Number of items."""
    ...

  def __getitem__(self, index: int) -> Any:
    """An item."""
    ...


class InMemoryRecords:
  """Records that an object gives by number; see `Records`.

  It can be pickled if the object can, and used by several threads if that can.

  Attributes:
    name: of the source.
  """

  def __init__(
    self,
    data: RandomAccess | Mapping[str, Sequence[Any] | np.ndarray],
    *,
    name: str,
    column: str | None = None,
    identity: Mapping[str, Any] | None = None,
  ) -> None:
    """Takes the data, which is not to be changed after.

    Args:
      data: one of the forms above. Where it has `__getitems__`, which takes a
        list of numbers, a batch is asked for at once.
      name: of the source.
      column: what the items are values of; None: they are mappings.
      identity: JSON that tells the data from other data; None looks at a
        sample of the records for that.

    Raises:
      ValueError: columns of several lengths, or data of another form.
    """
    self.name = name
    self._given = None if identity is None else dict(identity)
    self._column = column
    self._data = data
    self._columns = isinstance(data, Mapping)
    if self._columns:
      if column is not None:
        raise ValueError(
          f"{name} has columns of its own, so column must be None, got"
          f" {column!r}."
        )
      self._length = _common_length(data, name)
    elif hasattr(data, "__len__") and hasattr(data, "__getitem__"):
      self._length = len(data)
    else:
      raise ValueError(
        f"{name} is a {type(data).__name__}, which has no __len__ and"
        " __getitem__. Give a list, a dict of columns or such an object; what"
        ' is only iterated over is read in turn (dataset_type="iterable").'
      )

  @cached_property
  def identity(self) -> dict[str, Any]:
    """JSON of what the records are; reads a sample of them, once.

    Raises:
      TypeError: a record holds something that has no bytes of its own.
    """
    if self._given is not None:
      told = {"given": self._given}
    else:
      sample = self.read(digests.sampled_records(len(self)))
      told = {"digest": digests.records_digest(sample, len(self))}
    return {"format": "in_memory", "num_records": len(self), **told}

  @property
  def cache_identity(self) -> dict[str, Any]:
    """As `identity`: what is in memory was not written anywhere."""
    return self.identity

  def __len__(self) -> int:
    """Number of records."""
    return self._length

  def read(self, indices: np.ndarray) -> list[Record]:
    """As `Records.read`."""
    numbers = record_numbers(indices, num_records=len(self), name=self.name)
    if self._columns:
      return [
        {key: values[number] for key, values in self._data.items()}
        for number in numbers.tolist()
      ]
    if hasattr(self._data, "__getitems__"):
      items = list(self._data.__getitems__(numbers.tolist()))
    else:
      items = [self._data[number] for number in numbers.tolist()]
    if self._column is not None:
      return [{self._column: item} for item in items]
    for number, item in zip(numbers.tolist(), items):
      if not isinstance(item, Mapping):
        raise BadRecordError(
          f"{self.place(number)} is a {type(item).__name__}, not a mapping such"
          ' as {"text": "..."}. Where the items are values of one column, name'
          ' it (column="text").'
        )
    return items

  def place(self, index: int) -> str:
    """Name and number of a record."""
    number = record_numbers([index], num_records=len(self), name=self.name)[0]
    return f"{self.name}, record {number + 1}"


def _common_length(columns: Mapping[str, Any], name: str) -> int:
  lengths = {key: len(values) for key, values in columns.items()}
  if not lengths:
    raise ValueError(f"{name} has no columns. Give one at least.")
  (first, length), *others = lengths.items()
  for key, other in others:
    if other != length:
      raise ValueError(
        f"{name} has {length} values under {first!r} and {other} under"
        f" {key!r}; columns must have one length."
      )
  return length
