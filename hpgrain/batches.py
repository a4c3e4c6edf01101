"""Rows by number in, global batches one after another out.

  rows [row, row + B) -> plan -> read each shard's window -> fields -> place

A batch is made for the rectangles that this process's devices hold, and for
no others. The position is a row number, so any batch can be made by itself.
"""

import dataclasses
import functools
import time
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import grain
import jax
import numpy as np

from hpgrain import placement, shard, workers
from hpgrain.arguments import MAX_ROW, integer
from hpgrain.fields import FieldOptions
from hpgrain.slices import Slices
from hpgrain.token_rows import OpenRows

# What a batch's time goes to, in order.
STAGES = ("plan", "read", "place")

# What `Samples.place` says of rows whose number alone does not find them.
PLACE = ("window", "first_row")


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
  layout: shard.BatchLayout | shard.HostLayout,
  *,
  first_row: int,
  end_row: int | None,
  options: FieldOptions,
) -> tuple[list[dict[str, np.ndarray]], dict[str, float]]:
  """Makes the fields of the rectangles of one batch that are held here.

  Args:
    samples: the rows.
    layout: of the batch; shards of the same rows are next to each other.
    first_row: the global row that is the batch's row 0.
    end_row: the first global row there is none of; from it on rows are
      padding. None = endless.
    options: how fields are made.

  Returns:
    The fields of each shard, and seconds spent by stage.
  """
  seconds = dict.fromkeys(STAGES, 0.0)
  parts = []
  for rows, windows in layout.row_groups():
    began = time.perf_counter()
    begin, end = (first_row + row for row in rows)
    end = end if end_row is None else max(begin, min(end, end_row))
    opened = None
    if begin < end:
      opened = samples.open_rows(np.arange(begin, end, dtype=np.int64))
    read_began = time.perf_counter()
    slices = Slices(
      opened,
      context=layout.context,
      num_positions=layout.shape[1],
      num_rows=rows[1] - rows[0],
      windows=windows,
      options=options,
    )
    parts += [slices.fields(window) for window in windows]
    seconds["plan"] += read_began - began
    seconds["read"] += time.perf_counter() - read_began
  return parts, seconds


class HostBatch(NamedTuple):
  """A batch before it is placed.

  Attributes:
    layout: the number of its layout among the spec's.
    parts: the fields of each of that layout's shards.
    seconds: spent by stage.
    place: where packed rows are found again, as `Samples.place` has it; empty
      for rows that need no help.
  """

  layout: int
  parts: list[dict[str, np.ndarray]]
  seconds: dict[str, float]
  place: dict[str, int]


