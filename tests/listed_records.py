"""Records of a list, read in turn, some of which cannot be read."""

import dataclasses

from hpgrain.sources.in_turn.source import Block

BAD = object()


@dataclasses.dataclass
class Listed:
  """A source in turn; `reads` counts what was asked, `taken` what was made."""

  name: str
  records: list
  seekable: bool = True
  reads: int = 0
  taken: int = 0

  @property
  def identity(self):
    return {"listed": self.name, "records": len(self.records)}

  def open(self, cursor=None):
    return _Reader(self, cursor[0] if cursor else 0)


class _Reader:
  def __init__(self, source, at):
    self._source, self._at = source, at

  def read(self, n):
    source, begin = self._source, self._at
    source.reads += 1
    count = max(min(n, len(source.records) - begin), 0)
    self._at += count

    def place(i):
      return f"{source.name}, record {begin + i}"

    def take(numbers):
      found = [source.records[begin + i] for i in numbers]
      source.taken += len(found)
      for i, record in zip(numbers, found, strict=True):
        if record is BAD:
          raise ValueError(f"{place(i)} is broken.")
      return found

    return Block(count, take, place)

  def cursor(self):
    return [self._at]

  def close(self):
    pass


def listed(name, lengths):
  """Records of token ids that are told apart: 100 * record + place."""
  return Listed(
    name,
    [
      {"input_ids": [100 * r + i for i in range(length)]}
      for r, length in enumerate(lengths)
    ],
  )
