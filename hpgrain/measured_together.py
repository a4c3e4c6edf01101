r"""Examples of several measured sources in, made by one call of a transform.

  asked     a: 4 7    b: 2        examples by number, of equal transforms
  records   a: 3      b: 2        each read once
  made      a3 -> 4 5 6 7   b2 -> 2
  checked   against the lengths that were measured
  taken     a4 a7 b2

A batch of rows has a few records of each of many sources: a call for each
would cost more than the records do.
"""

import itertools
from collections.abc import Sequence
from typing import NoReturn, Protocol

import numpy as np

from hpgrain.examples import Examples, take_examples
from hpgrain.lengths_table import LengthsTable, filled_examples
from hpgrain.sources.records import Record, Records
from hpgrain.transforms.transform import Transform


class Measured(Protocol):
  """Records whose examples were measured, as `MeasuredRecords` is."""

  records: Records
  transform: Transform

  def table(self) -> LengthsTable:
    """Returns the lengths."""
    ...

  def refuse(self, record: int, now: np.ndarray, then: np.ndarray) -> NoReturn:
    """Says that a record makes examples of other lengths than it did."""
    ...


def read_together(
  members: Sequence[Measured], wanted: Sequence[np.ndarray]
) -> Examples:
  """Makes examples, each under a record of its own, as they are asked for.

  Args:
    members: sources whose transforms make the same of a record.
    wanted: for each int64[n], examples that it has, in any order, any number
      of times.

  Raises:
    ValueError: an example has another length than was measured, or a record
      cannot be read.
  """
  tables = [member.table() for member in members]
  owner = np.repeat(np.arange(len(members)), list(map(len, wanted)))
  asked = _joined([t.records_of(w) for t, w in zip(tables, wanted)])
  owners, records, inverse = _distinct(owner, asked)
  splits = np.searchsorted(owners, np.arange(len(members) + 1)).tolist()
  read: list[Record] = []
  firsts, counts, lengths = [], [], []
  for member, table, (begin, end) in zip(
    members, tables, itertools.pairwise(splits)
  ):
    part = records[begin:end]
    first, count = table.examples(part)
    # All examples of these records, one record after the other.
    numbers = first
    if table.first_example is not None:
      before = np.cumsum(count) - count
      numbers = np.repeat(first - before, count) + np.arange(count.sum())
    read += member.records.read(part)
    firsts.append(first)
    counts.append(count)
    lengths.append(table.lengths[numbers])

  def place(i: int) -> str:
    return members[owners[i]].records.place(int(records[i]))

  made = members[0].transform(read, place)
  count, length = _joined(counts), _joined(lengths)
  then = filled_examples(count, length)
  now = filled_examples(
    np.diff(made.record_splits), np.diff(made.example_splits)
  )
  if not all(map(np.array_equal, then, now)):
    for i, (member, record) in enumerate(zip(owners.tolist(), records)):
      before_, after = then[1][then[0] == i], now[1][now[0] == i]
      if not np.array_equal(before_, after):
        members[member].refuse(int(record), after, before_)
  # Of each asked one: its number among all of its record's, and of those that
  # were made.
  number = _joined(wanted) - _joined(firsts)[inverse]
  is_filled = length[(np.cumsum(count) - count)[inverse] + number] > 0
  return take_examples(
    made, np.where(is_filled, made.record_splits[inverse] + number, -1)
  )


def _distinct(
  owner: np.ndarray, record: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Returns the pairs that differ, sorted, and which of them each one is."""
  order = np.lexsort((record, owner))
  owner, record = owner[order], record[order]
  is_new = np.ones(len(order), bool)
  is_new[1:] = (owner[1:] != owner[:-1]) | (record[1:] != record[:-1])
  inverse = np.empty(len(order), np.int64)
  inverse[order] = np.cumsum(is_new) - 1
  return owner[is_new], record[is_new], inverse


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
  return np.concatenate([np.zeros(0, np.int64), *parts])
