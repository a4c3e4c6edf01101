"""A document of tokens in, its record in an ArrayRecord file out, and back.

Record i of `{prefix}.array_record` is document i of the pair that the file
holds the documents of. A record describes itself, all of it little-endian:

  offset  field
  0       version u8 = 1
  1       dtype code u8 of the tokens, as in an `.idx`: 1 u8, 2 i8, 3 i16,
          4 i32, 5 i64, 6 f64, 7 f32, 8 u16
  2       flags u8: 1 if sequences have modes, else 0
  3       zero u8
  4       sequence count N u32; 0 for an empty document
  8       lengths i32[N], in tokens
  8 + 4N  modes i8[N], if the flag says so
  ..      zeros up to a multiple of 8 bytes
  ..      the tokens, to the record's end

Dtype and flag are the same in all records of a file. All of a record is
written and read at once, so that it may have `MAX_RECORD_BYTES` at most.
"""

import dataclasses
import os
import struct

import numpy as np

from hpgrain.sources import index_file

SUFFIX = ".array_record"
VERSION = 1
_HEADER = struct.Struct("<BBBBI")
_HAS_MODES = 1
_ALIGNMENT = 8
# Up to here Python's own integers are faster than arrays.
_FEW = 32
# 1 GiB: 536,870,912 tokens of uint16. Writing a record takes twice its size
# of memory, reading one three times.
MAX_RECORD_BYTES = 1 << 30

_ADVICE = "The file is damaged or not one of documents: make it again."


@dataclasses.dataclass(frozen=True)
class TokenDocument:
  """A document of a corpus.

  Attributes:
    tokens: [n] of the corpus' dtype, read-only.
    lengths: int32[sequences], tokens of each sequence.
    modes: int8[sequences], the mode of each; None where there are none.
  """

  tokens: np.ndarray
  lengths: np.ndarray
  modes: np.ndarray | None


def array_record_path(prefix: str | os.PathLike[str]) -> str:
  """The path of the ArrayRecord file beside the pair of a prefix."""
  return f"{os.fspath(prefix)}{SUFFIX}"


def is_array_record(name: str | os.PathLike[str]) -> bool:
  """Whether a corpus' name is the path of an ArrayRecord, not a prefix."""
  return os.fspath(name).endswith(SUFFIX)


def record_head(
  lengths: np.ndarray, modes: np.ndarray, *, code: int, multimodal: bool
) -> bytes:
  """The bytes of a record before its tokens.

  Args:
    lengths: integers [N] that fit int32.
    modes: int8[N], or int8[0] where `multimodal` is off.
    code: of the tokens' dtype.
    multimodal: whether modes are written.
  """
  flags = _HAS_MODES if multimodal else 0
  head = _HEADER.pack(VERSION, code, flags, 0, len(lengths))
  head += lengths.astype(index_file.LENGTH, copy=False).tobytes()
  if multimodal:
    head += modes.tobytes()
  return head + bytes(-len(head) % _ALIGNMENT)


def parse_record(data: bytes, *, where: str) -> tuple[int, TokenDocument]:
  """Reads a record, every byte of which is looked at.

  Args:
    data: the record.
    where: names it, for messages.

  Returns:
    (dtype code, the document as views of `data`).

  Raises:
    ValueError: it is no document's record, or has more or fewer bytes than it
      says.
  """
  if len(data) < _HEADER.size:
    raise ValueError(
      f"{where} has {len(data)} bytes, the head of a document alone takes"
      f" {_HEADER.size}. {_ADVICE}"
    )
  version, code, flags, zero, count = _HEADER.unpack_from(data)
  if version != VERSION or zero or flags not in (0, _HAS_MODES):
    raise ValueError(
      f"{where} begins with the bytes {version} (version), {code}, {flags}"
      f" (flags) and {zero}; a document of tokens begins with {VERSION}, its"
      f" dtype's code, 0 or {_HAS_MODES}, and 0. {_ADVICE}"
    )
  if code not in index_file.DTYPES:
    raise ValueError(
      f"{where} has the dtype code {code}; the codes are 1 to"
      f" {max(index_file.DTYPES)}. {_ADVICE}"
    )
  dtype = index_file.DTYPES[code]
  modes_at = _HEADER.size + count * index_file.LENGTH.itemsize
  end = modes_at + (count if flags else 0)
  tokens_at = end + -end % _ALIGNMENT
  if tokens_at > len(data):
    raise ValueError(
      f"{where} has {len(data)} bytes, but the lengths of its {count}"
      f" sequences alone end at byte {tokens_at}. {_ADVICE}"
    )
  lengths = np.frombuffer(data, index_file.LENGTH, count, _HEADER.size)
  if count <= _FEW:
    few = lengths.tolist()
    num_tokens, least = sum(few), min(few, default=0)
  else:
    num_tokens, least = int(lengths.sum(dtype=np.int64)), int(lengths.min())
  num_bytes = tokens_at + num_tokens * dtype.itemsize
  if least < 0:
    raise ValueError(
      f"{where} has a sequence of {least} tokens; a length cannot be negative."
      f" {_ADVICE}"
    )
  if num_bytes != len(data):
    raise ValueError(
      f"{where} has {len(data)} bytes, but its {count} sequences of"
      f" {num_tokens} tokens of {dtype.name} take {num_bytes}. {_ADVICE}"
    )
  if data[end:tokens_at].strip(b"\0"):
    raise ValueError(
      f"{where} has other bytes than zeros from byte {end} to byte"
      f" {tokens_at}, before its tokens. {_ADVICE}"
    )
  modes = None
  if flags:
    modes = np.frombuffer(data, index_file.MODE, count, modes_at)
  tokens = np.frombuffer(data, dtype, num_tokens, tokens_at)
  return code, TokenDocument(tokens, lengths, modes)
