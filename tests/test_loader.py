import gc
import itertools
import json
import random
import threading
import time
import weakref

import grain
import jax
import numpy as np
import pytest
import reference
from corpora import random_documents, write_pair

from hpgrain import GPTSamples, MockSamples, _kernels, placement, shard
from hpgrain.batches import BatchSpec
from hpgrain.fields import FieldOptions
from hpgrain.loader import Loader

_SEQ_LENGTH = 8


@pytest.fixture
def prefix(tmp_path):
  rng = random.Random(0)
  return write_pair(
    tmp_path / "a", random_documents(rng, num_documents=30, max_length=12)
  )


def _layout(axes=("data", "cp", "tp"), sizes=(4, 2, 1), *, num_rows=8):
  mesh = shard.make_mesh(axes, dict(zip(axes, sizes)))
  return shard.batch_layout(
    shard.batch_sharding(mesh), num_rows=num_rows, num_positions=_SEQ_LENGTH
  )


def _samples(prefix, **options):
  return GPTSamples(prefix, seq_length=_SEQ_LENGTH, seed=1, **options)


def _loader(samples, *, prefetch=2, layout=None, options=None, **spec):
  return Loader(
    BatchSpec(
      samples=samples,
      layout=layout or _layout(),
      options=options or FieldOptions(),
      **spec,
    ),
    prefetch=prefetch,
  )


def _expected(prefix, num_rows, **options):
  rows = reference.GPT(
    reference.read_corpus(prefix), seq_length=_SEQ_LENGTH, seed=1, name="a"
  )
  return reference.batches(
    rows,
    fields=reference.Fields(_SEQ_LENGTH),
    batch_size=num_rows,
    **options,
  )


def _host(batch):
  return {name: np.asarray(values) for name, values in batch.items()}


def _assert_equal(found, expected):
  found = _host(found)
  assert found.keys() == expected.keys()
  for name, values in expected.items():
    assert found[name].dtype == values.dtype
    np.testing.assert_array_equal(found[name], values, err_msg=name)


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize(
  "axes, sizes",
  [
    (("data", "cp", "tp"), (8, 1, 1)),
    (("data", "cp", "tp"), (2, 2, 2)),
    (("cp", "data"), (4, 2)),
  ],
)
def test_batches_are_the_slow_references_on_any_mesh(
  prefix, axes, sizes, prefetch
):
  layout = _layout(axes, sizes)
  iterator = iter(_loader(_samples(prefix), layout=layout, prefetch=prefetch))
  for rows, expected in itertools.islice(_expected(prefix, 8), 9):
    batch = next(iterator)
    _assert_equal(batch, expected)
    assert all(v.sharding == layout.sharding for v in batch.values())
    assert iterator.rows == rows
  iterator.close()


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("pad_last", [False, True])
def test_state_goes_on_where_it_was_taken(prefix, prefetch, pad_last):
  class HostBatches(grain.IterDataset):
    """The loader's batches as host arrays, which Grain's check compares."""

    def __iter__(self):
      samples = _samples(prefix)
      return _HostIterator(
        iter(_loader(samples, prefetch=prefetch, end_row=35, pad_last=pad_last))
      )

  class _HostIterator(grain.DatasetIterator):
    def __init__(self, loader_iterator):
      super().__init__(loader_iterator)

    def __next__(self):
      return _host(next(self._parent))

    def get_state(self):
      return self._parent.get_state()

    def set_state(self, state):
      self._parent.set_state(state)

  grain.experimental.assert_equal_output_after_checkpoint(HostBatches())


def test_state_is_small_json_of_one_structure(prefix):
  iterator = iter(_loader(_samples(prefix)))
  states = [iterator.get_state()]
  for _ in range(3):
    next(iterator)
    states.append(iterator.get_state())
  assert [state["rows"] for state in states] == [0, 8, 16, 24]
  for state in states:
    assert list(state) == ["version", "fingerprint", "rows"]
    assert state["version"] == 1
    assert type(state["rows"]) is int
    assert json.loads(json.dumps(state)) == state
    assert len(json.dumps(state)) < 256
    assert state["fingerprint"] == states[0]["fingerprint"]
  iterator.close()


@pytest.mark.parametrize("prefetch", [0, 3])
def test_prefetched_batches_do_not_count(prefix, prefetch):
  iterator = iter(_loader(_samples(prefix), prefetch=prefetch))
  next(iterator)
  time.sleep(0.1)
  assert iterator.get_state()["rows"] == 8
  iterator.close()


