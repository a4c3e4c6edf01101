"""The pairs that a process keeps open: readers in, their open pairs out.

All readers of a process share one bounded set; the pair that was not used for
the longest time falls out and is opened again when its reader needs it. One
that falls out is closed once nobody looks at it any more: arrays made from a
mapping keep it alive by themselves.
"""

import collections
import os
import threading
from collections.abc import Callable

from hpgrain.sources.mappings import OpenPair

# A pair takes two: its .idx and its .bin.
_FILES_PER_PAIR = 2
_DEFAULT_MAX_OPEN_FILES = 512


class OpenPairs:
  """A bounded set of open pairs; the least recently used falls out first."""

  def __init__(self, max_open_files: int) -> None:
    self._pairs: collections.OrderedDict[int, OpenPair] = (
      collections.OrderedDict()
    )
    # Reentrant, since a reader may be collected, and so leave the set, at any
    # allocation under the lock.
    self._lock = threading.RLock()
    self._max_pairs = max_open_files // _FILES_PER_PAIR

  def get(self, key: int, make: Callable[[], OpenPair]) -> OpenPair:
    """The pair under `key`, opened by `make` if it is not in the set."""
    with self._lock:
      pair = self._pairs.get(key)
      if pair is None:
        self._evict(self._max_pairs - 1)
        pair = self._pairs[key] = make()
      else:
        self._pairs.move_to_end(key)
      return pair

  def discard(self, key: int) -> None:
    """Removes the pair under `key`, if there is one."""
    with self._lock:
      self._pairs.pop(key, None)

  def set_max_open_files(self, max_open_files: int) -> None:
    """Changes the bound; pairs beyond it leave at once."""
    with self._lock:
      self._max_pairs = max_open_files // _FILES_PER_PAIR
      self._evict(self._max_pairs)

  def after_fork(self) -> None:
    """Forgets a lock that another thread may have held at the fork."""
    self._lock = threading.RLock()

  def _evict(self, keep: int) -> None:
    while len(self._pairs) > keep:
      self._pairs.popitem(last=False)


OPEN_PAIRS = OpenPairs(_DEFAULT_MAX_OPEN_FILES)
os.register_at_fork(after_in_child=OPEN_PAIRS.after_fork)


def set_max_open_files(max_open_files: int) -> None:
  """Bounds the files that all readers of this process keep open or mapped.

  A pair takes two. Arrays that were handed out pin their own mapping, which
  is not counted. The default is 512.

  Raises:
    ValueError: there is no room for one pair.
  """
  if max_open_files < _FILES_PER_PAIR:
    raise ValueError(
      f"max_open_files is {max_open_files}, a pair alone takes "
      f"{_FILES_PER_PAIR}: give at least that many."
    )
  OPEN_PAIRS.set_max_open_files(max_open_files)
