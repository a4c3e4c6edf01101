r"""Batches of row streams in, the same until no process has a row left.

  left of a batch's rows   1 1 1 1 | 1 1 0 1 | 0 1 0 0 | 0 0 0 0
  its sum                  there     there     there     the end

No process knows the others' streams. So each batch says for its rows how far
their streams go, and a sum over all of them is taken inside `jit` by whoever
asks for batches: it is the same on every process, at the same step.
"""

from typing import Any

import grain
import jax
import jax.numpy as jnp

_sum = jax.jit(jnp.sum)


class UntilEnd(grain.DatasetIterator):
  """Ends where no stream of any process has a row.

  It holds the batch after the one that was handed out last: the sum over its
  rows is there by the time that it is asked for. All processes must ask in
  the same order, on the thread that runs their steps.
  """

  def __init__(self, batches: grain.DatasetIterator):
    """Takes batches of (fields, seconds, left int32[rows]).

    Of a row `left` is 1 where it is there, or where one of the streams that
    have rows in its place has one to come.
    """
    super().__init__(batches)
    self._state = batches.get_state()
    self._ahead: tuple[Any, ...] | None = None

  def __next__(self) -> tuple[dict[str, jax.Array], dict[str, float]]:
    """Returns (fields, seconds) of the next batch."""
    if self._ahead is None:
      self._ahead = self._pull()
    batch, left, state = self._ahead
    if not int(left):
      raise StopIteration
    self._ahead = self._pull()
    self._state = state
    return batch[:2]

  def _pull(self) -> tuple[Any, ...]:
    batch = next(self._parent)
    return batch, _sum(batch[2]), self._parent.get_state()

  def get_state(self) -> dict[str, Any]:
    """Returns the state after the batch that was handed out last."""
    return self._state

  def set_state(self, state: dict[str, Any]) -> None:
    """Goes on from a state."""
    self._ahead = None
    self._parent.set_state(state)
    self._state = self._parent.get_state()
