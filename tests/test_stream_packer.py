import dataclasses
import itertools

import numpy as np
import pytest
import reference_packers
from hypothesis import given
from hypothesis import strategies as st
from reference_packers import Packing, Piece

from hpgrain.packing import PackingOptions
from hpgrain.stream_packer import Position, StreamPacker
from hpgrain.stream_pieces import (
  BEGIN,
  LENGTH,
  OFFSET,
  ORDINAL,
  RECORD,
  make_pieces,
)
from hpgrain.stream_state import first_position

NUM_STREAMS = 3
STREAM = 1


def table(records, first=0, options=None):
  """The pieces of a stream's records from number `first` on."""
  records = records[first:]
  lengths = [n for record in records for n in record]
  number = STREAM + NUM_STREAMS * (first + np.arange(len(records)))
  limit = None if options is None else options.example_limit
  if options is not None and options.packer == "concat":
    limit = None
  return make_pieces(
    np.cumsum([0, *lengths]),
    record=np.repeat(number, [len(record) for record in records]),
    source=np.zeros(len(lengths), np.int64),
    limit=limit,
    overlong="split",
  )


def packer_at(options, position, pack_window=4):
  return StreamPacker(
    options,
    position=position,
    num_streams=NUM_STREAMS,
    pack_window=pack_window,
  )


def parts_of(pieces, sizes):
  """The pieces in parts of these sizes, over and over, each its own."""
  begin = 0
  for size in itertools.cycle(sizes):
    if begin >= pieces.shape[1]:
      return
    yield pieces[:, begin : begin + size].copy()
    begin += size


def rows_of(packer, parts, most=None):
  """Its rows, and where it stood after each: it is fed as it asks."""
  parts = iter(parts)
  rows, positions = [], []
  while most is None or len(rows) < most:
    while not packer.has_row():
      part = next(parts, None)
      if part is None:
        packer.end()
        break
      packer.add(part)
    if not packer.has_row():
      break
    pieces = packer.give()
    rows.append(
      [
        tuple(pieces[[RECORD, ORDINAL, OFFSET, LENGTH], i].tolist())
        for i in range(pieces.shape[1])
      ]
    )
    positions.append(packer.position())
  return rows, positions


def expected_rows(records, options, pack_window=4):
  pieces, begin = [], 0
  for j, record in enumerate(records):
    for e, length in enumerate(record):
      ids = list(range(begin, begin + length))
      place = (STREAM + NUM_STREAMS * j, e, 0)
      pieces.append(Piece(0, place, ids, ids, [1.0] * length))
      begin += length
  packing = Packing(
    budget=options.budget,
    packer=options.packer,
    overlong="split",
    segment_multiple=options.segment_multiple,
    max_items=options.max_items,
    min_buffered=options.min_buffered,
    pack_window=pack_window,
    examples_per_row=options.examples_per_row,
  )
  rows = reference_packers.pack_arriving(pieces, packing)
  return [[(p.place[0], p.place[2], len(p)) for p in row] for row in rows]


def without_ordinals(rows):
  return [[(r, offset, n) for r, _, offset, n in row] for row in rows]


PACKERS = st.sampled_from(["best_fit", "first_fit", "concat", "pad", "fixed"])
RECORDS = st.lists(st.lists(st.integers(1, 11), max_size=3), max_size=14)


@st.composite
def some_options(draw):
  packer = draw(PACKERS)
  return PackingOptions(
    budget=8,
    packer=packer,
    overlong="split",
    segment_multiple=1 if packer == "concat" else draw(st.sampled_from([1, 2])),
    max_items=0 if packer == "fixed" else draw(st.sampled_from([0, 1, 3])),
    min_buffered=draw(st.integers(1, 4)),
    examples_per_row=draw(st.integers(1, 3)) if packer == "fixed" else 1,
  )


@given(
  records=RECORDS,
  options=some_options(),
  sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4),
)
def test_rows_are_those_of_the_packer_however_pieces_come(
  records, options, sizes
):
  parts = parts_of(table(records, options=options), sizes)
  rows, _ = rows_of(packer_at(options, first_position(STREAM)), parts)
  assert without_ordinals(rows) == expected_rows(records, options)


@given(
  records=RECORDS,
  options=some_options(),
  sizes=st.lists(st.integers(1, 5), min_size=2, max_size=4),
  cuts=st.lists(st.integers(0, 5), min_size=1, max_size=3),
)
def test_it_goes_on_from_any_position(records, options, sizes, cuts):
  first = first_position(STREAM)
  whole, positions = rows_of(
    packer_at(options, first), parts_of(table(records, options=options), [1])
  )
  # The last arrived is what is known to be: not what was read beyond.
  eager, same = rows_of(
    packer_at(options, first), [table(records, options=options)]
  )
  assert (eager, same) == (whole, positions)
  found, position = [], first
  for cut in [*cuts, None]:
    packer = packer_at(options, position)
    at = (position.at - STREAM) // NUM_STREAMS
    parts = parts_of(table(records, at, options), sizes)
    more, _ = rows_of(packer, parts, cut)
    found += more
    position = packer.position()
    if found:
      assert position == positions[len(found) - 1]
    assert position.rows == len(found)
  assert found == whole


