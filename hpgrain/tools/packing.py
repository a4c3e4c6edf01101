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
    # Grows up to a record: no more than that waits.
    self._waiting = np.empty(0)
    self._num_waiting = 0
    self.num_dropped = self.num_tails = 0

  def add(self, tokens: np.ndarray) -> np.ndarray:
    """Takes tokens [n]; returns the whole records that there are now, joined.

    A number of tokens that is a multiple of the record's length, perhaps 0.
    """
    missing = self._record_length - self._num_waiting
    if len(tokens) < missing:
      self._keep(tokens)
      return tokens[:0]
    whole = len(tokens) - (len(tokens) - missing) % self._record_length
    if self._num_waiting:
      self._keep(tokens[:missing])
      records = self._waiting
      self._num_waiting = 0
      if whole > missing:
        records = np.concatenate([records, tokens[missing:whole]])
    else:
      records = tokens[:whole]
    self._keep(tokens[whole:])
    return records

  def drop_tail(self) -> None:
    """Gives up the tokens that wait for a record to be filled."""
    self.num_dropped += self._num_waiting
    self.num_tails += self._num_waiting > 0
    self._num_waiting = 0
    self._waiting = self._waiting[:0].copy()

  def _keep(self, tokens: np.ndarray) -> None:
    """Copies tokens, which a record has space for, behind those that wait."""
    if not self._num_waiting:
      self._waiting = np.empty(0, tokens.dtype)
    first = self._num_waiting
    self._num_waiting += len(tokens)
    if self._num_waiting > len(self._waiting):
      size = max(self._num_waiting, 2 * len(self._waiting))
      # In place, where the memory allows it.
      self._waiting.resize(min(size, self._record_length), refcheck=False)
    self._waiting[first : self._num_waiting] = tokens


def pack(packer: Packer, tokens: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
  """Yields the records of blocks of tokens, several joined, none empty."""
  for block in tokens:
    records = packer.add(block)
    if len(records):
      yield records
    # A record may be large, and the next one is being filled.
    del records
