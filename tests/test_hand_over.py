from pathlib import Path

import numpy as np
import pytest

from hpgrain import hand_over
from hpgrain.hand_over import HandOver
from hpgrain.stream_pieces import BEGIN, BLOCK, LENGTH, no_pieces
from hpgrain.token_blocks import TokenBlock


def block(first, count, *, weighted=False):
  ids = np.arange(first, first + count, dtype=np.int32)
  weights = ids.astype(np.float32) / 8 if weighted else None
  return TokenBlock(ids, ids + 1, weights)


def pieces(*rows):
  """Each (block, begin, length)."""
  table = np.zeros((len(no_pieces()), len(rows)), np.int64)
  for i, (number, begin, length) in enumerate(rows):
    table[[BLOCK, BEGIN, LENGTH], i] = number, begin, length
  return table


@pytest.mark.parametrize("memory_bytes", [0, 100, 1 << 20])
def test_pieces_come_back_from_wherever_they_waited(tmp_path, memory_bytes):
  held = HandOver(memory_bytes=memory_bytes, folder=str(tmp_path))
  first = held.put(block(0, 10), 10)
  second = held.put(block(100, 10, weighted=True), 6)
  third = held.put(block(200, 10), 10)
  assert [first, second, third] == [0, 1, 2]
  assert not list(tmp_path.iterdir())
  tokens = held.take(pieces((2, 4, 3), (0, 0, 2), (1, 5, 1)))
  assert tokens.ids.tolist() == [204, 205, 206, 0, 1, 105]
  assert tokens.labels.tolist() == [205, 206, 207, 1, 2, 106]
  # Where some have weights, the others weigh 1.
  assert tokens.weights.tolist() == [1, 1, 1, 1, 1, 105 / 8]
  plain = held.take(pieces((0, 2, 8)))
  assert plain.ids.tolist() == list(range(2, 10))
  assert plain.weights is None
  # Two blocks of 80 bytes do not fit into 100.
  assert (held.spilled_bytes > 0) == (memory_bytes <= 100)
  held.close()
  assert not list(tmp_path.iterdir())


def test_a_block_goes_with_its_last_piece():
  held = HandOver(memory_bytes=80)
  held.put(block(0, 10), 7)
  held.drop(pieces((0, 0, 3)))
  held.take(pieces((0, 4, 3)))
  held.drop(pieces((0, 9, 1)))
  with pytest.raises(KeyError):
    held.take(pieces((0, 0, 1)))
  # So the next is held in memory.
  held.put(block(0, 10), 10)
  assert held.spilled_bytes == 0
  held.put(block(0, 10), 0)
  assert held.spilled_bytes == 0


def test_spill_files_go_with_their_last_block(tmp_path, monkeypatch):
  monkeypatch.setattr(hand_over, "_FILE_BYTES", 160)
  held = HandOver(memory_bytes=0, folder=str(tmp_path))

  def num_files():
    links = [
      path.readlink()
      for path in Path("/proc/self/fd").iterdir()
      if path.is_symlink()
    ]
    return sum(str(link).startswith(str(tmp_path)) for link in links)

  for i in range(5):
    held.put(block(10 * i, 10), 10)
  assert num_files() == 3
  held.take(pieces((2, 0, 10), (3, 0, 10)))
  assert num_files() == 2
  assert held.take(pieces((4, 0, 10))).ids.tolist() == list(range(40, 50))
  assert held.take(pieces((0, 0, 1))).ids.tolist() == [0]
  assert num_files() == 1
  held.close()
  assert num_files() == 0


def test_what_cannot_be_spilled_is_said(tmp_path):
  held = HandOver(memory_bytes=0, folder=str(tmp_path / "none"))
  with pytest.raises(OSError, match=r"spill file of row streams.*handover_"):
    held.put(block(0, 10), 10)
  with pytest.raises(ValueError, match="handover_bytes must be at least 0"):
    HandOver(memory_bytes=-1)


def test_a_file_that_was_cut_is_noticed(tmp_path):
  held = HandOver(memory_bytes=0, folder=str(tmp_path))
  held.put(block(0, 10), 10)
  held._files[0].file.truncate(20)
  with pytest.raises(OSError, match="gave 12 bytes of 32"):
    held.take(pieces((0, 2, 8)))
