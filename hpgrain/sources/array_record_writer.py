"""Writes an ArrayRecord of a tokenized corpus: documents in, a file out.

documents -> {path}.partial, locked while it is written -> {path}
"""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType

import numpy as np
from array_record.python import array_record_module

from hpgrain.sources import encoding, index_file
from hpgrain.sources.array_record_format import (
  MAX_RECORD_BYTES,
  record_head,
)
from hpgrain.sources.file_digest import digest_of
from hpgrain.sources.partial_pair import open_locked, sync_folder

_WRITER_OPTIONS = "group_size:1,uncompressed"
# The library may keep a full disk to itself until it is closed. This much is
# let be in its buffers.
_UNWRITTEN_BYTES = 64 << 20


class ArrayRecordWriter:
  """Writes documents to a file that appears whole, or not at all.

  What `IndexedWriter` is for a pair: leaving the block finalizes; an exception
  in it, and any failure to write, leaves no file behind. One writer at a time
  may work on a path.
  """

  def __init__(
    self,
    path: str | os.PathLike[str],
    *,
    dtype: np.dtype | type | str,
    multimodal: bool = False,
  ) -> None:
    """Begins a file.

    Args:
      path: of the file.
      dtype: dtype of the ids, or its name: any that an `.idx` has a code for.
      multimodal: whether a mode is written for every sequence.

    Raises:
      BlockingIOError: another writer is at work on the path.
      FileNotFoundError: the folder does not exist.
      IsADirectoryError: a folder lies where the file is to be.
      ValueError: there is no code for the dtype.
    """
    self._path = Path(path).absolute()
    self._partial = Path(f"{self._path}.partial")
    self._code = index_file.dtype_code(dtype)
    self._dtype = index_file.DTYPES[self._code]
    self._multimodal = multimodal
    self._num_documents = 0
    self._num_bytes = 0
    self._digest = ""
    self._ended = ""
    if not self._path.parent.is_dir():
      raise FileNotFoundError(
        f"{self._path.parent} is not a folder, so {path} cannot be written."
        " Create it first."
      )
    if self._path.is_dir():
      raise IsADirectoryError(
        f"{self._path} is a folder. Choose another name, or move it away."
      )
    self._fd = open_locked(self._partial, os.fspath(path))
    self._writer = array_record_module.ArrayRecordWriter(
      str(self._partial), _WRITER_OPTIONS
    )

  def add_documents(
    self,
    tokens: Iterable[np.ndarray],
    lengths: np.ndarray,
    counts: np.ndarray,
    modes: np.ndarray | None = None,
  ) -> None:
    """Appends many documents.

    Args:
      tokens: their ids one after the other, in blocks [n] of the writer's
        dtype.
      lengths: int64[sequences], tokens of each sequence.
      counts: int64[documents], sequences of each document; 0 for an empty one.
      modes: int8[sequences], the mode of each; None means 0. Only for a
        multimodal file.

    Raises:
      ValueError: the arrays contradict one another, or a document is too
        large for a record. Where only the tokens show it, the writer is
        discarded.
      OSError: it could not be written; the writer is discarded.
    """
    if self._ended:
      raise ValueError(
        f"{self._path}: the writer was {self._ended}, nothing can be added."
        " Make a new ArrayRecordWriter."
      )
    where = f"{self._path}, from document {self._num_documents} on"
    encoding.check_columns(lengths, counts, where=where)
    kinds = encoding.encode_mode_column(
      modes, len(lengths), multimodal=self._multimodal, where=where
    )
    pieces = _Pieces(tokens, self._dtype, where)
    try:
      self._write(pieces, lengths, counts.tolist(), kinds)
      pieces.check_end()
      self._check_written()
    except BaseException:
      self.discard()
      raise

  def finalize(self) -> None:
    """Completes the file under its final name, durably.

    Raises:
      OSError: it could not be written; nothing is left.
    """
    if self._ended:
      raise ValueError(f"{self._path}: the writer was {self._ended} already.")
    try:
      self._close()
      os.fsync(self._fd)
      self._digest = digest_of(self._fd)
      self._partial.replace(self._path)
    except BaseException:
      self.discard()
      raise
    # From here on the temporary name may be another writer's.
    self._end("finalized")
    sync_folder(self._path.parent)

  def digests(self) -> dict[str, str]:
    """The digest (`file_digest`) of a finished file, as "array_record"."""
    if self._ended != "finalized":
      raise ValueError(f"{self._path} is not finalized, so it has no digest.")
    return {"array_record": self._digest}

  def discard(self) -> None:
    """Gives the file up and leaves nothing; a finished file stays."""
    if self._ended:
      return
    try:
      self._close()
    except OSError:
      # What failed to be written is not wanted any more.
      pass
    self._partial.unlink(missing_ok=True)
    self._end("discarded")

  def __enter__(self) -> "ArrayRecordWriter":
    return self

  def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    traceback: TracebackType | None,
  ) -> None:
    if kind is not None:
      self.discard()
    elif not self._ended:
      self.finalize()

  def _write(
    self,
    pieces: "_Pieces",
    lengths: np.ndarray,
    counts: list[int],
    modes: np.ndarray,
  ) -> None:
    first = 0
    # Where each sequence ends, so that a document's tokens need no sum.
    ends = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
    lengths = lengths.astype(index_file.LENGTH, copy=False)
    bounds = ends[np.cumsum([0, *counts])].tolist()
    for number, count in enumerate(counts):
      some = lengths[first : first + count]
      head = record_head(
        some,
        modes[first : first + count],
        code=self._code,
        multimodal=self._multimodal,
      )
      num_tokens = bounds[number + 1] - bounds[number]
      num_bytes = len(head) + num_tokens * self._dtype.itemsize
      if num_bytes > MAX_RECORD_BYTES:
        raise ValueError(
          f"{self._path}: document {self._num_documents} has {num_tokens}"
          f" tokens and takes a record of {num_bytes} bytes; a record may have"
          f" {MAX_RECORD_BYTES}. Keep this corpus as a pair"
          " (--format=indexed), or split the document."
        )
      record = b"".join([head, *pieces.take(num_tokens)])
      self._do(self._writer.write, record)
      self._num_documents += 1
      self._num_bytes += num_bytes
      first += count

  def _check_written(self) -> None:
    """Raises OSError if the library has stopped to write."""
    size = os.fstat(self._fd).st_size
    if self._num_bytes > size + _UNWRITTEN_BYTES:
      self._close()
      raise OSError(
        f"{self._partial} has {size} bytes, but documents of"
        f" {self._num_bytes} were written: something else cut it."
      )

  def _close(self) -> None:
    """Closes the library's writer, which tells then what went wrong."""
    if self._writer.is_open():
      self._do(self._writer.close)

  def _do(self, call: Callable[..., None], *arguments: bytes) -> None:
    try:
      call(*arguments)
    except RuntimeError as error:
      raise OSError(f"{self._path} could not be written: {error}") from None

  def _end(self, how: str) -> None:
    self._ended = how
    # This unlocks the path.
    os.close(self._fd)


