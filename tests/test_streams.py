import json
import pickle
import signal
import subprocess
import sys
import textwrap
from unittest import mock

import numpy as np
import pytest
import reference_online as reference
from hypothesis import given
from hypothesis import strategies as st
from listed_records import Listed, listed
from reference_packers import Packing

from hpgrain import fingerprint, stream_block_sizes
from hpgrain.fields import FieldOptions
from hpgrain.packing import PackingOptions
from hpgrain.streams import StreamRows
from hpgrain.transforms.pretokenized import PretokenizedTransform
from hpgrain.transforms.record_hooks import FilteredTransform

WEIGHTS = st.sampled_from([1e-6, 0.4, 1, 3])


def passes(record, keep):
  return keep == "all" or (keep == "half" and record["keep"])


def kept(record):
  return passes(record, "half")


class Case:
  """Sources, options, and what the slow reference says of their rows."""

  def __init__(self, records, *, keep, max_seq_len, packing, **options):
    self.keep, self.max_seq_len, self.packing = keep, max_seq_len, packing
    self.records = records
    self.options = options
    transform = reference.Transform("pretokenized", max_seq_len)
    self.order = reference.Order(
      names=[f"s{i}" for i in range(len(records))],
      examples=[
        [
          reference.examples_of(record, transform)
          if passes(record, keep)
          else []
          for record in rows
        ]
        for rows in records
      ],
      weights=options["weights"],
      seed=options["seed"],
      shuffle=options["shuffle_buffer_size"] is not None,
      epochs=options["epochs"],
      buffer=options["shuffle_buffer_size"],
    )
    self.expected = reference.Streams(
      self.order, packing, num_streams=options["num_streams"]
    )

  def transform(self):
    made = PretokenizedTransform(max_seq_len=self.max_seq_len)
    if self.keep == "all":
      return made
    return FilteredTransform(
      made, kept if self.keep == "half" else _none, name=self.keep
    )

  def open(self, streams, **others):
    packing = vars(self.packing).copy()
    samples = StreamRows(
      [Listed(f"s{i}", rows) for i, rows in enumerate(self.records)],
      [self.transform() for _ in self.records],
      pack_window=packing.pop("pack_window"),
      options=PackingOptions(**packing),
      **{**self.options, **others},
    )
    return samples.open(streams)

  def fields(self, numbers):
    """The fields of rows, [n, positions]."""
    rows = [self.expected.row(int(g)) for g in numbers]
    return reference.batch(
      rows,
      reference.Fields(
        self.packing.budget, segment_multiple=self.packing.segment_multiple
      ),
    )


def _none(record):
  del record
  return False


def fields_of(reader, numbers, width):
  made = reader.rows(np.array(numbers, np.int64)).fields(
    (0, width), num_rows=len(numbers), options=FieldOptions()
  )
  return {name: np.array(values) for name, values in made.items()}


def check_rows(case, reader, numbers):
  made = fields_of(reader, numbers, case.packing.budget)
  for name, values in case.fields(numbers).items():
    np.testing.assert_array_equal(made[name], values, err_msg=name)


@st.composite
def cases(draw):
  packer = draw(
    st.sampled_from(["best_fit", "first_fit", "concat", "pad", "fixed"])
  )
  several = draw(st.booleans())
  epochs = draw(st.sampled_from([None, 1, 2]))
  keep = "all" if epochs is None else draw(
    st.sampled_from(["all", "all", "half", "none"])
  )  # fmt: skip
  least = 0 if epochs is not None and not several else 1
  # Fixed rows take one example of a record.
  max_seq_len = 40 if packer == "fixed" else draw(st.integers(2, 12))
  lengths = st.lists(
    st.integers(2 if epochs is None else 0, 14), min_size=least, max_size=12
  )
  records = []
  for i in range(draw(st.integers(2, 3)) if several else 1):
    records.append(
      [
        {
          "input_ids": [1000 * i + 20 * r + p for p in range(length)],
          "keep": draw(st.booleans()),
        }
        for r, length in enumerate(draw(lengths))
      ]
    )
  packing = Packing(
    budget=draw(st.sampled_from([6, 8])),
    packer=packer,
    overlong=draw(st.sampled_from(["split", "truncate", "drop"])),
    segment_multiple=1 if packer == "concat" else draw(st.sampled_from([1, 2])),
    max_items=0 if packer == "fixed" else draw(st.sampled_from([0, 0, 2])),
    min_buffered=draw(st.integers(1, 4)),
    pack_window=draw(st.integers(1, 5)),
    examples_per_row=draw(st.integers(1, 2)) if packer == "fixed" else 1,
  )
  if epochs is None and packing.overlong == "drop":
    packing = Packing(**{**vars(packing), "overlong": "truncate"})
  return Case(
    records,
    keep=keep,
    max_seq_len=max_seq_len,
    packing=packing,
    weights=[draw(WEIGHTS) for _ in records] if several else None,
    seed=draw(st.integers(0, 3)),
    shuffle_buffer_size=draw(st.sampled_from([None, 1, 4])),
    epochs=epochs,
    num_streams=draw(st.integers(1, 5)),
    handover_bytes=draw(st.sampled_from([0, 100, 1 << 20])),
  )


