r"""Streamed datasets of Hugging Face: nothing is downloaded beforehand.

  shard 0   r0 r1 r2           cursor after r3   [1, 1]
  shard 1   r3 r4                                 |  records of the shard so far
  shard 2   r5                                shard

A pass begins with a shard, and drops what of it stands before the cursor;
shards before that are not asked for. `load_dataset` makes shards that follow
each other; of what was mapped, shuffled or joined after, only whoever did it
knows, and without a word it is all one shard.
"""

import functools
import itertools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from hpgrain.log import log_once
from hpgrain.sources.in_turn.source import (
  Block,
  block_of,
  joined,
  read_cursor,
)
from hpgrain.sources.records import Record

if TYPE_CHECKING:
  from datasets import IterableDataset

_log = logging.getLogger(__name__)

# Made at once, six times as fast as one by one.
_ROWS = 256

_Answer = TypeVar("_Answer")


class StreamedInTurn:
  """The rows of streamed datasets; see `InTurn`.

  It can be pickled if what loads them can.

  Attributes:
    name: of the source.
    seekable: never: what of a shard stands before a cursor is read again.
    identity: as given.
  """

  seekable = False

  def __init__(
    self,
    load: Callable[[], "Sequence[IterableDataset]"],
    *,
    name: str,
    by_shard: bool,
    identity: Mapping[str, Any],
    explain: Callable[[Exception], Exception] | None = None,
  ) -> None:
    """Loads nothing yet.

    Args:
      load: the datasets, which are read one after the other.
      name: of the source.
      by_shard: whether a dataset is its shards, one after the other.
      identity: JSON of what the rows are.
      explain: makes of an error of `datasets` the one to raise; None: itself.
    """
    self.name = name
    self.identity = dict(identity)
    self._load = load
    self._by_shard = by_shard
    self._explain = explain

  def open(self, cursor: list[Any] | None = None) -> "_StreamReader":
    """As `InTurn.open`; the first read asks for the data."""
    shard, record = read_cursor(cursor or [0, 0], length=2, name=self.name)
    return _StreamReader(self, [shard, record])

  def shards(self) -> "list[Callable[[], IterableDataset]]":
    """What opens each shard; asks for the data."""
    shards: list[Callable[[], IterableDataset]] = []
    for dataset in self._load():
      if not self._by_shard:
        shards.append(functools.partial(_same, dataset))
        continue
      count = dataset.num_shards
      shards += [
        functools.partial(dataset.shard, num_shards=count, index=i)
        for i in range(count)
      ]
    return shards

  def place(self, shard: int, before: int, i: int) -> str:
    """Where record i lies after so many of a shard."""
    within = f", shard {shard + 1}" if self._by_shard else ""
    return f"{self.name}{within}, record {before + i + 1}"

  def ask(self, call: Callable[[], _Answer]) -> _Answer:
    """Calls what may ask for data; raises what explains an error of it."""
    if self._explain is None:
      return call()
    try:
      return call()
    except Exception as error:
      raise self._explain(error) from error


def stream_in_turn(
  dataset: "IterableDataset",
  *,
  name: str,
  by_shard: bool = False,
  identity: Mapping[str, Any] | None = None,
) -> StreamedInTurn:
  """Takes a dataset as it is: its maps and filters, its shuffle, its format.

  Args:
    dataset: one split, streamed.
    name: of the source.
    by_shard: whether the dataset is its shards, one after the other, so that a
      pass may begin with any of them. It is as `load_dataset` gave it, and
      mapped or filtered row by row; it is not where it was shuffled, mapped
      in batches, or joined of others.
    identity: JSON that tells the rows from others; None: nothing does.

  Raises:
    ValueError: it is of several splits, has numbers, or gives tables.
  """
  import datasets

  if isinstance(dataset, (datasets.DatasetDict, datasets.IterableDatasetDict)):
    raise ValueError(
      f"{name} has the splits {', '.join(map(repr, dataset))}. Give one of"
      f" them, such as dataset[{next(iter(dataset), 'train')!r}]."
    )
  if not isinstance(dataset, datasets.IterableDataset):
    raise ValueError(
      f"{name} is a {type(dataset).__name__}, not a streamed dataset. Load it"
      " with streaming=True, or give a Dataset to HuggingFaceRecords, which"
      " NumberedInTurn reads in turn."
    )
  given = None if identity is None else dict(identity)
  return StreamedInTurn(
    functools.partial(_only, dataset),
    name=name,
    by_shard=by_shard,
    identity={"format": "hugging_face_stream", "given": given},
  )


