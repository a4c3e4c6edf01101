"""A slow reference for the rows and batches, written from the rules alone.

It holds every token of a corpus in a Python list, beside a list that says
which document each token came from, and makes rows by slicing the two:

  .idx/.bin -> Corpus -> split -> GPT / PreCut / Mock -> Blend / Inter / Intra
                                        row(i) -> Row -> batch -> batches

`reference_orders` has the orders with an index, and the samplers.

Nothing here imports the package under test. Numbers are Python integers (the
64-bit ones masked by hand), shares are Fractions, and NumPy only holds the
finished arrays, so that they can be compared.
"""

import dataclasses
import hashlib
import itertools
import json
import math
import re
import struct
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Protocol

import numpy as np

IGNORE = -100
WORD = 2**64
PHI = 0x9E3779B97F4A7C15
SPLIT_NAMES = ("train", "valid", "test")

# dtype code -> struct letter, of the codes that hold tokens.
LETTERS = {1: "B", 2: "b", 3: "h", 4: "i", 5: "q", 8: "H"}


# Hashing and permutations.


def mix64(value: int) -> int:
  """Splitmix64's finaliser."""
  value %= WORD
  value ^= value >> 30
  value = value * 0xBF58476D1CE4E5B9 % WORD
  value ^= value >> 27
  value = value * 0x94D049BB133111EB % WORD
  value ^= value >> 31
  return value


def key(seed: int, name: str, epoch: int, *bucket: int) -> tuple[int, int]:
  """The two words of the key of an epoch of a source, or of its bucket."""
  text = json.dumps(
    [seed, name, epoch, *bucket], ensure_ascii=False, separators=(",", ":")
  )
  return struct.unpack("<QQ", hashlib.blake2b(text.encode()).digest()[:16])


def permute(index: int, size: int, words: tuple[int, int]) -> int:
  """Where a balanced Feistel network with cycle walking sends `index`."""
  if size == 1:
    return 0
  k0, k1 = words
  half = max(4, math.ceil((size - 1).bit_length() / 2))
  mask = 2**half - 1
  value = index
  while True:
    left, right = value >> half, value & mask
    for r in range(8):
      round_key = mix64(mix64(k0 + (r + 1) * PHI) ^ k1)
      left, right = right, left ^ (mix64(right ^ round_key) & mask)
    value = left << half | right
    if value < size:
      return value


def epoch_offset(words: tuple[int, int], slack: int) -> int:
  """The first token of an epoch's rows, in [0, slack]."""
  k0, k1 = words
  return mix64(k0 ^ mix64(k1)) % (slack + 1)


# Corpora.


@dataclasses.dataclass(frozen=True)
class Corpus:
  """All sequences of a pair, and the document each of them belongs to.

  `bounds` says where among the sequences documents begin, and the end.
  """

  sequences: list[list[int]]
  documents: list[int]
  bounds: list[int]


def read_corpus(prefix: str | Path) -> Corpus:
  """Reads a whole `.idx`/`.bin` pair."""
  idx = Path(f"{prefix}.idx").read_bytes()
  data = Path(f"{prefix}.bin").read_bytes()
  magic, version, code, count, bounds = struct.unpack_from("<9sQBQQ", idx)
  if magic != b"MMIDIDX\0\0" or version != 1:
    raise AssertionError(f"{prefix}.idx is no index: {magic!r}, {version}")
  lengths = struct.unpack_from(f"<{count}i", idx, 34)
  pointers = struct.unpack_from(f"<{count}q", idx, 34 + 4 * count)
  document_indices = struct.unpack_from(f"<{bounds}q", idx, 34 + 12 * count)
  sequences = [
    list(struct.unpack_from(f"<{length}{LETTERS[code]}", data, pointer))
    for length, pointer in zip(lengths, pointers, strict=True)
  ]
  documents = [-1] * count
  for document, (begin, end) in enumerate(itertools.pairwise(document_indices)):
    for sequence in range(begin, end):
      documents[sequence] = document
  return Corpus(sequences, documents, list(document_indices))


