r"""Digests of the rows a run trained on, and a comparison of two runs.

A digest covers what the devices were given, read back from them, and nothing
of how: neither mesh nor processes nor batch size. One JSON line a step:

  {"step": 3, "first_row": 16, "rows": 8, "digest": "..", "row_digests": [..]}

A run that was killed repeats the steps after its last checkpoint, so their
lines stand in the file twice; rows are then equal or something is broken.

Command to compare two runs row by row:

python launch/digests.py /tmp/run_a/digests.jsonl /tmp/run_b/digests.jsonl
"""

import hashlib
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jsonl
import numpy as np
from jax.experimental import multihost_utils

from hpgrain import context_parallel
from hpgrain.context_layout import ROW_ORDER, ContextLayout

SEGMENT_IDS = "segment_ids"

# Compiled once for a shape, where it would be operation by operation.
_row_positions = jax.jit(context_parallel.row_positions, static_argnums=1)


def gather(batch: Mapping[str, jax.Array]) -> dict[str, np.ndarray]:
  """Reads a batch back from all devices of all processes.

  With several processes this runs a collective: call it in every process, at
  the same point of the same thread that runs the steps.
  """
  if jax.process_count() == 1:
    return {name: np.asarray(field) for name, field in batch.items()}
  return multihost_utils.process_allgather(dict(batch), tiled=True)


def in_row_order(
  fields: Mapping[str, np.ndarray], layout: ContextLayout
) -> dict[str, np.ndarray]:
  """Returns fields [row, slot] as [row, position]."""
  if layout.is_identity:
    return dict(fields)
  segment_ids = fields[SEGMENT_IDS]
  positions = np.asarray(_row_positions(segment_ids, layout))
  slots = np.argsort(np.broadcast_to(positions, segment_ids.shape), axis=1)
  return {
    name: np.take_along_axis(field, slots, axis=1)
    for name, field in fields.items()
  }


def digest_batch(
  fields: Mapping[str, np.ndarray], *, step: int, first_row: int
) -> dict[str, Any]:
  """Digests the real positions of a batch.

  Each digest is the sha256 of, field by field in the order of their names
  and row by row: the field's name and dtype, the row's number in the run, the
  number of real positions, and their values. Padding (segment 0) is left out,
  and a row of nothing else has no digest.

  Args:
    fields: arrays [row, position], segment_ids among them, as `gather` gives.
    step: the step that trains on the batch, counted from 1.
    first_row: the number of the batch's first row in the run, from 0.

  Returns:
    What is written as one line: step, first_row, rows (real ones), digest (of
    the whole batch) and row_digests (one for each row up to the last real one;
    null for a row of padding before it, as streams have it that end early).
  """
  real = fields[SEGMENT_IDS] > 0
  rows = np.flatnonzero(real.any(axis=1))
  whole = hashlib.sha256()
  each = [hashlib.sha256() for _ in rows]
  for name in sorted(fields):
    field = fields[name]
    for row, row_digest in zip(rows, each, strict=True):
      values = np.ascontiguousarray(field[row][real[row]])
      values = values.astype(values.dtype.newbyteorder("<"), copy=False)
      head = f"{name} {values.dtype.str} {first_row + row} {len(values)}\n"
      for digest in (whole, row_digest):
        digest.update(head.encode())
        digest.update(values)
  listed: list[str | None] = [None] * (int(rows[-1]) + 1 if len(rows) else 0)
  for row, digest in zip(rows.tolist(), each, strict=True):
    listed[row] = digest.hexdigest()
  return {
    "step": step,
    "first_row": first_row,
    "rows": len(rows),
    "digest": whole.hexdigest(),
    "row_digests": listed,
  }


class DigestLog:
  """Appends one line a step to a file, and gives the batch's digest."""

  def __init__(self, path: Path) -> None:
    self._lines = jsonl.JsonLines(path)

  def append(
    self,
    batch: Mapping[str, jax.Array],
    *,
    step: int,
    first_row: int,
    layout: ContextLayout = ROW_ORDER,
  ) -> str:
    """Digests a placed batch, writes the line, and returns the digest.

    Positions are digested in the order of the row, whatever the layout.

    Every process must call it, as `gather` says; process 0 writes.
    """
    fields = in_row_order(gather(batch), layout)
    line = digest_batch(fields, step=step, first_row=first_row)
    self._lines.append(line)
    return line["digest"]

  def close(self) -> None:
    """Closes the file."""
    self._lines.close()


def read_rows(paths: Iterable[str | Path]) -> tuple[dict[int, str], int]:
  """Returns row number -> digest of the files' lines, and repeated rows.

  Raises:
    ValueError: if a row occurs twice with different content.
  """
  digests: dict[int, str] = {}
  repeated = 0
  for path in paths:
    with Path(path).open() as lines:
      for line in map(json.loads, lines):
        for row, digest in enumerate(line["row_digests"], line["first_row"]):
          if digest is None:
            continue
          repeated += row in digests
          if digests.setdefault(row, digest) != digest:
            raise ValueError(
              f"Row {row} of {path} was trained on twice with different"
              f" content: step {line['step']} has {digest[:12]}, an earlier"
              f" line {digests[row][:12]}. A resumed run must repeat its rows."
            )
  return digests, repeated


def main(argv: Sequence[str]) -> int:
  """Compares two digest files; 0 if all rows that both have are equal."""
  if len(argv) != 3:
    print(f"usage: python {argv[0]} A/digests.jsonl B/digests.jsonl")
    return 2
  for path in argv[1:]:
    if not Path(path).is_file():
      print(f"{path} is no file; a run writes one with --log_batch_digest")
      return 2
  (a, repeated_a), (b, repeated_b) = (read_rows([path]) for path in argv[1:])
  both = a.keys() & b.keys()
  different = sorted(row for row in both if a[row] != b[row])
  print(f"A: {len(a)} rows, {repeated_a} of them repeated after a kill")
  print(f"B: {len(b)} rows, {repeated_b} of them repeated after a kill")
  print(f"{len(both) - len(different)} of {len(both)} common rows are equal")
  if different:
    print(f"first rows that differ: {different[:5]}")
  if not both:
    print("the runs have no row in common")
  return 1 if different or not both else 0


if __name__ == "__main__":
  sys.exit(main(sys.argv))