class _StreamReader:
  def __init__(self, source: StreamedInTurn, cursor: list[int]) -> None:
    self._source = source
    self._shards: list[Callable[[], IterableDataset]] | None = None
    # After the last record that was read.
    self._cursor = cursor
    # What is read, and its number in the list.
    self._number = cursor[0]
    self._rows: Iterator[Record] | None = None

  def read(self, n: int) -> Block:
    """As `InTurnReader.read`; up to some hundred rows more are made."""
    source = self._source
    if self._shards is None:
      self._shards = source.ask(source.shards)
      if self._number > len(self._shards):
        raise ValueError(
          f"{source.name} has {len(self._shards)} shards; the cursor is of"
          f" shard {self._number + 1}. Give it the data it had."
        )
    blocks: list[Block] = []
    while n and self._number < len(self._shards):
      before = self._in_shard()
      if self._rows is None:
        self._rows = self._opened(before)
      records = source.ask(functools.partial(_next_rows, self._rows, n))
      if not records:
        self.close()
        self._number += 1
        continue
      place = functools.partial(source.place, self._number, before)
      blocks.append(block_of(records, place))
      n -= len(records)
      self._cursor = [self._number, before + len(records)]
    return joined(blocks)

  def cursor(self) -> list[int]:
    """[shard, records of it so far]."""
    return list(self._cursor)

  def close(self) -> None:
    """Ends the stream that is open."""
    if self._rows is not None:
      self._rows.close()
      self._rows = None

  def _in_shard(self) -> int:
    """Records of the shard that were read."""
    return self._cursor[1] if self._cursor[0] == self._number else 0

  def _opened(self, passed: int) -> Iterator[Record]:
    """The rows of a shard after so many of them.

    Raises:
      ValueError: there are not so many.
    """
    ask = self._source.ask
    dataset = ask(self._shards[self._number])
    if not passed:
      return _rows(dataset)
    log_once(
      _log,
      logging.WARNING,
      "%s cannot be entered in the middle of a shard: the first %d records of"
      " shard %d are read again and dropped.",
      self._source.name,
      passed,
      self._number + 1,
    )
    # One that was there, to see that it still is.
    rows = _rows(dataset.skip(passed - 1))
    if ask(lambda: next(rows, None)) is None:
      raise ValueError(
        f"{self._source.name} has fewer than the {passed} records that the"
        f" cursor says of shard {self._number + 1}. Give it the data it had."
      )
    return rows


def _rows(dataset: "IterableDataset") -> Iterator[Record]:
  """Yields the rows of a stream.

  Raises:
    ValueError: they come as tables.
  """
  if dataset.features is None:
    # Rows may have keys of their own, which in a batch all have.
    yield from dataset
    return
  for batch in dataset.iter(batch_size=_ROWS):
    if not isinstance(batch, Mapping):
      raise ValueError(
        f"The dataset gives a {type(batch).__name__} for rows. Give"
        " dataset.with_format(None)."
      )
    for values in zip(*batch.values()):
      yield dict(zip(batch, values))


def _next_rows(rows: Iterator[Record], n: int) -> list[Record]:
  return list(itertools.islice(rows, n))


def _only(dataset: "IterableDataset") -> "list[IterableDataset]":
  return [dataset]


def _same(dataset: "IterableDataset") -> "IterableDataset":
  return dataset