def split_bounds(split: str, count: int) -> list[tuple[int, int] | None]:
  """The (begin, end) of train, valid and test; None where the weight is 0."""
  shares = [float(number) for number in re.findall(r"[.0-9]+", split)]
  shares += [0.0] * (3 - len(shares))
  total = sum(shares)
  shares = [share / total for share in shares]
  edges = [0]
  cumulative = 0.0
  for share in shares:
    cumulative += share
    edges.append(round(cumulative * count))
  return [
    (begin, end) if share > 0 else None
    for share, (begin, end) in zip(
      shares, itertools.pairwise(edges), strict=True
    )
  ]


# Rows.


@dataclasses.dataclass(frozen=True)
class Row:
  """A row's text (the extra token included) and where its segments start."""

  tokens: list[int]
  starts: list[int]


class Rows(Protocol):
  """Anything that has rows in an order: a source, or a blend of some."""

  def row(self, i: int) -> Row:
    """Row i, counted over all epochs."""

  def num_rows(self, epochs: int | None) -> int | None:
    """How many rows that many epochs have; None = endless."""


class Source:
  """One source: rows, so many an epoch."""

  rows_per_epoch: int

  def row(self, i: int) -> Row:
    raise NotImplementedError

  def num_rows(self, epochs: int | None) -> int | None:
    return None if epochs is None else epochs * self.rows_per_epoch


