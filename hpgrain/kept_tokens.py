r"""The examples of a source, kept as tokenized corpora: made once, then read.

  kept_ids-{key}.bin/.idx       sequence e: input_ids of example e, int32
  kept_labels-{key}.bin/.idx                labels, int32
  kept_weights-{key}.bin/.idx               weights, float32, if it has any

The ids come last, so where they are all are. Until then the tokens lie in the
chunks that they are written from, so the disk holds them twice for a while.
"""

import contextlib
import errno
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hpgrain import chunk_file, index_cache_file
from hpgrain.chunk_file import COLUMNS, WEIGHTS, Chunk
from hpgrain.examples import Examples
from hpgrain.index_cache_file import SUFFIX
from hpgrain.lengths_cache import Measured
from hpgrain.lengths_scan import Finished, LengthsScan, is_there
from hpgrain.lengths_table import own_lengths
from hpgrain.records import INPUT_IDS, LABELS
from hpgrain.sources.index_file import idx_path
from hpgrain.sources.indexed import IndexedReader, IndexedWriter

_NAMES = {INPUT_IDS: "ids", LABELS: "labels", WEIGHTS: "weights"}


class KeptTokens:
  """The pairs of one source; threads may share it, and it can be pickled."""

  def __init__(self, folder: Path, *, key: Mapping[str, Any]) -> None:
    """Opens nothing.

    Args:
      folder: where the pairs lie.
      key: JSON that decides the examples.
    """
    name = index_cache_file.describe("kept", key=key, arrays={}).name
    digest = name.removesuffix(SUFFIX).removeprefix("kept-")
    self._prefixes = {
      column: str(folder / f"kept_{name}-{digest}")
      for column, name in _NAMES.items()
    }
    self._readers: dict[str, IndexedReader] = {}
    self._lock = threading.Lock()

  def __reduce__(self) -> tuple[Any, ...]:
    """Another process opens the pairs itself."""
    return _reopened, (self._prefixes,)

  def is_there(self) -> bool:
    """Whether all pairs are there."""
    return bool(self._readers) or is_there(
      Path(idx_path(self._prefixes[INPUT_IDS]))
    )

  def write(self, scan: LengthsScan, measured: Measured) -> None:
    """Writes the pairs from the tokens that a scan's chunks have.

    Args:
      scan: with all its chunks, which have their tokens.
      measured: what they came to.

    Raises:
      BlockingIOError: another process is at it.
      OSError: as the system has it; nothing is left.
      lengths_scan.Finished: another process did it meanwhile.
    """
    columns = COLUMNS if measured.weighted else (INPUT_IDS, LABELS)
    one_to_one = measured.table.first_example is None
    with contextlib.ExitStack() as stack:
      # They are finished in the other direction.
      writers = {
        column: stack.enter_context(
          IndexedWriter(
            self._prefixes[column],
            dtype=np.float32 if column == WEIGHTS else np.int32,
          )
        )
        for column in columns
      }
      if self.is_there():
        # From before this process had the right to write them.
        raise Finished
      for number, chunk in enumerate(scan.chunks()):
        lengths = _sequences(chunk, one_to_one=one_to_one)
        if sum(count for count, _ in chunk.blocks) != lengths.sum():
          # It could not be read, and was made anew where nothing is kept.
          raise OSError(
            errno.EIO, "A chunk's tokens were lost", str(scan.path(number))
          )
        for column, writer in writers.items():
          writer.add_documents(
            chunk_file.column_blocks(scan.path(number), chunk, column),
            lengths,
            np.ones(len(lengths), np.int64),
          )

  def read(self, examples: np.ndarray, *, weighted: bool) -> Examples:
    """Reads examples, each under a record of its own.

    Args:
      examples: int64[n], of which the table has each.
      weighted: whether the source has weights.

    Raises:
      ValueError: a pair is damaged.
    """
    numbers = examples.tolist()
    rows = {
      column: list(map(self._reader(column).get, numbers))
      for column in (COLUMNS if weighted else (INPUT_IDS, LABELS))
    }
    splits = np.zeros(len(examples) + 1, np.int64)
    np.cumsum([len(row) for row in rows[INPUT_IDS]], out=splits[1:])
    return Examples(
      record_splits=np.arange(len(examples) + 1),
      example_splits=splits,
      input_ids=_joined(rows[INPUT_IDS], np.int32),
      labels=_joined(rows[LABELS], np.int32),
      weights=_joined(rows[WEIGHTS], np.float32) if weighted else None,
    )

  def _reader(self, column: str) -> IndexedReader:
    with self._lock:
      if column not in self._readers:
        self._readers[column] = IndexedReader(self._prefixes[column])
      return self._readers[column]


def _sequences(chunk: Chunk, *, one_to_one: bool) -> np.ndarray:
  """int64[m], the length of each example of the table."""
  if one_to_one:
    return own_lengths(chunk.counts, chunk.lengths).astype(np.int64)
  return chunk.lengths.astype(np.int64)


def _joined(rows: list[np.ndarray], dtype: type) -> np.ndarray:
  return np.concatenate([np.zeros(0, dtype), *rows], dtype=dtype)


def _reopened(prefixes: dict[str, str]) -> KeptTokens:
  kept = KeptTokens.__new__(KeptTokens)
  kept.__dict__.update(_prefixes=prefixes, _readers={}, _lock=threading.Lock())
  return kept
