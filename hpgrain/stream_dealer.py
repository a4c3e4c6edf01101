r"""Blended records in, the pieces of the streams that are held out.

  record    0  1  2  3  4  5  6  7      V = 4 streams, 1 and 3 held
  stream    0  1  2  3  0  1  2  3
  tokenized    x     x     x     x      the others are found, not decoded
  dealt     stream 1: pieces of 1, 5    stream 3: pieces of 3, 7

How records are cut into blocks changes no piece.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from hpgrain.blended_records import BlendedRecords, SourceRecords
from hpgrain.examples import Examples
from hpgrain.packing import PackingOptions
from hpgrain.record_batches import RecordBatch, SharedTransforms
from hpgrain.records import IGNORE_INDEX
from hpgrain.stream_counters import StreamCounters
from hpgrain.stream_pieces import (
  BEGIN,
  BLOCK,
  LENGTH,
  RECORD,
  make_pieces,
  no_pieces,
)
from hpgrain.token_blocks import TokenBlock
from hpgrain.transforms.transform import Transform, refuse_several

# No record has this number: of streams that are not held, none is wanted.
_NEVER = 1 << 62


@dataclasses.dataclass(frozen=True)
class Dealt:
  """What a block of records gave.

  Attributes:
    tokens: blocks of them, each of one stream; pieces say in which they are.
    parts: of each held stream that got any, its pieces in order (see
      `stream_pieces`).
    found: whether any record gave a piece, of whatever stream.
  """

  tokens: list[TokenBlock]
  parts: dict[int, np.ndarray]
  found: bool


class StreamDealer:
  """Reads records, and tokenizes those of the streams that are held."""

  def __init__(
    self,
    blended: BlendedRecords,
    transforms: SharedTransforms,
    *,
    names: Sequence[str],
    num_streams: int,
    firsts: dict[int, int],
    options: PackingOptions,
    vocab_size: int | None,
    counters: StreamCounters,
  ):
    """Holds what deals; reads nothing.

    Args:
      blended: the records, wherever they stand.
      transforms: of each source.
      names: of the sources, for messages.
      num_streams: V; record g is stream g % V's.
      firsts: for each held stream the first record it takes.
      options: how long a piece may be, and what becomes of longer examples.
      vocab_size: ids lie below it; None where it is not known.
      counters: what is counted is added to.
    """
    self._blended, self._transforms = blended, transforms
    self._names = tuple(names)
    self._firsts = np.full(num_streams, _NEVER, np.int64)
    for stream, first in firsts.items():
      self._firsts[stream] = first
    self._held = np.array(sorted(firsts), np.int64)
    # From here on every record is a held stream's.
    self._all_from = int(self._firsts.max())
    self._one_each = options.packer == "fixed"
    self._limit = None
    if options.packer != "concat":
      self._limit = options.example_limit
    self._overlong = options.overlong
    self._vocab_size, self._counters = vocab_size, counters

  def deal(self, n: int, *, everything: bool = False) -> Dealt | None:
    """Deals the next n records; None after the last.

    Args:
      n: how many.
      everything: also tokenizes records of streams that are not held, to see
        whether they give anything, and drops what they give.

    Raises:
      ValueError: a record cannot be read, is not what the transform expects,
        gives an id outside the vocabulary, or an example that is too long or
        one of several where that is an error. It names the record's place.
    """
    all_wanted = everything or self._blended.next_record >= self._all_from
    block = self._blended.read(n, first=None if all_wanted else self._firsts)
    if not len(block):
      return None
    held = [part.number >= self._first_of(part.number) for part in block.parts]
    chosen = [(p, np.flatnonzero(h)) for p, h in zip(block.parts, held)]
    tables: list[np.ndarray] = []
    blocks: list[TokenBlock] = []
    for transform, batch in self._batches(chosen):
      pieces, tokens = self._tokenized(transform, batch)
      tables.append(pieces)
      blocks += self._apart(pieces, tokens, len(blocks))
    parts = self._by_stream(tables)
    found = bool(parts)
    if everything:
      others = [(p, np.flatnonzero(~h)) for p, h in zip(block.parts, held)]
      found |= any(
        len(transform(batch.records, batch.place))
        for transform, batch in self._batches(others)
      )
    return Dealt(blocks, parts, found)

  def _batches(
    self, parts: Sequence[tuple[SourceRecords, np.ndarray]]
  ) -> list[tuple[Transform, RecordBatch]]:
    return self._transforms.batches(
      parts, names=self._names, num_streams=len(self._firsts)
    )

  def _apart(
    self, pieces: np.ndarray, tokens: TokenBlock, first: int
  ) -> list[TokenBlock]:
    """Returns the tokens of each stream by themselves, numbered from `first`.

    So what one stream has taken is free, however long the others lag. Pieces
    of a stream follow each other, and so do their tokens.
    """
    if not pieces.shape[1]:
      return []
    stream = pieces[RECORD] % len(self._firsts)
    cuts = np.flatnonzero(stream[1:] != stream[:-1]) + 1
    splits = [0, *cuts.tolist(), len(stream)]
    counts = np.diff(splits)
    ends = pieces[BEGIN] + pieces[LENGTH]
    begins = pieces[BEGIN, splits[:-1]]
    pieces[BLOCK] = first + np.repeat(np.arange(len(counts)), counts)
    pieces[BEGIN] -= np.repeat(begins, counts)
    return [
      tokens.part(begin, int(ends[last - 1]))
      for begin, last in zip(begins.tolist(), splits[1:])
    ]

  def _first_of(self, number: np.ndarray) -> np.ndarray:
    """Returns the first record that the streams of records take."""
    return self._firsts[number % len(self._firsts)]

  def _by_stream(self, tables: Sequence[np.ndarray]) -> dict[int, np.ndarray]:
    """Returns the pieces of each stream that has any, in order."""
    pieces = np.concatenate([no_pieces(), *tables], axis=1)
    stream = pieces[RECORD] % len(self._firsts)
    # Those of one record are in order, and stay so.
    order = np.lexsort((pieces[RECORD], stream))
    pieces, stream = pieces[:, order], stream[order]
    splits = np.searchsorted(stream, self._held).tolist()
    splits.append(len(stream))
    return {
      v: pieces[:, splits[i] : splits[i + 1]]
      for i, v in enumerate(self._held.tolist())
      if splits[i] < splits[i + 1]
    }

  def _tokenized(
    self, transform: Transform, batch: RecordBatch
  ) -> tuple[np.ndarray, TokenBlock]:
    """Returns the pieces and tokens of records."""
    with transform.counters.left_out(batch.source) as left_out:
      examples = transform(batch.records, batch.place)
    if examples.num_records != len(batch):
      raise ValueError(
        f"The transform of {len(batch)} records must return the examples of as"
        f" many, got those of {examples.num_records}. One that leaves a record"
        " out gives it none."
      )
    if self._one_each:
      refuse_several(examples, batch.place)
    self._check(examples, batch)
    counts = np.diff(examples.record_splits)
    pieces = make_pieces(
      examples.example_splits,
      record=np.repeat(batch.number, counts),
      source=np.repeat(batch.source, counts),
      limit=self._limit,
      overlong=self._overlong,
    )
    self._counters.add(batch.source, examples, left_out, pieces)
    tokens = TokenBlock(examples.input_ids, examples.labels, examples.weights)
    return pieces, tokens

  def _check(self, examples: Examples, batch: RecordBatch) -> None:
    """Raises ValueError for examples that no row may have."""
    lengths = np.diff(examples.example_splits)
    limit = self._limit
    if self._overlong == "error" and limit is not None:
      long = np.flatnonzero(lengths > limit)
      if len(long):
        raise ValueError(
          f"{batch.place_of(examples, int(long[0]))}: an example has"
          f" {lengths[long[0]]} tokens, and a row has room for one of {limit}."
          " Set dataloader.overlong to split, truncate or drop such examples,"
          " or take a larger max_seq_len or token_budget."
        )
    end = self._vocab_size
    if end is None or not len(examples.input_ids):
      return
    for name, values, least in (
      ("id", examples.input_ids, 0),
      ("label", examples.labels, IGNORE_INDEX),
    ):
      if values.max() < end and values.min() >= least:
        continue
      at = int(np.argmax((values < least) | (values >= end)))
      splits = examples.example_splits
      example = int(np.searchsorted(splits, at, side="right")) - 1
      raise ValueError(
        f"{batch.place_of(examples, example)}: the {name} {values[at]} at token"
        f" {at - splits[example]} of an example lies outside the vocabulary of"
        f" {end} ids. Was it made with another tokenizer?"
      )
