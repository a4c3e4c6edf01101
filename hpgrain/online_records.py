"""The records of one split, as they are, for the loader and for looking.

  MappingDataset    by number   len(ds)  ds[i]      source after source
  IterableDataset   in turn     for record in ds    as the weights have it

Both hold their sources, which is what the loader takes: which record comes
when, over epochs and processes, is the loader's business.
"""

import dataclasses
import itertools
from collections.abc import Iterator

import numpy as np

from hpgrain.arguments import integer
from hpgrain.blend import StableBlend
from hpgrain.sources.in_turn.source import InTurn
from hpgrain.sources.in_turn.window_shuffle import Epochs
from hpgrain.sources.records import Record, Records

# Records that are taken from each source at a time.
_AHEAD = 64


@dataclasses.dataclass(frozen=True)
class MappingDataset:
  """One split of records by number, source after source.

  Attributes:
    sources: where records are read.
    weights: by which sources take turns; None takes each record once an epoch.
  """

  sources: tuple[Records, ...]
  weights: tuple[float, ...] | None

  def __len__(self) -> int:
    """Number of records."""
    return sum(map(len, self.sources))

  def __getitem__(self, index: int) -> Record:
    """Returns a record as its source has it.

    Raises:
      IndexError: there is no such record.
    """
    number = integer("index", index)
    if number < 0:
      number += len(self)
    for source in self.sources:
      if 0 <= number < len(source):
        return source.read(np.array([number]))[0]
      number -= len(source)
    raise IndexError(f"There are {len(self)} records, from 0; got {index}.")

  def __iter__(self) -> Iterator[Record]:
    """Yields every record once, in the order of numbers."""
    for source in self.sources:
      for first in range(0, len(source), _AHEAD):
        last = min(first + _AHEAD, len(source))
        yield from source.read(np.arange(first, last))


@dataclasses.dataclass(frozen=True)
class IterableDataset:
  """One split of records in turn.

  Attributes:
    sources: where records are read.
    weights: by which sources take turns; None for one source.
    seed: of the shuffle.
    shuffle_buffer_size: records that are mixed; None leaves them as they come.
  """

  sources: tuple[InTurn, ...]
  weights: tuple[float, ...] | None
  seed: int
  shuffle_buffer_size: int | None

  def __iter__(self) -> Iterator[Record]:
    """Yields the first epoch's records, until a source has no more."""
    readers = [
      Epochs(
        source,
        seed=self.seed,
        shuffle_buffer_size=self.shuffle_buffer_size,
        epochs=1,
      )
      for source in self.sources
    ]
    blend = StableBlend(self.weights or (1,))
    try:
      for first in itertools.count(0, _AHEAD):
        turns = blend.locate(np.arange(first, first + _AHEAD))[0]
        read = [
          iter(reader.read(int((turns == i).sum())))
          for i, reader in enumerate(readers)
        ]
        for source in turns:
          record = next(read[source], None)
          if record is None:
            return
          yield record
    finally:
      for reader in readers:
        reader.close()
