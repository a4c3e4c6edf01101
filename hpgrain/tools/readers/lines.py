r"""Files of lines: JSON Lines and plain text, in ranges of bytes.

  bytes    |0 ........... 8M ........... 16M ...|
  lines    [a      ][b        ][c ][d           ]
  units    a, b     |  c, d    |  none

A line belongs to the range that its first byte lies in. So the ranges follow
from the file's size, no line is lost or read twice, and no range is empty of
meaning: one that lies inside a long line has no record.
"""

from collections.abc import Iterator, Sequence
from typing import BinaryIO

from hpgrain.tools.readers.files import open_unpacked
from hpgrain.tools.readers.json_texts import (
  Line,
  batch_parser,
  not_utf8,
)
from hpgrain.tools.readers.long_json import object_parser
from hpgrain.tools.readers.long_text import LongText
from hpgrain.tools.readers.records import (
  BadTextError,
  InputFile,
  Record,
  Report,
  Unit,
)

_BOM = b"\xef\xbb\xbf"
# Small enough that what is read, cut and parsed stays in a core's cache.
_BLOCK = 1 << 16
# What is read of the file after a range to find where its last line ends.
_AHEAD = 1 << 16


def read_json_lines(
  unit: Unit, keys: Sequence[str], report: Report, *, long_texts: bool = False
) -> Iterator[Record]:
  """Yields the texts under `keys` of each line; blank lines are no records."""
  parse_all, parse = batch_parser(keys), object_parser(keys, long_texts)
  make = tuple.__new__
  index = 0
  for offset, lines in _unit_lines(unit):
    found = None if type(lines[0]) is bytearray else parse_all(lines)
    if found is not None:
      for line, texts in zip(lines, found):
        # Half the time of Record(...), on the path taken for nearly all.
        yield make(Record, (texts, index, offset))
        index += 1
        offset += len(line) + 1  # noqa: PLW2901
      continue
    for line in lines:
      size = len(line) + 1
      if line and not line.isspace():
        try:
          texts = parse(line)
        except BadTextError as error:
          report(index, offset, str(error))
        else:
          if type(line) is bytearray and LongText not in map(type, texts):
            # It need not lie in memory beside its text.
            line.clear()
          yield Record(texts, index, offset)
          # Nor while the next one is read.
          texts = ()
        index += 1
      if type(line) is bytearray:
        line.clear()
      offset += size  # noqa: PLW2901


def read_text_lines(
  unit: Unit, keys: Sequence[str], report: Report
) -> Iterator[Record]:
  """Yields each line without its end as the text "text".

  An empty line is no record; one of spaces is.
  """
  if tuple(keys) != ("text",):
    raise ValueError(
      f"{unit.file.path} is plain text, whose lines have the one key 'text';"
      f" got {list(keys)}. Ask for 'text' alone, or give JSON Lines."
    )
  index = 0
  for offset, lines in _unit_lines(unit):
    for line in lines:
      size = len(line) + 1
      text = line[:-1] if line.endswith(b"\r") else line
      if text:
        try:
          decoded = text.decode("utf-8")
        except UnicodeDecodeError as error:
          report(index, offset, str(not_utf8(error)))
        else:
          yield Record((decoded,), index, offset)
        index += 1
      offset += size  # noqa: PLW2901


def count_lines_before(unit: Unit, offset: int) -> tuple[int, int]:
  """Records and lines of a unit's file before the byte `offset` of it."""
  records = lines_before = 0
  text = unit.kind == "text"
  with open_unpacked(unit.file) as stream:
    for _, lines in line_blocks(stream, start=0, stop=offset):
      lines_before += len(lines)
      if text:
        records += sum(line not in (b"", b"\r") for line in lines)
      else:
        records += sum(not (not line or line.isspace()) for line in lines)
  return records, lines_before


