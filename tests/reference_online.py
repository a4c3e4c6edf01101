"""A slow reference for rows of data that is tokenized while training.

  records -> examples -> order of draws -> packer -> rows -> fields

  Plans    windows of the blended order, each packed by itself and its rows
           permuted; any number of epochs
  Streams  draw g goes to stream g % V, which packs what it gets; row g is the
           next row of stream g % V, or padding after its end

Written from the rules alone with Python's lists and loops, one record and one
position at a time. Nothing of the package is imported.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from reference import Tree, key, permute
from reference_packers import (
  IGNORE,
  Packing,
  Piece,
  Row,
  cut_overlong,
  pack_arriving,
  pack_known,
)

# Words of `helpers_tokenizer.save_word_tokenizer`.
WORDS = ("<eos>", "<sep>", "<unk>", "a", "b", "c", "d", "e")
EOS, UNKNOWN = 0, 2


# Records and what becomes of them.


@dataclasses.dataclass(frozen=True)
class Example:
  """Inputs, the labels beside them, and what each label counts for."""

  ids: list[int]
  labels: list[int]
  weights: list[float]


@dataclasses.dataclass(frozen=True)
class Transform:
  """What makes examples of a record.

  `kind` is "plaintext" or "pretokenized"; `keep` is "all", "none", or "even",
  which keeps the records of an even size.
  """

  kind: str
  max_seq_len: int
  labels_are_shifted: bool = True
  keep: str = "all"


def size_of(record: Mapping[str, Any]) -> int:
  """Words or ids of a record."""
  if "text" in record:
    return len(record["text"].split())
  return len(record["input_ids"])


def word_ids(text: str) -> list[int]:
  """One id a word: those of `WORDS`, "w9" is 9, others are unknown."""
  ids = []
  for word in text.split():
    number = word[1:]
    if word in WORDS:
      ids.append(WORDS.index(word))
    elif word[0] == "w" and number.isdigit() and int(number) >= len(WORDS):
      ids.append(int(number))
    else:
      ids.append(UNKNOWN)
  return ids


def kept(record: Mapping[str, Any], keep: str) -> bool:
  return keep == "all" or (keep == "even" and size_of(record) % 2 == 0)


def examples_of(
  record: Mapping[str, Any], transform: Transform
) -> list[Example]:
  """The examples of one record, in order."""
  if not kept(record, transform.keep):
    return []
  shifted, size = transform.labels_are_shifted, transform.max_seq_len
  if transform.kind == "plaintext":
    ids = word_ids(record["text"])
    if not ids:
      return []
    return cut_document([*ids, EOS], size, shifted)
  ids = list(record["input_ids"])
  labels, mask = record.get("labels"), record.get("loss_mask")
  if labels is None and mask is None:
    return cut_document(ids, size, shifted)
  weights = [1.0] * len(ids) if mask is None else [float(w) for w in mask]
  if labels is None:
    # The mask stands beside the ids; both move to the position before.
    labels = ids
    if shifted:
      ids, labels, weights = ids[:-1], labels[1:], weights[1:]
  found = []
  for begin in range(0, len(ids), size):
    part = slice(begin, begin + size)
    pairs = [
      (label, weight) if label != IGNORE and weight > 0 else (IGNORE, 0.0)
      for label, weight in zip(labels[part], weights[part], strict=True)
    ]
    if any(label != IGNORE for label, _ in pairs):
      found.append(
        Example(ids[part], [p[0] for p in pairs], [p[1] for p in pairs])
      )
  return found


def cut_document(ids: list[int], size: int, shifted: bool) -> list[Example]:
  """Windows of a document, every position of which is learnt."""
  found = []
  for begin in range(0, len(ids), size):
    window = ids[begin : begin + size + 1]
    if shifted:
      inputs, labels = window[:-1], window[1:]
    else:
      inputs = labels = window[:size]
    if inputs:
      found.append(Example(inputs, labels, [1.0] * len(inputs)))
  return found


# The order in which records are drawn.


# Draws after which the reference gives up: what is asked for lies too far.
MAX_DRAWS = 20_000


class NoRecord(Exception):
  """A record is asked of a source that has none."""


class TooFar(Exception):
  """More draws are needed than the reference makes."""


@dataclasses.dataclass(frozen=True)
class Order:
  """Sources and how they take turns.

  `examples[i][r]` are the examples of record r of source i. `buffer` is None
  where an epoch's records are permuted as one (or stand as they are stored,
  unless `shuffle`), else they are permuted that many at a time.
  """

  names: Sequence[str]
  examples: Sequence[Sequence[Sequence[Example]]]
  weights: Sequence[float] | None
  seed: int
  shuffle: bool
  epochs: int | None
  buffer: int | None = None

  @property
  def sizes(self) -> list[int]:
    return [len(records) for records in self.examples]

  def draws(self) -> Iterator[tuple[int, int]]:
    """Yields (source, k) of draw 0, 1, 2, ..., to the end if there is one.

    Raises:
      NoRecord: a blend draws from a source that has none, or an order of
        nothing is to have no end.
    """
    sizes = self.sizes
    endless = self.epochs is None
    if endless and not any(sizes):
      raise NoRecord("no source has a record")
    drawn = [i for i, size in enumerate(sizes) if size]
    if self.weights is None:
      tree = Tree([sizes[i] for i in drawn]) if drawn else None
      for epoch in itertools.count():
        if tree is None or epoch == self.epochs:
          return
        for g in range(sum(sizes)):
          leaf, k = tree.locate(g)
          yield drawn[leaf], k + epoch * sizes[drawn[leaf]]
    else:
      tree = Tree(self.weights)
      for g in itertools.count():
        source, k = tree.locate(g)
        if not sizes[source]:
          raise NoRecord(f"source {source} is drawn from")
        if self.epochs is not None and k >= self.epochs * sizes[source]:
          return
        yield source, k

  def record(self, source: int, k: int) -> int:
    """Which record is the k-th that is drawn of a source."""
    size = self.sizes[source]
    epoch, place = divmod(k, size)
    name = self.names[source]
    if not self.shuffle:
      return place
    if self.buffer is None:
      return permute(place, size, key(self.seed, name, epoch))
    window, place = divmod(place, self.buffer)
    begin = window * self.buffer
    count = min(self.buffer, size - begin)
    return begin + permute(place, count, key(self.seed, name, epoch, window))

  def makes_rows(self, packing: Packing) -> bool:
    """Whether any record has a piece that goes into a row."""
    return any(
      True
      for source, records in enumerate(self.examples)
      for k in range(len(records))
      for _ in cut_overlong(self.pieces(0, source, k), packing)
    )

  @property
  def gives_several(self) -> bool:
    """Whether any record has more than one example."""
    return any(len(made) > 1 for of in self.examples for made in of)

  def pieces(self, draw: int, source: int, k: int) -> list[Piece]:
    """The examples of a draw, whole."""
    examples = self.examples[source][self.record(source, k)]
    return [
      Piece(source, (draw, e, 0), example.ids, example.labels, example.weights)
      for e, example in enumerate(examples)
    ]


def near(draws: Iterator[tuple[int, int]]) -> Iterator[tuple[int, int]]:
  """The draws, until there are too many of them."""
  for g, draw in enumerate(draws):
    if g == MAX_DRAWS:
      raise TooFar(f"{g} draws")
    yield draw


class Plans:
  """Rows by number: windows of the order, packed one by one."""

  def __init__(self, order: Order, packing: Packing, *, plan_window: int):
    self.order, self.packing, self.plan_window = order, packing, plan_window
    self._found: list[Row] = []
    self._rows = self._all_rows()

  def _all_rows(self) -> Iterator[Row]:
    draws = enumerate(near(self.order.draws()))
    for window in itertools.count():
      chosen = list(itertools.islice(draws, self.plan_window))
      if not chosen:
        return
      pieces = [
        piece
        for draw, (source, k) in chosen
        for piece in self.order.pieces(draw, source, k)
      ]
      rows = pack_known(pieces, self.packing)
      if self.order.shuffle:
        words = key(self.order.seed, "rows of window", window)
        count = len(rows)
        rows = [rows[permute(i, count, words)] for i in range(count)]
      yield from rows

  def rows(self, count: int) -> list[Row]:
    """The first rows: `count`, or fewer where the order ends before."""
    self._found += itertools.islice(
      self._rows, max(count - len(self._found), 0)
    )
    return self._found[:count]


class Balanced:
  """The same rows: equal runs of each block of them cost nearly alike."""

  def __init__(self, plans: Plans, *, shares: int, block_rows: int):
    self.plans, self.shares, self.block_rows = plans, shares, block_rows

  def rows(self, count: int) -> list[Row]:
    """As `Plans.rows`."""
    blocks = -(-count // self.block_rows)
    held = self.plans.rows(blocks * self.block_rows)
    ordered = []
    for begin in range(0, len(held), self.block_rows):
      ordered += self.balanced(held[begin : begin + self.block_rows])
    return ordered[:count]

  def balanced(self, block: list[Row]) -> list[Row]:
    """The costliest first, each to the share of least cost with a place."""
    places = self.block_rows // self.shares
    # The last block has fewer rows, which fill share after share.
    room = [
      max(min(len(block) - share * places, places), 0)
      for share in range(self.shares)
    ]
    costs = [sum(len(piece) ** 2 for piece in row) for row in block]
    shares: list[list[int]] = [[] for _ in range(self.shares)]
    for number in sorted(range(len(block)), key=lambda i: (-costs[i], i)):
      free = [s for s in range(self.shares) if len(shares[s]) < room[s]]
      least = min(free, key=lambda s: sum(costs[i] for i in shares[s]))
      shares[least].append(number)
    return [block[i] for share in shares for i in sorted(share)]


class Streams:
  """Rows by number: V streams of draws, each packed as it comes."""

  def __init__(self, order: Order, packing: Packing, *, num_streams: int):
    self.order, self.packing = order, packing
    self.num_streams = num_streams
    # Draws are made once for all streams.
    self._draws = near(order.draws())
    self._known: list[tuple[int, int]] = []
    self._streams = [self._stream(v) for v in range(num_streams)]
    self._found: list[list[Row]] = [[] for _ in range(num_streams)]

  def _drawn(self, stream: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yields (draw, (source, k)) of the draws that are a stream's."""
    for g in itertools.count(stream, self.num_streams):
      missing = max(g + 1 - len(self._known), 0)
      self._known += itertools.islice(self._draws, missing)
      if g >= len(self._known):
        return
      yield g, self._known[g]

  def _stream(self, stream: int) -> Iterator[Row]:
    mine = self._drawn(stream)
    pieces = (
      piece
      for draw, (source, k) in mine
      for piece in self.order.pieces(draw, source, k)
    )
    return pack_arriving(pieces, self.packing)

  def row(self, number: int) -> Row | None:
    """Row `number`; None is padding, after its stream's end."""
    turn, stream = divmod(number, self.num_streams)
    found = self._found[stream]
    missing = max(turn + 1 - len(found), 0)
    found += itertools.islice(self._streams[stream], missing)
    return found[turn] if turn < len(found) else None


