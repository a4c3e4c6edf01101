"""Rows by number in, global batches one after another out.

  rows [row, row + B) -> plan -> read each shard's window -> fields -> place

A batch is made for the rectangles that this process's devices hold, and for
no others. The position is a row number, so any batch can be made by itself.
"""

import dataclasses
import time
from collections.abc import Mapping
from typing import Any, Protocol

import grain
import jax
import numpy as np

from hpgrain import shard
from hpgrain.fields import FieldOptions, make_padding
from hpgrain.token_rows import OpenRows

# What a batch's time goes to, in order.
STAGES = ("plan", "read", "place")


class Samples(Protocol):
  """What a loader reads: rows by number."""

  seq_length: int
  rows_per_epoch: int
  vocab_size: int | None
  sources: Any
  unique_identifiers: Mapping[str, Any]

  def open_rows(self, rows: np.ndarray) -> OpenRows:
    """Plans rows, to read windows of them."""
    ...

  def rows_per_source(self, num_rows: int) -> np.ndarray:
    """Counts each source's rows among the first ones."""
    ...


def make_shards(
  samples: Samples,
  shards: tuple[shard.Shard, ...],
  *,
  first_row: int,
  end_row: int | None,
  options: FieldOptions,
) -> tuple[list[dict[str, np.ndarray]], dict[str, float]]:
  """Makes the fields of some rectangles of one batch.

  Args:
    samples: the rows.
    shards: rectangles, those of the same rows next to each other.
    first_row: the global row that is the batch's row 0.
    end_row: the first global row there is none of; from it on rows are
      padding. None = endless.
    options: how fields are made.

  Returns:
    The fields of each shard, and seconds spent by stage.
  """
  seconds = dict.fromkeys(STAGES, 0.0)
  parts = []
  planned: tuple[int, int] | None = None
  opened: OpenRows | None = None
  for part in shards:
    began = time.perf_counter()
    if part.rows != planned:
      begin, end = (first_row + row for row in part.rows)
      end = end if end_row is None else max(begin, min(end, end_row))
      opened = None
      if begin < end:
        opened = samples.open_rows(np.arange(begin, end, dtype=np.int64))
      planned = part.rows
    read_began = time.perf_counter()
    seconds["plan"] += read_began - began
    num_rows = part.rows[1] - part.rows[0]
    if opened is None:
      parts.append(make_padding(part.window, num_rows))
    else:
      parts.append(
        opened.fields(part.window, num_rows=num_rows, options=options)
      )
    seconds["read"] += time.perf_counter() - read_began
  return parts, seconds


@dataclasses.dataclass(frozen=True)
class BatchSpec:
  """Everything that makes a loader's batches.

  Attributes:
    samples: the rows.
    layout: how a batch lies on the mesh; layout.shape[0] rows a batch.
    options: how fields are made.
    first_row: the row a fresh iterator begins with.
    end_row: the first row there is none of; None = endless.
    epochs: how many of the samples' epochs end there.
    asked_only: whether rows end with those that Megatron's order was asked
      for, of the few more that its index has.
    pad_last: whether rows left at the end fill a last batch with padding;
      otherwise they are dropped.
  """

  samples: Samples
  layout: shard.BatchLayout
  options: FieldOptions
  first_row: int = 0
  end_row: int | None = None
  epochs: int | None = None
  asked_only: bool = False
  pad_last: bool = False

  def with_num_samples(self, num_samples: int | None) -> "BatchSpec":
    """Returns the same batches of rows in Megatron's order for so many."""
    samples: Any = self.samples
    samples = samples.with_num_samples(num_samples)
    end_row = find_end(samples, epochs=self.epochs, asked_only=self.asked_only)
    return dataclasses.replace(self, samples=samples, end_row=end_row)


def find_end(
  samples: Any, *, epochs: int | None, asked_only: bool
) -> int | None:
  """Returns the first row there is none of; None = endless.

  Args:
    samples: the rows.
    epochs: how many of their epochs there are; None = for ever.
    asked_only: see `BatchSpec`.
  """
  if epochs is None:
    return None
  rows = samples.num_rows(epochs)
  return min(rows, samples.num_samples) if asked_only else rows


class _BatchIterator(grain.DatasetIterator):
  """Makes batch after batch; its position is a row number.

  Its state holds that alone: Grain copies it for every prefetched batch.
  """

  def __init__(self, spec: BatchSpec):
    super().__init__()
    self._spec = spec
    self._row = spec.first_row

  def __next__(self) -> tuple[dict[str, jax.Array], dict[str, float]]:
    spec = self._spec
    num_rows = spec.layout.shape[0]
    after = self._row + num_rows
    if spec.end_row is not None:
      if not spec.pad_last and after > spec.end_row:
        raise StopIteration
      if self._row >= spec.end_row:
        raise StopIteration
      after = min(after, spec.end_row)
    parts, seconds = make_shards(
      spec.samples,
      spec.layout.shards,
      first_row=self._row,
      end_row=spec.end_row,
      options=spec.options,
    )
    began = time.perf_counter()
    placed = shard.place(spec.layout, parts)
    seconds["place"] = time.perf_counter() - began
    self._row = after
    return placed, seconds

  def get_state(self) -> dict[str, Any]:
    return {"rows": self._row}

  def set_state(self, state: dict[str, Any]) -> None:
    self._row = state["rows"]


class BatchIterDataset(grain.IterDataset):
  """The batches, one at a time, without prefetch."""

  def __init__(self, spec: BatchSpec):
    super().__init__()
    self._spec = spec

  def __iter__(self) -> _BatchIterator:
    return _BatchIterator(self._spec)
