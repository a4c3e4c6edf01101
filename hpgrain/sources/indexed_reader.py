"""Reads a tokenized corpus: an `.idx`/`.bin` pair in, sequences of ids out.

Opening looks at the header and at the ends of the arrays, so it costs the
same for a thousand sequences and for a billion. What lies between is checked
where it is used: a sequence is handed out only if it begins where the one
before it ends and ends where the next begins.
"""

import itertools
import operator
import os
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hpgrain import _kernels
from hpgrain.sources import (
  corpus_digest,
  index_checks,
  index_file,
  mappings,
  open_pairs,
)

_KEYS = itertools.count()
_COPY_BYTES = 8 << 20


class IndexedReader:
  """The sequences of a tokenized corpus, by number.

  `len(reader)` is the number of sequences. `reader[i]` is sequence i, a
  read-only 1-D array of the file's dtype: a view of the mapped file, which
  outlives the reader, or a copy with `mmap=False`. `reader[a:b]` is a list of
  such views. Negative numbers count from the end, as in a list.

  A reader can be pickled and is safe to use from several threads. A process
  keeps at most `set_max_open_files` files open for all its readers.
  """

  def __init__(
    self,
    prefix: str | os.PathLike[str],
    *,
    mmap: bool = True,
    multimodal: bool | None = None,
  ) -> None:
    """Opens `{prefix}.idx` and `{prefix}.bin` and checks them in O(1).

    Args:
      prefix: the path that the two files share, without the suffix.
      mmap: whether tokens are mapped; else they are read by pread. The `.idx`
        is mapped either way.
      multimodal: True demands modes, False ignores them, None takes what the
        `.idx` has. Changes only `modes`.

    Raises:
      FileNotFoundError: one of the files does not exist.
      ValueError: the files are damaged, or have no modes though demanded.
    """
    self._prefix = os.fspath(prefix)
    self._path = str(Path(self._prefix).absolute())
    self._use_mmap = mmap
    with mappings.pair_descriptors(self._path) as (idx_fd, bin_fd):
      self._stamp = mappings.stamp(idx_fd, bin_fd)
      self._layout = index_file.read_layout(
        idx_fd, index_file.idx_path(self._prefix)
      )
      self._used_bytes = index_file.check_ends(
        self._layout, idx_fd, self._stamp.bin_bytes, self._prefix
      )
    self._with_modes = index_file.takes_modes(
      self._layout, multimodal, index_file.idx_path(self._prefix)
    )
    self._closed = False
    self._register()

  @property
  def prefix(self) -> str:
    """The prefix the reader was made with."""
    return self._prefix

  @property
  def dtype(self) -> np.dtype:
    """The dtype of the tokens."""
    return self._layout.dtype

  @property
  def num_documents(self) -> int:
    """Documents, empty ones included."""
    return self._layout.num_document_indices - 1

  @property
  def num_tokens(self) -> int:
    """Tokens in all sequences, from the end of the last one."""
    return self._used_bytes // self.dtype.itemsize

  @property
  def idx_bytes(self) -> int:
    """The size of the `.idx` when it was opened."""
    return self._stamp.idx_bytes

  @property
  def idx_mtime_ns(self) -> int:
    """When the `.idx` was last written, as it was opened."""
    return self._stamp.idx_mtime_ns

  @property
  def bin_bytes(self) -> int:
    """The size of the `.bin` when it was opened."""
    return self._stamp.bin_bytes

  @property
  def lengths(self) -> np.ndarray:
    """int32[len], tokens in each sequence; a view of the mapped `.idx`."""
    return self._layout.lengths(self._pair().index)

  @property
  def pointers(self) -> np.ndarray:
    """int64[len], the byte in the `.bin` where each sequence begins."""
    return self._layout.pointers(self._pair().index)

  @property
  def document_indices(self) -> np.ndarray:
    """int64[documents + 1], the sequence at which each document begins."""
    return self._layout.document_indices(self._pair().index)

  @property
  def modes(self) -> np.ndarray | None:
    """int8[len], the mode of each sequence, or None."""
    if not self._with_modes:
      return None
    return self._layout.modes(self._pair().index)

  def __len__(self) -> int:
    return self._layout.num_sequences

  def __getitem__(self, index: Any) -> Any:
    """Sequence `index`, or the list of sequences of a slice.

    Raises:
      IndexError: there is no such sequence.
      ValueError: the pair is damaged there, or a slice is not contiguous or
        asked for without mmap.
    """
    if not isinstance(index, slice):
      return self.get(index)
    if not self._use_mmap:
      raise ValueError(
        f"{self._prefix} was opened with mmap=False, but slices are views of "
        "a mapped .bin. Read one by one, or open it with mmap=True."
      )
    first, last, step = index.indices(len(self))
    if step != 1:
      raise ValueError(
        f"{self._prefix}: a slice must be contiguous, got step {step}."
      )
    return [self.get(i) for i in range(first, last)]

  def get(
    self, index: int, offset: int = 0, length: int | None = None
  ) -> np.ndarray:
    """Reads `length` tokens of sequence `index` from its token `offset` on.

    Args:
      index: number of the sequence; negative ones count from the end.
      offset: first token, 0 up to the sequence's length.
      length: how many tokens; None reads to the sequence's end.

    Returns:
      [length] of the file's dtype, read-only.

    Raises:
      IndexError: there is no such sequence.
      ValueError: the tokens asked for are not all inside the sequence, or the
        pair is damaged there.
    """
    sequence = self._sequence(index)
    pair = self._pair()
    start, num_tokens = index_checks.locate_sequence(
      pair.index,
      self._layout,
      sequence,
      bin_bytes=self.bin_bytes,
      prefix=self._prefix,
    )
    begin = operator.index(offset)
    count = num_tokens - begin if length is None else operator.index(length)
    if not (0 <= begin <= num_tokens and 0 <= count <= num_tokens - begin):
      raise ValueError(
        f"{self._prefix}: sequence {sequence} has {num_tokens} tokens, got "
        f"offset={offset} and length={length}. Ask for tokens inside it."
      )
    itemsize = self.dtype.itemsize
    data = pair.read(start + begin * itemsize, count * itemsize)
    return data.view(self.dtype)

  def verify(self) -> None:
    """Reads the whole `.idx` and checks what opening could not.

    Raises:
      ValueError: a length is negative, a pointer is not where the sequence
        before it ends, or document indices are out of order; the first such
        entry is named.
    """
    index_checks.check_sequences(
      self.lengths, self.pointers, self.dtype.itemsize, self._prefix
    )
    index_checks.check_documents(self.document_indices, len(self), self._prefix)

  def token_blocks(
    self, first: int = 0, last: int | None = None
  ) -> Iterator[np.ndarray]:
    """Tokens [first, last) of a sound pair's `.bin`, in order, in blocks."""
    pair, itemsize = self._pair(), self.dtype.itemsize
    end = self._used_bytes if last is None else last * itemsize
    for start in range(first * itemsize, end, _COPY_BYTES):
      num_bytes = min(_COPY_BYTES, end - start)
      yield pair.read(start, num_bytes).view(self.dtype)

  def token_file(self) -> _kernels.TokenFile:
    """The pair as the C++ kernels take it.

    It keeps the pair open while it lives, so it is to be asked for anew for
    every batch; while the pair stays open the same object is returned.
    """
    pair = self._pair()
    if pair.token_file is None:
      tokens: Any = pair.tokens
      if not isinstance(tokens, np.ndarray):
        tokens = (tokens.fd, self.bin_bytes, tokens)
      layout = self._layout
      pair.token_file = _kernels.TokenFile(
        layout.lengths(pair.index),
        layout.pointers(pair.index),
        layout.document_indices(pair.index),
        layout.dtype_code,
        tokens,
      )
    return pair.token_file

  def content_digest(self) -> str:
    """32 hex digits that tell this corpus from another, in O(1).

    Made from sizes and sampled blocks (`corpus_digest`), not from the path.
    """
    with mappings.pair_descriptors(self._path) as (idx_fd, bin_fd):
      mappings.check_stamp(
        mappings.stamp(idx_fd, bin_fd), self._stamp, self._prefix
      )
      return corpus_digest.content_digest(
        idx_fd, bin_fd, idx_bytes=self.idx_bytes, bin_bytes=self.bin_bytes
      )

  def close(self) -> None:
    """Lets go of the files. Arrays that were handed out stay valid."""
    self._closed = True
    open_pairs.OPEN_PAIRS.discard(self._key)

  def __enter__(self) -> "IndexedReader":
    return self

  def __exit__(self, *unused: object) -> None:
    self.close()

  def __repr__(self) -> str:
    return (
      f"IndexedReader({self._prefix!r}, {len(self)} sequences, "
      f"{self.num_documents} documents, {self.num_tokens} tokens, "
      f"{self.dtype.name})"
    )

  def __getstate__(self) -> dict[str, Any]:
    return {k: v for k, v in self.__dict__.items() if k != "_key"}

  def __setstate__(self, state: dict[str, Any]) -> None:
    self.__dict__.update(state)
    self._register()

  def _register(self) -> None:
    self._key = next(_KEYS)
    finalizer = weakref.finalize(self, open_pairs.OPEN_PAIRS.discard, self._key)
    finalizer.atexit = False

  def _pair(self) -> mappings.OpenPair:
    if self._closed:
      raise ValueError(f"{self._prefix}: the reader is closed. Open another.")
    return open_pairs.OPEN_PAIRS.get(self._key, self._open)

  def _open(self) -> mappings.OpenPair:
    return mappings.open_pair(
      self._path, use_mmap=self._use_mmap, expected=self._stamp
    )

  def _sequence(self, index: int) -> int:
    sequence = operator.index(index)
    if sequence < 0:
      sequence += len(self)
    if not 0 <= sequence < len(self):
      raise IndexError(
        f"{self._prefix} has {len(self)} sequences, got the number {index}. "
        f"Numbers run from 0 to {len(self) - 1}."
      )
    return sequence
