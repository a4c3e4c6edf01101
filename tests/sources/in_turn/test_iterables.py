"""Iterables, functions and what is in memory, one record after the other."""

import itertools
import logging
import pickle
import subprocess
import sys

import numpy as np
import pytest
from in_turn_checks import check_in_turn, check_takes

from hpgrain import log
from hpgrain.sources.by_index.in_memory import InMemoryRecords
from hpgrain.sources.in_turn.iterables import IterableInTurn
from hpgrain.sources.in_turn.numbered import NumberedInTurn
from hpgrain.sources.in_turn.window_shuffle import Epochs

_ROWS = [{"text": f"text {i}"} for i in range(7)]
_EXPECTED = [(row, f"it, record {i + 1}") for i, row in enumerate(_ROWS)]


def rows():
  """A generator, as a module has it so that it can be pickled."""
  yield from _ROWS


class Rows:
  """A class whose instances are iterated over."""

  def __iter__(self):
    yield from _ROWS


@pytest.mark.parametrize("data", [_ROWS, rows, Rows(), Rows, tuple(_ROWS)])
def test_a_pass_from_any_place(data):
  source = IterableInTurn(data, name="it", identity={"version": 3})
  assert not source.seekable
  assert source.identity == {"format": "iterable", "given": {"version": 3}}
  check_in_turn(source, _EXPECTED)


def test_records_by_number_from_any_place():
  source = NumberedInTurn(InMemoryRecords(_ROWS, name="it"))
  assert source.seekable
  check_in_turn(source, _EXPECTED)
  check_takes(source.open([2]).read(4), _ROWS[2:6])
  columns = {"n": np.array([3, 1]), "text": ["a", "b"]}
  source = NumberedInTurn(InMemoryRecords(columns, name="it"))
  assert source.open([1]).read(5).records() == [{"n": 1, "text": "b"}]
  with pytest.raises(ValueError, match=r"it has 2 records; the cursor \[3\]"):
    source.open([3])


def test_values_of_one_column():
  source = IterableInTurn(["a", "b"], name="it", column="text")
  assert source.open().read(9).records() == [{"text": "a"}, {"text": "b"}]


def test_blocks_are_taken_in_any_order():
  block = IterableInTurn(_ROWS, name="it").open([1]).read(5)
  check_takes(block, _ROWS[1:6])
  assert block.place(4) == "it, record 6"


def test_no_more_is_taken_than_is_read():
  taken = itertools.count()
  source = IterableInTurn(
    lambda: ({"n": next(taken)} for _ in itertools.count()), name="it"
  )
  reader = source.open()
  assert next(taken) == 0
  reader.read(3)
  reader.read(2)
  assert next(taken) == 6


def test_a_generator_is_closed():
  closed = []

  def items():
    try:
      yield from _ROWS
    finally:
      closed.append(True)

  reader = IterableInTurn(items, name="it").open()
  reader.read(2)
  reader.close()
  assert closed == [True]


def test_an_iterator_has_one_pass():
  source = IterableInTurn(iter(_ROWS), name="it")
  # To open one asks for nothing, so a position may be told first.
  source.open()
  epochs = Epochs(source, seed=0, shuffle_buffer_size=None, epochs=None)
  assert epochs.position() == [0, 0, 0]
  assert epochs.read(7) == _ROWS
  with pytest.raises(ValueError, match="it is an iterator, which can be read"):
    epochs.read(1)


def test_what_stands_before_a_cursor_is_said_once(caplog, monkeypatch):
  monkeypatch.setattr(log, "_said", set())
  source = IterableInTurn(_ROWS, name="it")
  with caplog.at_level(logging.WARNING, "hpgrain"):
    source.open([0]).read(1)
    assert caplog.messages == []
    source.open([3]).read(1)
    source.open([3]).read(1)
  assert caplog.messages == [
    "it cannot be entered in its middle: its first 3 records are read again and"
    " dropped."
  ]
  with pytest.raises(ValueError, match="it gave 7 records, and a run stood af"):
    source.open([8]).read(1)
  with pytest.raises(ValueError, match="it has cursors of 1 whole numbers"):
    source.open([1, 1])


def test_what_is_no_record_is_named():
  source = IterableInTurn([{"text": "a"}, "secret"], name="it")
  with pytest.raises(ValueError, match=r"it, record 2 is a str, not") as error:
    source.open().read(9)
  assert "secret" not in str(error.value)
  with pytest.raises(ValueError, match=r"it is a int. Give an iterable of r"):
    IterableInTurn(3, name="it")
  with pytest.raises(ValueError, match=r"it is a dict. Give an iterable"):
    IterableInTurn({"text": ["a"]}, name="it")
  with pytest.raises(ValueError, match="function of it returned a int, which"):
    IterableInTurn(lambda: 3, name="it").open().read(1)


def test_a_source_that_cannot_be_pickled_says_so():
  source = IterableInTurn(lambda: iter(_ROWS), name="it")
  with pytest.raises(Exception, match="pickle"):
    pickle.dumps(source)


_ENDLESS = """
import itertools
from hpgrain.sources.in_turn.iterables import IterableInTurn
from hpgrain.sources.in_turn.window_shuffle import Epochs

def peak():
  with open("/proc/self/status") as status:
    (line,) = [line for line in status if line.startswith("VmHWM")]
  return int(line.split()[1])

def texts():
  # Of 10 kB each: 400 MB in all.
  return ({"text": f"{n:010000}"} for n in itertools.count())

source = IterableInTurn(texts, name="it")
epochs = Epochs(source, seed=0, shuffle_buffer_size=100, epochs=None)
before = peak()
for _ in range(4000):
  epochs.read(10)
print(epochs.position(), peak() - before)
"""


def test_one_that_never_ends_takes_no_more_memory():
  done = subprocess.run(
    [sys.executable, "-c", _ENDLESS],
    check=False,
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr
  position, _, grown = done.stdout.strip().rpartition(" ")
  assert position == "[0, 40000, 40000]"
  # Three windows of a megabyte, and what the allocator keeps.
  assert int(grown) < 12 << 10
