r"""Worker processes make batches in turn; what comes out does not show them.

  worker 0   batch 0   batch 3   batch 6  ..
  worker 1   batch 1   batch 4   ..
  worker 2   batch 2   batch 5   ..          -> 0 1 2 3 4 5 6 ..

Grain's own `mp_prefetch` keeps a state for each worker, which another number
of workers cannot read. So each worker is an iterator of its own here, begun
where the state says, and the state is kept on this side: that of the batch
that was handed out last.
"""

import concurrent.futures
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import grain
from absl import flags

# Batches that each worker keeps ready.
_BUFFERED = 2


def refuse_slice(sl: slice, sequential_slice: bool) -> NoReturn:
  """Refuses Grain's slices: batches come in one order, which they would break.

  Raises:
    ValueError: always.
  """
  del sl, sequential_slice
  raise ValueError(
    "A loader's batches are not sliced. Use dataloader.num_workers for"
    " worker processes."
  )


def start(
  datasets: Sequence[grain.IterDataset],
) -> list[grain.DatasetIterator]:
  """Starts a process for each dataset, all at the same time.

  Raises:
    Exception: as a worker raised it, or could not be started.
  """
  if not flags.FLAGS.is_parsed():
    # Grain reads flags of its own when it starts a process, and a program that
    # has none of absl's never parses them.
    flags.FLAGS.mark_as_parsed()
  options = grain.MultiprocessingOptions(
    num_workers=1, per_worker_buffer_size=_BUFFERED
  )
  iterators = [iter(dataset.mp_prefetch(options)) for dataset in datasets]
  # One after the other they would each wait for the one before.
  with concurrent.futures.ThreadPoolExecutor(len(iterators)) as pool:
    list(pool.map(_start, iterators))
  return iterators


def _start(iterator: grain.DatasetIterator) -> None:
  begin: Callable[[], None] | None = getattr(iterator, "start_prefetch", None)
  if begin is not None:
    begin()


def take(iterator: grain.DatasetIterator) -> Any:
  """Returns a worker's next batch.

  Raises:
    RuntimeError: the process ended by itself.
    Exception: as the worker raised it.
  """
  try:
    return next(iterator)
  except RuntimeError as error:
    if "terminated unexpectedly" not in str(error):
      raise
    raise RuntimeError(
      "A worker process of dataloader.num_workers ended by itself; what it said"
      " last stands above. Workers import the program that starts them: what it"
      " does goes under `if __name__ == '__main__':`. A process that is killed"
      " for memory ends so, too."
    ) from error


def close(iterators: Sequence[grain.DatasetIterator]) -> None:
  """Ends the processes."""
  for iterator in iterators:
    iterator.close()


class WorkerBatches(grain.IterDataset):
  """The batches of `batches.HostBatches`, made by several processes."""

  def __init__(self, batches: Any, *, num_workers: int):
    """Takes the batches.

    Args:
      batches: of rows by number.
      num_workers: processes.
    """
    super().__init__(batches)
    self._num_workers = num_workers

  def __iter__(self) -> "_WorkerIterator":
    return _WorkerIterator(self._parent, self._num_workers)


class _WorkerIterator(grain.DatasetIterator):
  """Takes from each worker in turn."""

  def __init__(self, batches: Any, num_workers: int):
    super().__init__()
    self._batches, self._num_workers = batches, num_workers
    self._state: dict[str, int] = iter(batches).get_state()
    self._iterators: list[grain.DatasetIterator] = []
    self._turn = 0

  def __next__(self) -> Any:
    if not self._iterators:
      self._iterators = start(
        self._batches.shared_out(self._state, self._num_workers)
      )
      self._turn = 0
    batch = take(self._iterators[self._turn])
    self._turn = (self._turn + 1) % self._num_workers
    self._state = self._batches.state_after(self._state, batch)
    return batch

  def get_state(self) -> dict[str, int]:
    return dict(self._state)

  def set_state(self, state: dict[str, int]) -> None:
    self._end_workers()
    self._state = dict(state)

  def _end_workers(self) -> None:
    close(self._iterators)
    self._iterators = []

  def close(self) -> None:
    """Ends the workers."""
    self._end_workers()
    super().close()
