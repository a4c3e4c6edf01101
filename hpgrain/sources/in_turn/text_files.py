r"""Text files in turn: pieces of bytes in, records out when they are taken.

  data      {"a": 1}\n{"b": 2}\n\n          bounds 5 14 25
  take([1])                                 -> [{"b": 2}]

What becomes of a record's bytes is as by index: the same `TextFormat`.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from hpgrain.sources.by_index.text_files import Header, TextFormat
from hpgrain.sources.in_turn.source import Block
from hpgrain.sources.in_turn.text_pieces import TextPieces
from hpgrain.sources.records import Record
from hpgrain.tools.readers.bad_text import BadTextError
from hpgrain.tools.readers.records import BadRecordError, InputFile

# Most headers are shorter, and nothing after one is wanted.
_HEADER_BYTES = 1 << 12


class TextFileReader:
  """The records of one text file; see `FileReader`."""

  def __init__(
    self,
    form: TextFormat,
    file: InputFile,
    start: int,
    skip: int,
    record: int,
  ) -> None:
    """Opens the file.

    Args:
      form: its format.
      file: as it was found.
      start: byte of its text at which a record begins; 0 for the beginning.
      skip: 0: a record's byte is its place.
      record: records before that.

    Raises:
      FileNotFoundError: it is gone.
      ValueError: it was written again, no record begins there, or its header
        is broken.
    """
    self._file = file
    self._form = form
    self._record = record
    self._place = (start, skip)
    self._header: Header = None
    has_header = form.read_header is not None
    if has_header and start:
      head = TextPieces(file, kind=form.kind, block_bytes=_HEADER_BYTES)
      self._header = _header(form, file, head)
      head.close()
    self._pieces = TextPieces(file, kind=form.kind, start=start)
    if has_header and not start:
      self._header = _header(form, file, self._pieces)

  def read(self, n: int) -> Block:
    """As `FileReader.read`."""
    data, bounds = self._pieces.read(n)
    found = _Found(
      self._file.path, self._form, self._header, data, bounds, self._record
    )
    size = len(bounds) - 1
    if size:
      self._record += size
      self._place = (self._pieces.next, 0)
    return Block(size, found.take, found.place)

  def where(self) -> tuple[int, int]:
    """(byte of the text, 0)."""
    return self._place

  def close(self) -> None:
    """Closes the file."""
    self._pieces.close()


@dataclasses.dataclass(frozen=True)
class _Found:
  """Pieces of a file that are records.

  Attributes:
    path: of the file.
    form: how one is decoded.
    header: of the file.
    data: the pieces, one after the other.
    bounds: int64[n + 1], where they begin in the file, and the last one's end.
    first: records of the file before them.
  """

  path: str
  form: TextFormat
  header: Header
  data: bytes
  bounds: np.ndarray
  first: int

  def take(self, numbers: Sequence[int]) -> list[Record]:
    """As `Block.take`."""
    chosen = np.asarray(numbers, np.int64)
    begins = (self.bounds[chosen] - self.bounds[0]).tolist()
    ends = (self.bounds[chosen + 1] - self.bounds[0]).tolist()
    pieces = [self.data[begin:end] for begin, end in zip(begins, ends)]
    if self.form.decode_all is not None:
      records = self.form.decode_all(pieces)
      if records is not None:
        return records
    records = []
    for number, piece in zip(numbers, pieces):
      try:
        records.append(self.form.decode(piece, self.header))
      except BadTextError as error:
        # From None: what is behind it may hold the text.
        raise BadRecordError(f"{self.place(number)} {error}") from None
    return records

  def place(self, i: int) -> str:
    """As `Block.place`; as by index."""
    return f"{self.path}, record {self.first + i + 1}, byte {self.bounds[i]}"


def _header(form: TextFormat, file: InputFile, pieces: TextPieces) -> Header:
  """What the first row of a file says; None where there is none.

  Raises:
    ValueError: it is broken.
  """
  row, bounds = pieces.read(1)
  if len(bounds) == 1:
    return None
  try:
    return form.read_header(row)
  except BadTextError as error:
    raise ValueError(f"{file.path}: the header {error}") from None
