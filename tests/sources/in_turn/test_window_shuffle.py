"""Epochs of a source in shuffled windows, against a slow writing-out."""

import functools
import gzip
import json
import pickle
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpgrain.order import bucket_key, permute
from hpgrain.sources.by_index.in_memory import InMemoryRecords
from hpgrain.sources.in_turn import text_pieces
from hpgrain.sources.in_turn.formats import open_in_turn
from hpgrain.sources.in_turn.iterables import IterableInTurn
from hpgrain.sources.in_turn.numbered import NumberedInTurn
from hpgrain.sources.in_turn.window_shuffle import Epochs


def numbers(count, name="it"):
  rows = [{"n": i} for i in range(count)]
  return NumberedInTurn(
    InMemoryRecords(rows, name=name, identity={"rows": count})
  )


def generated(count):
  return IterableInTurn(lambda: ({"n": i} for i in range(count)), name="it")


_FOLDER = tempfile.TemporaryDirectory()


@functools.cache
def in_files(count, *, pack=False):
  """Numbers in lines of two files, read in blocks of a line or two."""
  folder = Path(_FOLDER.name, f"{count}{'-packed' if pack else ''}")
  folder.mkdir()
  for part, begin, end in (("a", 0, count // 3), ("b", count // 3, count)):
    data = "".join(f'{{"n": {i}}}\n' for i in range(begin, end)).encode()
    name = f"{part}.jsonl{'.gz' if pack else ''}"
    (folder / name).write_bytes(gzip.compress(data) if pack else data)
  return open_in_turn(folder, name="it")


def packed(count):
  return in_files(count, pack=True)


def read_numbers(epochs, n):
  return [record["n"] for record in epochs.read(n)]


def slow(count, *, seed, size, num_epochs, name="it"):
  """Every number of all epochs, written out."""
  given = []
  for epoch in range(num_epochs):
    for k, first in enumerate(range(0, count, size or count or 1)):
      window = list(range(count))[first : first + (size or count)]
      if size is not None:
        key = bucket_key(seed, name, epoch, k)
        window = [
          window[permute(j, len(window), key=key)] for j in range(len(window))
        ]
      given += window
  return given


def test_without_a_shuffle_the_order_is_the_sources():
  epochs = Epochs(numbers(3), seed=0, shuffle_buffer_size=None, epochs=None)
  assert read_numbers(epochs, 8) == [0, 1, 2, 0, 1, 2, 0, 1]


def test_it_ends_after_the_last_epoch():
  epochs = Epochs(numbers(3), seed=0, shuffle_buffer_size=None, epochs=2)
  assert read_numbers(epochs, 9) == [0, 1, 2, 0, 1, 2]
  assert epochs.read(1) == []
  assert epochs.position() == [1, 3, 3]


def test_seed_name_epoch_and_window_make_the_order():
  def order(count=64, *, seed=0, name="it"):
    epochs = Epochs(
      numbers(count, name), seed=seed, shuffle_buffer_size=32, epochs=2
    )
    found = np.array(read_numbers(epochs, 2 * count)).reshape(4, 32)
    return found - [[0], [32], [0], [32]]

  orders = [*order(), *order(seed=1), *order(name="other")]
  assert len({tuple(found) for found in orders}) == 12


@given(
  count=st.integers(0, 12),
  size=st.none() | st.integers(1, 15),
  num_epochs=st.integers(1, 3),
  seed=st.integers(0, 3),
  kind=st.sampled_from([numbers, generated, in_files, packed]),
  data=st.data(),
)
def test_any_reads_and_any_seeks_give_the_same(
  *, count, size, num_epochs, seed, kind, data
):
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(text_pieces, "_BLOCK", 12)
    patch.setattr(text_pieces, "_MOST", 30)
    check_reads_and_seeks(
      kind(count),
      count=count,
      size=size,
      num_epochs=num_epochs,
      seed=seed,
      data=data,
    )


def check_reads_and_seeks(source, *, count, size, num_epochs, seed, data):
  expected = slow(count, seed=seed, size=size, num_epochs=num_epochs)

  def opened():
    return Epochs(
      source, seed=seed, shuffle_buffer_size=size, epochs=num_epochs
    )

  epochs, given_out, positions = opened(), [], [(0, opened().position())]
  for _ in range(data.draw(st.integers(0, 8))):
    given_out += read_numbers(epochs, data.draw(st.integers(0, 9)))
    positions.append((len(given_out), epochs.position()))
  assert given_out == expected[: len(given_out)]
  # A position is the same whatever was read to come there.
  for place, position in positions:
    again = opened()
    read_numbers(again, place)
    assert again.position() == position
  place, position = data.draw(st.sampled_from(positions))
  assert json.loads(json.dumps(position)) == position
  again = data.draw(st.sampled_from([opened(), epochs]))
  again.seek(position)
  assert again.position() == position
  rest = []
  while found := read_numbers(again, data.draw(st.integers(1, 9))):
    rest += found
  assert rest == expected[place:]


@given(
  size=st.none() | st.integers(1, 5),
  reads=st.lists(st.lists(st.booleans(), max_size=9), max_size=5),
)
def test_what_is_not_wanted_is_not_taken(size, reads):
  source = numbers(7)
  options = {"seed": 3, "shuffle_buffer_size": size, "epochs": None}
  plain, spied = Epochs(source, **options), Epochs(source, **options)
  for wanted in reads:
    everything = plain.read(len(wanted))
    found = spied.read(len(wanted), wanted=np.array(wanted, bool))
    assert found == [
      record if keep else None for record, keep in zip(everything, wanted)
    ]
    assert spied.position() == plain.position()


def test_places_are_those_of_the_records():
  epochs = Epochs(numbers(5), seed=1, shuffle_buffer_size=3, epochs=None)
  records = epochs.read(12)
  place = epochs.places()
  epochs.read(3)
  assert [place(i) for i in range(12)] == [
    f"it, record {record['n'] + 1}" for record in records
  ]
  with pytest.raises(IndexError, match="gave no record"):
    place(12)


class Spied:
  """A source that counts what is read of it, and how often it is opened."""

  def __init__(self, source):
    self.name, self.seekable = source.name, source.seekable
    self.identity = source.identity
    self.opened, self.read = [], []
    self._source = source

  def open(self, cursor=None):
    self.opened.append(cursor)
    reader = self._source.open(cursor)
    inner = reader.read

    def read(n):
      block = inner(n)
      self.read.append((len(block), reader.cursor()))
      return block

    reader.read = read
    return reader


def test_a_seek_reads_its_window_and_nothing_before():
  options = {"seed": 0, "shuffle_buffer_size": 10, "epochs": None}
  epochs = Epochs(numbers(100), **options)
  epochs.read(357)
  position = epochs.position()
  assert position == [3, 57, 50]
  expected = epochs.read(5)
  spied = Spied(numbers(100))
  again = Epochs(spied, **options)
  again.seek(position)
  assert again.read(3) == expected[:3]
  assert (spied.opened, spied.read) == ([[50]], [(10, [60])])
  assert again.read(2) == expected[3:]


def test_no_more_is_read_than_the_window():
  spied = Spied(numbers(100))
  epochs = Epochs(spied, seed=0, shuffle_buffer_size=10, epochs=None)
  assert spied.opened == []
  assert epochs.position() == [0, 0, 0]
  assert spied.read == []
  epochs.read(1)
  epochs.read(9)
  assert spied.read == [(10, [10])]


def test_a_copy_and_a_closed_one_go_on():
  epochs = Epochs(numbers(9), seed=0, shuffle_buffer_size=4, epochs=2)
  expected = slow(9, seed=0, size=4, num_epochs=2)
  given_out = read_numbers(epochs, 6)
  epochs.close()
  given_out += read_numbers(epochs, 5)
  again = Epochs(
    pickle.loads(pickle.dumps(numbers(9))),
    seed=0,
    shuffle_buffer_size=4,
    epochs=2,
  )
  again.seek(epochs.position())
  assert given_out + read_numbers(again, 99) == expected


def test_nothing_for_ever_is_an_error():
  epochs = Epochs(numbers(0), seed=0, shuffle_buffer_size=4, epochs=None)
  with pytest.raises(ValueError, match="it has no record in epoch 0, and is"):
    epochs.read(1)
  epochs = Epochs(numbers(0), seed=0, shuffle_buffer_size=4, epochs=3)
  assert epochs.read(5) == []
  assert epochs.position() == [0, 0, 0]


def test_a_source_that_gives_nothing_again():
  left = [[{"n": 1}], []]
  source = IterableInTurn(lambda: left.pop(0), name="it")
  epochs = Epochs(source, seed=0, shuffle_buffer_size=None, epochs=None)
  with pytest.raises(ValueError, match="it has no record in epoch 1, and is"):
    epochs.read(2)


@pytest.mark.parametrize(
  "options, message",
  [
    ({"shuffle_buffer_size": 0}, "shuffle_buffer_size must be at least 1"),
    ({"shuffle_buffer_size": -5}, "shuffle_buffer_size must be at least 1"),
    ({"shuffle_buffer_size": 1.5}, "shuffle_buffer_size must be an integer"),
    ({"epochs": 0}, "epochs must be at least 1, got 0"),
    ({"seed": "a"}, "seed must be an integer, got 'a'"),
  ],
)
def test_numbers_that_cannot_be(options, message):
  given_ones = {"seed": 0, "shuffle_buffer_size": 4, "epochs": None}
  with pytest.raises(ValueError, match=message):
    Epochs(numbers(3), **{**given_ones, **options})


@pytest.mark.parametrize(
  "position", [None, [], [0], [0, -1, 0], ["0", 0, 0], [True, 0, 0], "00"]
)
def test_what_is_no_position_is_refused(position):
  epochs = Epochs(numbers(3), seed=0, shuffle_buffer_size=2, epochs=None)
  with pytest.raises(ValueError, match=r"A position in it is \[epoch, record"):
    epochs.seek(position)


def test_a_position_in_other_data_is_refused():
  epochs = Epochs(numbers(3), seed=0, shuffle_buffer_size=4, epochs=None)
  with pytest.raises(ValueError, match="it has 3 records; the cursor"):
    epochs.seek([0, 9, 8])
  epochs.seek([0, 3, 0])
  assert len(epochs.read(1)) == 1
  epochs = Epochs(numbers(2), seed=0, shuffle_buffer_size=4, epochs=None)
  epochs.seek([0, 3, 0])
  with pytest.raises(ValueError, match="it has 2 records, and the position is"):
    epochs.read(1)
  with pytest.raises(ValueError, match="it has cursors of 1 whole numbers"):
    epochs.seek([0, 3, 0, 0])
