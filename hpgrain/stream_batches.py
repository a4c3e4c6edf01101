r"""Row streams in, global batches one after another out.

  rows [row, row + B) of V streams -> those that this process's devices hold
                                   -> fields -> place -> stop at the end

Row g is the next of stream g % V, so which streams a process runs follows from
the rows it holds. Where the data end, no process knows the others' streams:
each batch says for its rows whether their streams go on, and a sum over all of
them, taken inside `jit` by whoever asks for batches, says it for all alike.
"""

import dataclasses
import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import grain
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from hpgrain import shard
from hpgrain.arguments import MAX_ROW, integer
from hpgrain.batches import STAGES
from hpgrain.fields import FieldOptions

if TYPE_CHECKING:
  from hpgrain.streams import StreamReader, StreamRows

# Of a state, what each process adds: where its streams are.
STREAM_PARTS = "parts"

# How far the stream of a batch's row goes.
_ENDED, _GOES_ON, _HAS_ROW = 0, 1, 2


class StreamBatch(NamedTuple):
  """A batch before it is placed.

  Attributes:
    parts: the fields of each of the layout's shards.
    left: int32[rows] of each shard, how far its rows' streams go.
    seconds: spent by stage.
  """

  parts: list[dict[str, np.ndarray]]
  left: list[np.ndarray]
  seconds: dict[str, float]


