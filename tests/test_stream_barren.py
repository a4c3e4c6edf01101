import numpy as np
import pytest

from hpgrain.stream_barren import BarrenCheck


def check(num_streams=3, num_held=1, shuffled=False):
  return BarrenCheck(
    num_streams=num_streams, num_held=num_held, shuffled=shuffled
  )


def epochs(*numbers):
  return np.array(numbers, np.int64)


def test_all_records_are_looked_at_after_an_epoch_without_any_example():
  barren = check()
  for epoch in (0, 0, 1):
    assert not barren.looks_everywhere(0, epochs(epoch))
    barren.saw({}, False)
  # Epoch 1 was whole.
  assert barren.looks_everywhere(0, epochs(2))
  barren.saw({}, False)
  assert barren.looks_everywhere(0, epochs(3))
  with pytest.raises(ValueError, match="No record of a whole epoch of every"):
    barren.looks_everywhere(0, epochs(4))


def test_every_source_is_waited_for():
  barren = check()
  assert not barren.looks_everywhere(0, epochs(0, 0))
  barren.saw({}, False)
  assert not barren.looks_everywhere(0, epochs(9, 1))
  assert barren.looks_everywhere(0, epochs(9, 2))


def test_who_holds_all_streams_knows_at_once():
  barren = check(num_held=3)
  assert not barren.looks_everywhere(0, epochs(0))
  barren.saw({}, False)
  with pytest.raises(ValueError, match="No record of a whole epoch of every"):
    barren.looks_everywhere(0, epochs(2))


def test_an_example_of_another_stream_ends_the_looking():
  barren = check()
  assert not barren.looks_everywhere(0, epochs(0))
  barren.saw({}, False)
  assert barren.looks_everywhere(0, epochs(2))
  barren.saw({}, True)
  assert not barren.looks_everywhere(0, epochs(3))


@pytest.mark.parametrize("shuffled, patience", [(False, 3), (True, 192)])
def test_a_stream_that_never_gets_any_is_told(shuffled, patience):
  barren = check(num_held=2, shuffled=shuffled)
  for epoch in range(patience + 1):
    barren.looks_everywhere(0, epochs(epoch))
    barren.saw({1: None}, True)
  with pytest.raises(ValueError, match="Stream 0 got no example in"):
    barren.looks_everywhere(0, epochs(patience + 1))


def test_a_stream_that_gets_one_is_waited_for_anew():
  barren = check(num_held=2)
  for epoch in range(20):
    barren.looks_everywhere(0, epochs(epoch))
    barren.saw({0: None} if epoch % 3 == 2 else {1: None}, True)
