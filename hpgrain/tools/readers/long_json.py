"""The bytes of one huge JSON object in, its texts under some keys out.

Long ones stay where they are, as `LongText`s. What is not plainly an object
with these texts is left to the reader of whole objects, which decides and
says what is wrong.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence

from hpgrain.tools.readers.json_texts import MAX_DEPTH, Line, text_parser
from hpgrain.tools.readers.long_text import PIECE_BYTES, LongText

# Objects up to this many bytes are parsed whole.
LONG_BYTES = 1 << 24

_SPACE = re.compile(rb"[ \t\r\n]*+")
_REST_OF_STRING = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_VALUE_TOKEN = re.compile(rb'["\[\]{},]')


def object_parser(
  keys: Sequence[str], long_texts: bool
) -> Callable[[Line], tuple[str | LongText, ...]]:
  """`text_parser`, or one that gives a `LongText` where a text is long.

  Only what comes as a bytearray gives one; it must stay as it is meanwhile.
  """
  parse = text_parser(keys)
  if not long_texts:
    return parse

  def parse_long(data: Line) -> tuple[str | LongText, ...]:
    if type(data) is bytearray and len(data) > LONG_BYTES:
      texts = texts_in_pieces(data, keys)
      if texts is not None:
        return texts
    return parse(data)

  return parse_long


def texts_in_pieces(
  data: bytearray, keys: Sequence[str]
) -> tuple[str | LongText, ...] | None:
  """The texts under `keys` of an object, or None where that is in doubt."""
  try:
    values = dict(_items(data))
    texts = tuple([values[key] for key in keys])
  except (ValueError, KeyError, IndexError, RecursionError):
    # UnicodeDecodeError and JSONDecodeError are ValueErrors.
    return None
  for text in texts:
    if isinstance(text, LongText):
      if not text.is_unicode():
        return None
    elif not isinstance(text, str) or not _is_unicode(text):
      return None
  return texts


class _DoubtError(ValueError):
  """The bytes are not plainly a JSON object."""


def _items(data: bytearray) -> Iterator[tuple[str, object]]:
  """Yields the keys and values of an object; other than texts as None."""
  place = _expect(data, _space(data, 0), b"{")
  place = _space(data, place)
  more = data[place] != ord("}")
  while more:
    start = _expect(data, place, b'"')
    place = _string_end(data, start)
    key = _text(data, start, place)
    place = _expect(data, _space(data, place + 1), b":")
    place = _space(data, place)
    if data[place] == ord('"'):
      start, place = place + 1, _string_end(data, place + 1)
      yield str(key), _text(data, start, place)
      place += 1
    else:
      start, place = place, _value_end(data, place)
      if place - start > LONG_BYTES:
        raise _DoubtError
      value = bytes(data[start:place])
      if value.count(b"[") + value.count(b"{") > MAX_DEPTH - 1:
        raise _DoubtError
      json.loads(value.decode("utf-8"))
      yield str(key), None
    place = _space(data, place)
    more = data[place] == ord(",")
    if more:
      place = _space(data, place + 1)
  place = _expect(data, place, b"}")
  if _space(data, place) != len(data):
    raise _DoubtError


def _text(data: bytearray, start: int, stop: int) -> str | LongText:
  text = LongText(data, start, stop)
  return str(text) if stop - start <= PIECE_BYTES else text


def _space(data: bytearray, place: int) -> int:
  match = _SPACE.match(data, place)
  return place if match is None else match.end()


def _expect(data: bytearray, place: int, what: bytes) -> int:
  if data[place : place + 1] != what:
    raise _DoubtError
  return place + 1


def _string_end(data: bytearray, start: int) -> int:
  """The place of the quote that ends the string begun before `start`."""
  match = _REST_OF_STRING.match(data, start)
  if match is None:
    raise _DoubtError
  return match.end() - 1


def _value_end(data: bytearray, place: int) -> int:
  """The place after a value that is no string."""
  depth = 0
  while match := _VALUE_TOKEN.search(data, place):
    token = match.group()
    if token == b'"':
      place = _string_end(data, match.end()) + 1
      continue
    if token in b"[{":
      depth += 1
    elif depth == 0:
      return match.start()
    elif token in b"]}":
      depth -= 1
    place = match.end()
  raise _DoubtError


def _is_unicode(text: str) -> bool:
  try:
    text.encode("utf-8")
  except UnicodeEncodeError:
    return False
  return True
