r"""Records of text files, found by their bytes and decoded a batch at a time.

  indices -> (file, start, stop) -> bytes -> mappings
      index             ranges        a format's decoder

What a format is made of is a `TextFormat`: how its records are found, and
what becomes of the bytes of one. The formats are in modules of their own.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hpgrain.index_cache import IndexCache
from hpgrain.sources.by_index import digests
from hpgrain.sources.by_index.byte_ranges import ByteRanges
from hpgrain.sources.by_index.file_list import refuse_compressed
from hpgrain.sources.by_index.record_index import find_records
from hpgrain.sources.records import Record, record_numbers
from hpgrain.tools.readers.bad_text import BadTextError
from hpgrain.tools.readers.records import (
  BadRecordError,
  InputFile,
)

Header = Any


@dataclasses.dataclass(frozen=True)
class TextFormat:
  """A format whose records lie in one piece each, one after the other.

  Attributes:
    name: of the format.
    kind: how records are found: of `_kernels.RecordStarts`.
    decode: the bytes from a record's start to the next one's, and its file's
      header, to the record. Raises BadTextError to say what is wrong.
    decode_all: the same of many at once, or None if one of them is for
      `decode` to judge. None: there is no such way.
    read_header: the bytes of a file's first row to what `decode` is given.
      None: files have no header.
  """

  name: str
  kind: str
  decode: Callable[[bytes, Header], Record]
  decode_all: Callable[[Sequence[bytes]], list[Record] | None] | None = None
  read_header: Callable[[bytes], Header] | None = None


class TextFileRecords:
  """The records of text files; see `Records`.

  Attributes:
    name: of the source.
    identity: JSON of what the records are.
    cache_identity: that, and when the files were written.
  """

  def __init__(
    self,
    files: Sequence[InputFile],
    form: TextFormat,
    *,
    name: str,
    cache: IndexCache,
  ) -> None:
    """Finds the records, unless the cache has them.

    Args:
      files: as they were found, of one format.
      form: that format.
      name: of the source.
      cache: where the index is kept.

    Raises:
      FileNotFoundError: a file is gone.
      ValueError: one was written again, is compressed, or is broken so that
        its records cannot be found.
    """
    refuse_compressed(files)
    self.name = name
    self._files = tuple(files)
    self._form = form
    self._cache = cache
    content = {
      "num_bytes": sum(file.size for file in files),
      "digest": digests.files_digest(files),
    }
    versions = {"versions": digests.versions_digest(files)}
    self._index = find_records(
      self._files,
      kind=form.kind,
      header_rows=int(form.read_header is not None),
      key={**content, **versions},
      cache=cache,
    )
    self.identity: dict[str, Any] = {
      "format": form.name,
      "num_records": len(self._index),
      **content,
    }
    self.cache_identity: dict[str, Any] = {**self.identity, **versions}
    self._ranges = ByteRanges(self._files)
    self._headers = self._read_headers()

  def __reduce__(self) -> tuple[Any, ...]:
    """Opens the files again, elsewhere; the cache spares looking."""
    return _reopen, (self._files, self._form, self.name, self._cache)

  def __len__(self) -> int:
    """Number of records."""
    return len(self._index)

  def read(self, indices: np.ndarray) -> list[Record]:
    """As `Records.read`."""
    numbers = record_numbers(indices, num_records=len(self), name=self.name)
    file, start, stop = self._index.locate(numbers)
    pieces = self._ranges.read(file, start, stop)
    if self._form.decode_all is not None:
      records = self._form.decode_all(pieces)
      if records is not None:
        return records
    records = []
    for index, number, piece in zip(numbers.tolist(), file.tolist(), pieces):
      try:
        records.append(self._form.decode(piece, self._headers[number]))
      except BadTextError as error:
        # From None: what is behind it may hold the text.
        raise BadRecordError(f"{self.place(index)} {error}") from None
    return records

  def place(self, index: int) -> str:
    """File, number in it and byte of a record."""
    numbers = record_numbers([index], num_records=len(self), name=self.name)
    file, start, _ = self._index.locate(numbers)
    number = numbers[0] - self._index.first_record[file[0]] + 1
    return f"{self._files[file[0]].path}, record {number}, byte {start[0]}"

  def _read_headers(self) -> list[Header]:
    if self._form.read_header is None:
      return [None] * len(self._files)
    headers = []
    for number, file in enumerate(self._files):
      where = self._index.header(number)
      if where is None:
        headers.append(None)
        continue
      start, stop = np.array([where[0]]), np.array([where[1]])
      row = self._ranges.read(np.array([number]), start, stop)[0]
      try:
        headers.append(self._form.read_header(row))
      except BadTextError as error:
        raise ValueError(f"{file.path}: the header {error}") from None
    return headers


def _reopen(
  files: Sequence[InputFile], form: TextFormat, name: str, cache: IndexCache
) -> TextFileRecords:
  return TextFileRecords(files, form, name=name, cache=cache)
