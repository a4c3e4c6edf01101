"""A batch of texts in two arrays, however many they are.

  data    |H e l l o|B y e|   UTF-8, one text after the other
  splits   0         5     8

A string for each text would cost more than reading it: what reads JSON writes
such arrays, and what encodes takes them as they are.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Sequence

import numpy as np


@dataclasses.dataclass(frozen=True)
class Texts:
  """Texts in UTF-8, one after the other.

  Attributes:
    data: uint8[bytes].
    splits: int64[texts + 1], from 0 to the number of bytes: text i is
      data[splits[i]:splits[i + 1]].
  """

  data: np.ndarray
  splits: np.ndarray

  @classmethod
  def of(cls, strings: Iterable[str]) -> "Texts":
    """Encodes strings of Unicode."""
    return cls.of_bytes([string.encode() for string in strings])

  @classmethod
  def of_bytes(cls, encoded: Sequence[bytes]) -> "Texts":
    """Joins texts that are UTF-8 already."""
    sizes = np.fromiter(map(len, encoded), np.int64, len(encoded))
    data = np.frombuffer(b"".join(encoded), np.uint8)
    return cls(data, np.concatenate(([0], np.cumsum(sizes))))

  def __len__(self) -> int:
    return len(self.splits) - 1

  def sizes(self) -> np.ndarray:
    """int64[texts], bytes of each."""
    return np.diff(self.splits)

  def bounds(self) -> list[int]:
    """The splits as integers of Python."""
    return self.splits.tolist()

  def bytes_of(self, place: int) -> bytes:
    """One text."""
    begin, end = self.splits[place : place + 2]
    return self.data[begin:end].tobytes()

  def strings(self) -> list[str]:
    """All texts."""
    data = self.data.tobytes()
    return [data[i:k].decode() for i, k in itertools.pairwise(self.bounds())]

  def slice(self, first: int, last: int) -> "Texts":
    """Texts [first, last), without a copy of them."""
    splits = self.splits[first : last + 1]
    return Texts(self.data[splits[0] : splits[-1]], splits - splits[0])

  def take(self, places: Iterable[int]) -> "Texts":
    """A copy of some texts, in the order of their places."""
    return Texts.of_bytes([self.bytes_of(place) for place in places])
