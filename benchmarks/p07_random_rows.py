"""P7: random rows of 4096 positions, batches of 8, tokens only.

The floor is NumPy slicing rows out of one flat array of tokens at places
that are known: no documents, no order, no check of ids, no blend.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import common
import megatron_peer
import numpy as np

from hpgrain.samples import GPTSamples

_SEQ_LENGTH = 4096
_NUM_ROWS = 8
_WORK = "random rows, seq 4096, batches of 8, a row"


def measure(folder: Path, options: argparse.Namespace) -> Iterator[common.Row]:
  """Yields ours against the floor and against Megatron."""
  prefix = common.write_corpus(folder, num_documents=options.documents)
  samples = GPTSamples(
    prefix, seq_length=_SEQ_LENGTH, seed=1, vocab_size=common.VOCAB_SIZE
  )
  flat = np.asarray(np.memmap(f"{prefix}.bin", np.uint16, "r"))
  rng = np.random.default_rng(1)
  shape = (options.batches, _NUM_ROWS)
  rows = rng.integers(0, len(samples), shape)
  begins = rng.integers(0, len(flat) - _SEQ_LENGTH, shape).tolist()

  def ours(i: int) -> np.ndarray:
    return samples.read(samples.plan_rows(rows[i]))

  def numpy_slice(i: int) -> np.ndarray:
    out = np.empty((_NUM_ROWS, _SEQ_LENGTH + 1), np.int32)
    for row, begin in enumerate(begins[i]):
      out[row] = flat[begin : begin + _SEQ_LENGTH + 1]
    return out

  calls = {"ours": ours, "NumPy slice": numpy_slice}
  if megatron_peer.is_installed():
    dataset = megatron_peer.dataset(
      prefix, seq_length=_SEQ_LENGTH, cache=folder / "cache"
    )
    # The part of `dataset[i]` that reads tokens; P8 times all of it.
    read = dataset._query_document_sample_shuffle_indices
    picked = rng.integers(0, len(dataset), shape).tolist()
    calls[megatron_peer.NAME] = lambda i: [read(row) for row in picked[i]]
  # Every page once, so that no mapping pays for it while it is timed.
  common.touch(flat)
  for row in range(0, len(samples), 512):
    some = np.arange(row, min(row + 512, len(samples)))
    samples.read(samples.plan_rows(some))

  times = common.in_turn(
    calls, repeats=options.repeats, times=options.batches, items=_NUM_ROWS
  )
  yield times.row("P7", _WORK, ours="ours", peer="NumPy slice", at_most=1.3)
  if megatron_peer.is_installed():
    yield times.row("P7", _WORK, ours="ours", peer=megatron_peer.NAME)
  else:
    yield common.missing("P7", _WORK, megatron_peer.NAME, "")


if __name__ == "__main__":
  common.run(measure, documents=1_000_000, batches=1000, repeats=11)
