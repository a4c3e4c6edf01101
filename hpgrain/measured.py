r"""Records and a transform in, examples of known lengths by number out.

  records     --transform-->  examples          the first time: a table of
  "ab" " " "cdefg"            [a b] [c d e] [f g]    lengths, 2 3 2
  read([2, 0])                [f g] [a b]       later: only what is asked for

Rows are planned from the table, so any row can be made by itself: of its
examples the records are read and transformed again.
"""

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hpgrain.arguments import integer, row_numbers
from hpgrain.examples import Examples
from hpgrain.index_cache import IndexCache
from hpgrain.lengths_table import LengthsTable, make_table
from hpgrain.sources.records import Records
from hpgrain.transforms.transform import Transform


class MeasuredRecords:
  """The examples of a source by number; see `packed_windows.Lengths`.

  Nothing is read before lengths are asked for, or `measure` is called. It can
  be pickled if its records and transform can, and used by several threads.

  Attributes:
    name: of the source.
    records: what is read.
    transform: what makes examples of it.
  """

  def __init__(
    self,
    records: Records,
    transform: Transform,
    *,
    cache: IndexCache | None = None,
    keep_tokens: bool = False,
    chunk_records: int = 8192,
  ) -> None:
    """Holds the parts.

    Args:
      records: of one source.
      transform: whose examples depend on a record alone, not on epoch or
        chance.
      cache: where the table is kept; None measures at every start.
      keep_tokens: whether the examples themselves are kept beside the table,
        so that they are made once.
      chunk_records: records that are measured, and kept, at a time.

    Raises:
      ValueError: an argument is not legal, or examples are to be kept and
        there is no folder for them.
    """
    self.name = records.name
    self.records = records
    self.transform = transform
    self._cache = IndexCache(None) if cache is None else cache
    self._keep_tokens = keep_tokens
    self._chunk = integer("chunk_records", chunk_records, minimum=1)
    if keep_tokens and self._cache.folder is None:
      raise ValueError(
        "keep_tokens=True keeps examples in the cache folder, and there is"
        " none. Name one in data_cache_path, or set keep_tokens=False."
      )
    self._table: LengthsTable | None = None
    self._counters: dict[str, Any] = {}
    self._lock = threading.Lock()

  def __getstate__(self) -> dict[str, Any]:
    """What a pickle carries: a table in memory, too."""
    return {k: v for k, v in self.__dict__.items() if k != "_lock"}

  def __setstate__(self, state: dict[str, Any]) -> None:
    self.__dict__.update(state)
    self._lock = threading.Lock()

  @property
  def num_records(self) -> int:
    """Records of the source."""
    return len(self.records)

  @property
  def identity(self) -> dict[str, Any]:
    """JSON of what decides the examples; paths and times do not."""
    return {
      "records": self.records.identity,
      "transform": self.transform.identity,
    }

  @property
  def one_to_one(self) -> bool:
    """Whether no record makes more than one example, as measured."""
    return self._measured().first_example is None

  @property
  def counters(self) -> dict[str, Any]:
    """What the whole source holds: as `transforms.counters.Counters`.

    `tokens_read` is `tokens` and the sum of `tokens_dropped`. It measures.
    """
    self._measured()
    return dict(self._counters)

  def measure(self) -> None:
    """Finds the lengths, unless they are known.

    Raises:
      ValueError: a record cannot be read, or made examples of.
    """
    self._measured()

  def examples(self, records: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (first int64[n], count int64[n]): the examples of records.

    Where `one_to_one`, a record that makes none has one of length 0.
    """
    return self._measured().examples(records)

  def lengths(self, examples: np.ndarray) -> np.ndarray:
    """Returns int32[n], positions of each example; 0 where it is left out."""
    return self._measured().lengths[examples]

  def read(self, examples: np.ndarray | Sequence[int]) -> Examples:
    """Makes examples, each under a record of its own, as they are asked for.

    Their records are read at once, each once.

    Args:
      examples: int64[n], in any order, any number of times.

    Raises:
      IndexError: there is no such example.
      ValueError: an example has another length than was measured, or a record
        cannot be read.
    """
    table = self._measured()
    wanted = self._numbers(examples, table)
    records, inverse = np.unique(table.records_of(wanted), return_inverse=True)
    made = self.transform(
      self.records.read(records), lambda i: self.records.place(int(records[i]))
    )
    self._check(table, records, made)
    first, _ = table.examples(records)
    # Of each asked one: its number among those that were made.
    number = made.record_splits[inverse] + wanted - first[inverse]
    return _chosen(made, number, table.lengths[wanted])

  def place(self, example: int) -> str:
    """Where the record of an example lies, for messages."""
    table = self._measured()
    record = table.records_of(self._numbers([example], table))[0]
    return self.records.place(int(record))

  def _numbers(
    self, examples: np.ndarray | Sequence[int], table: LengthsTable
  ) -> np.ndarray:
    numbers = row_numbers(examples).reshape(-1)
    if numbers.size and numbers.max() >= len(table.lengths):
      raise IndexError(
        f"Source {self.name!r} has {len(table.lengths)} examples, from 0; got"
        f" {numbers.max()}."
      )
    return numbers

  def _measured(self) -> LengthsTable:
    if self._table is None:
      with self._lock:
        if self._table is None:
          self._table = self._scan()
    return self._table

  def _scan(self) -> LengthsTable:
    counts = [np.zeros(0, np.int64)]
    lengths = [np.zeros(0, np.int32)]
    for numbers in self._chunks():
      made = self.transform(
        self.records.read(numbers),
        lambda i, numbers=numbers: self.records.place(int(numbers[i])),
      )
      counts.append(np.diff(made.record_splits))
      lengths.append(np.diff(made.example_splits).astype(np.int32))
    self._counters = self.transform.counters.as_dict()
    return make_table(np.concatenate(counts), np.concatenate(lengths))

  def _chunks(self) -> Iterator[np.ndarray]:
    for begin in range(0, self.num_records, self._chunk):
      yield np.arange(begin, min(begin + self._chunk, self.num_records))

  def _check(
    self, table: LengthsTable, records: np.ndarray, made: Examples
  ) -> None:
    """Checks that records make what they were measured to make.

    Raises:
      ValueError: at the first that does not.
    """
    first, count = table.examples(records)
    for i, record in enumerate(records.tolist()):
      begin, end = made.record_splits[i : i + 2]
      now = np.diff(made.example_splits[begin : end + 1])
      then = table.lengths[first[i] : first[i] + count[i]]
      if now[now > 0].tolist() != then[then > 0].tolist():
        raise ValueError(
          f"Source {self.name!r}: {self.records.place(record)} makes examples"
          f" of {now.tolist()} positions, but was measured to make"
          f" {then.tolist()}. The data or the transform changed since; restore"
          " them, or remove the table from the cache folder to measure again."
        )


def _chosen(
  made: Examples, number: np.ndarray, lengths: np.ndarray
) -> Examples:
  """Examples of other ones, each a record of its own.

  Args:
    made: the others.
    number: int64[n], which of them; of no meaning where the length is 0.
    lengths: int32[n].
  """
  splits = np.zeros(len(number) + 1, np.int64)
  np.cumsum(lengths, out=splits[1:])
  filled = lengths > 0
  begin = np.zeros(len(number), np.int64)
  begin[filled] = made.example_splits[:-1][number[filled]]
  places = np.repeat(begin - splits[:-1], lengths) + np.arange(splits[-1])
  return Examples(
    record_splits=np.arange(len(number) + 1),
    example_splits=splits,
    input_ids=made.input_ids[places],
    labels=made.labels[places],
    weights=None if made.weights is None else made.weights[places],
  )