@dataclasses.dataclass(frozen=True)
class BatchSpec:
  """Everything that makes a loader's batches of rows by number.

  Attributes:
    samples: the rows.
    layout: how a batch lies on the mesh; layout.shape[0] rows a batch.
    options: how fields are made.
    first_row: the row a fresh iterator begins with.
    end_row: the first row there is none of; None = endless. Ask `end`.
    epochs: how many of the samples' epochs end there.
    end_is_known: whether `end_row` says it; if not, the samples are asked
      when it is needed, as that may measure all data.
    asked_only: whether rows end with those that Megatron's order was asked
      for, of the few more that its index has.
    pad_last: whether rows left at the end fill a last batch with padding;
      otherwise they are dropped.
    buckets: layouts of other numbers of positions, the least first and
      `layout` among them, of which a batch takes the first that holds it.
      Empty: every batch has `layout`.
  """

  samples: Samples
  layout: shard.BatchLayout | shard.HostLayout
  options: FieldOptions
  first_row: int = 0
  end_row: int | None = None
  epochs: int | None = None
  asked_only: bool = False
  pad_last: bool = False
  end_is_known: bool = True
  buckets: tuple[shard.BatchLayout | shard.HostLayout, ...] = ()

  @functools.cached_property
  def end(self) -> int | None:
    """The first row there is none of; None = endless."""
    if self.end_is_known:
      return self.end_row
    return find_end(self.samples, epochs=self.epochs, asked_only=False)

  @property
  def layouts(self) -> tuple[shard.BatchLayout, ...]:
    """All layouts that a batch may have."""
    return self.buckets or (self.layout,)

  def with_num_samples(self, num_samples: int | None) -> "BatchSpec":
    """Returns the same batches of rows in Megatron's order for so many."""
    samples: Any = self.samples
    samples = samples.with_num_samples(num_samples)
    end_row = find_end(samples, epochs=self.epochs, asked_only=self.asked_only)
    return dataclasses.replace(self, samples=samples, end_row=end_row)

  def recorded(
    self, state: Mapping[str, Any], *, asked_rows: int | None
  ) -> "BatchSpec":
    """Returns the batches in the order that a state's first start made.

    Args:
      state: a loader's.
      asked_rows: rows that the run asks for, where it leaves the order's
        length to the first start; None: it does not.

    Raises:
      ValueError: if the run asks for more rows than that order was made for.
    """
    saved = state.get("num_samples")
    if asked_rows is None or saved is None:
      return self
    saved = integer("A loader state's num_samples", saved, minimum=0)
    if asked_rows > saved:
      raise ValueError(
        f"This run was started for {saved} rows, and {asked_rows} are"
        ' asked for now. order="megatron" depends on how many are asked for,'
        " so it cannot be made longer: lower training.train_iters, or set"
        f" training.train_samples={saved} to end with those rows, or begin a"
        ' new run with more of them. order="stable" knows no end.'
      )
    if saved == getattr(self.samples, "num_samples", None):
      return self
    return self.with_num_samples(saved)

  def until_end(self, batches: grain.DatasetIterator) -> grain.DatasetIterator:
    """Returns the batches as they are: they end by themselves."""
    return batches

  def on_host(self) -> "BatchSpec":
    """Returns the same without devices, for processes that have none."""
    return dataclasses.replace(
      self,
      layout=self.layout.without_devices(),
      buckets=tuple(layout.without_devices() for layout in self.buckets),
    )

  def host_batches(self, num_workers: int = 0) -> grain.IterDataset:
    """Returns the batches before they are placed, made by so many workers."""
    made: grain.IterDataset = HostBatches(self.on_host())
    if num_workers:
      made = made.pipe(workers.WorkerBatches, num_workers=num_workers)
    return made

  def placed(self, batches: grain.IterDataset) -> grain.IterDataset:
    """Returns `host_batches` as (fields, seconds by stage)."""
    return batches.map(Placing(self.layouts))

  def counters(self, batches: grain.IterDataset, rows: int) -> dict[str, Any]:
    """Returns what became of the tokens of the first rows, where it is known.

    Args:
      batches: what `host_batches` returned.
      rows: handed out so far.
    """
    del batches
    samples: Any = self.samples
    return samples.counters(rows) if hasattr(samples, "counters") else {}

  def position(self, state: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a loader's state says of where the iterator stands.

    Raises:
      ValueError: it says nothing that could be.
    """
    rows = integer(
      "A loader state's rows", state["rows"], minimum=0, maximum=MAX_ROW
    )
    place = {
      name: integer(
        f"A loader state's {name}", state.get(name), minimum=0, maximum=MAX_ROW
      )
      for name in self.first_place()
    }
    return {"rows": rows, **place}

  def take(self, first_row: int) -> HostBatch | None:
    """Makes the batch whose first row is given; None past the end."""
    after = first_row + self.layout.shape[0]
    end = self._end_before(after)
    if end is not None:
      if not self.pad_last and after > end:
        return None
      if first_row >= end:
        return None
      after = min(after, end)
    chosen = 0
    if self.buckets:
      samples: Any = self.samples
      positions = samples.row_positions(
        np.arange(first_row, after, dtype=np.int64)
      )
      fits = [layout.shape[1] >= positions for layout in self.buckets]
      chosen = fits.index(True)
    parts, seconds = make_shards(
      self.samples,
      self.layouts[chosen],
      first_row=first_row,
      end_row=end,
      options=self.options,
    )
    return HostBatch(chosen, parts, seconds, self._place(after - 1))

  def _end_before(self, after: int) -> int | None:
    """Returns the first row there is none of, where it is before a row.

    Packed rows are not counted to their end for it, but as they are needed.
    """
    if self.end_is_known:
      return self.end_row
    samples: Any = self.samples
    return None if samples.reaches(after - 1) else self.end

  def _place(self, row: int) -> dict[str, int]:
    samples: Any = self.samples
    if not hasattr(samples, "place"):
      return {}
    return dict(zip(PLACE, samples.place(row)))

  def first_place(self) -> dict[str, int]:
    """Returns what is known of it before a row is planned."""
    return dict.fromkeys(PLACE, 0) if hasattr(self.samples, "place") else {}

  def after(self, first_row: int) -> int:
    """Returns the row after the batch whose first row is given."""
    after = first_row + self.layout.shape[0]
    end = self._end_before(after)
    return after if end is None else min(after, end)


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


class HostBatches(grain.IterDataset):
  """The batches, one at a time, not yet on devices."""

  def __init__(
    self,
    spec: BatchSpec,
    *,
    start: Mapping[str, int] | None = None,
    every: int = 1,
  ):
    """Holds what makes them.

    Args:
      spec: the batches.
      start: the state to begin at; None = the spec's first row.
      every: of so many batches, the first one.
    """
    super().__init__()
    self._spec, self._start, self._every = spec, start, every

  def __iter__(self) -> "_HostBatchIterator":
    iterator = _HostBatchIterator(self._spec, every=self._every)
    if self._start is not None:
      iterator.set_state(dict(self._start))
    return iterator

  def shared_out(
    self, state: Mapping[str, int], num_workers: int
  ) -> list["HostBatches"]:
    """Returns every `num_workers`-th batch from a state on, for each."""
    samples: Any = self._spec.samples
    if hasattr(samples, "measure"):
      # Once here, instead of by every worker for itself.
      samples.measure()
    num_rows = self._spec.layout.shape[0]
    return [
      HostBatches(
        self._spec,
        start={**state, "rows": state["rows"] + worker * num_rows},
        every=num_workers,
      )
      for worker in range(num_workers)
    ]

  def state_after(
    self, state: Mapping[str, int], batch: HostBatch
  ) -> dict[str, int]:
    """Returns the state after the batch that follows a state."""
    return {"rows": self._spec.after(state["rows"]), **batch.place}

  def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
    """Refuses: rows come in one order, which a slice would break."""
    workers.refuse_slice(sl, sequential_slice)


class _HostBatchIterator(grain.DatasetIterator):
  """Makes batch after batch; its position is a row number.

  Its state holds little more: Grain copies it for every prefetched batch.
  """

  def __init__(self, spec: BatchSpec, *, every: int):
    super().__init__()
    self._spec, self._every = spec, every
    self._row = spec.first_row
    self._place = spec.first_place()

  def __next__(self) -> HostBatch:
    batch = self._spec.take(self._row)
    if batch is None:
      raise StopIteration
    self._place = batch.place
    num_rows = self._spec.layout.shape[0]
    self._row = self._spec.after(self._row + (self._every - 1) * num_rows)
    return batch

  def get_state(self) -> dict[str, int]:
    return {"rows": self._row, **self._place}

  def set_state(self, state: dict[str, int]) -> None:
    self._row = state["rows"]
    self._place = {name: state[name] for name in self._place}
    if self._place:
      samples: Any = self._spec.samples
      samples.seek(*self._place.values())


class Placing:
  """Puts batches on their devices; what `grain.IterDataset.map` is given."""

  def __init__(self, layouts: tuple[shard.BatchLayout, ...]):
    """Holds the layouts that batches have."""
    self._layouts = layouts

  def __call__(
    self, batch: HostBatch
  ) -> tuple[dict[str, jax.Array], dict[str, float]]:
    """Returns the fields as global arrays, and seconds by stage."""
    began = time.perf_counter()
    placed = placement.place(self._layouts[batch.layout], batch.parts)
    seconds = dict(batch.seconds, place=time.perf_counter() - began)
    return placed, seconds