class GPT(Source):
  """Consecutive tokens of a split, cut every `seq_length`, permuted."""

  def __init__(
    self,
    corpus: Corpus,
    *,
    seq_length: int,
    seed: int,
    name: str,
    bounds: tuple[int, int] | None = None,
    extra: int = 1,
    shuffle: bool = True,
    keep_last: bool = False,
  ):
    first, last = bounds or (0, len(corpus.sequences))
    self.tokens: list[int] = []
    self.documents: list[int] = []
    for sequence in range(first, last):
      self.tokens += corpus.sequences[sequence]
      count = len(corpus.sequences[sequence])
      self.documents += [corpus.documents[sequence]] * count
    self.seq_length, self.extra = seq_length, extra
    self.seed, self.name = seed, name
    self.shuffle, self.keep_last = shuffle, keep_last
    room = max(0, len(self.tokens) - extra)
    self.rows_per_epoch = (
      -(-room // seq_length) if keep_last else room // seq_length
    )

  def span(self, i: int) -> tuple[int, int]:
    """The tokens [begin, end) of the split that fill row i."""
    size = self.rows_per_epoch
    epoch, place = divmod(i, size)
    words = key(self.seed, self.name, epoch)
    if self.shuffle:
      place = permute(place, size, words)
    offset = 0
    if epoch and not self.keep_last:
      used = size * self.seq_length + self.extra
      offset = epoch_offset(words, len(self.tokens) - used)
    begin = offset + place * self.seq_length
    end = min(begin + self.seq_length + self.extra, len(self.tokens))
    return begin, end

  def row(self, i: int) -> Row:
    begin, end = self.span(i)
    documents = self.documents[begin:end]
    starts = [
      t
      for t in range(end - begin)
      if t == 0 or documents[t] != documents[t - 1]
    ]
    return Row(self.tokens[begin:end], starts)


class PreCut(Source):
  """Records that were cut to size before; their bounds are found by EOD."""

  def __init__(
    self,
    corpus: Corpus,
    *,
    seed: int,
    name: str,
    eod: int | None,
    bounds: tuple[int, int] | None = None,
    shuffle: bool = True,
  ):
    first, last = bounds or (0, len(corpus.sequences))
    self.records = corpus.sequences[first:last]
    self.seed, self.name, self.eod = seed, name, eod
    self.shuffle = shuffle
    self.rows_per_epoch = len(self.records)

  def row(self, i: int) -> Row:
    epoch, place = divmod(i, self.rows_per_epoch)
    if self.shuffle:
      words = key(self.seed, self.name, epoch)
      place = permute(place, self.rows_per_epoch, words)
    tokens = self.records[place]
    ends = eod_bounds(tokens, self.eod)
    return Row(tokens, ends[:-1])


def eod_bounds(tokens: Sequence[int], eod: int | None) -> list[int]:
  """0, the place after each EOD, and the row's end."""
  bounds = [0]
  for t, token in enumerate(tokens):
    if eod is not None and token == eod:
      bounds.append(t + 1)
  if bounds[-1] != len(tokens):
    bounds.append(len(tokens))
  return bounds


class Mock(Source):
  """Made-up rows: every token is a hash of (seed, split, row, position)."""

  def __init__(
    self,
    *,
    seq_length: int,
    seed: int,
    split_name: str,
    vocab_size: int,
    extra: int = 1,
    rows_per_epoch: int = 0,
  ):
    self.words = key(seed, f"mock/{split_name}", 0)
    self.length = seq_length + extra
    self.vocab_size = vocab_size
    self.rows_per_epoch = rows_per_epoch

  def row(self, i: int) -> Row:
    k0, k1 = self.words
    hashed = mix64(k0 + (i + 1) * PHI)
    tokens = [
      mix64(hashed + k1 + (t + 1) * PHI) % self.vocab_size
      for t in range(self.length)
    ]
    return Row(tokens, [0])


# Blends.


class Tree:
  """Huffman tree of integer weights; each node splits its rows two ways."""

  def __init__(self, weights: Sequence[float | int | Fraction]):
    exact = [Fraction(weight) for weight in weights]
    whole = [round(weight * 2**40 / sum(exact)) for weight in exact]
    if min(whole) == 0:
      raise AssertionError(f"a weight of {weights} rounds to nothing")
    # A waiting entry: (weight, order of making, node); leaves are made first.
    waiting = [(weight, i, i) for i, weight in enumerate(whole)]
    made = len(waiting)
    while len(waiting) > 1:
      waiting.sort(key=lambda entry: entry[:2])
      left, right, *rest = waiting
      waiting = [*rest, (left[0] + right[0], made, (left, right))]
      made += 1
    self.root = waiting[0]

  def locate(self, g: int) -> tuple[int, int]:
    """The (source, k) of row g: it is that source's row k."""
    node = self.root
    while isinstance(node[2], tuple):
      left, right = node[2]
      total = left[0] + right[0]

      def gone_left(n: int, weight: int = left[0], all_: int = total) -> int:
        return (2 * n * weight + all_) // (2 * all_)

      before = gone_left(g)
      if gone_left(g + 1) > before:
        node, g = left, before
      else:
        node, g = right, g - before
    return node[2], g


class Blend:
  """Sources blended by weights, or each whole where there are none."""

  def __init__(
    self, sources: Sequence[Source], weights: Sequence[float] | None = None
  ):
    self.sources = list(sources)
    self.weights = weights
    # Without weights a source that has no row has no share.
    sizes = [source.rows_per_epoch for source in sources]
    self.drawn = [i for i, size in enumerate(sizes) if weights or size]
    self.tree = Tree(weights or [sizes[i] for i in self.drawn])

  def locate(self, g: int) -> tuple[int, int]:
    leaf, k = self.tree.locate(g)
    return self.drawn[leaf], k

  def row(self, i: int) -> Row:
    source, k = self.locate(i)
    return self.sources[source].row(k)

  def num_rows(self, epochs: int | None) -> int | None:
    if epochs is None:
      return None
    if self.weights is None:
      return epochs * sum(source.rows_per_epoch for source in self.sources)
    for g in itertools.count():
      source, k = self.locate(g)
      if k >= epochs * self.sources[source].rows_per_epoch:
        return g
    raise AssertionError("unreachable")


class _Pattern(Source):
  """Sources one row or one source at a time; the epochs repeat the pattern."""

  def __init__(self, sources: Sequence[Source]):
    self.sources = list(sources)
    self.rows_per_epoch = sum(source.rows_per_epoch for source in sources)
    self.pattern = self.make_pattern()

  def make_pattern(self) -> list[tuple[int, int]]:
    raise NotImplementedError

  def locate(self, g: int) -> tuple[int, int]:
    epoch, place = divmod(g, self.rows_per_epoch)
    source, k = self.pattern[place]
    return source, epoch * self.sources[source].rows_per_epoch + k

  def row(self, i: int) -> Row:
    source, k = self.locate(i)
    return self.sources[source].row(k)


class Inter(_Pattern):
  """Round robin; a source that has nothing left is skipped."""

  def make_pattern(self) -> list[tuple[int, int]]:
    longest = max(source.rows_per_epoch for source in self.sources)
    return [
      (number, k)
      for k in range(longest)
      for number, source in enumerate(self.sources)
      if k < source.rows_per_epoch
    ]


class Intra(_Pattern):
  """One source after another."""

  def make_pattern(self) -> list[tuple[int, int]]:
    return [
      (number, k)
      for number, source in enumerate(self.sources)
      for k in range(source.rows_per_epoch)
    ]


# Batches.


@dataclasses.dataclass(frozen=True)
class Fields:
  """What decides the fields of a batch, besides its rows."""

  seq_length: int
  labels_are_shifted: bool = True
  mask_boundary_labels: bool = True
  reset_position_ids: bool = False
  reset_attention_mask: bool = True
  eod_mask_loss: bool = False
  eod: int | None = None
  # Megatron's legacy fields: documents end at EOD, wherever they do, and the
  # label that begins another one counts.
  ltor: bool = False


PADDING_ROW = Row([], [])


def row_fields(row: Row, fields: Fields) -> dict[str, list[float]]:
  """The fields of one row, position by position."""
  starts = row.starts
  if fields.ltor:
    starts = eod_bounds(row.tokens, fields.eod)[:-1]
  mask_boundaries = fields.mask_boundary_labels and not fields.ltor
  real = min(len(row.tokens), fields.seq_length)
  columns: dict[str, list[float]] = {
    name: []
    for name in (
      "input_ids",
      "labels",
      "loss_mask",
      "position_ids",
      "segment_ids",
    )
  }
  for t in range(fields.seq_length):
    is_real = t < real
    token = row.tokens[t] if is_real else 0
    if not is_real:
      label = IGNORE
    elif not fields.labels_are_shifted:
      label = token
    elif t + 1 >= len(row.tokens):
      label = IGNORE
    elif mask_boundaries and t + 1 in starts:
      label = IGNORE
    else:
      label = row.tokens[t + 1]
    trains = label >= 0
    if fields.eod_mask_loss and is_real and token == fields.eod:
      trains = False
    begun = [start for start in starts if start <= t]
    position = t
    if fields.reset_position_ids:
      position = t - (max(begun) if is_real else real)
    if not is_real:
      segment = 0
    else:
      segment = len(begun) if fields.reset_attention_mask else 1
    columns["input_ids"].append(token)
    columns["labels"].append(label)
    columns["loss_mask"].append(1.0 if trains else 0.0)
    columns["position_ids"].append(position)
    columns["segment_ids"].append(segment)
  return columns


def batch(rows: Sequence[Row], fields: Fields) -> dict[str, np.ndarray]:
  """The global batch of those rows."""
  made = [row_fields(row, fields) for row in rows]
  return {
    name: np.array(
      [columns[name] for columns in made],
      np.float32 if name == "loss_mask" else np.int32,
    )
    for name in made[0]
  }


def batches(
  rows: Rows,
  *,
  fields: Fields,
  batch_size: int,
  start_row: int = 0,
  epochs: int | None = None,
  end_of_data: str = "drop",
) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
  """Yields (rows consumed after it, global batch) from `start_row` on."""
  end = rows.num_rows(epochs)
  first = start_row
  while end is None or first < end:
    last = first + batch_size
    real = last if end is None else min(last, end)
    if real < last and end_of_data == "drop":
      return
    chosen = [rows.row(i) for i in range(first, real)]
    chosen += [PADDING_ROW] * (last - real)
    yield real, batch(chosen, fields)
    first = real