@dataclasses.dataclass(frozen=True)
class StreamSpec:
  """Everything that makes a loader's batches of row streams.

  Attributes:
    samples: the streams.
    layout: how a batch lies on the mesh; layout.shape[0] rows a batch.
    options: how fields are made.
    first_row: the row a fresh iterator begins with; those before it are made
      and left out.
    epochs: how many epochs there are; None = for ever.
    pad_last: whether batches go on, with padding, until no stream has a row;
      otherwise they end before the first that is not full.
  """

  samples: "StreamRows"
  layout: shard.BatchLayout
  options: FieldOptions
  first_row: int = 0
  epochs: int | None = None
  pad_last: bool = False

  # Where the rows end is not known beforehand.
  end_row = None

  def batches(self, num_workers: int = 0) -> grain.IterDataset:
    """Returns the batches, each (fields, seconds by stage, left)."""
    del num_workers
    return StreamBatches(self).map(_Placing(self.layout))

  def until_end(self, batches: grain.DatasetIterator) -> grain.DatasetIterator:
    """Returns an iterator that ends where the data do, on all processes."""
    if self.epochs is None:
      return batches
    return UntilEnd(batches, full=not self.pad_last)

  def position(self, state: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a loader's state says of where the iterator stands.

    Raises:
      ValueError: it says nothing that could be.
    """
    rows = integer(
      "A loader state's rows", state["rows"], minimum=0, maximum=MAX_ROW
    )
    return {"rows": rows, STREAM_PARTS: self._parts(state)}

  @staticmethod
  def _parts(state: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    parts = state.get(STREAM_PARTS)
    if not isinstance(parts, list) or not all(
      isinstance(part, Mapping) for part in parts
    ):
      raise ValueError(
        "A state of row streams has a list of every process's streams,"
        f" 'parts'; got {parts!s:.200}."
      )
    return parts

  def recorded(
    self, state: Mapping[str, Any], *, asked_rows: int | None
  ) -> "StreamSpec":
    """Returns the batches of as many streams as a state's first start had.

    Raises:
      ValueError: the state says no such number.
    """
    del asked_rows
    numbers = {part.get("num_streams") for part in self._parts(state)}
    if not numbers:
      return self
    if len(numbers) > 1:
      raise ValueError(
        f"The parts of a state have unlike numbers of streams: {numbers}. They"
        " are not of one save; restore an earlier one."
      )
    saved = integer(
      "A loader state's num_streams", numbers.pop(), minimum=1, maximum=MAX_ROW
    )
    if saved == self.samples.num_streams:
      return self
    samples = self.samples.with_num_streams(saved)
    return dataclasses.replace(self, samples=samples)

  def held_streams(self, first_row: int) -> list[int]:
    """Returns the streams of whose rows this process's devices hold any.

    Row r of a batch, of those from `first_row` on, is of the streams r, r + B,
    r + 2 B, ... modulo their number V, those that leave the same remainder by
    gcd(B, V).
    """
    rows = {row for part in self.layout.shards for row in range(*part.rows)}
    held = {(first_row + row) % self.turn for row in rows}
    return [v for v in range(self.samples.num_streams) if v % self.turn in held]

  @property
  def turn(self) -> int:
    """A row of a batch has streams of one remainder by this number."""
    return math.gcd(self.layout.shape[0], self.samples.num_streams)


class StreamBatches(grain.IterDataset):
  """The batches, one at a time, not yet on devices."""

  def __init__(self, spec: StreamSpec):
    """Holds what makes them."""
    super().__init__()
    self._spec = spec

  def __iter__(self) -> "_StreamBatchIterator":
    return _StreamBatchIterator(self._spec)

  def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
    """Refuses: rows come in one order, which a slice would break."""
    del sl, sequential_slice
    raise ValueError(
      "A loader's batches are not sliced. Use dataloader.num_workers for"
      " worker processes."
    )


class _StreamBatchIterator(grain.DatasetIterator):
  """Makes batch after batch; its position is a row number and its streams'."""

  def __init__(self, spec: StreamSpec):
    super().__init__()
    self._spec = spec
    self._begin(spec.first_row)

  def _begin(self, row: int) -> None:
    self._row = row
    self._streams = self._spec.held_streams(row)
    self._reader: StreamReader = self._spec.samples.open(self._streams)

  def __next__(self) -> StreamBatch:
    spec = self._spec
    seconds = dict.fromkeys(STAGES, 0.0)
    parts: list[dict[str, np.ndarray]] = []
    left: list[np.ndarray] = []
    planned: tuple[int, int] | None = None
    for part in spec.layout.shards:
      began = time.perf_counter()
      if part.rows != planned:
        planned = part.rows
        numbers = np.arange(*planned, dtype=np.int64) + self._row
        opened = self._reader.rows(numbers)
        goes_on = self._goes_on(planned, opened.filled)
      planned_at = time.perf_counter()
      num_rows = part.rows[1] - part.rows[0]
      parts.append(
        opened.fields(part.window, num_rows=num_rows, options=spec.options)
      )
      left.append(goes_on)
      seconds["plan"] += planned_at - began
      seconds["read"] += time.perf_counter() - planned_at
    self._row += spec.layout.shape[0]
    return StreamBatch(parts, left, seconds)

  def _goes_on(self, rows: tuple[int, int], filled: np.ndarray) -> np.ndarray:
    """Returns int32[n], how far the streams of some rows of a batch go.

    Of a row that is there it need not be known. Of another all streams are
    asked that ever have a row in its place.
    """
    goes_on = np.where(filled, _HAS_ROW, _ENDED).astype(np.int32)
    step = self._spec.turn
    for i in np.flatnonzero(~filled).tolist():
      place = (self._row + rows[0] + i) % step
      turn = [v for v in self._streams if v % step == place]
      if self._reader.rows_left(turn).any():
        goes_on[i] = _GOES_ON
    return goes_on

  def get_state(self) -> dict[str, Any]:
    return {"rows": self._row, STREAM_PARTS: [self._reader.state()]}

  def set_state(self, state: dict[str, Any]) -> None:
    self._reader.close()
    self._begin(state["rows"])
    if state[STREAM_PARTS]:
      self._reader.restore(state[STREAM_PARTS])

  def close(self) -> None:
    """Closes the sources."""
    self._reader.close()
    super().close()


class _Placing:
  """Puts batches, and how far their streams go, on their devices."""

  def __init__(self, layout: shard.BatchLayout):
    self._layout = layout
    rows = PartitionSpec(layout.sharding.spec[0])
    self._rows = NamedSharding(layout.sharding.mesh, rows)

  def __call__(
    self, batch: StreamBatch
  ) -> tuple[dict[str, jax.Array], dict[str, float], jax.Array]:
    began = time.perf_counter()
    placed = shard.place(self._layout, batch.parts)
    held = {
      part.rows[0]: values
      for part, values in zip(self._layout.shards, batch.left)
    }
    left = jax.make_array_from_callback(
      self._layout.shape[:1],
      self._rows,
      lambda index: held[index[0].start or 0],
      dtype=np.int32,
    )
    seconds = dict(batch.seconds, place=time.perf_counter() - began)
    return placed, seconds, left


@jax.jit
def _count(left: jax.Array) -> tuple[jax.Array, jax.Array]:
  """Returns how many rows' streams go on, and how many rows are there."""
  return jnp.sum(left != _ENDED), jnp.sum(left == _HAS_ROW)


class UntilEnd(grain.DatasetIterator):
  """Ends where no stream of any process has a row.

  It holds the batch after the one that was handed out last: the sum over its
  rows is there by the time that it is asked for. All processes must ask in
  the same order, on the thread that runs their steps.
  """

  def __init__(self, batches: grain.DatasetIterator, *, full: bool):
    """Takes the batches.

    Args:
      batches: of (fields, seconds, left).
      full: end before the first batch that lacks a row.
    """
    super().__init__(batches)
    self._full = full
    self._state = batches.get_state()
    self._ahead: tuple[Any, ...] | None = None

  def __next__(self) -> tuple[dict[str, jax.Array], dict[str, float]]:
    if self._ahead is None:
      self._ahead = self._pull()
    batch, (going_on, there), state = self._ahead
    if not int(going_on):
      raise StopIteration
    if self._full and int(there) < len(batch[2]):
      raise StopIteration
    self._ahead = self._pull()
    self._state = state
    return batch[:2]

  def _pull(self) -> tuple[Any, ...]:
    batch = next(self._parent)
    return batch, _count(batch[2]), self._parent.get_state()

  def get_state(self) -> dict[str, Any]:
    """Returns the state after the batch that was handed out last."""
    return self._state

  def set_state(self, state: dict[str, Any]) -> None:
    """Goes on from a state."""
    self._ahead = None
    self._parent.set_state(state)
    self._state = self._parent.get_state()
