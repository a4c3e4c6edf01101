r"""Every record through its transform once: chunk by chunk, by whoever comes.

  records   0 .. 8191 | 8192 .. 16383 | ...
  files     [there]     [ ]             [there] [ ] [ ]      one a chunk
             |           \-- a process takes any that is missing, at random
             \-- made by another, or before this one was killed

Processes know nothing of each other: a chunk's file is there, whole, or not,
and who makes one that another has made meanwhile made it for nothing. Without
a folder chunks stay in memory.
"""

import contextlib
import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from hpgrain import chunk_file, index_cache_file, index_cache_folder
from hpgrain.chunk_file import Chunk
from hpgrain.examples import Examples
from hpgrain.index_cache import IndexCache
from hpgrain.log import log_once
from hpgrain.scan_counters import merge_counters, scan_counters
from hpgrain.sources.records import Records
from hpgrain.transforms.transform import Transform, refuse_several

_log = logging.getLogger(__name__)

# Records are read in batches of about so many positions, but not of more
# records: what is held at a time is a few megabytes, however long they are.
_BATCH_TOKENS = 1 << 18
_BATCH_RECORDS = 1024
_FIRST_BATCH = 32
# A bar for what takes longer.
_SILENT_SECONDS = 2.0


class Finished(Exception):
  """What the scan is for is there, made by another process."""