def test_a_state_restores_under_another_batch_size_and_mesh(prefix):
  first = iter(_loader(_samples(prefix)))
  for _ in range(3):
    next(first)
  state = json.loads(json.dumps(first.get_state()))
  layout = _layout(("data", "cp", "tp"), (2, 2, 2), num_rows=4)
  second = iter(_loader(_samples(prefix), layout=layout))
  second.set_state(state)
  assert second.get_state() == state
  batches = itertools.islice(_expected(prefix, 4, start_row=24), 5)
  for _, expected in batches:
    _assert_equal(next(second), expected)
  # An iterator under way may be set back, or forth, at any time.
  first.set_state({**state, "rows": 8})
  second.set_state({**state, "rows": 8})
  _assert_equal(next(first), next(_expected(prefix, 8, start_row=8))[1])
  _assert_equal(next(second), next(_expected(prefix, 4, start_row=8))[1])
  first.close()
  second.close()


def test_a_fresh_iterator_begins_at_the_first_row(prefix):
  loader = _loader(_samples(prefix), first_row=5)
  for _ in range(2):
    iterator = iter(loader)
    assert iterator.rows == 5
    expected = next(_expected(prefix, 8, start_row=5))[1]
    _assert_equal(next(iterator), expected)
    iterator.close()


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("end_row", [16, 19, 5])
@pytest.mark.parametrize("end_of_data", ["drop", "pad"])
def test_data_ends_the_same_step_everywhere(
  prefix, prefetch, end_row, end_of_data
):
  loader = _loader(
    _samples(prefix),
    prefetch=prefetch,
    end_row=end_row,
    pad_last=end_of_data == "pad",
  )
  corpus = reference.read_corpus(prefix)
  source = reference.GPT(corpus, seq_length=_SEQ_LENGTH, seed=1, name="a")
  source.num_rows = lambda epochs: end_row
  expected = list(
    reference.batches(
      source,
      fields=reference.Fields(_SEQ_LENGTH),
      batch_size=8,
      epochs=1,
      end_of_data=end_of_data,
    )
  )
  assert loader.num_steps == len(expected)
  iterator = iter(loader)
  for rows, batch in expected:
    _assert_equal(next(iterator), batch)
    assert iterator.rows == rows
  for _ in range(3):
    with pytest.raises(StopIteration):
      next(iterator)
  assert iterator.rows == (expected[-1][0] if expected else 0)
  # From the end it may go back.
  iterator.set_state({**iterator.get_state(), "rows": 0})
  if expected:
    _assert_equal(next(iterator), expected[0][1])
  iterator.close()


def test_padding_rows_weigh_nothing(prefix):
  loader = _loader(_samples(prefix), end_row=11, pad_last=True)
  first, last = [_host(batch) for batch in iter(loader)]
  assert first["segment_ids"].min() == 1
  assert (last["segment_ids"][3:] == 0).all()
  assert (last["loss_mask"][3:] == 0).all()
  assert (last["labels"][3:] == -100).all()
  assert last["loss_mask"][:3].sum() > 0


@pytest.mark.parametrize(
  "change, message",
  [
    ({"version": 2}, "versions? 1, got 2"),
    ({"rows": -1}, "rows must be at least 0, got -1"),
    ({"rows": 1.5}, "rows must be an integer, got 1.5"),
    ({"rows": True}, "rows must be an integer, got True"),
    ({"fingerprint": "abc"}, "mapping of parts, got 'abc'"),
  ],
)
def test_a_state_that_is_none_is_refused(prefix, change, message):
  iterator = iter(_loader(_samples(prefix)))
  with pytest.raises(ValueError, match=message):
    iterator.set_state(iterator.get_state() | change)
  for state in ({}, {"rows": 3}, None, 7, {"next_index": 0}):
    with pytest.raises(ValueError, match='has the keys "version"'):
      iterator.set_state(state)
  assert iterator.rows == 0
  iterator.close()


def test_a_numpy_row_number_restores_to_a_state_of_json(prefix):
  iterator = iter(_loader(_samples(prefix)))
  iterator.set_state(iterator.get_state() | {"rows": np.int64(3)})
  assert json.loads(json.dumps(iterator.get_state()))["rows"] == 3
  iterator.close()


def test_a_state_of_other_rows_names_what_differs(prefix):
  state = iter(_loader(_samples(prefix))).get_state()
  other = iter(
    _loader(
      _samples(prefix, shuffle=False),
      options=FieldOptions(reset_position_ids=True),
    )
  )
  with pytest.raises(ValueError, match=r"(?s)differ:\n  masks .*\n  order "):
    other.set_state(state)
  assert other.rows == 0
  other.close()


def test_consumed_samples_and_a_state_contradict(prefix):
  state = iter(_loader(_samples(prefix))).get_state()
  iterator = iter(_loader(_samples(prefix), first_row=8))
  with pytest.raises(
    ValueError, match=r"consumed_samples is 8, but a state at row 0"
  ):
    iterator.set_state(state)
  iterator.close()


