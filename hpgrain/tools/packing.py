"""Documents laid end to end in, records of one length out.

documents  [5 7 0][3 0][9 8 6 0]
records    |5 7 0 3|0 9 8 6|      of S + 1 = 4 tokens, a row with its labels
tail                        |0    dropped, or carried to the next partition
"""

from collections.abc import Iterable, Iterator

import numpy as np


class Packer:
  """Cuts a stream of tokens into records.

  Attributes:
    num_dropped: tokens of tails that were given up.
    num_tails: how many such tails there were, none of them empty.
  """

  def __init__(self, record_length: int) -> None:
    """Begins an empty record of `record_length` tokens."""
    self._record_length = record_length
    self._waiting: list[np.ndarray] = []
    self._num_waiting = 0
    self.num_dropped = self.num_tails = 0

  def add(self, tokens: np.ndarray) -> np.ndarray:
    """Takes tokens [n]; returns the whole records that there are now, joined.

    A number of tokens that is a multiple of the record's length, perhaps 0.
    """
    self._waiting.append(tokens)
    self._num_waiting += len(tokens)
    if self._num_waiting < self._record_length:
      return tokens[:0]
    joined = np.concatenate(self._waiting)
    whole = len(joined) - len(joined) % self._record_length
    # A copy, since a view would keep all of it in memory.
    self._waiting = [joined[whole:].copy()]
    self._num_waiting = len(joined) - whole
    return joined[:whole]

  def drop_tail(self) -> None:
    """Gives up the tokens that wait for a record to be filled."""
    self.num_dropped += self._num_waiting
    self.num_tails += self._num_waiting > 0
    self._waiting, self._num_waiting = [], 0


def pack(packer: Packer, tokens: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
  """Yields the records of blocks of tokens, several joined, none empty."""
  for block in tokens:
    records = packer.add(block)
    if len(records):
      yield records
