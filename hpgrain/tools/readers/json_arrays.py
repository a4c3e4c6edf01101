"""A file that is one JSON array: its elements, one after the other.

Only brackets, commas and strings are looked at here; what lies between two
commas is parsed like a line of JSON Lines. So memory holds one element, and
one that cannot be read does not hide those after it.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from hpgrain.tools.readers import long_bytes
from hpgrain.tools.readers.bad_text import BadTextError
from hpgrain.tools.readers.files import open_unpacked
from hpgrain.tools.readers.json_texts import text_parser
from hpgrain.tools.readers.long_bytes import LongBytes
from hpgrain.tools.readers.long_json import texts_in_pieces
from hpgrain.tools.readers.records import (
  InputFile,
  Record,
  Report,
  Unit,
)

_BOM = b"\xef\xbb\xbf"
_SPACE = b" \t\r\n"
_BEFORE = re.compile(rb"[ \t\r\n]*+")
_BLOCK = 1 << 20
# A whole string, or the quote of one that goes on after the block, or what
# gives the array its shape.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|["\[\]{},]', re.DOTALL)
_IN_STRING = re.compile(rb'["\\]')


def is_array(file: InputFile) -> bool:
  """Whether the first character of a file opens an array."""
  with open_unpacked(file) as stream:
    block = stream.read(1 << 12).removeprefix(_BOM)
    while block and not block.strip(_SPACE):
      block = stream.read(1 << 12)
  return block.lstrip(_SPACE).startswith(b"[")


def read_json_array(
  unit: Unit,
  keys: Sequence[str],
  report: Report,
  *,
  long_texts: bool = False,
  scratch: Path | None = None,
) -> Iterator[Record]:
  """Yields the texts under `keys` of each element.

  Raises:
    ValueError: the array does not end, or is not all that is in the file.
  """
  parse = text_parser(keys)
  with open_unpacked(unit.file) as stream:
    elements = _elements(stream, unit.file.path, scratch)
    for index, (offset, element) in enumerate(elements):
      try:
        if not element:
          raise BadTextError("is missing: a comma has no element beside it.")
        if isinstance(element, LongBytes):
          texts = (
            texts_in_pieces(element, keys)
            if long_texts
            else parse(element.read(0, len(element)))
          )
        else:
          texts = parse(bytes(element))
      except BadTextError as error:
        report(index, offset, str(error))
      else:
        yield Record(texts, index, offset)
        # It need not lie in memory while the next one is read.
        texts = ()


def _elements(
  stream: BinaryIO, name: str, scratch: Path | None = None
) -> Iterator[tuple[int, bytearray | LongBytes]]:
  """Yields (byte offset, bytes) of what the commas of the array part.

  A long one's are gone when the next one is asked for.
  """
  shape = _Shape()
  offset = 0  # of the block
  element, begin = bytearray(), 0  # what was read of it before the block
  num_elements = 0
  while block := stream.read(_BLOCK):
    start = 0
    if not shape.opened:
      # Only white space and a byte order mark stand before it.
      start = block.find(b"[") + 1
      shape.opened = start > 0
      begin = offset + start
      if not shape.opened:
        offset += len(block)
        continue
    for end, closes in shape.ends(block, start):
      element.extend(block[start:end])
      if type(element) is bytearray:
        begin += _strip(element)
      # Nothing stands between the brackets of an empty array.
      if not closes or num_elements or element:
        yield begin, element
        num_elements += 1
      if isinstance(element, LongBytes):
        element.close()
      start = end + 1
      element, begin = bytearray(), offset + start
    if shape.closed:
      _check_rest(block[start:], stream, name, offset + start)
      return
    element.extend(block[start:])
    if type(element) is bytearray and len(element) > long_bytes.LONG_BYTES:
      begin += _strip(element, both=False)
      element = LongBytes(stream, begin, element, scratch)
    offset += len(block)
  raise ValueError(
    f"{name} ends at byte {offset} inside its JSON array, after"
    f" {num_elements} whole elements. It was not written to its end; get it"
    " again."
  )


class _Shape:
  """Follows brackets and strings from block to block."""

  def __init__(self) -> None:
    self.opened = False
    self.closed = False
    self._depth = 0  # below the array itself
    self._in_string = False
    self._escaped = False  # the block ended after a backslash

  def ends(self, block: bytes, start: int) -> Iterator[tuple[int, bool]]:
    """Yields (place of the delimiter, whether it closes the array)."""
    position = start
    while True:
      if self._in_string:
        position = self._after_string(block, position)
        if self._in_string:
          return
      for match in _TOKEN.finditer(block, position):
        token = match.group()
        if len(token) > 1:
          continue
        if token == b'"':
          self._in_string = True
          position = match.end()
          break
        if token in b"{[":
          self._depth += 1
        elif self._depth == 0:
          self.closed = token != b","
          yield match.start(), self.closed
          if self.closed:
            return
        elif token != b",":
          self._depth -= 1
      else:
        return

  def _after_string(self, block: bytes, position: int) -> int:
    """The place after the string's end, or `_in_string` stays."""
    if self._escaped:
      position += 1
      self._escaped = False
    while match := _IN_STRING.search(block, position):
      position = match.end()
      if match.group() == b'"':
        self._in_string = False
        return position
      if position == len(block):
        self._escaped = True
        return position
      position += 1
    return position


def _strip(element: bytearray, *, both: bool = True) -> int:
  """Takes the white space off its ends; returns how much of it was first."""
  match = _BEFORE.match(element)
  before = 0 if match is None else match.end()
  del match, element[:before]
  while both and element and element[-1] in _SPACE:
    element.pop()
  return before


def _check_rest(block: bytes, stream: BinaryIO, name: str, offset: int) -> None:
  while True:
    if block.strip(_SPACE):
      raise ValueError(
        f"{name} goes on after its JSON array, at byte offset"
        f" {offset + len(block) - len(block.lstrip(_SPACE))}. A .json file"
        " must be one array of objects, or one object a line."
      )
    offset += len(block)
    block = stream.read(_BLOCK)
    if not block:
      return
