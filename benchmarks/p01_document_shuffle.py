"""P1: the documents of a corpus, shuffled as NumPy's RandomState does it.

Ours and NumPy's shuffle an int32 array in place; Megatron makes the same array
from wider ones. The floor is what a shuffle of so many items cannot do
without: one access at random for each, here NumPy's `take`.
"""

import argparse
import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import common
import megatron_peer
import numpy as np

from hpgrain import index

_SEED = 1
_GATHER = "random gather"
_NUMPY = "NumPy RandomState.shuffle"
# Documents -> how many times faster than Megatron.
_GOALS = {10_000_000: 4, 100_000_000: 8}


def _ours(documents: int) -> np.ndarray:
  array = np.arange(documents, dtype=np.int32)
  index.shuffle(array, np.random.RandomState(_SEED))
  return array


def _numpy(documents: int) -> np.ndarray:
  array = np.arange(documents, dtype=np.int32)
  np.random.RandomState(_SEED).shuffle(array)
  return array


def _megatron(documents: int) -> np.ndarray:
  return megatron_peer.build_document_index(documents, _SEED)


_MAKERS: dict[str, Callable[[int], np.ndarray]] = {
  "ours": _ours,
  _NUMPY: _numpy,
  megatron_peer.NAME: _megatron,
}


def _peak(name: str, documents: int) -> int:
  """In a process of its own: bytes above those of the array that is kept."""
  if name == megatron_peer.NAME:
    megatron_peer.load()
  make = _MAKERS[name]
  # Whatever the first call loads is no part of it.
  make(1000)
  gc.disable()
  before = common.forget_peak()
  kept = make(documents)
  # The system counts in steps, which a small array may fall short of.
  return max(0, common.status_bytes("VmHWM") - before - kept.nbytes)


def _time_rows(documents: int, repeats: int) -> Iterator[common.Row]:
  """Times each maker, and the floor over the order that they made."""
  makers = dict(_MAKERS)
  if not megatron_peer.is_installed():
    del makers[megatron_peer.NAME]
  order = _ours(documents)
  for name, make in makers.items():
    if not np.array_equal(make(documents), order):
      raise RuntimeError(f"{name} makes another order of {documents}.")
  # As wide as NumPy wants it, so that it converts nothing while it is timed.
  places = order.astype(np.intp)
  values = np.arange(documents, dtype=np.int32)
  out = np.empty_like(values)

  calls: dict[str, Callable[[int], object]] = {
    name: lambda i, make=make: make(documents) for name, make in makers.items()
  }
  calls[_GATHER] = lambda i: values.take(places, out=out, mode="clip")
  times = common.in_turn(calls, repeats=repeats, times=1)
  work = f"document shuffle, {documents:.0e} documents"
  goal = _GOALS.get(documents)
  if megatron_peer.NAME in makers:
    yield times.row(
      "P1", work, ours="ours", peer=megatron_peer.NAME, at_least=goal
    )
  else:
    text = "" if goal is None else f">= {goal}x faster"
    yield common.missing("P1", work, megatron_peer.NAME, text)
  yield times.row("P1", work, ours="ours", peer=_NUMPY)
  yield times.row("P1", work, ours="ours", peer=_GATHER)


def _memory_row(documents: int) -> common.Row:
  def peak(name: str) -> str:
    peak = common.in_child(__file__, name=name, documents=documents)
    return common.bytes_each(peak, documents)

  against = f"{megatron_peer.NAME}: not installed (extra `bench`)"
  if megatron_peer.is_installed():
    against = f"{megatron_peer.NAME}: {peak(megatron_peer.NAME)}"
  work = f"document shuffle, {documents:.0e} documents, memory above the array"
  return common.Row("P1", work, peak("ours"), against, "", "", None)


def measure(folder: Path, options: argparse.Namespace) -> Iterator[common.Row]:
  """Yields times and memory for each number of documents."""
  del folder
  if megatron_peer.is_installed():
    megatron_peer.load()
  for documents in options.documents:
    yield from _time_rows(documents, options.repeats)
    yield _memory_row(documents)


if __name__ == "__main__":
  if not common.child(_peak):
    common.run(measure, documents=common.SIZES, repeats=5)
