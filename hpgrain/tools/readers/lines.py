r"""Files of lines: JSON Lines and plain text, in ranges of bytes.

  bytes    |0 ........... 8M ........... 16M ...|
  lines    [a      ][b        ][c ][d           ]
  units    a, b     |  c, d    |  none

A line belongs to the range that its first byte lies in. So the ranges follow
from the file's size, no line is lost or read twice, and no range is empty of
meaning: one that lies inside a long line has no record.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from hpgrain import _kernels
from hpgrain.tools.readers import long_bytes
from hpgrain.tools.readers.bad_text import BadTextError
from hpgrain.tools.readers.files import open_unpacked
from hpgrain.tools.readers.json_texts import (
  batch_parser,
  not_utf8,
  text_parser,
)
from hpgrain.tools.readers.long_bytes import LongBytes
from hpgrain.tools.readers.long_json import texts_in_pieces
from hpgrain.tools.readers.long_text import LongText
from hpgrain.tools.readers.records import (
  Batch,
  InputFile,
  Record,
  Report,
  Unit,
)
from hpgrain.tools.texts import Texts

Line = bytes | LongBytes

_BOM = b"\xef\xbb\xbf"
_BLOCK = 1 << 20
# What is read of the file after a range to find where its last line ends.
_AHEAD = 1 << 16


def read_json_lines(
  unit: Unit,
  keys: Sequence[str],
  report: Report,
  *,
  long_texts: bool = False,
  scratch: Path | None = None,
) -> Iterator[Record]:
  """Yields the texts under `keys` of each line; blank lines are no records."""
  parse_all, parse = batch_parser(keys), text_parser(keys)
  index = 0
  for offset, block in _unit_blocks(unit, scratch):
    lines = _split(block)
    found = None if isinstance(block, LongBytes) else parse_all(lines)
    for place, line in enumerate(lines):
      if found is not None:
        yield Record(found[place], index, offset)
        index += 1
      elif len(line) and not line.isspace():
        try:
          texts = _texts(line, keys, parse, in_pieces=long_texts)
        except BadTextError as error:
          report(index, offset, str(error))
        else:
          yield Record(texts, index, offset)
          # It need not lie in memory while the next one is read.
          texts = ()
        index += 1
      offset += len(line) + 1  # noqa: PLW2901


def read_json_batches(
  unit: Unit,
  keys: Sequence[str],
  report: Report,
  *,
  scratch: Path | None = None,
) -> Iterator[Batch | Record]:
  """Yields the records of `read_json_lines` in batches of a megabyte or so.

  One whose line is longer than `long_bytes.LONG_BYTES` comes by itself, its
  long texts as `LongText`s. The keys are of texts.
  """
  parse = text_parser(keys)
  index = 0
  for offset, block in _unit_blocks(unit, scratch):
    if isinstance(block, LongBytes):
      if block.isspace():
        continue
      try:
        yield Record(texts_in_pieces(block, keys), index, offset)
      except BadTextError as error:
        report(index, offset, str(error))
      index += 1
      continue
    starts, stops, found, columns = _kernels.json_texts(block, keys)
    texts = tuple([Texts(*column) for column in columns])
    places = np.arange(len(starts))
    if not found.all():
      places, texts, bad = _judged(
        block,
        starts=starts,
        stops=stops,
        found=found,
        columns=texts,
        parse=parse,
      )
      for place, reason in bad:
        report(index + place, offset + int(starts[place]), reason)
    if len(places):
      yield Batch(texts, index + places, offset + starts[places])
    index += len(starts)


def _judged(
  block: bytes,
  *,
  starts: np.ndarray,
  stops: np.ndarray,
  found: np.ndarray,
  columns: Sequence[Texts],
  parse: Callable[[bytes], tuple[str, ...]],
) -> tuple[np.ndarray, tuple[Texts, ...], list[tuple[int, str]]]:
  """Reads the lines that the kernel left.

  Returns:
    The places of the good ones, all their texts, and the places and faults of
    the bad ones.
  """
  read: dict[int, list[bytes]] = {}
  bad: list[tuple[int, str]] = []
  for place in np.flatnonzero(~found).tolist():
    try:
      texts = parse(block[starts[place] : stops[place]])
    except BadTextError as error:
      bad.append((place, str(error)))
    else:
      read[place] = [text.encode() for text in texts]
  places = np.setdiff1d(np.arange(len(starts)), [place for place, _ in bad])
  texts = tuple(
    [
      Texts.of_bytes(
        [
          read[place][key] if place in read else column.bytes_of(place)
          for place in places.tolist()
        ]
      )
      for key, column in enumerate(columns)
    ]
  )
  return places, texts, bad


def read_text_lines(
  unit: Unit,
  keys: Sequence[str],
  report: Report,
  *,
  long_texts: bool = False,
  scratch: Path | None = None,
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
  for offset, block in _unit_blocks(unit, scratch):
    for line in _split(block):
      size = len(line)
      in_pieces = isinstance(line, LongBytes)
      size -= (line.read(size - 1, size) if in_pieces else line[-1:]) == b"\r"
      if size:
        try:
          if in_pieces and long_texts:
            text = LongText(line, 0, size, json=False)
          else:
            text = _whole(line)[:size].decode("utf-8")
        except UnicodeDecodeError as error:
          report(index, offset, str(not_utf8(error)))
        except BadTextError as error:
          report(index, offset, str(error))
        else:
          yield Record((text,), index, offset)
          text = ""
        index += 1
      offset += len(line) + 1  # noqa: PLW2901


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


def line_blocks(
  stream: BinaryIO, *, start: int, stop: int | None
) -> Iterator[tuple[int, list[Line]]]:
  r"""Yields (offset of the first, lines) of the lines that begin in a range.

  Lines come without their b"\n", and the file's first without a byte order
  mark. One of more than `long_bytes.LONG_BYTES` comes alone, as `LongBytes`.
  The arguments are those of `blocks_of_lines`.
  """
  for offset, block in blocks_of_lines(stream, start=start, stop=stop):
    yield offset, _split(block)


def blocks_of_lines(
  stream: BinaryIO,
  *,
  start: int,
  stop: int | None,
  scratch: Path | None = None,
) -> Iterator[tuple[int, bytes | LongBytes]]:
  r"""Yields (offset, whole lines) of the lines that begin in a range.

  Each ends with its b"\n", but for a file's last one and for one that comes
  alone as `LongBytes`; those are gone when the next block is asked for. The
  file's first line comes alone if it has a byte order mark, and without that.

  Args:
    stream: at the byte `start - 1`, or at 0 if `start` is 0.
    start: first byte of the range.
    stop: the byte after the range; None for the end of the stream.
    scratch: see `LongBytes`.
  """
  reader = _BlockReader(stream, max(start - 1, 0), stop)
  offset, line = start, bytearray()
  if start:
    offset, rest = reader.skip_line()
    if offset is None:
      return
    # Of the range, since a line ends in what was read of it.
    cut = rest.rfind(b"\n") + 1
    if cut:
      yield offset, rest[:cut]
    offset, line = offset + cut, bytearray(rest[cut:])
  while stop is None or offset < stop:
    block = reader.read()
    if not block:
      break
    if isinstance(line, LongBytes) and b"\n" in block:
      rest, _, block = block.partition(b"\n")
      line.extend(rest)
      yield offset, line
      offset = reader.position - len(block)
      line.close()
      line = bytearray()
      if reader.is_after:
        return
    cut = (block.find if reader.is_after else block.rfind)(b"\n") + 1
    if cut:
      whole = bytes(line) + block[:cut]
      yield from _unmarked(offset, whole)
      offset, line = offset + len(whole), bytearray(block[cut:])
    else:
      line.extend(block)
      if type(line) is bytearray and len(line) > long_bytes.LONG_BYTES:
        marked = len(_BOM) if not offset and line.startswith(_BOM) else 0
        line = LongBytes(stream, offset, line, scratch)
        line.skip(marked)
  if isinstance(line, LongBytes):
    yield offset, line
    line.close()
  elif line and (stop is None or offset < stop):
    yield from _unmarked(offset, bytes(line))


def _unit_blocks(
  unit: Unit, scratch: Path | None
) -> Iterator[tuple[int, bytes | LongBytes]]:
  if unit.file.compression:
    with open_unpacked(unit.file) as stream:
      yield from blocks_of_lines(stream, start=0, stop=None, scratch=scratch)
    return
  # The byte before the range tells whether a line begins with the range.
  with open_unpacked(unit.file, start=max(unit.start - 1, 0)) as stream:
    yield from blocks_of_lines(
      stream, start=unit.start, stop=unit.stop, scratch=scratch
    )


def _split(block: bytes | LongBytes) -> list[Line]:
  if isinstance(block, LongBytes):
    return [block]
  lines: list[Line] = block.split(b"\n")
  if not lines[-1]:
    lines.pop()
  return lines


def _whole(line: Line) -> bytes:
  return line.read(0, len(line)) if isinstance(line, LongBytes) else line


def _texts(
  line: Line,
  keys: Sequence[str],
  parse: Callable[[bytes], tuple[str, ...]],
  *,
  in_pieces: bool,
) -> "tuple[str | LongText, ...]":
  if in_pieces and isinstance(line, LongBytes):
    return texts_in_pieces(line, keys)
  return parse(_whole(line))


def _unmarked(offset: int, lines: bytes) -> Iterator[tuple[int, bytes]]:
  """Takes the byte order mark off the file's first line."""
  if offset == 0 and lines.startswith(_BOM):
    first, end, lines = lines.partition(b"\n")
    # Alone, so that the offsets of the others still follow from the lengths.
    yield 0, first[len(_BOM) :] + end
    offset = len(first) + len(end)
  if lines:
    yield offset, lines


class _BlockReader:
  """Reads blocks that do not go far beyond the end of a range.

  Attributes:
    position: of the stream.
    is_after: whether what was read last lies behind the range.
  """

  def __init__(self, stream: BinaryIO, position: int, stop: int | None) -> None:
    self._stream = stream
    self.position = position
    self._stop = stop
    self.is_after = False

  def read(self) -> bytes:
    """The next block; nothing at the end of the file."""
    size = _BLOCK
    if self._stop is not None:
      left = self._stop - self.position
      self.is_after = left <= 0
      size = _AHEAD if self.is_after else min(size, left)
    block = self._stream.read(size)
    self.position += len(block)
    return block

  def skip_line(self) -> tuple[int | None, bytes]:
    """Where the next line begins and what is read of it; None for nowhere."""
    while self._stop is None or self.position < self._stop:
      block = self.read()
      if not block:
        break
      cut = block.find(b"\n") + 1
      if cut:
        return self.position - len(block) + cut, block[cut:]
    return None, b""
