r"""Row streams in, global batches one after another out.

  rows [row, row + B) of V streams -> those that this process's devices hold
                                   -> fields -> place -> stop at the end

Row g is the next of stream g % V, so which streams a process runs follows from
the rows it holds; its worker processes share those out among them.
"""

import dataclasses
import logging
import math
import time
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import grain
import jax
import numpy as np

from hpgrain import placement, shard, workers
from hpgrain.arguments import MAX_ROW, integer
from hpgrain.batches import STAGES
from hpgrain.fields import FieldOptions, empty_fields
from hpgrain.slices import Slices
from hpgrain.stream_end import UntilEnd

if TYPE_CHECKING:
  from hpgrain.streams import StreamReader, StreamRows

_log = logging.getLogger(__name__)

# Of a state, what each process adds: where its streams are.
STREAM_PARTS = "parts"


class StreamBatch(NamedTuple):
  """The rows of a batch that some streams have, before they are placed.

  Attributes:
    parts: the fields of each of the layout's shards: those of its rows that
      are of these streams.
    left: int32[rows] of each shard, whether these streams go on; see
      `stream_end`.
    seconds: spent by stage.
    state: of the streams, after the batch.
  """

  parts: list[dict[str, np.ndarray]]
  left: list[np.ndarray]
  seconds: dict[str, float]
  state: Any