def shape_of(value):
  if isinstance(value, dict):
    return {key: shape_of(item) for key, item in value.items()}
  if isinstance(value, list):
    return [shape_of(item) for item in value]
  return type(value)


@given(case=cases(), data=st.data())
def test_rows_are_the_reference_s_whoever_holds_the_streams(case, data):
  """Batches of changing sizes, streams held by others after each cut."""
  # Small blocks, so that many are read.
  first = data.draw(st.integers(1, 5), label="first block")
  most = data.draw(st.integers(1, 9), label="greatest block")
  with mock.patch.multiple(
    stream_block_sizes,
    FIRST=first,
    MOST=most,
    MOST_OF_STREAM=1,
    MOST_OF_SOURCE=1,
  ):
    run_legs(case, data)


def run_legs(case, data):
  num_streams = case.options["num_streams"]
  states, row = None, 0
  for _ in range(data.draw(st.integers(1, 4), label="legs")):
    # Of every stream one or two readers.
    num_readers = data.draw(st.integers(1, 3), label="readers")
    holders = [
      data.draw(
        st.lists(
          st.integers(0, num_readers - 1), min_size=1, max_size=2, unique=True
        ),
        label=f"holders of {v}",
      )
      for v in range(num_streams)
    ]
    readers = [
      case.open([v for v in range(num_streams) if i in holders[v]])
      for i in range(num_readers)
    ]
    for reader in readers:
      if states is not None:
        reader.restore(states)
    batch = data.draw(st.integers(1, 7), label="batch")
    for _ in range(data.draw(st.integers(1, 4), label="batches")):
      asked = {i: [] for i in range(num_readers)}
      for g in range(row, row + batch):
        held = holders[g % num_streams]
        asked[data.draw(st.sampled_from(held), label=f"row {g}")].append(g)
      for i, numbers in asked.items():
        check_rows(case, readers[i], numbers)
      row += batch
    if case.options["epochs"] is not None:
      for i, reader in enumerate(readers):
        held = [v for v in range(num_streams) if i in holders[v]]
        given = {v: packer.num_rows for v, packer in reader._packers.items()}
        assert reader.rows_left(held).tolist() == [
          case.expected.row(given[v] * num_streams + v) is not None
          for v in held
        ]
    states = json.loads(json.dumps([reader.state() for reader in readers]))
    for state in states:
      assert shape_of(state) == {
        "num_streams": int,
        "streams": {
          stream: [int, int, int, str, int] for stream in state["streams"]
        },
        "sources": [[int, int, int]] * len(case.records),
        "sources_at": int,
      }
      for entry in state["streams"].values():
        assert len(json.dumps(entry)) <= 256 + entry[2] / 4
    for reader in readers:
      reader.close()