class LengthsScan:
  """The chunks of a source; one thread at a time.

  Attributes:
    usable: whether files are still kept: none are after one failed.
    num_chunks: of the source.
  """

  def __init__(
    self,
    records: Records,
    transform: Transform,
    *,
    key: Mapping[str, Any],
    cache: IndexCache,
    chunk_records: int,
    keep_tokens: bool,
    one_example_each: bool,
    is_done: Callable[[], bool],
  ) -> None:
    """Looks at nothing yet.

    Args:
      records: what is read.
      transform: what makes examples.
      key: JSON that decides the examples.
      cache: where chunks lie meanwhile.
      chunk_records: of a chunk.
      keep_tokens: whether chunks keep their tokens, too.
      one_example_each: whether a record that makes several is an error.
      is_done: whether what the chunks are for is there already.
    """
    self.usable = cache.folder is not None
    self.num_chunks = -(-len(records) // chunk_records)
    self._records, self._transform = records, transform
    self._cache, self._size = cache, chunk_records
    self._keep, self._one_each = keep_tokens, one_example_each
    self._is_done = is_done
    text = json.dumps([key, chunk_records, keep_tokens], sort_keys=True)
    self._digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    self._held: dict[int, Chunk] = {}
    self._batch = _FIRST_BATCH
    self._is_ready = False

  def run(self) -> None:
    """Makes chunks until none is missing.

    Raises:
      Finished: it is done.
      ValueError: a record cannot be read, or made examples of.
    """
    with tqdm(
      total=len(self._records),
      desc=f"Measuring {self._records.name}",
      unit=" records",
      unit_scale=True,
      # None: on a terminal only.
      disable=None,
      delay=_SILENT_SECONDS,
    ) as bar:
      for number in self._order():
        if not self._is_there(number):
          self._stop_if_done()
          self._measure(number)
        begin, end = self._bounds(number)
        bar.update(end - begin)

  def chunk(self, number: int) -> Chunk:
    """Returns a chunk, which is made anew where its file is gone.

    Raises:
      Finished: it is gone since all is done.
      ValueError: a record cannot be read, or made examples of.
    """
    chunk = self._held.get(number) or self._load(number)
    if chunk is None:
      self._stop_if_done()
      chunk = self._measure(number)
    return chunk

  def chunks(self) -> Iterator[Chunk]:
    """Yields all chunks, as `chunk` returns them."""
    for number in range(self.num_chunks):
      yield self.chunk(number)

  def path(self, number: int) -> Path:
    """The file of a chunk."""
    assert self._cache.folder is not None, "there is a folder"
    key = {"scan": self._digest, "chunk": number}
    entry = index_cache_file.describe("measured_chunk", key=key, arrays={})
    return self._cache.folder / entry.name

  def is_left(self) -> bool:
    """Whether files of a scan that is done lie there still."""
    # They are removed from the first on.
    return bool(self.num_chunks) and self._is_there(self.num_chunks - 1)

  def remove(self) -> None:
    """Removes the files, as far as it can."""
    with contextlib.suppress(OSError):
      for number in range(self.num_chunks):
        self.path(number).unlink(missing_ok=True)

  def _order(self) -> Iterable[int]:
    if not self.usable:
      return range(self.num_chunks)
    # Another one in every process, so that few take the same at a time.
    return np.random.default_rng().permutation(self.num_chunks).tolist()

  def _bounds(self, number: int) -> tuple[int, int]:
    begin = number * self._size
    return begin, min(begin + self._size, len(self._records))

  def _is_there(self, number: int) -> bool:
    if number in self._held:
      return True
    return self._cache.folder is not None and is_there(self.path(number))

  def _stop_if_done(self) -> None:
    if self._is_done():
      raise Finished

  def _load(self, number: int) -> Chunk | None:
    if self._cache.folder is None:
      return None
    path = self.path(number)
    with self._reporting():
      try:
        return chunk_file.read(path)
      except ValueError as error:
        log_once(
          _log,
          logging.WARNING,
          "%s is damaged or foreign (%s): it is not used, and made anew.",
          path,
          error,
        )
    return None

  def _measure(self, number: int) -> Chunk:
    with contextlib.ExitStack() as stack:
      file = self._open(number, stack)
      chunk = self._make(number, None if file is None else file[0])
      if file is not None and self.usable:
        with self._reporting():
          self._publish(number, *file, chunk)
          return chunk
    self._held[number] = chunk
    return chunk

  def _make(self, number: int, fd: int | None) -> Chunk:
    """Reads a chunk's records; their tokens go to a file, if there is one."""
    counts, lengths = [], [np.zeros(0, np.int32)]
    blocks: list[tuple[int, bool]] = []
    counters = merge_counters([])
    weighted = False
    for made, said in self._batches(*self._bounds(number)):
      counts.append(np.diff(made.record_splits))
      lengths.append(np.diff(made.example_splits).astype(np.int32))
      weighted |= made.weights is not None
      counters = merge_counters([counters, said])
      if self._keep and fd is not None and self.usable:
        with self._reporting():
          blocks.append(chunk_file.write_block(fd, made))
    all_counts = np.concatenate(counts)
    return Chunk(
      counts=all_counts.astype(np.min_scalar_type(all_counts.max())),
      lengths=np.concatenate(lengths),
      weighted=weighted,
      counters=counters,
      blocks=tuple(blocks),
    )

  def _batches(
    self, begin: int, end: int
  ) -> Iterator[tuple[Examples, dict[str, Any]]]:
    """Yields the examples of records [begin, end), and their counters."""
    while begin < end:
      numbers = np.arange(begin, min(begin + self._batch, end))
      records = self._records.read(numbers)

      def place(i: int, begin: int = begin) -> str:
        return self._records.place(begin + i)

      with self._transform.counters.recorded() as recorded:
        made = self._transform(records, place)
      if made.num_records != len(numbers):
        raise ValueError(
          f"Source {self._records.name!r}: the transform of {len(numbers)}"
          f" records must return the examples of as many, got those of"
          f" {made.num_records}. One that leaves a record out gives it none."
        )
      if self._one_each:
        refuse_several(made, place)
      yield made, scan_counters(made, recorded)
      begin += len(numbers)
      fitting = _BATCH_TOKENS * len(numbers) // max(len(made.input_ids), 1)
      self._batch = min(max(fitting, 1), 4 * self._batch, _BATCH_RECORDS)

  def _open(
    self, number: int, stack: contextlib.ExitStack
  ) -> tuple[int, Path] | None:
    if not self.usable:
      return None
    with self._reporting():
      path = self.path(number)
      if not self._is_ready:
        path.parent.mkdir(parents=True, exist_ok=True)
        index_cache_folder.remove_abandoned(path.parent)
        self._is_ready = True
      return stack.enter_context(
        index_cache_folder.partial_file(path.parent, path.name)
      )
    return None

  def _publish(self, number: int, fd: int, partial: Path, chunk: Chunk) -> None:
    chunk_file.write_index(fd, chunk)
    path = self.path(number)
    index_cache_folder.publish_partial(fd, partial, path, is_whole=_is_whole)
    index_cache_folder.sync_folder(path.parent)

  @contextlib.contextmanager
  def _reporting(self) -> Iterator[None]:
    """Takes a failure of the folder for the end of its use."""
    try:
      yield
    except OSError as error:
      self._cache.report(error)
      self.usable = False


def is_there(path: Path) -> bool:
  """Whether there is a file, as far as one may look."""
  with contextlib.suppress(OSError):
    return path.exists()
  return False


def _is_whole(path: Path) -> bool:
  try:
    return chunk_file.read(path) is not None
  except ValueError:
    return False
