"""The bytes of one huge JSON object in, its texts under some keys out.

Long texts stay where they are, as `LongText`s; nothing else may be long. What
is accepted, and the texts, are those of `json_texts.reference_texts`.
"""

import json
import re
from collections.abc import Iterator, Sequence

from hpgrain.tools.readers.bad_text import BadTextError
from hpgrain.tools.readers.json_texts import half_pair, text_of, too_deep
from hpgrain.tools.readers.long_bytes import LongBytes
from hpgrain.tools.readers.long_text import PIECE_BYTES, LongText
from hpgrain.tools.readers.records import ConversationKey

# A number, an array or an object of more bytes is not parsed.
VALUE_BYTES = 1 << 22
_BLOCK = 1 << 20

_SPACE = re.compile(rb"[ \t\r\n]*+")
# A string from within: as far as it is seen, without its last quote.
_STRING = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_VALUE_TOKEN = re.compile(rb'["\[\]{},]')


def texts_in_pieces(
  data: LongBytes, keys: Sequence[str]
) -> tuple[str | LongText, ...]:
  """The texts under `keys` of an object.

  Raises:
    BadTextError: the data is no JSON object in UTF-8, lacks a key, holds
      something else than text of Unicode under it, or something that is long
      and no text.
  """
  values: dict[str, object] = dict(_items(_Places(data)))
  return tuple([_long_or_text(values, key) for key in keys])


def _long_or_text(values: dict[str, object], key: str) -> str | LongText:
  text = values.get(key)
  if not isinstance(text, LongText):
    return text_of(values, key)
  if isinstance(key, ConversationKey):
    raise BadTextError(
      f"holds a string under {key!r}, not an array of messages."
    )
  if text.half_pair_at is not None:
    raise half_pair(key, text.half_pair_at)
  return text


def _items(places: "_Places") -> Iterator[tuple[str, object]]:
  """Yields the keys and values of an object."""
  place = places.expect(places.after_space(0), "{")
  place = places.after_space(place)
  more = places.byte(place) != "}"
  while more:
    key, place = _string(places, places.expect(place, '"'))
    if isinstance(key, LongText):
      raise BadTextError(
        f"has a key of {len(key)} characters; one may have {PIECE_BYTES}."
      )
    place = places.expect(places.after_space(place), ":")
    place = places.after_space(place)
    if places.byte(place) == '"':
      value, place = _string(places, place + 1)
    else:
      value, place = _value(places, place)
    yield key, value
    place = places.after_space(place)
    more = places.byte(place) == ","
    if more:
      place = places.after_space(place + 1)
  place = places.after_space(places.expect(place, "}"))
  if place != len(places.data):
    raise not_json(place)


def _string(places: "_Places", start: int) -> tuple[str | LongText, int]:
  """A string from after its first quote on, and the place after its last."""
  stop = places.string_end(start)
  text = LongText(places.data, start, stop)
  return str(text) if stop - start <= PIECE_BYTES else text, stop + 1


def _value(places: "_Places", start: int) -> tuple[object, int]:
  """A value that is no string, and the place after it."""
  data = places.data.read(start, start + VALUE_BYTES)
  size = _value_size(data)
  if size is None:
    if len(data) < VALUE_BYTES:
      raise not_json(start + len(data))
    raise BadTextError(
      f"is {len(places.data)} bytes long, and holds a value of more than"
      f" {VALUE_BYTES} bytes that is no string, at byte {start} of the record."
      " In a record that does not fit in memory only strings may be long:"
      " leave that value out, or divide the record."
    )
  try:
    value = json.loads(data[:size].decode("utf-8"))
  except json.JSONDecodeError as error:
    raise not_json(start + error.pos) from None
  except (ValueError, RecursionError):
    raise BadTextError(
      f"is not readable JSON: the value at byte {start} of the record is not"
      " UTF-8, has a number of too many digits, or is nested too deep."
    ) from None
  if too_deep([{"": value}]):
    raise BadTextError("is not readable JSON: it is nested too deep.")
  return value, start + size


def _value_size(data: bytes) -> int | None:
  """Bytes of the value that data begins with; None if it goes on."""
  depth = place = 0
  while match := _VALUE_TOKEN.search(data, place):
    token, place = match.group(), match.end()
    if token == b'"':
      end = _STRING.match(data, place)
      place = place if end is None else end.end()
      if data[place : place + 1] != b'"':
        return None
      place += 1
    elif token in b"[{":
      depth += 1
    elif depth == 0:
      return match.start()
    elif token in b"]}":
      depth -= 1
  return None


class _Places:
  """Finds its way through bytes, a block at a time."""

  def __init__(self, data: LongBytes) -> None:
    self.data = data
    self._block = b""
    self._at = 0

  def byte(self, place: int) -> str:
    """The byte at a place as a character; nothing after the end."""
    block, at = self._from(place)
    return chr(block[at]) if at < len(block) else ""

  def expect(self, place: int, what: str) -> int:
    """The place after a byte that must be there."""
    if self.byte(place) != what:
      raise not_json(place)
    return place + 1

  def after_space(self, place: int) -> int:
    """The next place that is no white space."""
    while True:
      block, at = self._from(place)
      match = _SPACE.match(block, at)
      end = at if match is None else match.end()
      place += end - at
      if end < len(block) or end == at:
        return place

  def string_end(self, start: int) -> int:
    """The place of the quote that ends the string begun before `start`."""
    place = start
    while True:
      block, at = self._from(place)
      match = _STRING.match(block, at)
      end = at if match is None else match.end()
      place += end - at
      if block[end : end + 1] == b'"':
        return place
      if end == at:
        # At the end, or at a backslash whose escape is not in the block.
        if len(self.data.read(place, place + 2)) < 2:
          break
        place += 2
    raise BadTextError(
      f"is not JSON: the string that begins at byte {start - 1} of the record"
      " does not end. Each record must be one whole JSON object."
    )

  def _from(self, place: int) -> tuple[bytes, int]:
    """A block that holds a place, and where in it; nothing after the end."""
    if not self._at <= place < self._at + len(self._block):
      self._block = self.data.read(place, place + _BLOCK)
      self._at = place
    return self._block, place - self._at


def not_json(place: int) -> BadTextError:
  """What to raise where something else was expected at a byte."""
  return BadTextError(
    f"is not JSON: something else was expected at byte {place} of the record."
    " Each record must be one whole JSON object."
  )
