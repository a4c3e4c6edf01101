r"""Positions of the order of records in, the examples of those records out.

positions   0   1   2   3   4   ..     of a blend of a and b, by weights
records     a2  b0  a0  a1  b3         each source permuted every epoch
examples    a2  -   a0  a1 a1' b3      a record makes none, one or several
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from hpgrain.arguments import integer
from hpgrain.mixes import Mix, Pattern
from hpgrain.order import grouped, permutation_key, permute

# What may be done about a source of a blend that has no record.
GIVE_IT_DATA = (
  "Leave it out of the blend, or give it data (where a split cuts sources, a"
  " larger share in dataset.data_config.split)."
)

# Records that are looked through at once for one that has tokens.
_LOOK_RECORDS = 1 << 16


class Lengths(Protocol):
  """A source: records, each of which makes examples of known lengths."""

  name: str
  num_records: int

  def examples(self, records: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (first int64[n], count int64[n]): the examples of records."""
    ...

  def lengths(self, examples: np.ndarray) -> np.ndarray:
    """Returns int32[n], tokens of each example; 0 where it is left out."""
    ...

  def place(self, example: int) -> str:
    """Where an example comes from, for messages."""
    ...


class ExampleOrder:
  """The examples of one or several sources, by their records' positions."""

  def __init__(
    self,
    sources: Sequence[Lengths],
    mix: Mix,
    *,
    seed: int,
    shuffle: bool,
    epochs: int | None,
  ):
    """Holds what decides the order; no length is looked at.

    Args:
      sources: what the mix's sources are.
      mix: how records of several sources take turns.
      seed: of the order.
      shuffle: whether records are permuted, each epoch anew; if not, they come
        as they are stored.
      epochs: of the sources, after which the order ends; None = never.

    Raises:
      ValueError: a source that the mix draws from has no record.
    """
    self.sources = tuple(sources)
    self._seed, self._shuffle = integer("seed", seed), shuffle
    sizes = [source.num_records for source in self.sources]
    empty = [s.name for s in self.sources if not s.num_records]
    if empty and (mix.weights is not None or len(empty) == len(sizes)):
      raise ValueError(
        f"Source {empty[0]!r} has no record to draw. {GIVE_IT_DATA}"
        if len(sizes) > 1
        else f"Source {empty[0]!r} has no record."
      )
    self._pattern: Pattern = mix.pattern(sizes)
    self.end: int | None = None
    if epochs is not None:
      self.end = mix.end(sizes, epochs)[0]

  def clip(self, position: int) -> int:
    """Returns the position, or the end where that comes before it."""
    return position if self.end is None else min(position, self.end)

  def counts(self, position: int) -> np.ndarray:
    """Returns int64[sources]: records of each at the positions before."""
    return self._pattern.counts(self.clip(position))

  def examples(
    self, begin: int, end: int
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns the examples of positions [begin, end), in order.

    Returns:
      (position int64[n], source int32[n], example int64[n], tokens int32[n]).
    """
    position = np.arange(begin, end, dtype=np.int64)
    source, k = self._pattern.locate(position)
    first = np.zeros(end - begin, np.int64)
    count = np.zeros(end - begin, np.int64)
    for i, chosen in grouped(source):
      first[chosen], count[chosen] = self.sources[i].examples(
        self._records(i, k[chosen])
      )
    # Example after example of each record.
    before = np.cumsum(count) - count
    example = np.repeat(first - before, count) + np.arange(count.sum())
    source = np.repeat(source, count)
    lengths = np.zeros(len(example), np.int32)
    for i, chosen in grouped(source):
      lengths[chosen] = self.sources[i].lengths(example[chosen])
    position = np.repeat(position, count)
    return position, source.astype(np.int32), example, lengths

  def has_tokens(self, limit: int | None) -> bool:
    """Whether any source has an example of 1 to `limit` tokens."""
    return any(has_tokens(source, limit) for source in self.sources)

  def _records(self, i: int, k: np.ndarray) -> np.ndarray:
    """Returns which record the k-th one of a source's order is."""
    source = self.sources[i]
    epochs, records = np.divmod(k, source.num_records)
    if not self._shuffle:
      return records
    for epoch, chosen in grouped(epochs):
      key = permutation_key(self._seed, source.name, epoch)
      records[chosen] = permute(records[chosen], source.num_records, key=key)
    return records


def has_tokens(source: Lengths, limit: int | None) -> bool:
  """Whether a source has an example of 1 to `limit` tokens."""
  for begin in range(0, source.num_records, _LOOK_RECORDS):
    end = min(begin + _LOOK_RECORDS, source.num_records)
    first, count = source.examples(np.arange(begin, end, dtype=np.int64))
    # Examples are numbered record after record.
    examples = np.arange(first[0], first[-1] + count[-1], dtype=np.int64)
    lengths = source.lengths(examples)
    if ((lengths > 0) & (limit is None or lengths <= limit)).any():
      return True
  return False
