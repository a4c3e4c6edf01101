"""Tells an order without end that gives nothing from one that gives little.

A filter that keeps no record, or records that are all empty, would be read for
ever. A process sees its own streams' records alone: where they gave nothing
for an epoch, it looks at all records for another, and only then is it sure.
"""

from collections.abc import Collection

import numpy as np

# Epochs that a stream gets nothing in, where others do: it takes every V-th
# record, so in V epochs of one order it has come to whatever it ever will. Of
# orders that differ it has then seen as many records as an epoch has, or more.
_SHUFFLED_PASSES = 64


class BarrenCheck:
  """Watches blocks of an endless order. For one thread at a time."""

  def __init__(self, *, num_streams: int, num_held: int, shuffled: bool):
    """Has seen nothing.

    Args:
      num_streams: of all.
      num_held: of this process.
      shuffled: whether each epoch has an order of its own.
    """
    self._all_held = num_held == num_streams
    self._patience = num_streams * (_SHUFFLED_PASSES if shuffled else 1)
    # The epochs that the sources were in when something was seen last: of
    # any, of any while all were looked at, and of each stream.
    self._quiet: np.ndarray | None = None
    self._looking: np.ndarray | None = None
    self._streams: dict[int, np.ndarray] = {}

  def looks_everywhere(self, stream: int, epochs: np.ndarray) -> bool:
    """Returns whether the next block's records are all to be tokenized.

    Args:
      stream: the one that needs an example.
      epochs: int64[sources], the epoch that each source is in now.

    Raises:
      ValueError: there will be none.
    """
    if self._quiet is None:
      self._quiet = epochs
    since = self._streams.setdefault(stream, epochs)
    if ((epochs - self._quiet) > 1).all():
      if self._looking is None:
        self._looking = self._quiet if self._all_held else epochs
      if ((epochs - self._looking) > 1).all():
        raise ValueError(
          "No record of a whole epoch of every source makes an example: each"
          " is empty, filtered or dropped. An endless order of them would"
          " never give a row."
        )
      return not self._all_held
    if ((epochs - since) > self._patience).all():
      raise ValueError(
        f"Stream {stream} got no example in {self._patience} epochs of every"
        " source, and others did: too few records give any for so many"
        " streams. Set dataloader.num_streams lower, or give more data."
      )
    return False

  def saw(self, streams: Collection[int], found: bool) -> None:
    """Notes which streams got an example, and whether any record gave one."""
    for stream in streams:
      self._streams.pop(stream, None)
    if found:
      self._quiet = self._looking = None
