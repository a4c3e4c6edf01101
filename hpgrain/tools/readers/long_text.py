r"""A huge text that is read in pieces, from the JSON that holds it.

A string of 500 MB would take that again, or four times that if it holds one
emoji. Its bytes are looked at where they lie instead:

  {"id": 1, "text": "........|........|......\n|........"}
                     piece    piece    piece    piece

A piece ends between two characters, so that the pieces give the string.
"""

import json
import re
from collections.abc import Iterator

PIECE_BYTES = 1 << 20

# The escapes of one character beyond U+FFFF.
_PAIR = re.compile(rb"\\u[dD][89abAB]..\\u[dD][c-fC-F]", re.DOTALL)


class LongText:
  """A text in a record's bytes, until the next record is asked for."""

  def __init__(self, data: bytearray, start: int, stop: int) -> None:
    """Takes what stands between a string's quotes.

    Raises:
      ValueError: it is not the inside of a JSON string in UTF-8.
    """
    self._data = data
    self._start = start
    self._stop = stop
    self._length = sum(map(len, self.pieces()))

  def __len__(self) -> int:
    """Number of characters, as of the string."""
    return self._length

  def __str__(self) -> str:
    return "".join(self.pieces())

  def pieces(self) -> Iterator[str]:
    """Yields the text in pieces of up to a million characters.

    Raises:
      RuntimeError: the next record was asked for, and the bytes are gone.
    """
    start = self._start
    while start < self._stop:
      if len(self._data) < self._stop:
        raise RuntimeError(
          "A long text was read after the next record was asked for."
        )
      stop = min(start + PIECE_BYTES, self._stop)
      if stop < self._stop:
        stop = _whole_characters(self._data, start, stop)
      yield json.loads(f'"{self._data[start:stop].decode("utf-8")}"')
      start = stop

  def is_unicode(self) -> bool:
    """Whether there is no half of a surrogate pair in it."""
    try:
      for piece in self.pieces():
        piece.encode("utf-8")
    except UnicodeEncodeError:
      return False
    return True


def _whole_characters(data: bytearray, start: int, stop: int) -> int:
  """The last place up to `stop` that lies between two characters."""
  place = stop
  while True:
    before = place
    # Inside a character of UTF-8 ...
    while place > start and data[place] & 0xC0 == 0x80:
      place -= 1
    # ... or an escape, which has up to six bytes ...
    slash = data.rfind(b"\\", max(start, place - 5), place)
    if slash >= 0 and _begins_escape(data, start, slash):
      length = 6 if data[slash + 1] == ord("u") else 2
      if slash + length > place:
        place = slash
    # ... or between the two escapes of one character.
    high = place - 6
    if (
      high >= start
      and _PAIR.match(data, high)
      and _begins_escape(data, start, high)
    ):
      place = high
    if place == before:
      break
  if place == start:
    raise ValueError("no place between two characters")
  return place


def _begins_escape(data: bytearray, start: int, slash: int) -> bool:
  """Whether a backslash is not itself escaped by the one before it."""
  first = slash
  while first > start and data[first - 1] == ord("\\"):
    first -= 1
  return (slash - first) % 2 == 0
