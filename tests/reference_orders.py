"""Orders with an index, samplers and Megatron's blend, slowly and plainly.

  Documents   each epoch's documents permuted, rows cut across them
  Megatron    epochs shuffled with NumPy's RandomState, for a number of rows
  Buckets     rows of a source by turns from buckets, each permuted
  Rearranged  an epoch's rows permuted, mapped, or both
  MegatronBlend

Rows are cut from the tokens of all sequences, laid end to end in the order:
no index is walked. As in `reference`, nothing of the package is imported.
"""

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import reference
from reference import Corpus, Row, Rows, Source, permute


class Walk:
  """Sequences laid end to end, cut every `seq_length` tokens."""

  def __init__(
    self,
    corpus: Corpus,
    sequences: Sequence[int],
    *,
    seq_length: int,
    extra: int,
  ):
    self.seq_length, self.extra = seq_length, extra
    self.tokens: list[int] = []
    # Whether a token follows, in its document, the one before it here.
    self.goes_on: list[bool] = []
    before = None
    for sequence in sequences:
      if not corpus.sequences[sequence]:
        continue
      follows = before is not None and sequence == next_of(corpus, before)
      self.tokens += corpus.sequences[sequence]
      rest = len(corpus.sequences[sequence]) - 1
      self.goes_on += [follows] + [True] * rest
      before = sequence

  def num_samples(self, drop_last: bool) -> int:
    room = max(0, len(self.tokens) - self.extra)
    if drop_last:
      return room // self.seq_length
    return -(-room // self.seq_length)

  def row(self, sample: int) -> Row:
    begin = sample * self.seq_length
    end = min(begin + self.seq_length + self.extra, len(self.tokens))
    starts = [
      t for t in range(end - begin) if t == 0 or not self.goes_on[begin + t]
    ]
    return Row(self.tokens[begin:end], starts)


def next_of(corpus: Corpus, sequence: int) -> int | None:
  """The next sequence of a document that holds a token."""
  for later in range(sequence + 1, len(corpus.sequences)):
    if corpus.documents[later] != corpus.documents[sequence]:
      return None
    if corpus.sequences[later]:
      return later
  return None


class Documents(Source):
  """Row i is cut i % M of epoch i // M, whose documents are permuted."""

  def __init__(
    self,
    corpus: Corpus,
    *,
    seq_length: int,
    seed: int,
    name: str,
    bounds: tuple[int, int] | None = None,
    extra: int = 1,
    drop_last: bool = True,
  ):
    first, last = bounds or (0, len(corpus.sequences))
    self.corpus, self.seed, self.name = corpus, seed, name
    self.options = {"seq_length": seq_length, "extra": extra}
    # Where documents begin inside the split; a bound ends the one it cuts.
    inside = [b for b in corpus.bounds if first < b < last]
    edges = [first, *inside, last]
    self.parts = [
      list(range(begin, end)) for begin, end in itertools.pairwise(edges)
    ]
    self.epochs: dict[int, Walk] = {}
    self.rows_per_epoch = self.epoch(0).num_samples(drop_last)

  def epoch(self, number: int) -> Walk:
    if number not in self.epochs:
      words = reference.key(self.seed, self.name, number)
      count = len(self.parts)
      order = [
        sequence
        for p in range(count)
        for sequence in self.parts[permute(p, count, words)]
      ]
      self.epochs[number] = Walk(self.corpus, order, **self.options)
    return self.epochs[number]

  def row(self, i: int) -> Row:
    epoch, sample = divmod(i, self.rows_per_epoch)
    return self.epoch(epoch).row(sample)


class Megatron(Source):
  """A split's rows in Megatron's order, made for `num_samples` of them."""

  def __init__(
    self,
    corpus: Corpus,
    *,
    seq_length: int,
    seed: int,
    num_samples: int | None,
    bounds: tuple[int, int] | None = None,
    extra: int = 1,
    drop_last: bool = True,
  ):
    first, last = bounds or (0, len(corpus.sequences))
    sequences = np.arange(first, last, dtype=np.int32)
    per_epoch = sum(len(corpus.sequences[i]) for i in range(first, last))
    epochs, separate, before = 1, False, 0
    if num_samples is not None and per_epoch:
      while epochs * per_epoch < num_samples * seq_length + extra:
        epochs += 1
    if epochs > 1:
      before = ((epochs - 1) * per_epoch - extra) // seq_length
      whole = (per_epoch - extra) // seq_length
      separate = num_samples - before < int(0.80 * whole)
    random_state = np.random.RandomState(seed)
    groups = [epochs - 1, 1] if separate else [epochs]
    documents = [np.tile(sequences, group) for group in groups]
    for part in documents:
      random_state.shuffle(part)
    self.document_index = np.concatenate(documents)
    self.walk = Walk(
      corpus, self.document_index.tolist(), seq_length=seq_length, extra=extra
    )
    self.rows_per_epoch = self.walk.num_samples(drop_last)
    ends = [before, self.rows_per_epoch] if separate else [self.rows_per_epoch]
    samples, begin = [], 0
    for end in ends:
      samples.append(np.arange(begin, end, dtype=np.uint32))
      random_state.shuffle(samples[-1])
      begin = end
    self.shuffle_index = np.concatenate(samples)

  def row(self, i: int) -> Row:
    return self.walk.row(int(self.shuffle_index[i]))


class Buckets(Source):
  """Row g takes bucket g % N of a source that is not permuted by itself.

  `wraps`: the source has the rows of one epoch alone.
  """

  def __init__(
    self, source: Source, *, count: int, seed: int, name: str, wraps: bool
  ):
    self.source, self.count = source, count
    self.seed, self.name, self.wraps = seed, name, wraps
    self.size = source.rows_per_epoch // count
    self.rows_per_epoch = self.size * count

  def row(self, i: int) -> Row:
    epoch, g = divmod(i, self.rows_per_epoch)
    k, bucket = divmod(g, self.count)
    words = reference.key(self.seed, self.name, epoch, bucket)
    place = bucket * self.size + permute(k, self.size, words)
    if not self.wraps:
      place += epoch * self.source.rows_per_epoch
    return self.source.row(place)


class Rearranged:
  """Rows under other numbers: permuted each epoch, then through a map."""

  def __init__(
    self,
    rows: Rows,
    *,
    order_map: Sequence[int] | None,
    permute_seed: int | None,
    wraps: bool,
  ):
    self.rows, self.wraps = rows, wraps
    self.permute_seed = permute_seed
    self.size = rows.num_rows(1) or 0
    self.map = range(self.size) if order_map is None else list(order_map)

  def row(self, i: int) -> Row:
    epoch, place = divmod(i, len(self.map))
    if self.permute_seed is not None:
      words = reference.key(self.permute_seed, "cyclic", epoch)
      place = permute(place, len(self.map), words)
    row = self.map[place]
    return self.rows.row(row if self.wraps else row + epoch * self.size)

  def num_rows(self, epochs: int | None) -> int | None:
    return None if epochs is None else epochs * len(self.map)


def normalized(weights: Sequence[float]) -> list[float]:
  """Weights over their sum, in float64 as NumPy has it."""
  array = np.array(weights, np.float64)
  return (array / np.sum(array)).tolist()


def greedy(weights: Sequence[float], size: int) -> list[tuple[int, int]]:
  """(source, its row) of each row: whoever lags its share most."""
  counts = [0] * len(weights)
  pattern = []
  for t in range(size):
    lags = [w * max(t, 1) - c for w, c in zip(weights, counts, strict=True)]
    source = lags.index(max(lags))
    pattern.append((source, counts[source]))
    counts[source] += 1
  return pattern


class MegatronBlend:
  """Megatron's blend of sources that are made for the rows it asks of them.

  Args:
    make: (source, rows to make it for or None for an epoch) -> the source.
    count: of sources.
    weights: one a source; None blends by the rows that an epoch of each has.
    num_samples: rows asked for.
    repeats: whether the sources go on at the blend's end.
  """

  def __init__(
    self,
    make: Callable[[int, int | None], Source],
    *,
    count: int,
    weights: Sequence[float] | None,
    num_samples: int,
    repeats: bool,
  ):
    self.repeats = repeats
    if weights is None:
      self.sources = [make(i, None) for i in range(count)]
      sizes = [source.rows_per_epoch for source in self.sources]
      drawn = [i for i, size in enumerate(sizes) if size]
      shares = normalized([sizes[i] for i in drawn])
      size = min(num_samples, sum(sizes))
    else:
      targets = [math.ceil(num_samples * w) for w in normalized(weights)]
      self.sources = [
        make(i, math.ceil(target * 1.005)) for i, target in enumerate(targets)
      ]
      drawn = list(range(count))
      shares = normalized(normalized(weights))
      size = sum(targets)
    self.pattern = [(drawn[i], k) for i, k in greedy(shares, size)]
    self.counts = [
      sum(source == i for source, _ in self.pattern) for i in range(count)
    ]
    for i, source in enumerate(self.sources):
      if self.counts[i] > source.rows_per_epoch:
        self.sources[i] = make(i, self.counts[i])

  def row(self, i: int) -> Row:
    epoch, place = divmod(i, len(self.pattern)) if self.repeats else (0, i)
    source, k = self.pattern[place]
    return self.sources[source].row(epoch * self.counts[source] + k)

  def num_rows(self, epochs: int | None) -> int | None:
    return None if epochs is None else epochs * len(self.pattern)
