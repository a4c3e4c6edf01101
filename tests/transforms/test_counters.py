"""hpgrain/transforms/counters.py: what one thread adds, apart."""

import pickle
import threading

import numpy as np
import pytest

from hpgrain.examples import Examples
from hpgrain.transforms.counters import Counters


def records(n):
  """n records without an example."""
  none = np.zeros(0, np.int32)
  return Examples(np.zeros(n + 1, np.int64), np.zeros(1, np.int64), none, none)


def add(counters, n):
  counters.add(records(n), dropped={"empty": n}, tokens_dropped={"odd": 2 * n})


def test_what_is_added_meanwhile_is_recorded():
  counters = Counters()
  add(counters, 1)
  with counters.recorded() as outer:
    add(counters, 2)
    with counters.recorded() as inner:
      add(counters, 3)
  add(counters, 4)
  assert [c.as_dict()["records"] for c in (counters, outer, inner)] == [
    10,
    5,
    3,
  ]
  assert inner.as_dict() == {
    "records": 3,
    "examples": 0,
    "tokens_read": 6,
    "tokens": 0,
    "dropped": {"empty": 3},
    "tokens_dropped": {"odd": 6},
  }


def test_another_thread_is_not_recorded():
  counters = Counters()
  with counters.recorded() as recorded:
    thread = threading.Thread(target=add, args=(counters, 5))
    thread.start()
    thread.join()
    add(counters, 1)
  assert recorded.as_dict()["records"] == 1
  assert counters.as_dict()["records"] == 6


def test_an_error_ends_it():
  counters = Counters()
  with pytest.raises(KeyError, match="x"), counters.recorded() as recorded:
    raise KeyError("x")
  add(counters, 1)
  assert recorded.as_dict()["records"] == 0


def test_a_copy_begins_at_zero():
  counters = Counters()
  with counters.recorded() as recorded:
    copy = pickle.loads(pickle.dumps(counters))
    add(copy, 2)
  assert copy.as_dict()["records"] == 2
  assert recorded.as_dict()["records"] == 0
