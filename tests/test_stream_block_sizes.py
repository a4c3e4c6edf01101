from hpgrain.stream_block_sizes import MOST_TOKENS, BlockSizes
from hpgrain.stream_packer import Position
from hpgrain.stream_state import first_position


def sizes(positions, *, next_record=0, num_streams=2, num_sources=1):
  return BlockSizes(
    positions,
    next_record=next_record,
    num_streams=num_streams,
    num_sources=num_sources,
  )


def taken(blocks, count, *, tokens=10):
  found = []
  for _ in range(count):
    found.append(blocks.take())
    blocks.saw(tokens)
  return found


def test_blocks_grow_up_to_what_streams_and_sources_need():
  fresh = [first_position(0), first_position(1)]
  assert taken(sizes(fresh), 5) == [128, 256, 512, 1024, 1024]
  assert taken(sizes(fresh, num_sources=100), 7)[-1] == 6400
  assert taken(sizes(fresh, num_streams=64), 6)[-1] == 2048
  assert taken(sizes([]), 2) == [128, 256]


def test_records_that_no_stream_needs_are_found_at_once():
  # From record 40 on the sources are read. How many records the 30 pieces are
  # of that stream 0 has seen is not known.
  positions = [Position(9, 100, 30, 0, 0), Position(9, 131, 3, 0, 0)]
  blocks = sizes(positions, next_record=40)
  assert taken(blocks, 2) == [128 + 60, 256]


def test_a_block_holds_so_many_tokens():
  blocks = sizes([first_position(0)])
  assert taken(blocks, 3, tokens=MOST_TOKENS) == [128, 128, 128]
  assert taken(blocks, 3, tokens=4 * MOST_TOKENS) == [128, 32, 8]
  assert taken(blocks, 9, tokens=1 << 60)[-1] == 1
  assert taken(blocks, 3, tokens=0) == [1, 2, 4]
