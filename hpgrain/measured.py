r"""Records and a transform in, examples of known lengths by number out.

  records     --transform-->  examples              the first time: a table
  "ab" " " "cdefg"            [a b] [c d e] [f g]   of their lengths, 2 3 2
  read([2, 0])                [f g] [a b]           later: what is asked for

Rows are planned from the table, so any row can be made by itself: of its
examples the records are read and transformed again, or their tokens kept.
"""

import json
import threading
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from hpgrain.arguments import integer, row_numbers
from hpgrain.examples import Examples
from hpgrain.index_cache import IndexCache
from hpgrain.kept_tokens import KeptTokens
from hpgrain.lengths_cache import LengthsCache, Measured
from hpgrain.lengths_scan import Finished, LengthsScan
from hpgrain.lengths_table import LengthsTable
from hpgrain.measured_together import read_together
from hpgrain.sources.records import Records
from hpgrain.transforms.transform import Transform, refuse_several

# Part of every key: what other code measured is not looked at.
_VERSION = 1


class MeasuredRecords:
  """The examples of a source by number; see `packed_windows.Lengths`.

  Nothing is read before lengths are asked for, or `measure` is called. The
  records are then gone through once, by all processes that share the cache's
  folder together; killed, they go on where they were. It can be pickled if its
  records and transform can, and used by several threads.

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
    one_example_each: bool = False,
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
      one_example_each: whether a record that makes several is an error.
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
    self._one_each = one_example_each
    self._chunk_records = integer("chunk_records", chunk_records, minimum=1)
    if keep_tokens and self._cache.folder is None:
      raise ValueError(
        "keep_tokens=True keeps examples in the cache folder, and there is"
        " none. Name one in data_cache_path, or set keep_tokens=False."
      )
    self._measured: Measured | None = None
    self._kept: KeptTokens | None = None
    self._shared: str | None = None
    # Whether another process would not find the table in the folder.
    self._in_memory = False
    self._lock = threading.Lock()

  def __getstate__(self) -> dict[str, Any]:
    """What a pickle carries: a table only where it is in no file."""
    state = {k: v for k, v in self.__dict__.items() if k != "_lock"}
    if not self._in_memory:
      state["_measured"] = state["_kept"] = None
    return state

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
    return self.table().first_example is None

  @property
  def counters(self) -> dict[str, Any]:
    """What the whole source holds, as `transforms.counters.Counters` has it.

    It measures. `tokens_read` is `tokens` and what `tokens_dropped` adds up to.
    """
    self.measure()
    assert self._measured is not None, "it was measured"
    return dict(self._measured.counters)

  def measure(self) -> None:
    """Finds the lengths, unless they are known.

    Raises:
      ValueError: a record cannot be read, or made examples of; or it makes
        several, if that is an error.
    """
    if self._measured is None:
      with self._lock:
        if self._measured is None:
          self._measured = self._find_or_scan()

  def examples(self, records: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (first int64[n], count int64[n]): the examples of records.

    Where `one_to_one`, a record that makes none has one of length 0.
    """
    return self.table().examples(records)

  def lengths(self, examples: np.ndarray) -> np.ndarray:
    """Returns int32[n], positions of each example; 0 where it is left out."""
    return self.table().lengths[examples]

  def read(self, examples: np.ndarray | Sequence[int]) -> Examples:
    """Makes examples, each under a record of its own, as they are asked for.

    Their records are read at once, each once; or the tokens, where they are
    kept.

    Args:
      examples: int64[n], in any order, any number of times.

    Raises:
      IndexError: there is no such example.
      ValueError: an example has another length than was measured, or a record
        cannot be read.
    """
    table = self.table()
    wanted = self._numbers(examples)
    if self._kept is not None and self._kept.is_there():
      assert self._measured is not None, "it was measured"
      made = self._kept.read(wanted, weighted=self._measured.weighted)
      now = np.diff(made.example_splits)
      for i in np.flatnonzero(now != table.lengths[wanted])[:1]:
        record = int(table.records_of(wanted[i : i + 1])[0])
        self.refuse(record, now[i : i + 1], table.lengths[wanted[i : i + 1]])
      return made
    return read_together([self], [wanted])

  @property
  def shared_transform(self) -> str | None:
    """JSON that sources have in common which `read_together` may read.

    None where examples are not made, but kept.
    """
    self.measure()
    if self._kept is not None and self._kept.is_there():
      return None
    if self._shared is None:
      self._shared = json.dumps(self.transform.identity, sort_keys=True)
    return self._shared

  def place(self, example: int) -> str:
    """Where the record of an example lies, for messages."""
    record = self.table().records_of(self._numbers([example]))[0]
    return self.records.place(int(record))

  def table(self) -> LengthsTable:
    """Returns the lengths, which it finds unless they are known."""
    self.measure()
    assert self._measured is not None, "it was measured"
    return self._measured.table

  def _numbers(self, examples: np.ndarray | Sequence[int]) -> np.ndarray:
    numbers = row_numbers(examples).reshape(-1)
    count = len(self.table().lengths)
    if numbers.size and numbers.max() >= count:
      raise IndexError(
        f"Source {self.name!r} has {count} examples, from 0; got"
        f" {numbers.max()}."
      )
    return numbers

  def _find_or_scan(self) -> Measured:
    key = {
      "version": _VERSION,
      "num_records": self.num_records,
      "records": self.records.cache_identity,
      "transform": self.transform.identity,
    }
    stored = LengthsCache(self._cache, key=key, num_records=self.num_records)
    kept = None
    if self._keep_tokens:
      assert self._cache.folder is not None, "it was refused"
      kept = self._kept = KeptTokens(self._cache.folder, key=key)

    def find() -> Measured | None:
      return stored.find() if kept is None or kept.is_there() else None

    scan = LengthsScan(
      self.records,
      self.transform,
      key=key,
      cache=self._cache,
      chunk_records=self._chunk_records,
      keep_tokens=self._keep_tokens,
      one_example_each=self._one_each,
      is_done=lambda: find() is not None,
    )
    measured = find()
    while measured is None:
      try:
        scan.run()
        measured = stored.get(scan.chunks)
        if kept is not None and scan.usable:
          self._keep(kept, scan, measured)
      except Finished:
        measured = find()
    if find() is not None and scan.is_left():
      scan.remove()
    self._in_memory = stored.find() is None
    if self._one_each:
      self._refuse_several(measured.table)
    return measured

  def _keep(
    self, kept: KeptTokens, scan: LengthsScan, measured: Measured
  ) -> None:
    try:
      kept.write(scan, measured)
    except BlockingIOError:
      # Another process is at it. Until it is done examples are made here.
      pass
    except OSError as error:
      self._cache.report(error)

  def _refuse_several(self, table: LengthsTable) -> None:
    if table.first_example is not None:
      counts = np.diff(table.first_example)
      record = int(np.argmax(counts > 1))
      none = np.zeros(0, np.int32)
      splits = np.array([0, counts[record]])
      refuse_several(
        Examples(splits, np.zeros(counts[record] + 1, np.int64), none, none),
        lambda _: self.records.place(record),
      )

  def refuse(self, record: int, now: np.ndarray, then: np.ndarray) -> NoReturn:
    """Says that a record makes examples of other lengths than it did.

    Raises:
      ValueError: always.
    """
    folder = self._cache.folder
    again = "start anew"
    if folder is not None:
      again = f"remove measured_* and kept_* from {folder} and start anew"
    raise ValueError(
      f"Source {self.name!r}: {self.records.place(record)} makes examples of"
      f" {now.tolist()} positions, but was measured to make {then.tolist()}."
      " The data or the transform changed since, or depends on chance. Restore"
      f" the data; or, to measure again, {again}."
    )
