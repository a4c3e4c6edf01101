"""What tells one corpus from another: an open pair in, a short digest out."""

import hashlib
import struct
from os import pread

from hpgrain.sources import index_file

_BLOCKS = 16
_BLOCK_BYTES = 4096


def content_digest(
  idx_fd: int, bin_fd: int, *, idx_bytes: int, bin_bytes: int
) -> str:
  """32 hex digits: BLAKE2b-128 over sizes, header and sampled blocks.

  Sampled are 16 blocks of 4 KiB spread evenly over each file, or all of a file
  up to 64 KiB; so the cost is the same for any corpus, and a change of a few
  tokens in a long one may go unseen.

  Args:
    idx_fd: the open `.idx`.
    bin_fd: the open `.bin`.
    idx_bytes: size of the `.idx`.
    bin_bytes: size of the `.bin`.
  """
  digest = hashlib.blake2b(digest_size=16)
  digest.update(struct.pack("<QQ", idx_bytes, bin_bytes))
  digest.update(pread(idx_fd, index_file.HEADER.size, 0))
  for fd, size in ((idx_fd, idx_bytes), (bin_fd, bin_bytes)):
    for offset, num_bytes in _blocks(size):
      digest.update(pread(fd, num_bytes, offset))
  return digest.hexdigest()


def _blocks(size: int) -> list[tuple[int, int]]:
  """(offset, bytes) of the blocks that stand for a file."""
  if size <= _BLOCKS * _BLOCK_BYTES:
    return [(0, size)]
  last = size - _BLOCK_BYTES
  return [(last * i // (_BLOCKS - 1), _BLOCK_BYTES) for i in range(_BLOCKS)]