@given(case=cases())
def test_every_token_is_in_a_row_or_counted_as_left_out(case):
  if case.options["epochs"] is None:
    return
  reader = case.open(range(case.options["num_streams"]))
  numbers = []
  while reader.rows_left(range(case.options["num_streams"])).any():
    numbers = list(range(len(numbers) + case.options["num_streams"]))
    check_rows(case, reader, numbers[-case.options["num_streams"] :])
  assert reader.waiting_bytes == 0
  counters = reader.counters()
  rows = [row for row in map(case.expected.row, numbers) if row is not None]
  assert counters["rows"] == len(rows)
  assert counters["padded"] == sum(
    case.packing.budget - sum(len(piece) for piece in row) for row in rows
  )
  draws = list(case.order.draws())
  for i, (name, source) in enumerate(counters["sources"].items()):
    assert name == f"s{i}"
    assert source["records"] == sum(drawn == i for drawn, _ in draws)
    assert (
      source["tokens_in_rows"]
      == source["tokens"]
      == sum(len(piece) for row in rows for piece in row if piece.source == i)
    )
    assert source["tokens_read"] == source["tokens"] + sum(
      source["tokens_dropped"].values()
    )
    drawn = [
      case.records[i][case.order.record(i, k)] for j, k in draws if j == i
    ]
    passed = [r for r in drawn if passes(r, case.keep)]
    assert source["dropped"].get("filtered", 0) == len(drawn) - len(passed)
    assert source["dropped"].get("empty", 0) == sum(
      len(r["input_ids"]) < 2 for r in passed
    )
    assert source["tokens_read"] == sum(
      max(len(r["input_ids"]) - 1, 0) for r in passed
    )


def streams(lengths, *, budget=8, num_streams=2, **options):
  common = {
    "weights": None,
    "seed": 0,
    "shuffle_buffer_size": None,
    "epochs": 1,
    "num_streams": num_streams,
    "pack_window": 2,
  }
  sources = [listed(f"s{i}", found) for i, found in enumerate(lengths)]
  transforms = [
    PretokenizedTransform(max_seq_len=64, labels_are_shifted=False)
    for _ in sources
  ]
  packing = {
    "budget": budget,
    "overlong": "split",
    **options.pop("packing", {}),
  }
  return StreamRows(
    sources,
    transforms,
    options=PackingOptions(**packing),
    **{**common, **options},
  )


def test_rows_written_out():
  # Stream 0 has the records 0 2 4, stream 1 the records 1 3.
  samples = streams([[3, 6, 4, 2, 2]])
  reader = samples.open([1, 0])
  opened = reader.rows([0, 1, 2, 3])
  assert opened.filled.tolist() == [True, True, True, False]
  made = opened.fields((0, 8), num_rows=5, options=FieldOptions())
  assert made["input_ids"].tolist() == [
    [0, 1, 2, 200, 201, 202, 203, 0],
    [100, 101, 102, 103, 104, 105, 300, 301],
    [400, 401, 0, 0, 0, 0, 0, 0],
    [0] * 8,
    [0] * 8,
  ]
  assert made["segment_ids"].tolist() == [
    [1, 1, 1, 2, 2, 2, 2, 0],
    [1, 1, 1, 1, 1, 1, 2, 2],
    [1, 1, 0, 0, 0, 0, 0, 0],
    [0] * 8,
    [0] * 8,
  ]
  part = opened.fields((2, 5), num_rows=4, options=FieldOptions())
  for name, values in part.items():
    assert values.tolist() == made[name][:4, 2:5].tolist(), name
  plans = opened.plans
  assert plans.example.tolist() == [0, 2, 1, 3, 4]
  assert plans.start.tolist() == [0, 3, 0, 6, 0]
  assert reader.rows_left([0, 1]).tolist() == [False, False]


def test_rows_between_are_made_and_left_out():
  samples = streams([[8] * 12])
  reader = samples.open([0])
  made = fields_of(reader, [4], 8)
  assert made["input_ids"][0].tolist() == list(range(400, 408))
  assert reader.state()["streams"] == {"0": [3, 6, 1, "0", 0]}
  assert reader.counters()["rows"] == 3
  assert reader.waiting_bytes > 0
  fields_of(reader, [10], 8)
  assert reader.counters()["rows"] == 6
  assert reader.waiting_bytes == 0
  with pytest.raises(IndexError, match="Row 2 is row 1 of stream 0, which has"):
    reader.rows([2])
  with pytest.raises(KeyError, match="Stream 1 is not among the 1 that are"):
    reader.rows([7])
  with pytest.raises(KeyError, match="Stream 1 is not among the 1 that are"):
    reader.rows_left([1])


def test_records_of_streams_that_are_not_held_are_not_made():
  samples = streams([[8] * 40], num_streams=4)
  reader = samples.open([1])
  reader.rows(range(1, 41, 4))
  assert samples.sources[0].taken == 10
  # Where a stream goes on, what it used is not made again.
  again = samples.open([1])
  state = reader.state()
  samples.sources[0].taken = 0
  again.restore([state])
  again.rows_left([1])
  assert samples.sources[0].taken == 0