def test_batches_share_no_memory(prefix):
  iterator = iter(_loader(_samples(prefix)))
  wanted = list(itertools.islice(_expected(prefix, 8), 12))
  batches = [next(iterator) for _ in range(12)]
  time.sleep(0.05)
  for batch, (_, expected) in zip(batches, wanted):
    _assert_equal(batch, expected)
  iterator.close()


def test_host_buffers_are_never_used_twice(prefix, monkeypatch):
  placed = []
  place = placement.place

  def spy(layout, parts):
    placed.append([array for part in parts for array in part.values()])
    return place(layout, parts)

  monkeypatch.setattr(placement, "place", spy)
  iterator = iter(_loader(_samples(prefix), prefetch=0))
  first = next(iterator)
  before = {name: values.copy() for name, values in _host(first).items()}
  for _ in range(3):
    next(iterator)
  for earlier, later in itertools.combinations(placed, 2):
    for a, b in itertools.product(earlier, later):
      assert not np.shares_memory(a, b)
  # Nor does a batch look at buffers of another: spoiling those of all later
  # batches leaves it as it was.
  for later in placed[1:]:
    for array in later:
      array.fill(77)
  _assert_equal(first, before)
  iterator.close()


def _loader_threads():
  return {t for t in threading.enumerate() if t is not threading.main_thread()}


def _wait_until(condition):
  end = time.monotonic() + 5
  while not condition() and time.monotonic() < end:
    gc.collect()
    time.sleep(0.02)
  return condition()


def test_close_frees_the_thread_and_may_be_called_again(prefix):
  before = _loader_threads()
  iterator = iter(_loader(_samples(prefix)))
  next(iterator)
  assert _loader_threads() - before
  iterator.close()
  iterator.close()
  assert _wait_until(lambda: not _loader_threads() - before)
  with pytest.raises(ValueError, match="closed"):
    next(iterator)


def test_close_before_the_first_batch(prefix):
  iterator = iter(_loader(_samples(prefix)))
  iterator.close()
  with pytest.raises(ValueError, match="closed"):
    next(iterator)


@pytest.mark.parametrize("taken", [0, 1, 3])
def test_an_iterator_that_is_dropped_leaks_no_thread(prefix, taken):
  before = _loader_threads()
  iterator = iter(_loader(_samples(prefix)))
  for _ in range(taken):
    next(iterator)
  alive = weakref.ref(iterator)
  del iterator
  assert _wait_until(lambda: alive() is None)
  assert _wait_until(lambda: not _loader_threads() - before)


def test_stats_count_batches_and_seconds(prefix):
  iterator = iter(_loader(_samples(prefix)))
  zero = dict.fromkeys(
    ("wait_seconds", "plan_seconds", "read_seconds", "place_seconds"), 0.0
  )
  # Of rows that nobody shares; see test_reshard.
  rest = {"exchange_seconds": 0.0}
  assert iterator.stats() == {"batches": 0, **zero, **rest}
  for _ in range(4):
    next(iterator)
  stats = iterator.stats()
  assert stats["batches"] == 4
  assert all(stats[name] > 0 for name in zero)
  last = dict(iterator.last_times)
  assert last.pop("exchange") == stats["exchange_seconds"] == 0
  assert set(last) == {"wait", "plan", "read", "place"}
  assert all(0 < t < 10 for t in last.values())
  iterator.close()


def test_waiting_is_what_the_caller_waits_for(prefix):
  samples = _samples(prefix)
  read = samples.read

  def slow_read(plans, window):
    time.sleep(0.05)
    return read(plans, window)

  samples.read = slow_read
  layout = _layout(("data",), (8,))
  slow = iter(_loader(samples, prefetch=0, layout=layout))
  next(slow)
  # Eight shards of one row each.
  assert slow.last_times["read"] >= 8 * 0.05
  assert slow.last_times["wait"] >= slow.last_times["read"]
  slow.close()