def test_a_position_written_out():
  options = PackingOptions(budget=8)
  # Records 1, 4, 7, ... of lengths; the second has two examples.
  records = [[5], [4, 4], [3], [6], [2]]
  packer = packer_at(options, first_position(STREAM))
  packer.add(table(records))
  assert packer.has_row()
  row = packer.give()
  # 5 is the oldest; of 5 4 4 3, 3 fits.
  assert row[LENGTH].tolist() == [5, 3]
  assert packer.position() == Position(
    rows=1, at=4, arrived=3, used=0b100, offset=0
  )
  assert packer.has_row()
  assert packer.give()[LENGTH].tolist() == [4, 4]
  assert packer.position() == Position(
    rows=2, at=10, arrived=2, used=0, offset=0
  )


def test_a_position_between_the_examples_of_a_record():
  packer = packer_at(PackingOptions(budget=9), first_position(STREAM))
  packer.add(table([[5], [3, 7], [1], [2]]))
  assert packer.has_row()
  assert packer.give()[LENGTH].tolist() == [5, 3, 1]
  # Of record 4 the first is used, the 7 waits; the 1 after it is used.
  assert packer.position() == Position(
    rows=1, at=4, arrived=3, used=0b101, offset=0
  )


def test_first_fit_waits_for_examples_and_for_tokens():
  options = PackingOptions(budget=8, packer="first_fit", min_buffered=2)
  packer = packer_at(options, first_position(STREAM))
  packer.add(table([[3], [2], [2], [4], [1], [8], [1]]))
  assert packer.has_row()
  # Two wait at once, but eight tokens only with the fourth.
  assert packer.give()[LENGTH].tolist() == [3, 2, 2]
  assert packer.position() == Position(
    rows=1, at=10, arrived=1, used=0, offset=0
  )
  assert packer.has_row()
  assert packer.give()[LENGTH].tolist() == [4, 1]
  assert packer.position() == Position(
    rows=2, at=16, arrived=1, used=0, offset=0
  )
  assert packer.has_row()
  assert packer.give()[LENGTH].tolist() == [8]
  assert packer.position() == Position(
    rows=3, at=19, arrived=1, used=0, offset=0
  )


def test_a_position_inside_a_record_and_a_piece():
  options = PackingOptions(budget=6, packer="concat")
  packer = packer_at(options, first_position(STREAM))
  packer.add(table([[4, 4, 4]]))
  assert packer.has_row()
  assert packer.give()[[OFFSET, LENGTH]].tolist() == [[0, 0], [4, 2]]
  assert packer.position() == Position(
    rows=1, at=1, arrived=1, used=1, offset=2
  )
  assert packer.give()[[OFFSET, LENGTH]].tolist() == [[2, 0], [2, 4]]
  # All of the record is used: the stream's next one follows.
  assert packer.position() == Position(
    rows=2, at=4, arrived=0, used=0, offset=0
  )


def test_it_says_how_many_tokens_wait():
  options = PackingOptions(budget=8)
  packer = packer_at(options, Position(2, 4, 3, 0b101, 0))
  pieces = table([[5], [4, 4], [3], [6]], first=1)
  assert not packer.waits
  # Of 4 4 3 the first and the last are used.
  assert packer.add(pieces).tolist() == [0, 4, 0, 6]
  assert packer.waits
  packer.end()
  assert packer.has_row()
  assert packer.give()[LENGTH].tolist() == [4]
  assert packer.give()[LENGTH].tolist() == [6]
  assert not packer.waits
  assert not packer.has_row()
  assert packer.num_rows == 4


def test_data_that_changed_is_noticed():
  options = PackingOptions(budget=8)
  packer = packer_at(options, Position(2, 4, 3, 0b101, 0))
  packer.add(table([[5], [4]], first=1))
  with pytest.raises(ValueError, match="fewer examples, or shorter ones"):
    packer.end()
  concat = dataclasses.replace(options, packer="concat")
  packer = packer_at(concat, Position(1, 4, 0, 0, 5))
  with pytest.raises(ValueError, match="fewer examples, or shorter ones"):
    packer.add(table([[5], [4]], first=1))
  packer = packer_at(concat, Position(1, 4, 0, 0, 3))
  packer.add(table([[5], [4]], first=1))
  packer.end()
  assert packer.has_row()
  row = packer.give()
  assert row[[OFFSET, LENGTH]].tolist() == [[3], [1]]
  assert row[BEGIN].tolist() == [3]