# Fields.


@dataclasses.dataclass(frozen=True)
class Fields:
  """What decides the fields of a batch, besides its rows."""

  width: int
  segment_multiple: int = 1
  reset_position_ids: bool = False
  reset_attention_mask: bool = True
  eod_mask_loss: bool = False


def row_fields(row: Row | None, fields: Fields) -> dict[str, list[float]]:
  """The fields of one row, position by position."""
  columns: dict[str, list[float]] = {
    "input_ids": [],
    "labels": [],
    "loss_mask": [],
    "position_ids": [],
    "segment_ids": [],
  }

  def put(id: int, label: int, weight: float, segment: int, at: int) -> None:
    ignored = fields.eod_mask_loss and segment and id == EOS
    place = len(columns["input_ids"])
    columns["input_ids"].append(id)
    columns["labels"].append(label)
    columns["loss_mask"].append(0.0 if ignored else weight)
    columns["position_ids"].append(at if fields.reset_position_ids else place)
    columns["segment_ids"].append(
      segment if fields.reset_attention_mask else min(segment, 1)
    )

  for number, piece in enumerate(row or []):
    if number:
      # The room of a piece is whole multiples; it begins after the last's.
      gap = -len(columns["input_ids"]) % fields.segment_multiple
      for at in range(gap):
        put(0, IGNORE, 0.0, 0, at)
    cells = zip(piece.ids, piece.labels, piece.weights, strict=True)
    for at, (id, label, weight) in enumerate(cells):
      put(id, label, weight, number + 1, at)
  for at in range(fields.width - len(columns["input_ids"])):
    put(0, IGNORE, 0.0, 0, at)
  return columns


def batch(rows: Sequence[Row | None], fields: Fields) -> dict[str, np.ndarray]:
  """The global batch of those rows, [rows, width]."""
  made = [row_fields(row, fields) for row in rows]
  return {
    name: np.array(
      [columns[name] for columns in made],
      np.float32 if name == "loss_mask" else np.int32,
    ).reshape(len(made), fields.width)
    for name in row_fields(None, fields)
  }