class _Pieces:
  """Blocks of tokens in, the tokens of one document after another out."""

  def __init__(
    self, blocks: Iterable[np.ndarray], dtype: np.dtype, where: str
  ) -> None:
    self._blocks = iter(blocks)
    self._dtype = dtype
    self._where = where
    self._block = np.empty(0, dtype)
    self._at = 0

  def take(self, count: int) -> Iterator[memoryview]:
    """Yields the next `count` tokens in pieces."""
    while count:
      if self._at == len(self._block):
        self._next(f"the lengths ask for {count} more")
        continue
      piece = self._block[self._at : self._at + count]
      self._at += len(piece)
      count -= len(piece)
      yield piece.data

  def check_end(self) -> None:
    """Raises ValueError if there are more tokens."""
    rest = len(self._block) - self._at + sum(map(len, self._blocks))
    if rest:
      raise ValueError(
        f"{self._where}: {rest} more tokens were given than the lengths add"
        " up to."
      )

  def _next(self, missing: str) -> None:
    block = next(self._blocks, None)
    if block is None:
      raise ValueError(f"{self._where}: the tokens end, but {missing}.")
    if block.dtype != self._dtype:
      raise ValueError(
        f"{self._where}: tokens of {block.dtype} were given to a writer of"
        f" {self._dtype.name}. Convert them, or write that dtype."
      )
    self._block, self._at = np.ascontiguousarray(block), 0
