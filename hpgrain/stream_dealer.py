r"""Blended records in, the pieces of the streams that are held out.

  record    0  1  2  3  4  5  6  7      V = 4 streams, 1 and 3 held
  stream    0  1  2  3  0  1  2  3
  tokenized    x     x     x     x      the others are found, not decoded
  dealt     stream 1: pieces of 1, 5    stream 3: pieces of 3, 7

One call of a transform takes what a block has of its source. How blocks are
cut changes no piece.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from hpgrain.blended_records import BlendedRecords, SourceRecords
from hpgrain.examples import Examples
from hpgrain.records import IGNORE_INDEX
from hpgrain.sources.records import Record
from hpgrain.stream_counters import StreamCounters
from hpgrain.stream_pieces import BEGIN, RECORD, make_pieces, no_pieces
from hpgrain.transforms.transform import Transform

# No record has this number: of streams that are not held, none is wanted.
_NEVER = 1 << 62


@dataclasses.dataclass(frozen=True)
class TokenBlock:
  """Tokens of many examples.

  Attributes:
    ids: int32[t].
    labels: int32[t].
    weights: float32[t], or None: 1 wherever there is a label.
  """

  ids: np.ndarray
  labels: np.ndarray
  weights: np.ndarray | None

  @property
  def nbytes(self) -> int:
    """Bytes of the arrays."""
    weights = 0 if self.weights is None else self.weights.nbytes
    return self.ids.nbytes + self.labels.nbytes + weights


@dataclasses.dataclass(frozen=True)
class Dealt:
  """What a block of records gave.

  Attributes:
    tokens: of all pieces.
    parts: of each held stream that got any, its pieces in order (see
      `stream_pieces`).
    found: whether any record gave a piece, of whatever stream.
  """

  tokens: TokenBlock
  parts: dict[int, np.ndarray]
  found: bool


class StreamDealer:
  """Reads records, and tokenizes those of the streams that are held."""

  def __init__(
    self,
    blended: BlendedRecords,
    transforms: Sequence[Transform],
    *,
    names: Sequence[str],
    num_streams: int,
    firsts: dict[int, int],
    limit: int | None,
    overlong: str,
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
      limit: tokens a piece may have; None for any number.
      overlong: see `pack.overlong`.
      vocab_size: ids lie below it; None where it is not known.
      counters: what is counted is added to.
    """
    self.blended = blended
    self._transforms, self._names = tuple(transforms), tuple(names)
    self._firsts = np.full(num_streams, _NEVER, np.int64)
    for stream, first in firsts.items():
      self._firsts[stream] = first
    self._held = np.array(sorted(firsts), np.int64)
    self._limit, self._overlong = limit, overlong
    self._vocab_size, self._counters = vocab_size, counters

  def deal(self, n: int, *, everything: bool = False) -> Dealt | None:
    """Deals the next n records; None after the last.

    Args:
      n: how many.
      everything: also tokenizes records of streams that are not held, to see
        whether they give anything, and drops what they give.

    Raises:
      ValueError: a record cannot be read, is not what the transform expects,
        gives an id outside the vocabulary, or an example that is too long
        where that is an error. It names the record's place.
    """
    all_held = len(self._held) == len(self._firsts)
    first = None if everything else self._firsts
    if all_held and int(self._firsts.max()) <= self.blended.position()[0]:
      first = None
    block = self.blended.read(n, first=first)
    if not len(block):
      return None
    found = everything and any(self._gives(part) for part in block.parts)
    tables, tokens, size = [], [], 0
    for part in block.parts:
      chosen = np.flatnonzero(part.number >= self._first_of(part.number))
      if len(chosen):
        table, made = self._tokenized(part, chosen.tolist())
        table[BEGIN] += size
        size += len(made.ids)
        tables.append(table)
        tokens.append(made)
    parts = self._by_stream(tables)
    return Dealt(_joined(tokens), parts, found or bool(parts))

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

  def _gives(self, part: SourceRecords) -> bool:
    """Whether records of streams that are not held make any example."""
    chosen = np.flatnonzero(part.number < self._first_of(part.number)).tolist()
    records, place = self._records(part, chosen)
    return len(self._transforms[part.source](records, place)) > 0

  def _records(
    self, part: SourceRecords, chosen: Sequence[int]
  ) -> tuple[list[Record], "_Place"]:
    place = _Place(part, chosen, self._names[part.source])
    # They were wanted, so none is None.
    return [part.records[i] or {} for i in chosen], place

  def _tokenized(
    self, part: SourceRecords, chosen: Sequence[int]
  ) -> tuple[np.ndarray, TokenBlock]:
    """Returns the pieces and tokens of some of a source's records."""
    records, place = self._records(part, chosen)
    transform = self._transforms[part.source]
    with transform.counters.recorded() as recorded:
      examples = transform(records, place)
    counts = np.diff(examples.record_splits)
    self._check(examples, place)
    number = np.repeat(part.number[chosen], counts)
    pieces = make_pieces(
      examples.example_splits,
      record=number,
      source=np.full(len(number), part.source),
      limit=self._limit,
      overlong=self._overlong,
    )
    self._counters.add(part.source, recorded, pieces)
    return pieces, TokenBlock(
      examples.input_ids, examples.labels, examples.weights
    )

  def _check(self, examples: Examples, place: "_Place") -> None:
    """Raises ValueError for tokens that no row may have."""
    lengths = np.diff(examples.example_splits)
    limit = self._limit
    if self._overlong == "error" and limit is not None:
      long = np.flatnonzero(lengths > limit)
      if len(long):
        raise ValueError(
          f"{place.of_example(examples, long[0])}: an example has"
          f" {lengths[long[0]]} tokens, and a row has room for one of {limit}."
          " Set dataloader.overlong to split, truncate or drop such examples,"
          " or take a larger max_seq_len or token_budget."
        )
    if self._vocab_size is None or not len(examples.input_ids):
      return
    for name, values, least in (
      ("id", examples.input_ids, 0),
      ("label", examples.labels, IGNORE_INDEX),
    ):
      if values.max() < self._vocab_size and values.min() >= least:
        continue
      at = int(np.argmax((values < least) | (values >= self._vocab_size)))
      example = np.searchsorted(examples.example_splits, at, side="right") - 1
      raise ValueError(
        f"{place.of_example(examples, example)}: the {name} {values[at]} at"
        f" token {at - examples.example_splits[example]} of an example lies"
        f" outside the vocabulary of {self._vocab_size} ids. Was it made with"
        " another tokenizer?"
      )


class _Place:
  """Names record i of those that were chosen of a source's."""

  def __init__(self, part: SourceRecords, chosen: Sequence[int], name: str):
    self._part, self._chosen, self._name = part, chosen, name

  def __call__(self, i: int) -> str:
    return self._part.place(self._chosen[i])

  def of_example(self, examples: Examples, example: Any) -> str:
    """Names the record of an example, and its source."""
    record = np.searchsorted(examples.record_splits, example, side="right") - 1
    return f"Source {self._name!r}, {self(int(record))}"


def _joined(blocks: Sequence[TokenBlock]) -> TokenBlock:
  """One block of several, one after the other."""
  if len(blocks) == 1:
    return blocks[0]
  weights = None
  if any(block.weights is not None for block in blocks):
    weights = np.concatenate([weights_of(block) for block in blocks])
  none = np.zeros(0, np.int32)
  return TokenBlock(
    np.concatenate([none, *(block.ids for block in blocks)]),
    np.concatenate([none, *(block.labels for block in blocks)]),
    weights,
  )


def weights_of(block: TokenBlock) -> np.ndarray:
  """Returns what each label of a block counts for, float32[t]."""
  if block.weights is not None:
    return block.weights
  return (block.labels != IGNORE_INDEX).astype(np.float32)
