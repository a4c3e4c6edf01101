"""Writes a tokenized corpus: documents in, an `.idx`/`.bin` pair out.

  tokens    -> {prefix}.bin.partial
  lengths   -> {prefix}.idx.partial, where they will stay
  documents -> an unnamed file  | both copied behind the pointers, which
  modes     -> an unnamed file  | finalize() makes from the lengths

Nothing is kept in memory but a block of each, whatever is written. Digests of
both files are made of the bytes on their way to the disk.
"""

import os
import tempfile
from collections.abc import Iterable, Sequence
from types import TracebackType

import numpy as np

from hpgrain.sources import encoding, index_checks, index_file
from hpgrain.sources.column import Column, blocks_of
from hpgrain.sources.file_digest import FileDigest
from hpgrain.sources.indexed_reader import IndexedReader
from hpgrain.sources.partial_pair import PartialPair, close_unflushed


class IndexedWriter:
  """Writes documents to a pair that appears whole, or not at all.

      with IndexedWriter("/data/train", dtype="uint16") as writer:
        writer.add_document([5, 7, 9])

  Leaving the block finalizes; an exception in it, and any failure to write,
  leaves no file behind. A pair that has the prefix already stays untouched
  until the new one replaces it. One writer at a time may work on a prefix.
  """

  def __init__(
    self,
    prefix: str | os.PathLike[str],
    *,
    dtype: np.dtype | type | str,
    multimodal: bool = False,
  ) -> None:
    """Begins a pair.

    Args:
      prefix: the path that `.idx` and `.bin` are added to.
      dtype: dtype of the ids, or its name: any that the format has a code for.
      multimodal: whether a mode is written for every sequence.

    Raises:
      ValueError: the format has no code for the dtype.
      OSError: the files cannot be made, or another writer is making them.
    """
    self._prefix = os.fspath(prefix)
    self._code = index_file.dtype_code(dtype)
    self._dtype = index_file.DTYPES[self._code]
    self._multimodal = multimodal
    self._num_tokens = 0
    self._bin_digest = FileDigest()
    self._idx_digest = FileDigest()
    self._ended = ""
    self._files = PartialPair(self._prefix)
    self._spills = []
    try:
      for _ in range(2):
        spill = tempfile.TemporaryFile(dir=self._files.folder)
        self._spills.append(spill)
      self._files.idx.seek(index_file.HEADER.size)
      self._lengths = Column(self._files.idx, index_file.LENGTH)
      self._documents = Column(self._spills[0], index_file.DOCUMENT_INDEX)
      self._modes = Column(self._spills[1], index_file.MODE)
      self._documents.extend([0])
    except BaseException:
      self.discard()
      raise

  def add_document(
    self,
    tokens: Sequence[int] | np.ndarray,
    lengths: Sequence[int] | np.ndarray | None = None,
    modes: Sequence[int] | np.ndarray | None = None,
  ) -> None:
    """Appends one document.

    Args:
      tokens: its ids, 1-D; may be empty.
      lengths: tokens of each of its sequences, adding up to all tokens. None
        makes one sequence, or none of an empty document.
      modes: int8 mode of each sequence; None means 0. Only for a multimodal
        pair.

    Raises:
      ValueError: an id does not fit the dtype, or lengths or modes do not fit
        the tokens. Nothing of the document was written.
      OSError: it could not be written; the writer is discarded.
    """
    self._check_open()
    where = f"{self._prefix}, document {self._documents.count - 1}"
    ids = encoding.encode_ids(tokens, self._dtype, where=where)
    counts = encoding.encode_lengths(lengths, ids.size, where=where)
    kinds = encoding.encode_modes(
      modes, len(counts), multimodal=self._multimodal, where=where
    )
    try:
      self._write_tokens(ids)
      self._lengths.extend(counts)
      self._modes.extend(kinds)
      self._documents.extend([self._lengths.count])
    except BaseException:
      self.discard()
      raise

  def add_documents(
    self,
    tokens: Iterable[np.ndarray],
    lengths: np.ndarray,
    counts: np.ndarray,
    modes: np.ndarray | None = None,
  ) -> None:
    """Appends many documents, at a cost that hardly depends on how many.

    Args:
      tokens: their ids one after the other, in blocks [n] of the writer's
        dtype.
      lengths: int64[sequences], tokens of each sequence.
      counts: int64[documents], sequences of each document; 0 for an empty one.
      modes: int8[sequences], the mode of each; None means 0. Only for a
        multimodal pair.

    Raises:
      ValueError: the arrays contradict one another. Where only the tokens
        show it, the writer is discarded.
      OSError: it could not be written; the writer is discarded.
    """
    self._check_open()
    where = f"{self._prefix}, from document {self._documents.count - 1} on"
    encoding.check_columns(lengths, counts, where=where)
    kinds = encoding.encode_mode_column(
      modes, len(lengths), multimodal=self._multimodal, where=where
    )
    num_tokens = 0
    first_sequence = self._lengths.count
    try:
      for block in tokens:
        if block.dtype != self._dtype:
          raise ValueError(
            f"{where}: tokens of {block.dtype} were given to a writer of"
            f" {self._dtype.name}. Convert them, or write that dtype."
          )
        self._write_tokens(np.ascontiguousarray(block))
        num_tokens += block.size
      if num_tokens != lengths.sum():
        raise ValueError(
          f"{where}: {num_tokens} tokens were given, but the lengths add up to"
          f" {lengths.sum()}."
        )
      self._lengths.extend_array(lengths)
      self._modes.extend_array(kinds)
      self._documents.extend_array(
        first_sequence + np.cumsum(counts, dtype=np.int64)
      )
    except BaseException:
      self.discard()
      raise

  def add_index(self, prefix: str | os.PathLike[str]) -> None:
    """Appends all documents of another pair.

    Raises:
      FileNotFoundError: there is no such pair.
      ValueError: it is damaged, its ids have another dtype, or only one of
        the two has modes. Nothing of it was written.
      OSError: it could not be copied; the writer is discarded.
    """
    self._check_open()
    with IndexedReader(prefix, mmap=False) as reader:
      self._check_addable(reader)
      reader.verify()
      try:
        self._append(reader)
      except BaseException:
        self.discard()
        raise

  def finalize(self) -> None:
    """Completes the pair under its final name, durably.

    Raises:
      OSError: it could not be written; nothing is left.
    """
    self._check_open()
    try:
      self._write_index()
      self._files.publish()
    except BaseException:
      self.discard()
      raise
    self._end("finalized")

  def digests(self) -> dict[str, str]:
    """The digests (`file_digest`) of a finished pair's "bin" and "idx"."""
    if self._ended != "finalized":
      raise ValueError(
        f"{self._prefix} is not finalized, so its files have no digest yet."
      )
    return {"bin": self._bin_digest.text(), "idx": self._idx_digest.text()}

  def discard(self) -> None:
    """Gives the pair up and leaves nothing; a finished pair stays."""
    if not self._ended:
      self._files.discard()
      self._end("discarded")

  def __enter__(self) -> "IndexedWriter":
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

  def _check_open(self) -> None:
    if self._ended:
      raise ValueError(
        f"{self._prefix}: the writer was {self._ended}, nothing can be added. "
        "Make a new IndexedWriter."
      )

  def _end(self, how: str) -> None:
    self._ended = how
    for file in self._spills:
      close_unflushed(file)

  def _check_addable(self, reader: IndexedReader) -> None:
    if reader.dtype != self._dtype:
      raise ValueError(
        f"{reader.prefix} has ids of {reader.dtype.name}, {self._prefix} is "
        f"written in {self._dtype.name}. Merge pairs of one dtype."
      )
    has_modes = reader.modes is not None
    if len(reader) and has_modes != self._multimodal:
      raise ValueError(
        f"{reader.prefix} has {'' if has_modes else 'no '}modes, but "
        f"{self._prefix} is written with multimodal={self._multimodal}. Merge "
        "pairs of one kind."
      )

  def _append(self, reader: IndexedReader) -> None:
    first_sequence = self._lengths.count
    for block in reader.token_blocks():
      self._write_tokens(block)
    for block in blocks_of(reader.lengths):
      self._lengths.extend(block.tolist())
    if self._multimodal and len(reader):
      for block in blocks_of(reader.modes):
        self._modes.extend(block.tolist())
    for block in blocks_of(reader.document_indices[1:]):
      self._documents.extend((block + first_sequence).tolist())

  def _write_tokens(self, ids: np.ndarray) -> None:
    self._files.bin.write(ids.data)
    self._bin_digest.update(ids.data)
    self._num_tokens += ids.size

  def _write_index(self) -> None:
    """Completes the `.idx`, in which the lengths are in place."""
    idx, digest = self._files.idx, self._idx_digest
    layout = index_file.IndexLayout(
      self._code,
      self._lengths.count,
      self._documents.count,
      self._multimodal,
    )
    digest.update(layout.header())
    self._lengths.flush()
    for block in self._lengths.blocks():
      digest.update(block.data)
    start = 0
    for block in self._lengths.blocks():
      ends = index_checks.exclusive_ends(
        block, itemsize=self._dtype.itemsize, start=start
      )
      pointers = ends[:-1].astype(index_file.POINTER, copy=False)
      idx.write(pointers.data)
      digest.update(pointers.data)
      start = int(ends[-1])
    written = self._files.num_bin_bytes()
    if not start == self._num_tokens * self._dtype.itemsize == written:
      raise OSError(
        f"{self._prefix}.bin.partial has {written} bytes, but sequences of "
        f"{start} bytes were added: something else wrote or cut it."
      )
    columns = [self._documents] + [self._modes] * self._multimodal
    for column in columns:
      column.flush()
      for block in column.blocks():
        idx.write(block.data)
        digest.update(block.data)
    idx.seek(0)
    idx.write(layout.header())
