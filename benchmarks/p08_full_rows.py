"""P8: rows with labels, loss mask, positions and resets, ready to place.

Ours also names each position's document (`segment_ids`) and masks the labels
that cross from one document to the next; Megatron does neither.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import common
import megatron_peer
import numpy as np

from hpgrain import batches, shard
from hpgrain.fields import FieldOptions
from hpgrain.samples import GPTSamples

_SEQ_LENGTH = 4096
_NUM_ROWS = 8
_WORK = "full rows with resets, seq 4096, batches of 8, a row"


def measure(folder: Path, options: argparse.Namespace) -> Iterator[common.Row]:
  """Yields ours against Megatron, and against its own reading of tokens."""
  prefix = common.write_corpus(folder, num_documents=options.documents)
  samples = GPTSamples(
    prefix, seq_length=_SEQ_LENGTH, seed=1, vocab_size=common.VOCAB_SIZE
  )
  fields = FieldOptions(
    reset_position_ids=True, eod_mask_loss=True, eod_id=common.EOD
  )
  whole = shard.HostLayout(
    (_NUM_ROWS, _SEQ_LENGTH),
    (shard.Shard((0, _NUM_ROWS), (0, _SEQ_LENGTH), ()),),
  )
  rng = np.random.default_rng(1)
  shape = (options.batches, _NUM_ROWS)
  firsts = rng.integers(0, len(samples) - _NUM_ROWS, options.batches).tolist()

  def ours(i: int) -> None:
    # What the loader does for a batch; its order is a permutation.
    batches.make_shards(
      samples, whole, first_row=firsts[i], end_row=None, options=fields
    )

  def tokens(i: int) -> None:
    rows = np.arange(firsts[i], firsts[i] + _NUM_ROWS)
    samples.read(samples.plan_rows(rows))

  calls = {"ours": ours, "our tokens alone": tokens}
  if megatron_peer.is_installed():
    dataset = megatron_peer.dataset(
      prefix, seq_length=_SEQ_LENGTH, cache=folder / "cache"
    )
    picked = rng.integers(0, len(dataset), shape).tolist()
    calls[megatron_peer.NAME] = lambda i: [dataset[row] for row in picked[i]]
  times = common.in_turn(
    calls, repeats=options.repeats, times=options.batches, items=_NUM_ROWS
  )
  if megatron_peer.is_installed():
    yield times.row(
      "P8", _WORK, ours="ours", peer=megatron_peer.NAME, at_least=10
    )
  else:
    yield common.missing("P8", _WORK, megatron_peer.NAME, ">= 10x")
  yield times.row("P8", _WORK, ours="ours", peer="our tokens alone")


if __name__ == "__main__":
  common.run(measure, documents=1_000_000, batches=500, repeats=11)
