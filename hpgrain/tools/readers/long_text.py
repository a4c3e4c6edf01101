r"""A huge text that is read in pieces, from the record that holds it.

A string of 500 MB would take that again, or four times that if it holds one
emoji. Its bytes are looked at where they lie instead:

  {"id": 1, "text": "........|........|......\n|........"}
                     piece    piece    piece    piece

A piece ends between two characters, so that the pieces give the string.
"""

import json
import re
from collections.abc import Iterator

from hpgrain.tools.readers.bad_text import BadTextError
from hpgrain.tools.readers.long_bytes import LongBytes

PIECE_BYTES = 1 << 20

# The escapes of one character beyond U+FFFF.
_PAIR = re.compile(rb"\\u[dD][89abAB]..\\u[dD][c-fC-F]", re.DOTALL)
# What the longest character, such a pair, has.
_LONGEST = 12


class LongText:
  """A text in a record's bytes, until the next record is asked for."""

  def __init__(
    self, data: LongBytes, start: int, stop: int, *, json: bool = True
  ) -> None:
    """Takes bytes [start, stop) of a record, and reads them through once.

    Args:
      data: the record.
      start: first byte.
      stop: the byte after the last.
      json: whether that is what stands between the quotes of JSON's strings.

    Raises:
      BadTextError: it is not the inside of a JSON string, or not UTF-8.
    """
    self._data = data
    self._start = start
    self._stop = stop
    self._json = json
    self._length = 0
    # Of the first half of a surrogate pair without the other, in characters.
    self.half_pair_at: int | None = None
    for piece in self.pieces():
      if self.half_pair_at is None:
        try:
          piece.encode()
        except UnicodeEncodeError as error:
          self.half_pair_at = self._length + error.start
      self._length += len(piece)

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
      stop = min(start + PIECE_BYTES, self._stop)
      block = self._data.read(start, min(stop + _LONGEST, self._stop))
      size = stop - start
      if stop < self._stop:
        size = _whole_characters(block, size, escapes=self._json)
      if not size:
        raise BadTextError(
          f"is not UTF-8: no character begins within {PIECE_BYTES} bytes from"
          f" byte {start} of the record. Convert the file to UTF-8."
        )
      yield self._decoded(block[:size], start)
      start += size

  def _decoded(self, data: bytes, start: int) -> str:
    # From None: the cause holds the text, and a traceback would show it.
    try:
      text = data.decode("utf-8")
      return json.loads(f'"{text}"') if self._json else text
    except UnicodeDecodeError as error:
      raise BadTextError(
        f"is not UTF-8: byte 0x{data[error.start]:02x} at"
        f" {start + error.start} bytes into the record ({error.reason})."
        " Convert the file to UTF-8."
      ) from None
    except json.JSONDecodeError as error:
      what = error.msg.removesuffix(" at").removesuffix(" starting")
      place = start + len(text[: max(error.pos - 1, 0)].encode())
      raise BadTextError(
        f"is not JSON: {what} at about byte {place} of the record. Each record"
        " must be one whole JSON object."
      ) from None


def _whole_characters(data: bytes, stop: int, *, escapes: bool) -> int:
  """The last place up to `stop` that lies between two characters.

  0 where there is none. The first byte of the data begins a character.
  """
  place = stop
  while True:
    before = place
    # Inside a character of UTF-8 ...
    while place > 0 and data[place] & 0xC0 == 0x80:
      place -= 1
    if escapes:
      # ... or an escape, which has up to six bytes ...
      slash = data.rfind(b"\\", max(0, place - 5), place)
      if slash >= 0 and _begins_escape(data, slash):
        length = 6 if data[slash + 1] == ord("u") else 2
        if slash + length > place:
          place = slash
      # ... or between the two escapes of one character.
      high = place - 6
      if high >= 0 and _PAIR.match(data, high) and _begins_escape(data, high):
        place = high
    if place == before:
      return place


def _begins_escape(data: bytes, slash: int) -> bool:
  """Whether a backslash is not itself escaped by the one before it."""
  before = data[:slash]
  return (len(before) - len(before.rstrip(b"\\"))) % 2 == 0
