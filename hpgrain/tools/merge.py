"""Finished units in, the final pairs out: one writer, in one pass or two.

  units      |0 1 2|3 4|5 6 7 8|        records in the input's order
  order      permuted, if shuffled
  partition  0: 0 2 4 6 8, 1: 1 3 5 7   or blocks, if sequential
  documents  as they are, or packed into records partition by partition
  pair       partition 0, then partition 1, ...

Nothing is kept in memory but a block of records, and a block of tokens, a wave
of dealt records or a record that is being packed.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from hpgrain.sources.array_record import ArrayRecordWriter
from hpgrain.sources.indexed import IndexedWriter
from hpgrain.tools.dealing import Dealer
from hpgrain.tools.packing import Packer, pack
from hpgrain.tools.request import Layout
from hpgrain.tools.shuffle import record_order
from hpgrain.tools.unit_records import Documents, UnitRecords

# Records of a partition that are looked at together.
_BLOCK_RECORDS = 1 << 16
# Dealt partitions for which the units are read once each: what lies between a
# partition's records is read too. For more, the records are dealt to a file.
_MAX_PASSES = 2


@dataclasses.dataclass(frozen=True)
class Counts:
  """What a pair holds.

  Attributes:
    documents: documents of the pair (records, when packed).
    sequences: sequences of the pair.
    tokens: tokens of the pair.
    dropped_tokens: tokens of tails that are not in it.
    dropped_documents: those tails, each less than a record.
  """

  documents: int
  sequences: int
  tokens: int
  dropped_tokens: int
  dropped_documents: int = 0


def merge(
  paths: Sequence[Path],
  *,
  key: int,
  layout: Layout,
  writer: IndexedWriter | ArrayRecordWriter,
  report: Callable[[int, int], None] = lambda documents, tokens: None,
) -> Counts:
  """Writes the documents of one key into a pair.

  Args:
    paths: the units' files, in the input's order.
    key: the key's place.
    layout: partitions, packing and order.
    writer: of the pair; neither finalized nor discarded here.
    report: told of documents and tokens that were written since.

  Raises:
    ValueError: a unit's file is damaged.
    OSError: it could not be read, or the pair not written.
  """
  output = _Output(writer, layout, report)
  with UnitRecords(paths, key=key) as records:
    for documents in _partitions_of(records, layout, paths):
      for some in documents:
        output.add(some)
      output.end_partition()
  output.end()
  return output.counts()


def partitions(num_records: int, layout: Layout) -> Iterator[range]:
  """The places in the order of records that go to each partition."""
  count = layout.partitions
  size = -(-num_records // count)
  for p in range(count):
    if layout.keep_sequential_samples:
      yield range(min(p * size, num_records), min((p + 1) * size, num_records))
    else:
      yield range(p, num_records, count)


def _partitions_of(
  records: UnitRecords, layout: Layout, paths: Sequence[Path]
) -> Iterator[Iterator[Documents]]:
  """The documents of each partition, to be gone through one by one."""
  order = record_order(len(records), seed=layout.shuffle_seed)
  # Of shuffled records each is read alone, so any partitions are one pass.
  if (
    layout.partitions > _MAX_PASSES
    and not layout.keep_sequential_samples
    and order is None
    and len(records)
  ):
    with Dealer(
      records, partitions=layout.partitions, folder=paths[0].parent
    ) as dealer:
      for partition in range(layout.partitions):
        yield dealer.read(partition)
    return
  for places in partitions(len(records), layout):
    blocks = (
      places[first : first + _BLOCK_RECORDS]
      for first in range(0, len(places), _BLOCK_RECORDS)
    )
    yield itertools.chain.from_iterable(
      records.read(block if order is None else order(block)) for block in blocks
    )


class _Output:
  """Writes documents whole, or laid end to end and cut into records."""

  def __init__(
    self,
    writer: IndexedWriter | ArrayRecordWriter,
    layout: Layout,
    report: Callable[[int, int], None],
  ) -> None:
    self._writer = writer
    self._carry = layout.carry_tails
    self._report = report
    self._length = 0
    self._packer: Packer | None = None
    if layout.pack_to_seq_len is not None:
      self._length = layout.pack_to_seq_len + 1
      self._packer = Packer(self._length)
    self._documents = 0
    self._sequences = 0
    self._tokens = 0

  def add(self, documents: Documents) -> None:
    if self._packer is None:
      # An empty record is a document without a sequence.
      filled = documents.lengths > 0
      lengths = documents.lengths[filled]
      ends = np.concatenate([[0], np.cumsum(filled)])
      bounds = np.concatenate([[0], np.cumsum(documents.counts)])
      self._write(documents.tokens, lengths, np.diff(ends[bounds]))
      return
    for records in pack(self._packer, documents.tokens):
      count = len(records) // self._length
      self._write(
        [records],
        np.full(count, self._length, np.int64),
        np.ones(count, np.int64),
      )
      # A record may be large, and the next one is being filled.
      del records

  def end_partition(self) -> None:
    if self._packer is not None and not self._carry:
      self._packer.drop_tail()

  def end(self) -> None:
    # What is carried to the end fills no record either.
    if self._packer is not None:
      self._packer.drop_tail()

  def counts(self) -> Counts:
    counts = Counts(self._documents, self._sequences, self._tokens, 0)
    if self._packer is None:
      return counts
    return dataclasses.replace(
      counts,
      dropped_tokens=self._packer.num_dropped,
      dropped_documents=self._packer.num_tails,
    )

  def _write(
    self,
    tokens: Sequence[np.ndarray] | Iterator[np.ndarray],
    lengths: np.ndarray,
    counts: np.ndarray,
  ) -> None:
    self._writer.add_documents(tokens, lengths, counts)
    num_tokens = int(lengths.sum())
    self._documents += len(counts)
    self._sequences += len(lengths)
    self._tokens += num_tokens
    self._report(len(counts), num_tokens)
