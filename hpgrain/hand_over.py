r"""Blocks of tokens in, to wait for their streams; pieces of them out.

  blocks    0   1   2 | 3   4            up to memory_bytes in memory, then
            memory    | spill file       in files that have no name

Streams lag behind each other by a random walk, so no bound in memory would do:
the block that one of them needs may lie behind any number of blocks that the
others wait for. A block goes when its last piece was taken. A spill file has
no name from the moment it is made, so a process that is killed leaves none.
"""

import dataclasses
import os
import tempfile
from typing import BinaryIO

import numpy as np

from hpgrain.arguments import integer
from hpgrain.stream_pieces import BEGIN, BLOCK, LENGTH
from hpgrain.token_blocks import TokenBlock, plain_weights

# A spill file is closed, and its room free, when all its blocks are gone.
_FILE_BYTES = 256 << 20


@dataclasses.dataclass
class _SpillFile:
  file: BinaryIO
  size: int = 0
  blocks: int = 0


@dataclasses.dataclass
class _Spilled:
  """A block of tokens in a file: ids, labels and weights, if it has any."""

  where: _SpillFile
  offset: int
  num_tokens: int
  has_weights: bool


@dataclasses.dataclass
class _Held:
  """A block, and how many of its tokens no stream has taken yet."""

  tokens: TokenBlock | _Spilled
  waiting: int
  has_weights: bool


class HandOver:
  """Holds what was dealt until it is taken. For one thread at a time.

  Attributes:
    memory_bytes: of the blocks that are in memory now.
    spilled_bytes: that were written to spill files, all in all.
  """

  def __init__(self, *, memory_bytes: int, folder: str | None = None):
    """Holds nothing, and makes no file before one is needed.

    Args:
      memory_bytes: what blocks in memory may take in all.
      folder: of the spill files; None takes the system's for such.
    """
    self._most_bytes = integer("handover_bytes", memory_bytes, minimum=0)
    self._folder = folder
    self._blocks: dict[int, _Held] = {}
    self._next = 0
    self.memory_bytes = 0
    self._files: list[_SpillFile] = []
    self.spilled_bytes = 0

  def put(self, tokens: TokenBlock, waiting: int) -> int:
    """Takes a block, of which so many tokens will be taken; returns its number.

    Raises:
      OSError: a spill file cannot be written.
    """
    number = self._next
    self._next += 1
    if not waiting:
      return number
    held: TokenBlock | _Spilled = tokens
    if self.memory_bytes + tokens.nbytes > self._most_bytes:
      try:
        held = self._spill(tokens)
      except OSError as error:
        raise OSError(
          error.errno,
          f"A spill file of row streams cannot be written ({error.strerror})."
          " Set dataloader.spill_folder to a folder with room, or raise"
          " dataloader.handover_bytes",
          self._folder or tempfile.gettempdir(),
        ) from error
    else:
      self.memory_bytes += tokens.nbytes
    has_weights = tokens.weights is not None
    self._blocks[number] = _Held(held, waiting, has_weights)
    return number

  def take(self, pieces: np.ndarray) -> TokenBlock:
    """Returns the tokens of pieces, one after the other, and lets go of them.

    Args:
      pieces: as in `stream_pieces`, in any order; a piece may be taken part
        by part.

    Raises:
      OSError: a spill file cannot be read.
    """
    # Where any has weights, all need them.
    blocks = {int(b) for b in pieces[BLOCK]}
    weights_needed = any(self._blocks[b].has_weights for b in blocks)
    ids, labels, weights = [], [], []
    for block, begin, count in pieces[[BLOCK, BEGIN, LENGTH]].T.tolist():
      tokens, part = self._blocks[block].tokens, slice(begin, begin + count)
      if isinstance(tokens, _Spilled):
        tokens, part = _unspilled(tokens, begin, count), slice(None)
      ids.append(tokens.ids[part])
      labels.append(tokens.labels[part])
      if tokens.weights is not None:
        weights.append(tokens.weights[part])
      elif weights_needed:
        weights.append(plain_weights(labels[-1]))
    self.drop(pieces)
    none = np.zeros(0, np.int32)
    return TokenBlock(
      np.concatenate([none, *ids]),
      np.concatenate([none, *labels]),
      np.concatenate(weights) if weights else None,
    )

  def drop(self, pieces: np.ndarray) -> None:
    """Lets go of pieces that nobody reads."""
    for block, count in zip(pieces[BLOCK].tolist(), pieces[LENGTH].tolist()):
      held = self._blocks[block]
      held.waiting -= count
      if not held.waiting:
        self._free(block)

  def close(self) -> None:
    """Lets go of everything."""
    self._blocks.clear()
    for spill in self._files:
      spill.file.close()
    self._files.clear()

  def _free(self, block: int) -> None:
    tokens = self._blocks.pop(block).tokens
    if isinstance(tokens, TokenBlock):
      self.memory_bytes -= tokens.nbytes
      return
    spill = tokens.where
    spill.blocks -= 1
    if not spill.blocks:
      spill.file.close()
      self._files.remove(spill)

  def _spill(self, tokens: TokenBlock) -> _Spilled:
    if not self._files or self._files[-1].size >= _FILE_BYTES:
      # It never has a name, or loses it before anything is written.
      file = tempfile.TemporaryFile(buffering=0, dir=self._folder)
      self._files.append(_SpillFile(file))
    spill = self._files[-1]
    offset = spill.size
    arrays = [tokens.ids, tokens.labels]
    if tokens.weights is not None:
      arrays.append(tokens.weights)
    for array in arrays:
      _write(spill, np.ascontiguousarray(array))
    spill.blocks += 1
    self.spilled_bytes += spill.size - offset
    return _Spilled(spill, offset, len(tokens.ids), tokens.weights is not None)


def _write(spill: _SpillFile, array: np.ndarray) -> None:
  rest = memoryview(array).cast("B")
  while len(rest):
    written = os.pwrite(spill.file.fileno(), rest, spill.size)
    spill.size += written
    rest = rest[written:]


def _unspilled(tokens: _Spilled, begin: int, count: int) -> TokenBlock:
  """Returns `count` tokens of a block, from `begin` on."""
  return TokenBlock(
    _read(tokens, 0, begin, count).view(np.int32),
    _read(tokens, 1, begin, count).view(np.int32),
    _read(tokens, 2, begin, count).view(np.float32)
    if tokens.has_weights
    else None,
  )


def _read(tokens: _Spilled, array: int, begin: int, count: int) -> np.ndarray:
  """Returns uint8[4 * count] of one of a spilled block's arrays."""
  offset = tokens.offset + 4 * (array * tokens.num_tokens + begin)
  data = os.pread(tokens.where.file.fileno(), 4 * count, offset)
  if len(data) != 4 * count:
    raise OSError(
      f"A spill file of row streams gave {len(data)} bytes of {4 * count}:"
      " somebody shortened it, or its disk fails."
    )
  return np.frombuffer(data, np.uint8)