@pytest.mark.parametrize(
  "axes, sizes, itemsize_dtype",
  [
    (("data", "cp", "tp"), (8, 1, 1), "uint16"),
    (("data", "cp", "tp"), (4, 2, 1), "uint16"),
    (("data", "cp", "tp"), (2, 2, 2), "int32"),
    (("data", "cp", "tp"), (1, 1, 8), "uint8"),
    (("data", "cp", "tp"), (1, 8, 1), "uint16"),
  ],
)
def test_only_what_the_devices_hold_is_read_and_replicas_once(
  tmp_path, axes, sizes, itemsize_dtype
):
  rng = random.Random(1)
  prefix = write_pair(
    tmp_path / "a",
    random_documents(rng, num_documents=40),
    dtype=itemsize_dtype,
  )
  layout = _layout(axes, sizes)
  cp = dict(zip(axes, sizes))["cp"]
  itemsize = np.dtype(itemsize_dtype).itemsize
  iterator = iter(_loader(_samples(prefix), layout=layout, prefetch=0))
  _kernels.reset_gathered_bytes()
  for step in range(1, 4):
    next(iterator)
    per_step = 8 * cp * (_SEQ_LENGTH // cp + 1) * itemsize
    assert _kernels.gathered_bytes() == step * per_step
  iterator.close()


def test_part_of_the_devices_reads_its_part(prefix):
  # As one of two processes of a (data 2, cp 2, tp 2) mesh would.
  mesh = shard.make_mesh(("cp", "data", "tp"), {"cp": 2, "data": 2, "tp": 2})
  layout = shard.batch_layout(
    shard.batch_sharding(mesh),
    num_rows=8,
    num_positions=_SEQ_LENGTH,
    devices=jax.devices()[:4],
  )
  from hpgrain.batches import make_shards

  _kernels.reset_gathered_bytes()
  parts, _ = make_shards(
    _samples(prefix),
    layout,
    first_row=8,
    end_row=None,
    options=FieldOptions(),
  )
  assert _kernels.gathered_bytes() == 8 * (_SEQ_LENGTH // 2 + 1) * 2
  expected = next(_expected(prefix, 8, start_row=8))[1]
  for part, fields in zip(layout.shards, parts):
    assert part.window == (0, 4)
    for name, values in fields.items():
      wanted = expected[name][slice(*part.rows), slice(*part.window)]
      np.testing.assert_array_equal(values, wanted)


@pytest.fixture
def bad(tmp_path):
  """A corpus with an id of 500 somewhere after the first eight rows."""
  documents = random_documents(random.Random(2), num_documents=40)
  for place in range(40):
    mixed = [*documents[:place], [[500]], *documents[place:]]
    prefix = write_pair(tmp_path / "a", mixed)
    if next(_expected(prefix, 8))[1]["labels"].max() < 500:
      return prefix
  raise AssertionError("the first rows always hold the id")


@pytest.mark.parametrize("prefetch", [0, 2])
def test_an_error_in_the_data_comes_out_of_next(bad, prefetch):
  loader = _loader(_samples(bad, vocab_size=100), prefetch=prefetch)
  with pytest.raises(
    ValueError, match=r"Source 'a', sequence \d+, offset \d+: token id 500"
  ):
    for _ in itertools.islice(iter(loader), 100):
      pass


def test_an_iterator_serves_after_an_error_was_seen(bad):
  iterator = iter(_loader(_samples(bad, vocab_size=100)))
  with pytest.raises(ValueError, match="token id 500"):
    for _ in range(100):
      next(iterator)
  rows = iterator.rows
  assert rows and rows % 8 == 0
  # The batch that failed was not handed out, and fails again.
  with pytest.raises(ValueError, match="token id 500"):
    next(iterator)
  assert iterator.rows == rows
  iterator.set_state({**iterator.get_state(), "rows": 0})
  _assert_equal(next(iterator), next(_expected(bad, 8))[1])
  iterator.close()


def test_a_loader_tells_how_often_its_sources_were_read(prefix):
  loader = _loader(_samples(prefix))
  size = loader.samples.rows_per_epoch
  assert loader.epochs(0) == {"a": 0.0}
  assert loader.epochs(size) == {"a": 1.0}
  assert loader.epochs(3 * size) == {"a": 3.0}


def test_an_endless_loader_knows_no_last_step(prefix):
  loader = _loader(_samples(prefix))
  assert loader.num_steps is None
  assert loader.labels_are_shifted is True
  unshifted = FieldOptions(labels_are_shifted=False)
  assert (
    _loader(_samples(prefix), options=unshifted).labels_are_shifted is False
  )


def test_nothing_is_left_after_the_first_row(prefix):
  loader = _loader(_samples(prefix), first_row=20, end_row=16, pad_last=True)
  assert loader.num_steps == 0
  with pytest.raises(StopIteration):
    next(iter(loader))


def test_prefetch_below_0_is_refused(prefix):
  with pytest.raises(ValueError, match="at least 0, got -1"):
    _loader(_samples(prefix), prefetch=-1)


def test_two_iterators_of_a_loader_do_not_disturb_each_other():
  samples = MockSamples(seq_length=_SEQ_LENGTH, seed=0, vocab_size=100)
  loader = _loader(samples)
  first, second = iter(loader), iter(loader)
  alone = [_host(next(first)) for _ in range(3)]
  for expected in alone:
    _assert_equal(next(second), expected)
  assert (first.rows, second.rows) == (24, 24)
  first.close()
  _assert_equal(next(iter(loader)), alone[0])
  next(second)
  second.close()