@dataclasses.dataclass(frozen=True)
class StreamSpec:
  """Everything that makes a loader's batches of row streams.

  Attributes:
    samples: the streams.
    layout: how a batch lies on the mesh; layout.shape[0] rows a batch.
    options: how fields are made.
    first_row: the row a fresh iterator begins with; those before it are made
      and left out.
    epochs: how many epochs there are; None = for ever. Streams do not end
      together, so the last batches have rows of padding.
  """

  samples: "StreamRows"
  layout: shard.BatchLayout | shard.HostLayout
  options: FieldOptions
  first_row: int = 0
  epochs: int | None = None

  # Where the rows end is not known beforehand.
  end = None

  def host_batches(self, num_workers: int = 0) -> "StreamBatches":
    """Returns the batches before they are placed, made by so many workers."""
    return StreamBatches(self.on_host(), num_workers=num_workers)

  def placed(self, batches: grain.IterDataset) -> grain.IterDataset:
    """Returns `host_batches` as (fields, seconds by stage, left)."""
    return batches.map(_Placing(self.layout))

  def counters(self, batches: "StreamBatches", rows: int) -> dict[str, Any]:
    """Returns what became of the tokens of this process's streams.

    Args:
      batches: what `host_batches` returned.
      rows: handed out so far. What is made ahead is counted, too.
    """
    del rows
    return batches.counters()

  def on_host(self) -> "StreamSpec":
    """Returns the same without devices, for processes that have none."""
    return dataclasses.replace(self, layout=self.layout.without_devices())

  def until_end(self, batches: grain.DatasetIterator) -> grain.DatasetIterator:
    """Returns an iterator that ends where the data do, on all processes."""
    if self.epochs is None:
      return batches
    return UntilEnd(batches)

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
    if STREAM_PARTS not in state:
      # Of rows by number, say: the fingerprint tells.
      return self
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

  def say_what_is_made_in_vain(self) -> None:
    """Warns if this process would make rows that its devices do not hold."""
    num_rows, num_streams = self.layout.shape[0], self.samples.num_streams
    rows = {row for part in self.layout.shards for row in range(*part.rows)}
    held = len(self.held_streams(self.first_row))
    if held * num_rows <= len(rows) * num_streams:
      return
    _log.warning(
      "dataloader.num_streams=%d is no multiple of the %d rows of a batch, so"
      " this process tokenizes %d of %d streams to use %d of %d rows. Take a"
      " multiple, such as %d, for a new run; a run that goes on keeps its own.",
      num_streams,
      num_rows,
      held,
      num_streams,
      len(rows),
      num_rows,
      -(-num_streams // num_rows) * num_rows,
    )

  def held_streams(self, first_row: int) -> list[int]:
    """Returns the streams of whose rows this process's devices hold any.

    Row r of a batch, of those from `first_row` on, is of the streams r, r + B,
    r + 2 B, ... modulo their number V, those that leave the same remainder by
    gcd(B, V).
    """
    rows = {row for part in self.layout.shards for row in range(*part.rows)}
    turn = self.turn
    held = {(first_row + row) % turn for row in rows}
    return [v for v in range(self.samples.num_streams) if v % turn in held]

  @property
  def turn(self) -> int:
    """A row of a batch has streams of one remainder by this number."""
    return math.gcd(self.layout.shape[0], self.samples.num_streams)


class StreamBatches(grain.IterDataset):
  """The batches, one at a time, not yet on devices."""

  def __init__(self, spec: StreamSpec, *, num_workers: int = 0):
    """Holds what makes them.

    Args:
      spec: the batches.
      num_workers: processes that share out the streams; 0 makes them here.
    """
    super().__init__()
    self._spec, self._num_workers = spec, num_workers
    # Held weakly, so that an iterator that nobody has is gone.
    self._newest: weakref.ref[_StreamBatchIterator] | None = None

  def __iter__(self) -> "_StreamBatchIterator":
    iterator = _StreamBatchIterator(self._spec, self._num_workers)
    self._newest = weakref.ref(iterator)
    return iterator

  def __getstate__(self) -> dict[str, Any]:
    """Leaves the iterator out."""
    return {**self.__dict__, "_newest": None}

  def counters(self) -> dict[str, Any]:
    """Returns sums of the newest iterator since it began or was restored.

    See `StreamReader.counters`. Of worker processes nothing is known: {}.
    """
    newest = None if self._newest is None else self._newest()
    return {} if newest is None else newest.counters()

  def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
    """Refuses: rows come in one order, which a slice would break."""
    workers.refuse_slice(sl, sequential_slice)


class _StreamBatchIterator(grain.DatasetIterator):
  """Joins what shares of the streams make."""

  def __init__(self, spec: StreamSpec, num_workers: int):
    super().__init__()
    self._spec, self._num_workers = spec, num_workers
    self._shares: list[Any] = []
    self._begin({"rows": spec.first_row, STREAM_PARTS: []})

  def _begin(self, state: Mapping[str, Any]) -> None:
    self._end_shares()
    held = self._spec.held_streams(state["rows"])
    num_shares = max(self._num_workers, 1)
    self._owner = {v: i % num_shares for i, v in enumerate(held)}
    self._row = state["rows"]
    self._datasets = [
      _Share(self._spec, held[i::num_shares], state) for i in range(num_shares)
    ]
    if self._num_workers:
      self._states = [dataset.first_state() for dataset in self._datasets]
      return
    (share,) = self._shares = [iter(self._datasets[0])]
    self._states = [share.get_state()]

  def __next__(self) -> StreamBatch:
    if not self._shares:
      self._shares = workers.start(self._datasets)
    if self._num_workers:
      made = [workers.take(share) for share in self._shares]
    else:
      made = [next(share) for share in self._shares]
    self._states = [batch.state for batch in made]
    joined = made[0] if len(made) == 1 else self._joined(made)
    self._row += self._spec.layout.shape[0]
    return joined

  def counters(self) -> dict[str, Any]:
    """Returns the reader's, if it is in this process."""
    if self._num_workers or not self._shares:
      return {}
    return self._shares[0].counters()

  def _joined(self, made: Sequence[StreamBatch]) -> StreamBatch:
    """Returns a batch whose rows several shares have."""
    num_streams = self._spec.samples.num_streams
    parts, left = [], []
    for i, part in enumerate(self._spec.layout.shards):
      rows = np.arange(*part.rows) + self._row
      owner = np.array([self._owner[v] for v in (rows % num_streams).tolist()])
      fields = empty_fields(
        len(rows), part.window[1] - part.window[0], self._spec.options.dtypes
      )
      for name, values in fields.items():
        for number, batch in enumerate(made):
          values[owner == number] = batch.parts[i][name]
      parts.append(fields)
      left.append(np.max([batch.left[i] for batch in made], axis=0))
    seconds = {
      stage: max(batch.seconds[stage] for batch in made) for stage in STAGES
    }
    return StreamBatch(parts, left, seconds, None)

  def get_state(self) -> dict[str, Any]:
    return {"rows": self._row, STREAM_PARTS: [_one_state(self._states)]}

  def set_state(self, state: dict[str, Any]) -> None:
    self._begin(state)

  def _end_shares(self) -> None:
    workers.close(self._shares)
    self._shares = []

  def close(self) -> None:
    """Closes the sources, and ends the workers."""
    self._end_shares()
    super().close()


def _one_state(states: Sequence[dict[str, Any]]) -> dict[str, Any]:
  """Returns what one process would say that held all shares' streams."""
  # The sources' oldest place serves every stream.
  oldest = min(states, key=lambda state: state["sources_at"])
  streams = {
    v: entry for state in states for v, entry in state["streams"].items()
  }
  order = sorted(streams, key=int)
  return {**oldest, "streams": {v: streams[v] for v in order}}


class _Share(grain.IterDataset):
  """The rows of every batch that some streams have."""

  def __init__(
    self, spec: StreamSpec, streams: Sequence[int], state: Mapping[str, Any]
  ):
    super().__init__()
    self._spec, self._streams, self._state = spec, list(streams), state

  def __iter__(self) -> "_ShareIterator":
    return _ShareIterator(self._spec, self._streams, self._state)

  def first_state(self) -> Any:
    """Returns the state that its iterator begins with."""
    share = iter(self)
    state = share.get_state()
    share.close()
    return state


class _ShareIterator(grain.DatasetIterator):
  """Makes a share's rows of batch after batch."""

  def __init__(
    self, spec: StreamSpec, streams: list[int], state: Mapping[str, Any]
  ):
    super().__init__()
    self._spec, self._streams = spec, streams
    self._row = state["rows"]
    self._reader: StreamReader = spec.samples.open(streams)
    if state[STREAM_PARTS]:
      self._reader.restore(state[STREAM_PARTS])

  def __next__(self) -> StreamBatch:
    spec = self._spec
    seconds = dict.fromkeys(STAGES, 0.0)
    parts: list[dict[str, np.ndarray]] = []
    left: list[np.ndarray] = []
    for held, windows in spec.layout.row_groups():
      began = time.perf_counter()
      rows = np.arange(*held, dtype=np.int64) + self._row
      mine = np.isin(rows % spec.samples.num_streams, self._streams)
      opened = self._reader.rows(rows[mine])
      goes_on = self._goes_on(rows, mine, opened.filled)
      planned_at = time.perf_counter()
      slices = Slices(
        opened,
        context=spec.layout.context,
        num_positions=spec.layout.shape[1],
        num_rows=int(mine.sum()),
        windows=windows,
        options=spec.options,
      )
      parts += [slices.fields(window) for window in windows]
      left += [goes_on] * len(windows)
      seconds["plan"] += planned_at - began
      seconds["read"] += time.perf_counter() - planned_at
    self._row += spec.layout.shape[0]
    return StreamBatch(parts, left, seconds, self._reader.state())

  def _goes_on(
    self, rows: np.ndarray, mine: np.ndarray, filled: np.ndarray
  ) -> np.ndarray:
    """Returns int32[n], whether this share's streams go on in rows' places.

    Of a row that is there it need not be known. For another all streams are
    asked that ever have a row in its place, from this batch on.
    """
    goes_on = np.zeros(len(rows), np.int32)
    if self._spec.epochs is None:
      return goes_on
    goes_on[mine] = filled
    turn = self._spec.turn
    for i in np.flatnonzero(goes_on == 0).tolist():
      streams = [v for v in self._streams if v % turn == rows[i] % turn]
      goes_on[i] = (
        bool(streams)
        and self._reader.rows_left(streams, first_row=self._row).any()
      )
    return goes_on

  def counters(self) -> dict[str, Any]:
    """Returns the reader's."""
    return self._reader.counters()

  def get_state(self) -> Any:
    return self._reader.state()

  def set_state(self, state: Any) -> None:
    raise ValueError(f"A share of streams begins where it is made, got {state}")

  def close(self) -> None:
    """Closes the sources."""
    self._reader.close()
    super().close()


class _Placing:
  """Puts batches, and whether their streams go on, on their devices."""

  def __init__(self, layout: shard.BatchLayout):
    self._layout = layout

  def __call__(
    self, batch: StreamBatch
  ) -> tuple[dict[str, jax.Array], dict[str, float], jax.Array]:
    began = time.perf_counter()
    placed = placement.place(self._layout, batch.parts)
    left = placement.place_rows(self._layout, batch.left)
    seconds = dict(batch.seconds, place=time.perf_counter() - began)
    return placed, seconds, left
