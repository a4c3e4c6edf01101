"""P7: random rows of 4096 positions, batches of 8, tokens only.

The stable order and Megatron's, against Megatron itself. The floor is NumPy
slicing rows out of one flat array of tokens at places that are known: no
documents, no order, no check of ids, no blend. "through three indices" it
finds Megatron's rows in its three indices first, and still checks nothing.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import common
import megatron_peer
import numpy as np

from hpgrain.samples import GPTSamples

_SEQ_LENGTH = 4096
_NUM_ROWS = 8
_SLICE = "NumPy slice"
_INDICES = "NumPy slices through three indices"
# Order -> how many times as long as the slice.
_GOALS = {"stable": 1.3, "megatron": 1.8}

_Call = Callable[[int], object]


def _work(order: str) -> str:
  return f"random rows, {order} order, seq 4096, batches of 8, a row"


def _ours(samples: GPTSamples, picked: np.ndarray) -> _Call:
  return lambda i: samples.read(samples.plan_rows(picked[i]))


def _numpy_slice(flat: np.ndarray, begins: list[list[int]]) -> _Call:
  def read(i: int) -> np.ndarray:
    out = np.empty((_NUM_ROWS, _SEQ_LENGTH + 1), np.int32)
    for row, begin in enumerate(begins[i]):
      out[row] = flat[begin : begin + _SEQ_LENGTH + 1]
    return out

  return read


def _numpy_indices(
  flat: np.ndarray, samples: GPTSamples, picked: list[list[int]]
) -> _Call:
  """Reads Megatron's rows as its indices say, in NumPy alone."""
  documents = samples.document_index
  starts, shuffled = samples.sample_index, samples.shuffle_index
  ends = np.cumsum(samples.corpus.reader.lengths, dtype=np.int64)
  begins = ends - samples.corpus.reader.lengths

  def read(i: int) -> np.ndarray:
    out = np.empty((_NUM_ROWS, _SEQ_LENGTH + 1), np.int32)
    for to, row in zip(out, picked[i]):
      sample = int(shuffled[row])
      (first, skip), (last, _) = starts[sample : sample + 2].tolist()
      chosen = documents[first : last + 1]
      places = begins[chosen].tolist()
      places[0] += skip
      at = 0
      for place, end in zip(places, ends[chosen].tolist()):
        count = min(end - place, _SEQ_LENGTH + 1 - at)
        to[at : at + count] = flat[place : place + count]
        at += count
    return out

  return read


def _warm(samples: GPTSamples, flat: np.ndarray) -> None:
  """Reads every page once, so that no mapping pays for it while timed."""
  common.touch(flat)
  for row in range(0, len(samples), 512):
    some = np.arange(row, min(row + 512, len(samples)))
    samples.read(samples.plan_rows(some))


def measure(folder: Path, options: argparse.Namespace) -> Iterator[common.Row]:
  """Yields each order against the floors and against Megatron."""
  prefix = common.write_corpus(folder, num_documents=options.documents)
  flat = np.asarray(np.memmap(f"{prefix}.bin", np.uint16, "r"))
  orders = {
    order: GPTSamples(
      prefix,
      seq_length=_SEQ_LENGTH,
      seed=1,
      order=order,
      vocab_size=common.VOCAB_SIZE,
    )
    for order in _GOALS
  }
  rng = np.random.default_rng(1)
  shape = (options.batches, _NUM_ROWS)
  begins = rng.integers(0, len(flat) - _SEQ_LENGTH, shape)
  calls = {_SLICE: _numpy_slice(flat, begins.tolist())}
  for order, samples in orders.items():
    picked = rng.integers(0, len(samples), shape)
    calls[order] = _ours(samples, picked)
    _warm(samples, flat)
  # Megatron's order is the last: its rows again.
  calls[_INDICES] = _numpy_indices(flat, samples, picked.tolist())
  if not np.array_equal(calls[_INDICES](0), calls["megatron"](0)):
    raise RuntimeError("The indices lead NumPy to other rows than ours.")
  has_peer = megatron_peer.is_installed()
  if has_peer:
    dataset = megatron_peer.dataset(
      prefix, seq_length=_SEQ_LENGTH, cache=folder / "cache"
    )
    # The part of `dataset[i]` that reads tokens; P8 times all of it.
    read = dataset._query_document_sample_shuffle_indices
    rows = picked.tolist()
    if not np.array_equal(
      [read(row)[0] for row in rows[0]], calls["megatron"](0)
    ):
      raise RuntimeError(f"{megatron_peer.NAME} has other rows than ours.")
    calls[megatron_peer.NAME] = lambda i: [read(row) for row in rows[i]]

  times = common.in_turn(
    calls, repeats=options.repeats, times=options.batches, items=_NUM_ROWS
  )
  for order, goal in _GOALS.items():
    work = _work(order)
    yield times.row("P7", work, ours=order, peer=_SLICE, at_most=goal)
    if order == "megatron":
      yield times.row("P7", work, ours=order, peer=_INDICES)
    if has_peer:
      yield times.row("P7", work, ours=order, peer=megatron_peer.NAME)
    else:
      yield common.missing("P7", work, megatron_peer.NAME, "")


if __name__ == "__main__":
  common.run(measure, documents=1_000_000, batches=1000, repeats=11)
