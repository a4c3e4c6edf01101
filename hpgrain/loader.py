"""Samples and a batch layout in, the global batches of a run out.

  rows [row, row + B) -> plan -> read each shard's window -> fields -> place
  `------------------------ one prefetch thread ------------------------'

The loader's state is the number of global rows handed out. Whoever restores
it, on any mesh and any number of processes, goes on with the next row.
"""

import atexit
import dataclasses
import time
import weakref
from collections.abc import Mapping
from typing import Any, Protocol

import grain
import jax
import numpy as np

from hpgrain import batch, fingerprint, shard
from hpgrain.batch import FieldOptions
from hpgrain.records import RowPlans, Segments

STATE_VERSION = 1

_STAGES = ("plan", "read", "place")


class Samples(Protocol):
  """What a loader reads: rows by number."""

  seq_length: int
  rows_per_epoch: int
  sources: Any
  unique_identifiers: Mapping[str, Any]

  def plan_rows(self, rows: np.ndarray) -> RowPlans:
    """Plans rows."""
    ...

  def read(self, plans: RowPlans, window: tuple[int, int]) -> np.ndarray:
    """Reads a window of planned rows."""
    ...

  def segments(self, plans: RowPlans) -> Segments:
    """Returns where documents begin."""
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
  seconds = dict.fromkeys(_STAGES, 0.0)
  parts = []
  planned: tuple[int, int] | None = None
  plans = segments = None
  for part in shards:
    began = time.perf_counter()
    if part.rows != planned:
      begin, end = (first_row + row for row in part.rows)
      end = end if end_row is None else max(begin, min(end, end_row))
      plans = segments = None
      if begin < end:
        plans = samples.plan_rows(np.arange(begin, end, dtype=np.int64))
        segments = samples.segments(plans)
      planned = part.rows
    read_began = time.perf_counter()
    seconds["plan"] += read_began - began
    num_rows = part.rows[1] - part.rows[0]
    if plans is None or segments is None:
      parts.append(batch.make_padding(part.window, num_rows))
    else:
      parts.append(
        batch.make_fields(
          samples.read(plans, part.window),
          segments,
          window=part.window,
          seq_length=samples.seq_length,
          num_rows=num_rows,
          options=options,
        )
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
    pad_last: whether rows left at the end fill a last batch with padding;
      otherwise they are dropped.
  """

  samples: Samples
  layout: shard.BatchLayout
  options: FieldOptions
  first_row: int = 0
  end_row: int | None = None
  pad_last: bool = False


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


class _BatchIterDataset(grain.IterDataset):
  """The batches, one at a time, without prefetch."""

  def __init__(self, spec: BatchSpec):
    super().__init__()
    self._spec = spec

  def __iter__(self) -> _BatchIterator:
    return _BatchIterator(self._spec)


class Loader(grain.IterDataset):
  """The batches of one split; `iter(loader)` begins at its first row."""

  def __init__(self, spec: BatchSpec, *, prefetch: int = 2):
    """Holds what makes the batches; nothing is read before iteration.

    Args:
      spec: the batches.
      prefetch: how many batches a thread keeps ready; 0 makes each one when
        it is asked for.
    """
    super().__init__()
    if prefetch < 0:
      raise ValueError(f"prefetch must be at least 0, got {prefetch}.")
    self.spec = spec
    self._prefetch = prefetch

  def __iter__(self) -> "LoaderIterator":
    """Returns a fresh iterator."""
    identity = self.spec.samples.unique_identifiers
    grouped = fingerprint.parts(identity, self.spec.options)
    batches: grain.IterDataset = _BatchIterDataset(self.spec)
    if self._prefetch:
      batches = batches.pipe(
        grain.experimental.ThreadPrefetchIterDataset,
        prefetch_buffer_size=self._prefetch,
      )
    return LoaderIterator(iter(batches), grouped, self.spec)

  @property
  def samples(self) -> Samples:
    """The rows the batches are made of."""
    return self.spec.samples

  @property
  def labels_are_shifted(self) -> bool:
    """Whether labels[t] is the target at t; if not, the model must shift."""
    return self.spec.options.labels_are_shifted

  @property
  def num_steps(self) -> int | None:
    """Batches a fresh iterator yields; None = endless.

    Known from the corpus alone, so it is the same on every process.
    """
    spec = self.spec
    if spec.end_row is None:
      return None
    rows = max(spec.end_row - spec.first_row, 0)
    num_rows = spec.layout.shape[0]
    return -(-rows // num_rows) if spec.pad_last else rows // num_rows

  def epochs(self, rows: int) -> dict[str, float]:
    """Returns how often each source was read in the first `rows` rows."""
    samples = self.spec.samples
    counts = samples.rows_per_source(rows)
    members = getattr(samples, "members", (samples,))
    return {
      source.name: float(count) / member.rows_per_epoch
      for source, member, count in zip(samples.sources, members, counts)
      if member.rows_per_epoch
    }


# Iterators that nobody closed would be collected after the modules they need.
_open: "weakref.WeakSet[LoaderIterator]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
  for iterator in list(_open):
    iterator.close()
    iterator._parents = ()


class LoaderIterator(grain.DatasetIterator):
  """Hands out global batches and knows how long each was waited for.

  The state is that after the last batch handed out, whatever has been
  prefetched. Not to be shared between threads.
  """

  def __init__(
    self,
    parent: grain.DatasetIterator,
    parts: dict[str, dict[str, Any]],
    spec: BatchSpec,
  ):
    super().__init__(parent)
    self.parts = parts
    self._digests = fingerprint.digests(parts)
    self._spec = spec
    self._totals = dict.fromkeys(("wait", *_STAGES), 0.0)
    self._num_batches = 0
    self.last_times = dict.fromkeys(("wait", *_STAGES), 0.0)
    _open.add(self)

  def __next__(self) -> dict[str, jax.Array]:
    """Returns the next batch: the fields as [rows, positions] arrays.

    Raises:
      StopIteration: at the end of the data, at the same step on every
        process.
      ValueError: if the iterator was closed, or the data is not sound.
    """
    self._assert_not_closed()
    began = time.perf_counter()
    fields, seconds = next(self._parent)
    wait = time.perf_counter() - began
    self.last_times = {"wait": wait, **seconds}
    for name, value in self.last_times.items():
      self._totals[name] += value
    self._num_batches += 1
    return fields

  @property
  def rows(self) -> int:
    """Global rows handed out so far, padding rows not counted."""
    return self._parent.get_state()["rows"]

  def stats(self) -> dict[str, float]:
    """Returns counts since the iterator was made, times in seconds.

    `wait_seconds` is what the caller waited; the other stages ran behind it.
    """
    seconds = {f"{name}_seconds": s for name, s in self._totals.items()}
    return {"batches": self._num_batches, **seconds}

  def get_state(self) -> dict[str, Any]:
    """Returns {"version", "fingerprint", "rows"}: JSON, under 256 bytes."""
    return {
      "version": STATE_VERSION,
      "fingerprint": dict(self._digests),
      "rows": self.rows,
    }

  def set_state(self, state: dict[str, Any]) -> None:
    """Goes on after the rows of a state of this pipeline.

    Raises:
      ValueError: for a state that is none, of another version, or of a
        pipeline that makes other rows.
    """
    self.restore(state)

  def restore(
    self,
    state: dict[str, Any],
    saved_parts: Mapping[str, Any] | None = None,
  ) -> None:
    """Does what `set_state` does; a mismatch is told with `saved_parts`."""
    if not isinstance(state, Mapping) or not (
      {"version", "fingerprint", "rows"} <= state.keys()
    ):
      raise ValueError(
        'A loader state has the keys "version", "fingerprint" and "rows", got'
        f" {state!r}."
      )
    if state["version"] != STATE_VERSION:
      raise ValueError(
        f"This version reads loader states of version {STATE_VERSION}, got"
        f" {state['version']!r}."
      )
    fingerprint.check(state["fingerprint"], self.parts, saved_parts)
    rows = state["rows"]
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 0:
      raise ValueError(
        f"A loader state's rows is an integer from 0 on, got {rows!r}."
      )
    if self._spec.first_row:
      raise ValueError(
        f"dataloader.consumed_samples is {self._spec.first_row}, but a state"
        f" at row {rows} is restored: both say where to begin. Set"
        " consumed_samples to 0 when resuming from a checkpoint."
      )
    self._parent.set_state({"rows": rows})

  # Orbax's own way of saving a stateful object (its v1 API calls these).

  async def save(self, directory: Any) -> Any:
    """Writes this process's part of the state; see `checkpoint`."""
    from hpgrain import checkpoint

    return checkpoint.save_part(self, directory)

  async def load(self, directory: Any) -> Any:
    """Reads all parts of a state; see `checkpoint`."""
    from hpgrain import checkpoint

    return checkpoint.load_parts(self, directory)
