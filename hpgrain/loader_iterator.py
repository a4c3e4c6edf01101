r"""Batches in, those of a run out: prefetched, counted, with a state.

  batches  ->  a thread that keeps some ready  ->  exchange, if any  ->  next

The state is the number of global rows handed out, and what little else finds
the next one. Whoever restores it, on any mesh and any number of processes,
goes on with the next row.
"""

import atexit
import time
import weakref
from collections.abc import Mapping
from typing import Any

import grain
import jax

from hpgrain import fingerprint, reshard
from hpgrain.batches import STAGES, BatchSpec
from hpgrain.stream_batches import StreamSpec

STATE_VERSION = 1

# What a batch's time goes to: the caller's wait for it and, where replicas are
# split, the issuing of their exchange; behind the wait what others do.
_TIMES = ("wait", *STAGES, "exchange")

# What makes a loader's batches: rows by number, or row streams.
Spec = BatchSpec | StreamSpec


def epochs_read(samples: Any, rows: int) -> dict[str, float]:
  """Returns how often each source was read in the first `rows` rows."""
  if not hasattr(samples, "rows_per_source"):
    # Of streams no process knows the others'.
    return {}
  counts = samples.rows_per_source(rows)
  members = getattr(samples, "members", (samples,))
  return {
    source.name: float(count) / member.rows_per_pass
    for source, member, count in zip(samples.sources, members, counts)
    if member.rows_per_pass
  }


def _prefetched(
  batches: grain.IterDataset, prefetch: int
) -> grain.DatasetIterator:
  """Returns an iterator over the batches, made ahead by a thread."""
  if prefetch:
    batches = batches.pipe(
      grain.experimental.ThreadPrefetchIterDataset,
      prefetch_buffer_size=prefetch,
    )
  return iter(batches)


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
    spec: Spec,
    *,
    prefetch: int,
    asked_rows: int | None = None,
    num_workers: int = 0,
    exchange: reshard.Exchange | None = None,
  ):
    """Begins at the spec's first row; the arguments are `Loader`'s.

    `exchange` is what brings a batch's rows to where they are wanted.
    """
    self._prefetch, self._num_workers = prefetch, num_workers
    self._exchange = exchange
    super().__init__(self._begin(spec))
    self._asked_rows = asked_rows
    self._take(spec)
    self._totals = dict.fromkeys(_TIMES, 0.0)
    self._num_batches = 0
    self.last_times = dict.fromkeys(_TIMES, 0.0)
    _open.add(self)

  def _begin(self, spec: Spec) -> grain.DatasetIterator:
    """Returns an iterator over the batches that stands at the first one."""
    self._made = spec.host_batches(self._num_workers)
    return spec.until_end(_prefetched(spec.placed(self._made), self._prefetch))

  def _take(self, spec: Spec) -> None:
    """Makes `spec` what this iterator's state is about."""
    self._spec = spec
    identity = spec.samples.unique_identifiers
    self.parts = fingerprint.parts(identity, spec.options)
    self._digests = fingerprint.digests(self.parts)

  def __next__(self) -> dict[str, jax.Array]:
    """Returns the next batch: the fields as [rows, positions] arrays.

    Raises:
      StopIteration: at the end of the data, at the same step on every
        process.
      ValueError: if the iterator was closed, or the data is not sound.
    """
    self._assert_not_closed()
    began = time.perf_counter()
    fields, seconds = next(self._parent)[:2]
    wait, exchange = time.perf_counter() - began, 0.0
    if self._exchange is not None:
      # Here and in no thread: processes that issue what they run together in
      # different orders wait for each other for ever. No part of the wait:
      # CPU devices let nobody issue it before the step before is done.
      issued = time.perf_counter()
      fields = self._exchange(fields)
      exchange = time.perf_counter() - issued
    self.last_times = {"wait": wait, **seconds, "exchange": exchange}
    for name, value in self.last_times.items():
      self._totals[name] += value
    self._num_batches += 1
    return fields

  @property
  def rows(self) -> int:
    """Global rows handed out so far, padding rows not counted.

    Of row streams they are: where the next row of its stream is padding, is
    no other process's to know.
    """
    return self._parent.get_state()["rows"]

  @property
  def spec(self) -> Spec:
    """What makes the batches, as a restored state has it."""
    return self._spec

  def epochs(self, rows: int) -> dict[str, float]:
    """Returns how often each source was read in the first `rows` rows.

    As `Loader.epochs`, of the rows that this iterator reads: a restored state
    may say for how many rows Megatron's order was made.
    """
    return epochs_read(self._spec.samples, rows)

  def stats(self) -> dict[str, float]:
    """Returns counts since the iterator was made, times in seconds.

    `wait_seconds` is what the caller waited for data; the stages plan, read
    and place ran behind it. `exchange_seconds`, no part of it, is what sending
    rows of split replicas on their way took: devices move them before the next
    step, and on CPU devices this includes waiting for the step before.
    """
    seconds = {f"{name}_seconds": s for name, s in self._totals.items()}
    return {"batches": self._num_batches, **seconds}

  def counters(self) -> dict[str, Any]:
    """Returns what became of the tokens so far; {} where rows are only cut.

    `sources` has by name `tokens_read`, which are `tokens` and the sum of
    `tokens_dropped`; `padded` is the positions that hold none. Of plans they
    are those of all rows handed out, of row streams those of this process's
    streams since it began or was restored.
    """
    spec: Any = self._spec
    return spec.counters(self._made, self.rows)

  def get_state(self) -> dict[str, Any]:
    """Returns {"version", "fingerprint", "rows"}: JSON, and no token.

    Written compactly it has under 256 bytes, but for row streams. In
    Megatron's order also "num_samples": what its index was made for. Of packed
    rows also "window" and "first_row", where to look for them; of row streams
    "parts", where this process's streams are.
    """
    state = {
      "version": STATE_VERSION,
      "fingerprint": dict(self._digests),
      **self._parent.get_state(),
    }
    if self._num_samples is not None:
      state["num_samples"] = self._num_samples
    return state

  @property
  def _num_samples(self) -> int | None:
    return getattr(self._spec.samples, "num_samples", None)

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
    self._adopt(state)
    fingerprint.check(state["fingerprint"], self.parts, saved_parts)
    position = self._spec.position(state)
    if self._spec.first_row:
      raise ValueError(
        f"dataloader.consumed_samples is {self._spec.first_row}, but a state"
        f" at row {position['rows']} is restored: both say where to begin. Set"
        " consumed_samples to 0 when resuming from a checkpoint."
      )
    self._parent.set_state(position)

  def _adopt(self, state: Mapping[str, Any]) -> None:
    """Goes on with the rows that the first start made, where it was left open.

    Raises:
      ValueError: if the run asks for more rows than that order was made for.
    """
    spec = self._spec.recorded(state, asked_rows=self._asked_rows)
    if spec is self._spec:
      return
    self._parent.close()
    self._parents = (self._begin(spec),)
    self._take(spec)

  # Orbax's own way of saving a stateful object (its v1 API calls these).

  async def save(self, directory: Any) -> Any:
    """Writes this process's part of the state; see `checkpoint`."""
    from hpgrain import checkpoint

    return checkpoint.save_part(self, directory)

  async def load(self, directory: Any) -> Any:
    """Reads all parts of a state; see `checkpoint`."""
    from hpgrain import checkpoint

    return checkpoint.load_parts(self, directory)
