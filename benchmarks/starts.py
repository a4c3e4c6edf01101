"""Starts of Megatron's order, each in a process of its own: ours or the peer's.

  prefix, cache folder -> process: open, build or load, plan -> Start

What is imported is not counted, and whether the files' pages are in memory is
the caller's matter: `common.write_corpus` leaves them there.
"""

import dataclasses
import gc
import os
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
import megatron_peer
import numpy as np

OURS = "ours"

_SEQ_LENGTH = 4096
_SEED = 1
_CHECKSUM_BYTES = 1 << 26

# (prefix, cache folder) -> what has the three indices.
_Run = Callable[[str, Path | None], Any]


@dataclasses.dataclass(frozen=True)
class Start:
  """What one start took.

  Attributes:
    seconds: from opening the pair on.
    extra_bytes: memory at its largest, above what there was before and the
      bytes of the three indices.
    checksum: of the three indices; None where they were not read.
  """

  seconds: float
  extra_bytes: int
  checksum: int | None


def names() -> list[str]:
  """Who can be started here."""
  peer = [megatron_peer.NAME] if megatron_peer.is_installed() else []
  return [OURS, *peer]


def start(
  name: str, prefix: str, cache: Path | None, *, plan_rows: int = 0
) -> Start:
  """Starts one of `names` in a fresh process.

  Args:
    name: of them.
    prefix: of the pair.
    cache: folder for the indices; None keeps them in memory.
    plan_rows: the size of a first batch that ours plans within the time; 0
      for none, and indices are then read for their checksum.
  """
  # Or it would wait for what somebody else wrote before.
  os.sync()
  folder = None if cache is None else str(cache)
  found = common.in_child(
    __file__, name=name, prefix=prefix, cache=folder, plan_rows=plan_rows
  )
  return Start(**found)


def _start(
  name: str, prefix: str, cache: str | None, plan_rows: int
) -> dict[str, Any]:
  """In the process of its own; returns the fields of a `Start`."""
  folder = None if cache is None else Path(cache)
  run = _ours(plan_rows) if name == OURS else _megatron()
  gc.disable()
  before = common.forget_peak()
  began = time.perf_counter()
  samples = run(prefix, folder)
  seconds = time.perf_counter() - began
  peak = common.status_bytes("VmHWM") - before
  indices = (
    samples.document_index,
    samples.sample_index,
    samples.shuffle_index,
  )
  return {
    "seconds": seconds,
    "extra_bytes": peak - sum(array.nbytes for array in indices),
    "checksum": None if plan_rows else _checksum(indices),
  }


def _ours(plan_rows: int) -> _Run:
  """Imports ours, and only ours; returns how it starts."""
  from hpgrain.index_cache import IndexCache
  from hpgrain.samples import GPTSamples

  rows = np.arange(plan_rows)

  def run(prefix: str, cache: Path | None) -> Any:
    samples = GPTSamples(
      prefix,
      seq_length=_SEQ_LENGTH,
      seed=_SEED,
      order="megatron",
      cache=IndexCache(cache),
    )
    if plan_rows:
      samples.plan_rows(rows)
    else:
      samples.build_index()
    return samples

  return run


def _megatron() -> _Run:
  """Imports the peer; returns how it starts."""
  megatron_peer.load()
  return lambda prefix, cache: megatron_peer.dataset(
    prefix, seq_length=_SEQ_LENGTH, cache=cache
  )


def _checksum(arrays: tuple[np.ndarray, ...]) -> int:
  checksum = 0
  for array in arrays:
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    for begin in range(0, len(data), _CHECKSUM_BYTES):
      checksum = zlib.crc32(data[begin : begin + _CHECKSUM_BYTES], checksum)
  return checksum


if __name__ == "__main__":
  common.child(_start)