def test_streams_that_lag_wait_in_a_file_that_has_no_name(tmp_path):
  # Stream 0 takes eight records a row, the others one each.
  lengths = [1 if r % 64 == 0 else 8 for r in range(64 * 60)]
  options = {"num_streams": 64, "packing": {"packer": "concat"}}
  kept_in_memory = streams([lengths], **options).open(range(64))
  spilling = streams(
    [lengths], handover_bytes=4096, spill_folder=str(tmp_path), **options
  ).open(range(64))
  for batch in range(6):
    numbers = range(64 * batch, 64 * batch + 64)
    expected = fields_of(kept_in_memory, numbers, 8)
    for name, values in fields_of(spilling, numbers, 8).items():
      np.testing.assert_array_equal(values, expected[name], err_msg=name)
    assert not list(tmp_path.iterdir())
  assert kept_in_memory.spilled_bytes == 0
  assert spilling.spilled_bytes > 50_000
  assert spilling.state() == kept_in_memory.state()
  spilling.close()
  spilling.close()


def test_a_reader_that_is_killed_leaves_no_file(tmp_path):
  script = textwrap.dedent(
    """
    import os, signal, sys
    sys.path.insert(0, sys.argv[2])
    from test_streams import streams
    lengths = [1 if r % 64 == 0 else 8 for r in range(64 * 30)]
    reader = streams(
      [lengths], num_streams=64, handover_bytes=0, spill_folder=sys.argv[1],
      packing={"packer": "concat"},
    ).open(range(64))
    reader.rows(range(128))
    assert reader.spilled_bytes
    os.kill(os.getpid(), signal.SIGKILL)
    """
  )
  tests = __file__.rsplit("/", 1)[0]
  done = subprocess.run(
    [sys.executable, "-c", script, str(tmp_path), tests],
    check=False,
    timeout=120,
  )
  assert done.returncode == -signal.SIGKILL
  assert not list(tmp_path.iterdir())


def test_an_endless_order_that_gives_nothing_is_an_error():
  transform = FilteredTransform(
    PretokenizedTransform(max_seq_len=8), _none, name="none"
  )

  def empty(num_streams, streams_held):
    samples = StreamRows(
      [listed("s0", [4] * 300)],
      [transform],
      options=PackingOptions(budget=8),
      weights=None,
      seed=0,
      shuffle_buffer_size=7,
      epochs=None,
      num_streams=num_streams,
    )
    return samples.open(streams_held)

  for reader in (empty(3, [0, 1, 2]), empty(3, [1])):
    with pytest.raises(ValueError, match="No record of a whole epoch of every"):
      reader.rows([1])
  with pytest.raises(ValueError, match="No record of a whole epoch of every"):
    empty(3, [1]).rows_left([1])
  with pytest.raises(ValueError, match="s0 has no record in epoch 0, and is"):
    streams([[]], epochs=None).open([0]).rows([0])


def test_a_stream_that_never_gets_an_example_is_an_error():
  # Of two streams over two records, one has always the empty one.
  reader = streams([[3, 0]], epochs=None).open([0, 1])
  reader.rows([0, 2, 4])
  with pytest.raises(ValueError, match="Stream 1 got no example in 2 epochs"):
    reader.rows([1])


def test_long_examples_are_named():
  samples = streams([[3, 9]], packing={"overlong": "error"})
  with pytest.raises(
    ValueError,
    match="Source 's0', s0, record 1: an example has 9 tokens, and a row has",
  ):
    samples.open([0, 1]).rows([0])
  with pytest.raises(ValueError, match='lengths="table"'):
    streams([[3]], packing={"overlong": "own_row"})


def test_ids_outside_the_vocabulary_are_named():
  samples = streams([[3], [3]], weights=[1, 1], vocab_size=102, num_streams=1)
  samples.sources[1].records[0] = {"input_ids": [101, 102, 7]}
  with pytest.raises(
    ValueError,
    match=r"Source 's1', s1, record 0: the id 102 at token 1 of an example",
  ):
    samples.open([0]).rows([0])


def test_fixed_rows_take_one_example_of_a_record():
  samples = streams([[3, 70]], packing={"packer": "fixed"})
  with pytest.raises(ValueError, match=r"s0, record 1 gives 2 examples"):
    samples.open([0, 1]).rows([0])


