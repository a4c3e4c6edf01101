"""What lies between the ends of an `.idx`: its arrays in, their first flaw out.

One sequence is checked against its neighbours whenever it is read; the full
pass checks all of them. Arrays may be mapped and unaligned; they are read in
blocks, so the pass takes a few megabytes however long they are.
"""

import mmap
import struct

import numpy as np

from hpgrain.sources import index_file

# Entries looked at together: 8 MB of pointers.
_BLOCK = 1 << 20

_INT32 = struct.Struct("<i")
_INT64 = struct.Struct("<q")

_ADVICE = "The pair is damaged: copy it again or rewrite it."


def locate_sequence(
  index: mmap.mmap,
  layout: index_file.IndexLayout,
  sequence: int,
  *,
  bin_bytes: int,
  prefix: str,
) -> tuple[int, int]:
  """Finds one sequence in the `.bin` and checks it against its neighbours.

  Args:
    index: the mapped `.idx`.
    layout: its layout.
    sequence: a number that it has.
    bin_bytes: the size of the `.bin`.
    prefix: the pair's prefix, for messages.

  Returns:
    (the byte at which the sequence begins, its tokens).

  Raises:
    ValueError: it does not begin where the one before it ends, or does not
      end where the next begins.
  """
  length_at = layout.lengths_at + _INT32.size * sequence
  pointer_at = layout.pointers_at + _INT64.size * sequence
  itemsize = layout.dtype.itemsize
  (length,) = _INT32.unpack_from(index, length_at)
  (start,) = _INT64.unpack_from(index, pointer_at)
  end = start + length * itemsize
  before_ends = 0
  if sequence:
    (before,) = _INT32.unpack_from(index, length_at - _INT32.size)
    (before_ends,) = _INT64.unpack_from(index, pointer_at - _INT64.size)
    before_ends += before * itemsize
  next_begins = end
  if sequence + 1 < layout.num_sequences:
    (next_begins,) = _INT64.unpack_from(index, pointer_at + _INT64.size)
  if not (
    before_ends == start
    and end == next_begins
    and 0 <= start <= end <= bin_bytes
    and start % itemsize == 0
  ):
    raise ValueError(
      f"{index_file.idx_path(prefix)}: sequence {sequence} has {length} tokens "
      f"of {itemsize} bytes from byte {start}, but the one before it ends at "
      f"byte {before_ends} and the next begins at byte {next_begins} of "
      f"{bin_bytes}. {_ADVICE} IndexedReader(prefix).verify() names the first "
      "such entry."
    )
  return start, length


def exclusive_ends(
  lengths: np.ndarray, *, itemsize: int, start: int
) -> np.ndarray:
  """Where sequences laid end to end begin, and where the last one ends.

  Args:
    lengths: integers [n], tokens of each.
    itemsize: bytes of a token.
    start: the byte at which the first one begins.

  Returns:
    int64[n + 1] bytes.
  """
  ends = np.empty(len(lengths) + 1, np.int64)
  ends[0] = start
  np.multiply(lengths, itemsize, out=ends[1:], dtype=np.int64)
  return np.cumsum(ends, out=ends)


def check_sequences(
  lengths: np.ndarray, pointers: np.ndarray, itemsize: int, prefix: str
) -> None:
  """Checks that no length is negative and that sequences lie end to end.

  Args:
    lengths: int32[N].
    pointers: int64[N].
    itemsize: bytes of a token.
    prefix: the pair's prefix, for messages.

  Raises:
    ValueError: the first sequence for which it is not so.
  """
  path = index_file.idx_path(prefix)
  start = 0
  for first in range(0, len(lengths), _BLOCK):
    some = np.array(lengths[first : first + _BLOCK])
    if some.min() < 0:
      bad = int(np.argmax(some < 0))
      raise ValueError(
        f"{path}: sequence {first + bad} has {some[bad]} tokens; a length "
        f"cannot be negative. {_ADVICE}"
      )
    ends = exclusive_ends(some, itemsize=itemsize, start=start)
    found = np.array(pointers[first : first + _BLOCK])
    wrong = found != ends[:-1]
    if wrong.any():
      bad = int(np.argmax(wrong))
      raise ValueError(
        f"{path}: sequence {first + bad} begins at byte {found[bad]}, but the "
        f"lengths before it put it at byte {ends[bad]}. {_ADVICE}"
      )
    start = int(ends[-1])


def check_documents(
  document_indices: np.ndarray, num_sequences: int, prefix: str
) -> None:
  """Checks that document indices run from 0 to N and never go back.

  Args:
    document_indices: int64[D].
    num_sequences: N.
    prefix: the pair's prefix, for messages.

  Raises:
    ValueError: the first document for which it is not so.
  """
  path = index_file.idx_path(prefix)
  previous = 0
  for first in range(0, len(document_indices), _BLOCK):
    some = np.array(document_indices[first : first + _BLOCK])
    before = np.concatenate(([previous], some[:-1]))
    wrong = (some < before) | (some > num_sequences)
    if first == 0:
      wrong[0] = some[0] != 0
    if wrong.any():
      bad = int(np.argmax(wrong))
      raise ValueError(
        f"{path}: document {first + bad} begins at sequence {some[bad]}, after "
        f"{before[bad]} and of {num_sequences}; the indices may only rise "
        f"from 0 to the number of sequences. {_ADVICE}"
      )
    previous = int(some[-1])
  if previous != num_sequences:
    raise ValueError(
      f"{path}: the last document ends at sequence {previous} of "
      f"{num_sequences}. {_ADVICE}"
    )