def whole_lines(file: InputFile) -> Iterator[tuple[int, list[Line]]]:
  """Yields `line_blocks` of a whole file, however it is compressed."""
  with open_unpacked(file) as stream:
    yield from line_blocks(stream, start=0, stop=None)


def _unit_lines(unit: Unit) -> Iterator[tuple[int, list[Line]]]:
  if unit.file.compression:
    yield from whole_lines(unit.file)
    return
  # The byte before the range tells whether a line begins with the range.
  with open_unpacked(unit.file, start=max(unit.start - 1, 0)) as stream:
    yield from line_blocks(stream, start=unit.start, stop=unit.stop)


def line_blocks(
  stream: BinaryIO, *, start: int, stop: int | None
) -> Iterator[tuple[int, list[Line]]]:
  r"""Yields (offset of the first, lines) of the lines that begin in a range.

  Lines come without their b"\n", and the file's first without a byte order
  mark. One too long for a block comes alone, as a bytearray of its own that
  the caller may empty.

  Args:
    stream: at the byte `start - 1`, or at 0 if `start` is 0.
    start: first byte of the range.
    stop: the byte after the range; None for the end of the stream.
  """
  reader = _BlockReader(stream, max(start - 1, 0), stop)
  # Read and not yet cut; after it, what is cut of a line that goes on.
  offset, block, tail = start, b"", b""
  if start:
    offset, block = reader.skip_line()
    if offset is None:
      return
  while stop is None or offset < stop:
    block = block or reader.read()
    if not block:
      if tail:
        yield from _unmarked(offset, [tail])
      return
    lines: list[Line] = block.split(b"\n")
    if len(lines) == 1:
      line, block = reader.rest_of_line(tail + block)
      lines, tail = [line], b""
      end = offset + len(line) + 1
      del line
    else:
      end = offset + len(tail) + len(block)
      lines[0] = tail + lines[0]
      tail = lines.pop()
      end, block = end - len(tail), b""
      if stop is not None and end > stop:
        _drop_later(lines, end, stop)
    yield from _unmarked(offset, lines)
    offset = end


def _drop_later(lines: list[Line], end: int, stop: int) -> None:
  """Drops the lines that begin at `stop` or later; they end at `end`."""
  while lines and end - len(lines[-1]) - 1 >= stop:
    end -= len(lines.pop()) + 1


def _unmarked(
  offset: int, lines: list[Line]
) -> Iterator[tuple[int, list[Line]]]:
  """Takes the byte order mark off the file's first line."""
  if offset == 0 and lines[0].startswith(_BOM):
    first = lines.pop(0)
    # Alone, so that the offsets of the others still follow from the lengths.
    yield 0, [first[len(_BOM) :]]
    offset = len(first) + 1
  if lines:
    yield offset, lines


class _BlockReader:
  """Reads blocks that do not go far beyond the end of a range."""

  def __init__(self, stream: BinaryIO, position: int, stop: int | None) -> None:
    self._stream = stream
    self._position = position
    self._stop = stop

  def read(self) -> bytes:
    """The next block; nothing at the end of the file."""
    size = _BLOCK
    if self._stop is not None:
      left = self._stop - self._position
      size = min(size, left) if left > 0 else _AHEAD
    block = self._stream.read(size)
    self._position += len(block)
    return block

  def skip_line(self) -> tuple[int | None, bytes]:
    """Where the next line begins and what is read of it; None for nowhere."""
    while self._stop is None or self._position < self._stop:
      block = self.read()
      if not block:
        break
      cut = block.find(b"\n") + 1
      if cut:
        return self._position - len(block) + cut, block[cut:]
    return None, b""

  def rest_of_line(self, begun: bytes) -> tuple[bytearray, bytes]:
    """A line that goes on after a block, and what is read after it."""
    line = bytearray(begun)
    while block := self.read():
      cut = block.find(b"\n")
      if cut >= 0:
        line += block[:cut]
        return line, block[cut + 1 :]
      line += block
    return line, b""