def test_at_the_end_of_a_blend_sources_were_read_beyond_it():
  # The second source ends it, before the first is drawn from.
  samples = streams([[3] * 4, [2] * 5], weights=[0.05, 1], num_streams=1)
  reader = samples.open([0])
  made = fields_of(reader, [0, 1, 2], 8)["input_ids"]
  assert made[2].tolist() == [400, 401, 0, 0, 0, 0, 0, 0]
  assert reader.rows_left([0]).tolist() == [False]
  again = samples.open([0])
  again.restore([reader.state()])
  assert again.rows_left([0]).tolist() == [False]
  assert not again.rows([3]).filled.any()
  assert again.state()["streams"] == reader.state()["streams"]


def test_states_of_other_streams_are_refused():
  samples = streams([[3] * 9])
  state = samples.open([0, 1]).state()
  with pytest.raises(ValueError, match="of 2 streams, and there are 3"):
    samples.with_num_streams(3).open([0]).restore([state])
  with pytest.raises(ValueError, match="No part of this state has stream 1"):
    samples.open([1]).restore([samples.open([0]).state()])
  blend = streams([[3], [3]], weights=[1, 1])
  with pytest.raises(ValueError, match="positions of 1 sources, and there are"):
    blend.open([0, 1]).restore([state])


def test_what_decides_the_rows_has_no_number_of_streams():
  samples = streams([[3], [4]], weights=[3, 1])
  identity = samples.unique_identifiers
  assert json.loads(json.dumps(identity)) == identity
  assert samples.with_num_streams(7).unique_identifiers == identity
  assert samples.with_num_streams(7).num_streams == 7
  assert samples.num_streams == 2
  for change in (
    {"weights": [1, 1]},
    {"seed": 1},
    {"shuffle_buffer_size": 3},
    {"epochs": None},
    {"pack_window": 3},
    {"packing": {"overlong": "drop"}},
    {"budget": 9},
  ):
    other = streams([[3], [4]], **{"weights": [3, 1], **change})
    assert other.unique_identifiers != identity, change
  scaled = streams([[3], [4]], weights=[30, 10], handover_bytes=7)
  assert scaled.unique_identifiers == identity
  parts = fingerprint.parts(identity, FieldOptions())
  assert parts["order"] == {
    "order": "streams", "shuffle": False, "shuffle_buffer_size": None,
  }  # fmt: skip
  assert parts["packing"]["pack_window"] == 2


def test_rows_can_be_made_in_another_process():
  samples = streams([[3, 6, 4, 2, 2]])
  copy = pickle.loads(pickle.dumps(samples))
  expected = fields_of(samples.open([0, 1]), [0, 1, 2], 8)
  found = fields_of(copy.open([0, 1]), [0, 1, 2], 8)
  assert found["input_ids"].tolist() == expected["input_ids"].tolist()


def test_arguments_that_are_none_are_refused():
  with pytest.raises(ValueError, match="at least one source, got none"):
    streams([])
  with pytest.raises(ValueError, match="2 sources that are read in turn need"):
    streams([[1], [1]])
  for name in ("num_streams", "pack_window", "shuffle_buffer_size", "epochs"):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
      streams([[1]], **{name: 0})
  with pytest.raises(ValueError, match="handover_bytes must be at least 0"):
    streams([[1]], handover_bytes=-1)
  samples = streams([[1]])
  with pytest.raises(ValueError, match="A stream must be at most 1, got 2"):
    samples.open([2])
  with pytest.raises(ValueError, match="A stream is held once"):
    samples.open([1, 1])
  twin = StreamRows.__init__.__kwdefaults__["num_streams"]
  assert twin == 64
  sources = [listed("a", [1]), listed("a", [1])]
  with pytest.raises(ValueError, match="Sources 0 and 1 are both named 'a'"):
    StreamRows(
      sources,
      [PretokenizedTransform(max_seq_len=8)] * 2,
      options=PackingOptions(budget=8),
      weights=[1, 1],
      seed=0,
      shuffle_buffer_size=None,
      epochs=1,
    )
  with pytest.raises(ValueError, match="needs a transform, got 1 for 2"):
    StreamRows(
      sources,
      [PretokenizedTransform(max_seq_len=8)],
      options=PackingOptions(budget=8),
      weights=[1, 1],
      seed=0,
      shuffle_buffer_size=None,
      epochs=1,
    )
