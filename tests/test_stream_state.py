import json

import pytest

from hpgrain.stream_packer import Position
from hpgrain.stream_state import first_position, make_state, merge

FIRST = Position(rows=3, at=40, arrived=6, used=0b100100, offset=0)
SECOND = Position(rows=4, at=33, arrived=0, used=0, offset=7)


def state(positions, at, *, num_streams=2):
  made = make_state(
    num_streams, positions, sources_at=at, sources=[[0, at, at]]
  )
  return json.loads(json.dumps(made))


def test_a_state_is_small_json():
  assert state({0: FIRST, 1: SECOND}, 30) == {
    "num_streams": 2,
    "streams": {"0": [3, 40, 6, "24", 0], "1": [4, 33, 0, "0", 7]},
    "sources": [[0, 30, 30]],
    "sources_at": 30,
  }


def test_a_stream_goes_on_where_it_has_most_rows():
  behind = Position(rows=2, at=20, arrived=1, used=0, offset=0)
  states = [
    state({0: FIRST, 1: behind}, 16),
    state({0: behind, 1: SECOND}, 20),
  ]
  positions, number, sources = merge(states, [0, 1], 2)
  assert positions == {0: FIRST, 1: SECOND}
  # The newest place that is before both.
  assert (number, sources) == (20, [[0, 20, 20]])
  assert merge(states[:1], [0], 2)[:2] == ({0: FIRST}, 16)


def test_sources_are_read_from_where_no_stream_needs_what_is_before():
  states = [state({0: FIRST}, 38), state({1: SECOND}, 32)]
  assert merge(states, [0], 2)[1:] == (38, [[0, 38, 38]])
  assert merge(states, [1], 2)[1:] == (32, [[0, 32, 32]])
  assert merge(states, [0, 1], 2)[1:] == (32, [[0, 32, 32]])
  assert merge(states, [], 2)[0] == {}


def test_states_that_are_none_are_refused():
  good = state({0: FIRST, 1: SECOND}, 30)
  with pytest.raises(ValueError, match="No part of this state has stream 1"):
    merge([state({0: FIRST}, 30)], [0, 1], 2)
  with pytest.raises(ValueError, match="of 2 streams, and there are 3"):
    merge([good], [0], 3)
  with pytest.raises(ValueError, match="has the keys num_streams, streams"):
    merge([{**good, "more": 1}], [0], 2)
  with pytest.raises(ValueError, match="has the keys num_streams, streams"):
    merge([[1, 2]], [0], 2)
  with pytest.raises(ValueError, match="before record 33, which a stream need"):
    merge([{**good, "sources_at": 34}], [0, 1], 2)
  for entry in (
    [3, 40, 6, "24"],
    [3, 40, 6, "xyz", 0],
    [3, 40, "6", "24", 0],
    [-1, 40, 6, "24", 0],
    7,
  ):
    with pytest.raises(ValueError, match="Stream 0 of this state is no"):
      merge([{**good, "streams": {"0": entry}}], [0], 2)


def test_a_stream_begins_at_its_first_record():
  assert first_position(5) == Position(0, 5, 0, 0, 0)
