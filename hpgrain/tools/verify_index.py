"""The `.idx` of a pair in, every flaw of it out.

`IndexedReader.verify` stops at the first; here each entry is compared with
its neighbour, so that one that is wrong is told once, and all are told.
"""

import mmap
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from hpgrain.sources import index_file
from hpgrain.sources.index_file import IndexLayout
from hpgrain.tools.verification import Verification

# Entries looked at together.
_BLOCK = 1 << 20


def verify_index(
  prefix: str,
  found: Verification,
  *,
  report: Callable[[int], None] = lambda num_bytes: None,
) -> IndexLayout | None:
  """Checks all of an `.idx`, and the `.bin`'s size by it.

  Args:
    prefix: of the pair, both files of which are there.
    found: where to note what is wrong.
    report: told of bytes of the `.idx` that were read since.

  Returns:
    The layout of a sound `.idx` that fits its `.bin`; else None.
  """
  before = found.num_problems
  path = index_file.idx_path(prefix)
  fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
  try:
    layout = None
    with found.check(".idx header and size"):
      try:
        layout = index_file.read_layout(fd, path)
      except ValueError as error:
        found.add_error(path, error)
    if layout is None:
      for name in (".idx lengths and pointers", ".idx document indices"):
        found.skip(name, "the .idx has no sound header")
      return None
    index = mmap.mmap(fd, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
  finally:
    os.close(fd)
  with found.check(".idx lengths and pointers"):
    end = _sequences(path, layout, index, found, report)
    _last(path, index_file.bin_path(prefix), layout, end, found)
  with found.check(".idx document indices"):
    _documents(path, layout, index, found, report)
  return layout if found.num_problems == before else None


def _sequences(
  path: str,
  layout: IndexLayout,
  index: mmap.mmap,
  found: Verification,
  report: Callable[[int], None],
) -> int:
  """Compares each pointer with the sequence before; returns where all end."""
  lengths, pointers = layout.lengths(index), layout.pointers(index)
  itemsize = layout.dtype.itemsize
  end = 0
  for first in range(0, len(lengths), _BLOCK):
    some = np.array(lengths[first : first + _BLOCK], np.int64)
    starts = np.array(pointers[first : first + _BLOCK])
    ends = starts + some * itemsize
    expected = np.concatenate(([end], ends[:-1]))
    end = int(ends[-1])
    for i in found.first(np.flatnonzero(some < 0)):
      at = layout.lengths_at + 4 * (first + i)
      found.add(
        f"{path}, sequence {first + i} (byte {at})",
        f"its length is {some[i]}, expected 0 or more",
      )
    for i in found.first(np.flatnonzero(starts != expected)):
      at = layout.pointers_at + 8 * (first + i)
      found.add(
        f"{path}, sequence {first + i} (byte {at})",
        f"it begins at byte {starts[i]} of the .bin, expected byte"
        f" {expected[i]}, where the one before it ends",
      )
    report(some.size * 12)
  return end


def _last(
  path: str, bin_path: str, layout: IndexLayout, end: int, found: Verification
) -> None:
  size = Path(bin_path).stat().st_size
  if size != end:
    found.add(
      bin_path,
      f"it has {size} bytes, expected {end}: by {path}, the last of"
      f" {layout.num_sequences} sequences ends there",
    )


def _documents(
  path: str,
  layout: IndexLayout,
  index: mmap.mmap,
  found: Verification,
  report: Callable[[int], None],
) -> None:
  documents = layout.document_indices(index)
  count = layout.num_sequences
  previous = 0
  for first in range(0, len(documents), _BLOCK):
    some = np.array(documents[first : first + _BLOCK])
    before = np.concatenate(([previous], some[:-1]))
    wrong = (some < before) | (some > count) | (some < 0)
    if first == 0:
      wrong[0] = some[0] != 0
    last = first + len(some) == len(documents)
    if last:
      wrong[-1] |= some[-1] != count
    lower = np.where(np.arange(len(some)) + first, before, 0)
    upper = np.full(len(some), count)
    if first == 0:
      upper[0] = 0
    if last:
      lower[-1] = count
    for i in found.first(np.flatnonzero(wrong)):
      at = layout.document_indices_at + 8 * (first + i)
      found.add(
        f"{path}, document index {first + i} (byte {at})",
        f"it is {some[i]}, expected {_between(lower[i], upper[i])}",
      )
    previous = int(some[-1])
    report(some.nbytes)


def _between(lower: int, upper: int) -> str:
  return str(upper) if lower >= upper else f"{lower} to {upper}"
