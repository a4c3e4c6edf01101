"""P9: token arrays to packed rows, one core, seq 4096.

Ours makes five fields of a batch of 8 rows; Grain three arrays of one row at a
time, stacked into no batch. What of ours is measured:

  packer and fields  the packer and the kernel that fills rows, on a window of
                     arrays: what the pipelines below are made of
  streams, plans     pipelines of records: every array is looked at in Python,
                     checked, and copied to where rows are packed of it
  a pair             rows planned and read of a `.idx`/`.bin` pair

Seconds are the process's own on all processors, so that others who use them
change little. The floor copies three arrays that are there already.
"""

import argparse
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import common
import numpy as np
import packing_data as data

from hpgrain import pack
from hpgrain.fields import FieldOptions
from hpgrain.packed_fields import PackedPlans, make_packed_fields, starts
from hpgrain.packed_samples import PackedSamples
from hpgrain.packing import reordered

_NUM_ROWS = 8
_FIELDS = FieldOptions(reset_position_ids=True)
_MEMCPY = "memcpy of 3 arrays"
_PEERS = (data.GRAIN_FIRST_FIT, data.GRAIN_CONCAT)
# Arrays that the packer is given at once.
_WINDOW = 16384
_GOAL = 40

_Call = Callable[[int], object]


def _packer_and_fields(
  arrays: Sequence[np.ndarray],
) -> Iterator[dict[str, np.ndarray]]:
  """Yields batches of rows: joins arrays, packs them, fills the fields."""
  for begin in itertools.cycle(range(0, len(arrays) - _WINDOW + 1, _WINDOW)):
    window = arrays[begin : begin + _WINDOW]
    ids = np.concatenate(window)
    lengths = np.fromiter(map(len, window), np.int32, len(window))
    packed = pack.best_fit(lengths, budget=data.SEQ_LENGTH)
    ends = np.cumsum(lengths, dtype=np.int64)
    for row in range(0, len(packed), _NUM_ROWS):
      rows = np.arange(row, min(row + _NUM_ROWS, len(packed)))
      splits, places = reordered(packed.row_splits, rows)
      items = packed.items[places]
      length = lengths[items]
      begins = ends[items] - length
      plans = PackedPlans(
        row_splits=splits,
        source=np.zeros(len(items), np.int32),
        example=items,
        offset=np.zeros(len(items), np.int64),
        length=length,
        start=starts(splits, length),
      )
      yield make_packed_fields(
        plans,
        id_begin=begins,
        label_begin=begins,
        ids=ids,
        labels=ids,
        window=(0, data.SEQ_LENGTH),
        num_rows=_NUM_ROWS,
        options=_FIELDS,
      )


def _batches(open_rows: Callable[[np.ndarray], object]) -> _Call:
  """Returns a call that makes the next rows of a pipeline."""
  first = itertools.count(0, _NUM_ROWS)

  def read(_: int) -> object:
    row = next(first)
    return open_rows(np.arange(row, row + _NUM_ROWS)).fields(
      (0, data.SEQ_LENGTH), num_rows=_NUM_ROWS, options=_FIELDS
    )

  return read


def _memcpy() -> _Call:
  three = [np.ones((_NUM_ROWS, data.SEQ_LENGTH), np.int32) for _ in range(3)]
  return lambda _: [array.copy() for array in three]


def _rows(iterator: Iterator[object]) -> _Call:
  return lambda _: [next(iterator) for _ in range(_NUM_ROWS)]


def measure(folder: Path, options: argparse.Namespace) -> Iterator[common.Row]:
  """Yields each of ours against Grain's packers and a copy."""
  arrays = data.examples(data.example_lengths(options.examples))
  pair = common.write_corpus(folder, num_documents=options.examples)
  documents = PackedSamples(
    [pair],
    options=data.OVERLONG_SPLIT,
    seed=0,
    labels_are_shifted=False,
    vocab_size=common.VOCAB_SIZE,
  )
  packed = _packer_and_fields(arrays)
  source = data.records(arrays, "arrays")
  ours = {
    "packer and fields": lambda _: next(packed),
    "streams": _batches(data.streams([source]).open([0]).rows),
    "plans": _batches(data.plans([source]).open_rows),
    "a pair": _batches(documents.open_rows),
  }
  calls = {**ours, _MEMCPY: _memcpy()}
  for peer in _PEERS:
    rows = data.grain_rows(data.grain_source(arrays), peer)
    calls[peer] = _rows(iter(rows))
  times = common.in_turn(
    calls,
    repeats=options.repeats,
    times=options.batches,
    items=_NUM_ROWS * data.SEQ_LENGTH,
    clock=time.process_time,
  )
  for name in ours:
    work = f"packing from token arrays, {name}"
    for peer in _PEERS:
      yield times.row(
        "P9",
        work,
        ours=name,
        peer=peer,
        at_least=_GOAL if peer == data.GRAIN_FIRST_FIT else None,
        said=common.token_rate,
      )
    yield times.row("P9", work, ours=name, peer=_MEMCPY, said=common.token_rate)


if __name__ == "__main__":
  # A window of arrays is about 200 batches.
  common.run(measure, examples=50_000, batches=200, repeats=7)
