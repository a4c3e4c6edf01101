import numpy as np

from hpgrain.examples import Examples
from hpgrain.stream_counters import StreamCounters
from hpgrain.stream_pieces import LENGTH, SOURCE, make_pieces, no_pieces
from hpgrain.transforms.counters import LeftOut


def rows_of(*pieces):
  """Each (source, length)."""
  table = np.zeros((len(no_pieces()), len(pieces)), np.int64)
  for i, (source, length) in enumerate(pieces):
    table[[SOURCE, LENGTH], i] = source, length
  return table


def add(counters, source, lengths, *, overlong, left_out=None):
  """Records of sources, each with examples of lengths."""
  flat = [n for record in lengths for n in record]
  ids = np.zeros(sum(flat), np.int32)
  examples = Examples(
    np.cumsum([0, *map(len, lengths)]), np.cumsum([0, *flat]), ids, ids
  )
  counts = [len(record) for record in lengths]
  pieces = make_pieces(
    examples.example_splits,
    record=np.repeat(np.arange(len(lengths)), counts),
    source=np.repeat(source, counts),
    limit=4,
    overlong=overlong,
  )
  counters.add(
    np.array(source), examples, left_out or LeftOut(np.array(source)), pieces
  )


def test_sums_are_by_source():
  counters = StreamCounters(["a", "b", "c"], budget=8, overlong="truncate")
  left_out = LeftOut(np.array([0, 1, 1]))
  left_out.add(
    dropped={"empty": np.array([False, True, False])},
    tokens_dropped={"cut": np.array([2, 0, 3])},
  )
  add(
    counters, [0, 1, 1], [[3, 6], [], [4]], overlong="truncate",
    left_out=left_out,
  )  # fmt: skip
  add(counters, [1], [[1]], overlong="truncate")
  counters.add_rows(2, rows_of((0, 3), (1, 1), (0, 4)))
  assert counters.as_dict() == {
    "rows": 2,
    "tokens_in_rows": 8,
    "padded": 8,
    "sources": {
      "a": {
        "records": 1,
        "examples": 2,
        "tokens_read": 11,
        "tokens": 7,
        "tokens_in_rows": 7,
        "dropped": {},
        "tokens_dropped": {"cut": 2, "truncated": 2},
      },
      "b": {
        "records": 3,
        "examples": 2,
        "tokens_read": 8,
        "tokens": 5,
        "tokens_in_rows": 1,
        "dropped": {"empty": 1},
        "tokens_dropped": {"cut": 3},
      },
      "c": {
        "records": 0,
        "examples": 0,
        "tokens_read": 0,
        "tokens": 0,
        "tokens_in_rows": 0,
        "dropped": {},
        "tokens_dropped": {},
      },
    },
  }


def test_examples_that_are_dropped_for_their_length_are_counted():
  counters = StreamCounters(["a"], budget=8, overlong="drop")
  add(counters, [0, 0], [[3, 6, 5], [9]], overlong="drop")
  source = counters.as_dict()["sources"]["a"]
  assert source["dropped"] == {"overlong": 3}
  assert source["tokens_dropped"] == {"overlong": 20}
  assert (source["tokens_read"], source["tokens"]) == (23, 3)
  counters = StreamCounters(["a"], budget=8, overlong="split")
  add(counters, [0, 0], [[3, 6, 5], [9]], overlong="split")
  source = counters.as_dict()["sources"]["a"]
  assert (source["dropped"], source["tokens_dropped"]) == ({}, {})
  assert (source["tokens_read"], source["tokens"]) == (23, 23)
