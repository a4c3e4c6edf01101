"""The `.idx` of a tokenized corpus: an open file in, its checked layout out.

  offset          field (little-endian, unaligned)
  0               magic, version u64, dtype code u8
  18              sequence count N u64, document index count D u64
  34              lengths i32[N], in tokens
  34 + 4N         pointers i64[N], byte offsets into the `.bin`
  34 + 12N        document_indices i64[D], D = documents + 1
  34 + 12N + 8D   modes i8[N], in multimodal files only

Everything here costs the same however many documents the file describes.
"""

import dataclasses
import mmap
import os
import struct

import numpy as np

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
HEADER = struct.Struct("<9sQBQQ")

LENGTH = np.dtype("<i4")
POINTER = np.dtype("<i8")
DOCUMENT_INDEX = np.dtype("<i8")
MODE = np.dtype("<i1")

# What the dtype code of a header stands for.
DTYPES = {
  1: np.dtype("<u1"),
  2: np.dtype("<i1"),
  3: np.dtype("<i2"),
  4: np.dtype("<i4"),
  5: np.dtype("<i8"),
  6: np.dtype("<f8"),
  7: np.dtype("<f4"),
  8: np.dtype("<u2"),
}
_CODES = {dtype.name: code for code, dtype in DTYPES.items()}

# The first vocabulary size that is written as int32: a margin under 2^16.
_INT32_VOCAB_SIZE = 65500

_ADVICE = "The file is damaged or not a corpus: copy it again or rewrite it."


def idx_path(prefix: str) -> str:
  """The path of a pair's index file."""
  return f"{prefix}.idx"


def bin_path(prefix: str) -> str:
  """The path of a pair's token file."""
  return f"{prefix}.bin"


def dtype_code(dtype: np.dtype | type | str) -> int:
  """The header's code for a dtype or its name; the byte order is ignored.

  Raises:
    ValueError: the format has no code for it.
  """
  try:
    # None would be NumPy's default, float64.
    name = "" if dtype is None else np.dtype(dtype).name
  except TypeError:
    name = ""
  if name not in _CODES:
    raise ValueError(
      f"dtype {dtype!r} has no code in the .idx format; "
      f"use one of {', '.join(sorted(_CODES))}."
    )
  return _CODES[name]


def dtype_for_vocabulary(vocab_size: int) -> np.dtype:
  """The dtype to write ids of a vocabulary in: uint16 while it is safe."""
  return np.dtype("<u2" if vocab_size < _INT32_VOCAB_SIZE else "<i4")


@dataclasses.dataclass(frozen=True)
class IndexLayout:
  """Where the arrays of an `.idx` lie, in bytes from its beginning.

  Attributes:
    dtype_code: code of the tokens' dtype, a key of `DTYPES`.
    num_sequences: N.
    num_document_indices: D, one more than the documents; at least 1.
    has_modes: whether a mode follows for every sequence.
  """

  dtype_code: int
  num_sequences: int
  num_document_indices: int
  has_modes: bool

  @property
  def dtype(self) -> np.dtype:
    """The dtype of the tokens, little-endian."""
    return DTYPES[self.dtype_code]

  @property
  def lengths_at(self) -> int:
    """Where lengths i32[N] begin."""
    return HEADER.size

  @property
  def pointers_at(self) -> int:
    """Where pointers i64[N] begin."""
    return self.lengths_at + LENGTH.itemsize * self.num_sequences

  @property
  def document_indices_at(self) -> int:
    """Where document_indices i64[D] begin."""
    return self.pointers_at + POINTER.itemsize * self.num_sequences

  @property
  def modes_at(self) -> int:
    """Where modes i8[N] begin, or would: the end of a file without them."""
    documents = DOCUMENT_INDEX.itemsize * self.num_document_indices
    return self.document_indices_at + documents

  @property
  def num_bytes(self) -> int:
    """The size of the whole file."""
    return self.modes_at + (self.num_sequences if self.has_modes else 0)

  def lengths(self, index: mmap.mmap) -> np.ndarray:
    """int32[N], the lengths in a mapped `.idx`, perhaps unaligned."""
    return np.frombuffer(index, LENGTH, self.num_sequences, self.lengths_at)

  def pointers(self, index: mmap.mmap) -> np.ndarray:
    """int64[N], the pointers in a mapped `.idx`, perhaps unaligned."""
    return np.frombuffer(index, POINTER, self.num_sequences, self.pointers_at)

  def document_indices(self, index: mmap.mmap) -> np.ndarray:
    """int64[D], the document indices in a mapped `.idx`."""
    count = self.num_document_indices
    at = self.document_indices_at
    return np.frombuffer(index, DOCUMENT_INDEX, count, at)

  def modes(self, index: mmap.mmap) -> np.ndarray:
    """int8[N], the modes in a mapped `.idx` that has them."""
    return np.frombuffer(index, MODE, self.num_sequences, self.modes_at)

  def header(self) -> bytes:
    """The 34 bytes that describe this layout."""
    return HEADER.pack(
      MAGIC,
      VERSION,
      self.dtype_code,
      self.num_sequences,
      self.num_document_indices,
    )


