"""Reads an ArrayRecord of a tokenized corpus: a file in, documents out."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from array_record.python import array_record_module

from hpgrain.sources import index_file
from hpgrain.sources.array_record_format import TokenDocument, parse_record
from hpgrain.sources.document_blocks import BLOCK_DOCUMENTS, DocumentBlock

# Reads a record at a time, which is what `read(i, i + 1)` is fastest with.
_RANDOM = "readahead_buffer_size:0,max_parallelism:0"
_IN_ORDER = "readahead_buffer_size:1M,max_parallelism:1"
# What a block of documents has of tokens, unless one has more.
_BLOCK_BYTES = 8 << 20

_T = TypeVar("_T")


class ArrayRecordDocuments:
  """The documents of an ArrayRecord file, by number.

  `len(documents)` is their number, and `documents[i]` is a `TokenDocument`;
  negative numbers count from the end. It can be pickled and read from several
  threads, so that it is a source for Grain, too.

  Attributes:
    path: of the file, as it was given.
    dtype: of the tokens; None for a file without a document, which does not
      say it.
    multimodal: whether sequences have modes.
  """

  def __init__(self, path: str | os.PathLike[str]) -> None:
    """Opens the file and reads its first document.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: it is no ArrayRecord, or cut short, or not one of documents.
    """
    self.path = os.fspath(path)
    self._open()
    self.dtype: np.dtype | None = None
    self.multimodal = False
    self._code = 0
    if len(self):
      try:
        self._code, first = parse_record(self._read(0), where=self._where(0))
      except BaseException:
        self.close()
        raise
      self.dtype = index_file.DTYPES[self._code]
      self.multimodal = first.modes is not None

  def __len__(self) -> int:
    return self._count

  def __getitem__(self, index: int) -> TokenDocument:
    """Document `index`.

    Raises:
      IndexError: there is no such document.
      ValueError: the file is damaged there.
    """
    number = index + len(self) if index < 0 else index
    if not 0 <= number < len(self):
      raise IndexError(
        f"{self.path} has {len(self)} documents, got the number {index}."
      )
    return self._parse(number, self._read(number))

  def blocks(self) -> Iterator[DocumentBlock]:
    """All documents in order, some megabytes at a time.

    Raises:
      ValueError: the file is damaged; the record is named.
    """
    reader = _open_reader(self.path, _IN_ORDER)
    documents: list[TokenDocument] = []
    first = num_bytes = 0
    for number in range(len(self)):
      data = _explained(reader.read, where=self._where(number))
      documents.append(self._parse(number, data))
      num_bytes += len(data)
      if num_bytes >= _BLOCK_BYTES or len(documents) == BLOCK_DOCUMENTS:
        yield _block(first, documents)
        documents, first, num_bytes = [], number + 1, 0
    reader.close()
    if documents:
      yield _block(first, documents)

  def close(self) -> None:
    """Closes the file. Documents that were handed out stay valid."""
    self._reader.close()

  def __enter__(self) -> "ArrayRecordDocuments":
    return self

  def __exit__(self, *unused: object) -> None:
    self.close()

  def __repr__(self) -> str:
    return f"ArrayRecordDocuments({self.path!r}, {len(self)} documents)"

  def __getstate__(self) -> dict[str, Any]:
    return {k: v for k, v in self.__dict__.items() if k != "_reader"}

  def __setstate__(self, state: dict[str, Any]) -> None:
    self.__dict__.update(state)
    count = self._count
    self._open()
    if count != self._count:
      raise ValueError(
        f"{self.path} had {count} documents when it was opened and has"
        f" {self._count} now. Leave a corpus in place while it is read."
      )

  def _open(self) -> None:
    self._reader = _open_reader(self.path, _RANDOM)
    self._count: int = self._reader.num_records()

  def _where(self, number: int) -> str:
    return f"{self.path}: record {number}"

  def _read(self, number: int) -> bytes:
    (data,) = _explained(
      lambda: self._reader.read(number, number + 1), where=self._where(number)
    )
    return data

  def _parse(self, number: int, data: bytes) -> TokenDocument:
    code, document = parse_record(data, where=self._where(number))
    if (code, document.modes is not None) != (self._code, self.multimodal):
      raise ValueError(
        f"{self._where(number)} has the dtype code {code} and"
        f" {'no ' * (document.modes is None)}modes, record 0 has the code"
        f" {self._code} and {'no ' * (not self.multimodal)}modes. All records"
        " of a file are alike: make it again."
      )
    return document


def _block(first: int, documents: list[TokenDocument]) -> DocumentBlock:
  modes = [d.modes for d in documents if d.modes is not None]
  return DocumentBlock(
    first,
    np.array([len(d.lengths) for d in documents], np.int64),
    np.concatenate([d.lengths for d in documents]),
    np.concatenate(modes) if modes else None,
    _joined(documents),
  )


def _joined(documents: list[TokenDocument]) -> Iterator[np.ndarray]:
  """A block's tokens in one array; a long document's are not copied."""
  if len(documents) == 1:
    yield documents[0].tokens
  else:
    yield np.concatenate([d.tokens for d in documents])


def _open_reader(path: str, options: str) -> Any:
  if not Path(path).is_file():
    raise FileNotFoundError(
      f"{path} is not there. Name an ArrayRecord file, such as"
      " data/train_text_document.array_record."
    )
  reader = _explained(
    lambda: array_record_module.ArrayRecordReader(path, options), where=path
  )
  # The library opens what it cannot read as a file without a record.
  if not reader.ok():
    _explained(reader.close, where=path)
    raise ValueError(_broken(path, "it has no footer"))
  return reader


def _explained(read: Callable[[], _T], *, where: str) -> _T:
  """Calls the library, whose errors name no file."""
  try:
    return read()
  except (RuntimeError, IndexError, ValueError) as error:
    raise ValueError(_broken(where, str(error))) from None


def _broken(where: str, why: str) -> str:
  return (
    f"{where} cannot be read: {why}. The file is damaged, cut short or no"
    " ArrayRecord: copy it again or make it again."
  )
