"""hpgrain/chunk_file.py: what is written of a chunk is what is read."""

import os

import numpy as np
import pytest

from hpgrain import chunk_file
from hpgrain.chunk_file import COLUMNS, Chunk
from hpgrain.examples import Examples

COUNTERS = {"records": 3, "dropped": {"empty": 1}}


def written(path, made=()):
  """Writes blocks and the index behind them."""
  fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
  chunk = Chunk(
    counts=np.array([1, 0, 2], np.uint8),
    lengths=np.array([3, 1, 1 << 20], np.int32),
    weighted=True,
    counters=COUNTERS,
    blocks=tuple(chunk_file.write_block(fd, block) for block in made),
  )
  chunk_file.write_index(fd, chunk)
  os.close(fd)
  return chunk


def block(ids, labels, weights=None):
  ids, labels = np.array(ids, np.int32), np.array(labels, np.int32)
  splits = np.array([0, len(ids)])
  weights = None if weights is None else np.array(weights, np.float32)
  return Examples(np.array([0, 1]), splits, ids, labels, weights)


def test_an_index_is_read_back(tmp_path):
  chunk = written(tmp_path / "chunk")
  found = chunk_file.read(tmp_path / "chunk")
  assert found.counts.tolist() == [1, 0, 2]
  assert found.lengths.tolist() == [3, 1, 1 << 20]
  assert found.counts.dtype == np.uint8
  assert found.lengths.dtype == np.int32
  assert (found.weighted, found.counters) == (True, COUNTERS)
  assert found.blocks == chunk.blocks == ()
  assert found.most == 2


def test_columns_are_read_block_by_block(tmp_path):
  path = tmp_path / "chunk"
  written(
    path,
    [
      block([1, 2], [2, -100]),
      block([], []),
      block([3], [4], [0.5]),
      block([5], [6]),
    ],
  )
  chunk = chunk_file.read(path)
  assert chunk.blocks == ((2, False), (0, False), (1, True), (1, False))
  assert chunk.lengths.tolist() == [3, 1, 1 << 20]
  ids, labels, weights = (
    [x.tolist() for x in chunk_file.column_blocks(path, chunk, column)]
    for column in COLUMNS
  )
  assert ids == [[1, 2], [], [3], [5]]
  assert labels == [[2, -100], [], [4], [6]]
  assert weights == [[1, 0], [], [0.5], [1]]


def test_there_may_be_no_file(tmp_path):
  assert chunk_file.read(tmp_path / "chunk") is None


@pytest.mark.parametrize("size", range(100))
def test_a_file_that_was_cut_is_not_whole(tmp_path, size):
  path = tmp_path / "chunk"
  written(path, [block([1], [2])])
  path.write_bytes(path.read_bytes()[:size])
  with pytest.raises(ValueError, match="it does not end as it should"):
    chunk_file.read(path)


def test_a_byte_that_changed_is_seen(tmp_path):
  path = tmp_path / "chunk"
  written(path)
  whole = path.read_bytes()
  # But for how many of the bytes are JSON, which no one changes alone.
  sizes = range(len(whole) - 20, len(whole) - 12)
  for place in set(range(len(whole))) - set(sizes):
    damaged = bytearray(whole)
    damaged[place] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match=r"its checksum is|it does not end"):
      chunk_file.read(path)


def test_tokens_that_are_missing_are_seen(tmp_path):
  path = tmp_path / "chunk"
  chunk = written(path, [block([1], [2])])
  path.write_bytes(b"1234")
  with pytest.raises(ValueError, match="ends within its tokens"):
    list(chunk_file.column_blocks(path, chunk, COLUMNS[1]))