def read_layout(fd: int, path: str) -> IndexLayout:
  """Reads the header of an open `.idx` and checks it against the file's size.

  The counts are compared in Python's unbounded integers before anything is
  sized by them.

  Raises:
    ValueError: this is not an `.idx`, or not all of one, or more than one.
  """
  size = os.fstat(fd).st_size
  header = os.pread(fd, HEADER.size, 0)
  if header[: len(MAGIC)] != MAGIC[: len(header)] or not header:
    raise ValueError(
      f"{path} begins with {header[: len(MAGIC)]!r}, an .idx begins with "
      f"{MAGIC!r}. {_ADVICE}"
    )
  if len(header) < HEADER.size:
    raise ValueError(
      f"{path} has {size} bytes, the header alone takes {HEADER.size}. "
      f"{_ADVICE}"
    )
  _, version, code, num_sequences, num_document_indices = HEADER.unpack(header)
  if version != VERSION:
    raise ValueError(
      f"{path} is of version {version}, only version {VERSION} can be read. "
      f"{_ADVICE}"
    )
  if code not in DTYPES:
    raise ValueError(
      f"{path} has the dtype code {code}; the codes are "
      + ", ".join(f"{code} {dtype.name}" for code, dtype in DTYPES.items())
      + f". {_ADVICE}"
    )
  if num_document_indices < 1:
    raise ValueError(
      f"{path} has no document index; even a file without documents has one. "
      f"{_ADVICE}"
    )
  plain = IndexLayout(code, num_sequences, num_document_indices, False)
  layouts = [plain]
  if num_sequences:
    layouts.append(dataclasses.replace(plain, has_modes=True))
  for layout in layouts:
    if layout.num_bytes == size:
      return layout
  raise ValueError(
    f"{path} has {size} bytes, but {num_sequences} sequences and "
    f"{num_document_indices} document indices take {plain.num_bytes}, or "
    f"{plain.num_bytes + num_sequences} with modes. {_ADVICE}"
  )


def check_ends(
  layout: IndexLayout, idx_fd: int, bin_size: int, prefix: str
) -> int:
  """Checks the first and last entries of an `.idx` against its `.bin`.

  Args:
    layout: what `read_layout` returned for the file.
    idx_fd: the open `.idx`.
    bin_size: bytes in the `.bin`; more than the `.idx` uses are allowed.
    prefix: the pair's prefix, for messages.

  Returns:
    The bytes of the `.bin` that the sequences use.

  Raises:
    ValueError: the entries contradict the counts or the `.bin`'s size.
  """
  count = layout.num_sequences
  path = idx_path(prefix)
  last_index_at = layout.modes_at - DOCUMENT_INDEX.itemsize
  first = _read_int(idx_fd, layout.document_indices_at, DOCUMENT_INDEX)
  last = _read_int(idx_fd, last_index_at, DOCUMENT_INDEX)
  if first != 0 or last != count:
    raise ValueError(
      f"{path}: the document indices run from {first} to {last}, but with "
      f"{count} sequences they run from 0 to {count}. {_ADVICE}"
    )
  if not count:
    return 0
  pointer = _read_int(idx_fd, layout.pointers_at, POINTER)
  if pointer != 0:
    raise ValueError(
      f"{path}: the first sequence begins at byte {pointer} of the .bin, it "
      f"must begin at byte 0. {_ADVICE}"
    )
  last_pointer_at = layout.document_indices_at - POINTER.itemsize
  last_length_at = layout.pointers_at - LENGTH.itemsize
  pointer = _read_int(idx_fd, last_pointer_at, POINTER)
  length = _read_int(idx_fd, last_length_at, LENGTH)
  itemsize = layout.dtype.itemsize
  if pointer < 0 or length < 0 or pointer % itemsize:
    raise ValueError(
      f"{path}: the last sequence, {count - 1}, has {length} tokens from "
      f"byte {pointer}; neither may be negative, and tokens of "
      f"{layout.dtype.name} begin at multiples of {itemsize}. {_ADVICE}"
    )
  end = pointer + length * itemsize
  if end > bin_size:
    raise ValueError(
      f"{bin_path(prefix)} has {bin_size} bytes, but by {path} its last "
      f"sequence, {count - 1}, ends at byte {end}: {end - bin_size} bytes are "
      "missing. The .bin was cut short or is not this .idx's: copy the pair "
      "again or rewrite it."
    )
  return end


def takes_modes(
  layout: IndexLayout, multimodal: bool | None, path: str
) -> bool:
  """Whether modes are to be read: as demanded, or where there are some.

  Raises:
    ValueError: `multimodal` is True, but the file has no modes.
  """
  # Without a sequence there is no mode to miss.
  if multimodal and layout.num_sequences and not layout.has_modes:
    raise ValueError(
      f"{path} has no modes, but multimodal=True demands them. Leave "
      "multimodal out, or write the pair with IndexedWriter(..., "
      "multimodal=True)."
    )
  return layout.has_modes if multimodal is None else multimodal


def _read_int(fd: int, offset: int, dtype: np.dtype) -> int:
  data = os.pread(fd, dtype.itemsize, offset)
  return int.from_bytes(data, "little", signed=True)
