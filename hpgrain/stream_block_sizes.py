r"""How many records of row streams to read next.

  128 256 512 1024 1024 ..       as long as their tokens fit

Sizes change no row.
"""

from collections.abc import Collection

from hpgrain.stream_packer import Position

# Records of the first block, so that the first row comes soon. Each of the next
# has twice as many, up to so many that calls of streams and sources cost little
# beside what they do, or up to so many tokens.
FIRST = 128
MOST = 1024
MOST_OF_STREAM = 32
MOST_OF_SOURCE = 64
MOST_TOKENS = 1 << 22


class BlockSizes:
  """Says how many records the next block has."""

  def __init__(
    self,
    positions: Collection[Position],
    *,
    next_record: int,
    num_streams: int,
    num_sources: int,
  ):
    """Begins where streams stand.

    Args:
      positions: of the streams that are held.
      next_record: that is read next, none after the oldest they need.
      num_streams: of all.
      num_sources: that take turns.
    """
    self._most = max(
      MOST, MOST_OF_STREAM * num_streams, MOST_OF_SOURCE * num_sources
    )
    self._size = FIRST
    self._skipped = 0
    if not positions:
      return
    oldest = min(position.at for position in positions)
    # Those before the oldest are found, but not made, so any number will do.
    self._skipped = max(oldest - next_record, 0)

  def take(self) -> int:
    """Returns how many records to read now."""
    size, self._skipped = self._size + self._skipped, 0
    return size

  def saw(self, tokens: int) -> None:
    """Notes how many tokens the block had."""
    fitting = MOST_TOKENS * self._size // max(tokens, 1)
    self._size = max(min(2 * self._size, self._most, fitting), 1)
