"""Token arrays in, rows packed of them out: ours and Grain's, for P9 to P14.

  lengths -> an array of ids each -> ours: records -> streams, or plans
                                  -> Grain: MapDataset.source -> its packers

Every example fits a row, and its positions are its ids, so all pack the same.
"""

import dataclasses
from collections.abc import Sequence

import grain
import numpy as np
from common import VOCAB_SIZE, document_lengths

from hpgrain.measured import MeasuredRecords
from hpgrain.online_samples import OnlineSamples
from hpgrain.packing import PackingOptions
from hpgrain.sources.by_index.in_memory import InMemoryRecords
from hpgrain.sources.in_turn.numbered import NumberedInTurn
from hpgrain.streams import StreamRows
from hpgrain.transforms.pretokenized import PretokenizedTransform

SEQ_LENGTH = 4096
IDS = "input_ids"
BINS = 32
OPTIONS = PackingOptions(budget=SEQ_LENGTH)
# Documents of a corpus may be longer than a row.
OVERLONG_SPLIT = dataclasses.replace(OPTIONS, overlong="split")

GRAIN_FIRST_FIT = "grain FirstFit"
GRAIN_BEST_FIT = "grain BestFit"
GRAIN_CONCAT = "grain ConcatThenSplit"


def example_lengths(count: int, *, uniform: bool = False) -> np.ndarray:
  """Returns int32[count], none longer than a row.

  Lognormal with a mean of 400, or every length up to a row's alike.
  """
  rng = np.random.default_rng(0)
  if uniform:
    return rng.integers(1, SEQ_LENGTH + 1, count, dtype=np.int32)
  return np.minimum(document_lengths(rng, count), SEQ_LENGTH)


def examples(lengths: np.ndarray) -> list[np.ndarray]:
  """Returns int32 ids of each length."""
  rng = np.random.default_rng(1)
  ids = rng.integers(1, VOCAB_SIZE, int(lengths.sum()), dtype=np.int32)
  # Arrays of their own, as a tokenizer would give them.
  return [a.copy() for a in np.split(ids, np.cumsum(lengths)[:-1])]


def records(arrays: Sequence[np.ndarray], name: str) -> InMemoryRecords:
  """Returns a source of ours."""
  return InMemoryRecords(
    [{IDS: ids} for ids in arrays], name=name, identity={"name": name}
  )


def transform() -> PretokenizedTransform:
  """Returns what makes an example of as many positions as it has ids."""
  return PretokenizedTransform(
    max_seq_len=SEQ_LENGTH, vocab_size=VOCAB_SIZE, labels_are_shifted=False
  )


def streams(
  sources: Sequence[InMemoryRecords],
  *,
  options: PackingOptions = OPTIONS,
  num_streams: int = 1,
  epochs: int | None = None,
) -> StreamRows:
  """Returns row streams of sources, in their own order."""
  return StreamRows(
    [NumberedInTurn(source) for source in sources],
    [transform() for _ in sources],
    options=options,
    weights=[1.0] * len(sources) if len(sources) > 1 else None,
    seed=0,
    shuffle_buffer_size=None,
    epochs=epochs,
    num_streams=num_streams,
    vocab_size=VOCAB_SIZE,
  )


def measured(source: InMemoryRecords) -> MeasuredRecords:
  """Returns a source whose lengths are known."""
  member = MeasuredRecords(source, transform())
  member.measure()
  return member


def plans_of(
  members: Sequence[MeasuredRecords],
  *,
  options: PackingOptions = OPTIONS,
  shuffle: bool = False,
  epochs: int | None = None,
) -> OnlineSamples:
  """Returns rows that are planned."""
  return OnlineSamples(
    members,
    options=options,
    seed=0,
    shuffle=shuffle,
    epochs=epochs,
    vocab_size=VOCAB_SIZE,
    weights=[1.0] * len(members) if len(members) > 1 else None,
  )


def plans(
  sources: Sequence[InMemoryRecords],
  *,
  shuffle: bool = False,
  epochs: int | None = None,
) -> OnlineSamples:
  """Returns rows that are planned, the sources' lengths measured."""
  return plans_of(
    [measured(source) for source in sources], shuffle=shuffle, epochs=epochs
  )


def grain_source(arrays: Sequence[np.ndarray]) -> grain.MapDataset:
  """Returns the arrays as elements of Grain's."""
  return grain.MapDataset.source([{IDS: ids} for ids in arrays])


def grain_rows(
  source: grain.MapDataset, packer: str, *, bins: int = BINS
) -> grain.IterDataset:
  """Returns rows that Grain packs without end, without its read threads."""
  elements = source.repeat().to_iter_dataset(grain.ReadOptions(num_threads=0))
  return grain_packed(elements, packer, bins=bins)


def grain_packed(
  elements: grain.IterDataset, packer: str, *, bins: int = BINS
) -> grain.IterDataset:
  """Returns rows that one of Grain's packers makes of elements."""
  length = {IDS: SEQ_LENGTH}
  if packer == GRAIN_CONCAT:
    return grain.experimental.ConcatThenSplitIterDataset(
      elements, length_struct=length
    )
  kinds = {
    GRAIN_FIRST_FIT: grain.experimental.FirstFitPackIterDataset,
    GRAIN_BEST_FIT: grain.experimental.BestFitPackIterDataset,
  }
  return kinds[packer](elements, length_struct=length, num_packing_bins=bins)
