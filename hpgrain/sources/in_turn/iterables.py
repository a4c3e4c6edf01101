r"""Anything that can be iterated over, one record after the other.

  [{"text": "a"}, ...]                     an iterable: a pass an epoch
  lambda: ({"text": t} for t in texts())   a function: called for each pass
  iter(...)                                an iterator: one pass, no second

Nothing is read ahead: what is asked for is taken and held, no more, so that
one which never ends needs no more memory than one that does.
"""

import itertools
import logging
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from hpgrain.log import log_once
from hpgrain.sources.in_turn.source import Block, block_of, read_cursor
from hpgrain.sources.records import Record
from hpgrain.tools.readers.records import BadRecordError

_log = logging.getLogger(__name__)


class IterableInTurn:
  """The items of an iterable, or of what a function returns; see `InTurn`.

  It can be pickled if the iterable or the function can.

  Attributes:
    name: of the source.
    seekable: never: the items before a cursor are taken again, and dropped.
  """

  seekable = False

  def __init__(
    self,
    data: Iterable[Any] | Callable[[], Iterable[Any]],
    *,
    name: str,
    column: str | None = None,
    identity: Mapping[str, Any] | None = None,
  ) -> None:
    """Takes the data; asks it for nothing.

    Args:
      data: an iterable, or a function that returns one. Every pass must give
        the same items.
      name: of the source.
      column: what the items are values of; None: they are mappings.
      identity: JSON that tells the items from others; None: nothing does, and
        a run goes on with whatever is there.

    Raises:
      ValueError: it is neither.
    """
    # A class is called, though what it makes may be iterated over.
    self._is_function = callable(data) and (
      isinstance(data, type) or not hasattr(data, "__iter__")
    )
    if isinstance(data, Mapping) or not (
      self._is_function or hasattr(data, "__iter__")
    ):
      raise ValueError(
        f"{name} is a {type(data).__name__}. Give an iterable of records, or a"
        " function without arguments that returns one."
      )
    self.name = name
    self._data = data
    self._column = column
    self._given = None if identity is None else dict(identity)
    self._taken_from = False

  @property
  def identity(self) -> dict[str, Any]:
    """JSON of what the records are, as far as it was given."""
    return {"format": "iterable", "given": self._given}

  def open(self, cursor: list[Any] | None = None) -> "_IterableReader":
    """As `InTurn.open`; the first read asks for the first item."""
    passed = 0
    if cursor is not None:
      (passed,) = read_cursor(cursor, length=1, name=self.name)
    return _IterableReader(self._items, self.name, self._column, passed)

  def _items(self) -> Iterator[Any]:
    """Begins a pass.

    Raises:
      ValueError: of an iterator there was one before, or a function returned
        something else.
    """
    made = self._data() if self._is_function else self._data
    if not hasattr(made, "__iter__"):
      raise ValueError(
        f"The function of {self.name} returned a {type(made).__name__}, which"
        " cannot be iterated over. Let it return an iterable of records."
      )
    items = iter(made)
    if items is self._data:
      if self._taken_from:
        raise ValueError(
          f"{self.name} is an iterator, which can be read once, and a second"
          " pass is asked for. Give a function that returns a new one, or"
          " epochs=1."
        )
      self._taken_from = True
    return items


class _IterableReader:
  def __init__(
    self,
    begin: Callable[[], Iterator[Any]],
    name: str,
    column: str | None,
    passed: int,
  ) -> None:
    self._begin = begin
    self._name = name
    self._column = column
    self._next = passed
    self._items: Iterator[Any] | None = None

  def read(self, n: int) -> Block:
    """As `InTurnReader.read`; at first drops what is before the cursor.

    Raises:
      BadRecordError: an item is no mapping, and no column was named.
    """
    if self._items is None:
      self._items = self._begin()
      _pass_over(self._items, self._next, self._name)
    first = self._next
    items = list(itertools.islice(self._items, n))
    records: list[Record] = items
    if self._column is not None:
      records = [{self._column: item} for item in items]
    else:
      for number, item in enumerate(items, first):
        if not isinstance(item, Mapping):
          raise BadRecordError(
            f"{_place(self._name, number)} is a {type(item).__name__}, not a"
            ' mapping such as {"text": "..."}. Where the items are values of'
            ' one column, name it (column="text").'
          )
    self._next += len(items)
    name = self._name
    return block_of(records, lambda i: _place(name, first + i))

  def cursor(self) -> list[int]:
    """[records read]."""
    return [self._next]

  def close(self) -> None:
    """Ends a generator, so that it lets go of what it holds."""
    if isinstance(self._items, types.GeneratorType):
      self._items.close()


def _pass_over(items: Iterator[Any], count: int, name: str) -> None:
  """Takes `count` items and drops them, one at a time.

  Raises:
    ValueError: there are not so many.
  """
  if not count:
    return
  log_once(
    _log,
    logging.WARNING,
    "%s cannot be entered in its middle: its first %d records are read again"
    " and dropped.",
    name,
    count,
  )
  took = sum(1 for _ in itertools.islice(items, count))
  if took < count:
    raise ValueError(
      f"{name} gave {took} records, and a run stood after {count} of them."
      " Every pass must give the same ones."
    )


def _place(name: str, number: int) -> str:
  return f"{name}, record {number + 1}"
