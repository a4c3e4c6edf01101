import itertools
import json

import grain
import jax
import numpy as np
import pytest

from hpgrain import shard
from hpgrain.fields import FieldOptions
from hpgrain.loader import Loader
from hpgrain.packing import PackingOptions
from hpgrain.sources.by_index.in_memory import InMemoryRecords
from hpgrain.sources.in_turn.numbered import NumberedInTurn
from hpgrain.stream_batches import StreamBatches, StreamSpec
from hpgrain.streams import StreamRows
from hpgrain.transforms.keyed_random import sample_generator
from hpgrain.transforms.pretokenized import PretokenizedTransform
from hpgrain.transforms.record_hooks import RecordChange

_BUDGET = 8


def _rows(num_records=40, *, num_streams=4, epochs=1, shuffle=5, change=None):
  """Records of 1 to 8 tokens; token t of record i is 100 i + t."""
  records = [
    {"input_ids": [100 * i + t for t in range(1 + (7 * i) % 8)]}
    for i in range(num_records)
  ]
  return StreamRows(
    [NumberedInTurn(InMemoryRecords(records, name="a"))],
    [PretokenizedTransform(max_seq_len=_BUDGET, labels_are_shifted=False)],
    options=PackingOptions(_BUDGET),
    weights=None,
    seed=3,
    shuffle_buffer_size=shuffle,
    epochs=epochs,
    num_streams=num_streams,
    pack_window=3,
    change=change,
  )


def _longer(record, generator):
  """One token more, by chance."""
  bit = int(generator.bit_generator.random_raw()) & 1
  return {"input_ids": record["input_ids"][:7] + [9000] * bit}


def _layout(num_rows, *, data=4, cp=2, devices=None):
  mesh = shard.make_mesh(("data", "cp"), {"data": data, "cp": cp})
  return shard.batch_layout(
    shard.batch_sharding(mesh),
    num_rows=num_rows,
    num_positions=_BUDGET,
    devices=devices,
  )


def _loader(rows, *, num_rows=8, prefetch=0, num_workers=0, layout=None):
  spec = StreamSpec(
    rows, layout or _layout(num_rows), FieldOptions(), epochs=rows._epochs
  )
  return Loader(spec, prefetch=prefetch, num_workers=num_workers)


def _tokens(batches):
  """The tokens of each row of all batches, padding left out."""
  out = []
  for batch in batches:
    ids, segments = (np.asarray(batch[k]) for k in ("input_ids", "segment_ids"))
    out += [row[s > 0].tolist() for row, s in zip(ids, segments)]
  return out


def _plain(rows, count):
  """The same rows by a reader that holds all streams."""
  reader = rows.open(range(rows.num_streams))
  opened = reader.rows(np.arange(count))
  fields = opened.fields((0, _BUDGET), num_rows=count, options=FieldOptions())
  reader.close()
  return _tokens([fields])


@pytest.mark.parametrize("num_rows, num_streams", [(8, 4), (4, 8), (4, 6)])
@pytest.mark.parametrize("prefetch", [0, 2])
def test_all_rows_come_and_then_the_end(num_rows, num_streams, prefetch):
  rows = _rows(num_streams=num_streams)
  iterator = iter(_loader(rows, num_rows=num_rows, prefetch=prefetch))
  found = _tokens(iterator)
  iterator.close()
  assert len(found) % num_rows == 0
  assert found == _plain(rows, len(found))
  read = sorted(itertools.chain(*found))
  assert read == sorted(
    100 * i + t for i in range(40) for t in range(1 + (7 * i) % 8)
  )
  # No batch is padding throughout, unless another follows that is not.
  assert any(found[-num_rows:])


@pytest.mark.parametrize("num_rows, num_streams", [(8, 3), (4, 6), (8, 4)])
def test_processes_see_the_end_where_one_alone_does(num_rows, num_streams):
  rows = _rows(num_streams=num_streams)
  alone = iter(_loader(rows, num_rows=num_rows))
  expected = len(list(alone))
  alone.close()
  shares = []
  for device in jax.devices():
    layout = _layout(num_rows, data=4, devices=[device])
    shares.append(
      iter(StreamBatches(StreamSpec(rows, layout, FieldOptions(), epochs=1)))
    )
  for _ in range(expected):
    # Rows that another process was asked for are no reason to go on.
    assert sum(int(next(share).left[0].sum()) for share in shares)
  for share in shares:
    assert next(share).left[0].tolist() == [0] * (num_rows // 4)
    share.close()


def test_no_record_is_no_batch():
  iterator = iter(_loader(_rows(0)))
  assert list(iterator) == []
  assert iterator.rows == 0
  iterator.close()


@pytest.mark.parametrize("first_row", [0, 3])
@pytest.mark.parametrize("num_rows, num_streams", [(4, 8), (8, 4), (4, 6)])
def test_held_streams_are_those_of_the_rows(num_rows, num_streams, first_row):
  rows = _rows(num_streams=num_streams)
  for device in jax.devices():
    layout = _layout(num_rows, devices=[device])
    spec = StreamSpec(rows, layout, FieldOptions())
    (part,) = layout.shards
    expected = {
      (first_row + step * num_rows + row) % num_streams
      for step in range(50)
      for row in range(*part.rows)
    }
    assert spec.held_streams(first_row) == sorted(expected)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_state_goes_on_where_it_was_taken(prefetch):
  class HostBatches(grain.IterDataset):
    """The loader's batches as host arrays, which Grain's check compares."""

    def __iter__(self):
      return _HostIterator(iter(_loader(_rows(), prefetch=prefetch)))

  class _HostIterator(grain.DatasetIterator):
    def __init__(self, parent):
      super().__init__(parent)

    def __next__(self):
      return {k: np.asarray(v) for k, v in next(self._parent).items()}

    def get_state(self):
      return json.loads(json.dumps(self._parent.get_state()))

    def set_state(self, state):
      self._parent.set_state(state)

  grain.experimental.assert_equal_output_after_checkpoint(HostBatches())


def _keys_and_types(value):
  if isinstance(value, dict):
    return {key: _keys_and_types(value[key]) for key in value}
  if isinstance(value, list):
    return [_keys_and_types(item) for item in value]
  return type(value)


def test_state_has_the_same_keys_and_types_at_every_step():
  iterator = iter(_loader(_rows(epochs=None)))
  shapes = [_keys_and_types(iterator.get_state())]
  for _ in range(20):
    next(iterator)
    shapes.append(_keys_and_types(iterator.get_state()))
  iterator.close()
  assert all(shape == shapes[0] for shape in shapes)


@pytest.mark.parametrize("cut", [0, 1, 3])
@pytest.mark.parametrize("num_rows", [4, 8, 12])
def test_parts_of_processes_are_restored_by_others(cut, num_rows):
  rows = _rows(epochs=None, num_streams=6)
  devices = jax.devices()
  saved = []
  # Two processes, each with half of the devices and its own batches.
  for half in (devices[:4], devices[4:]):
    spec = StreamSpec(rows, _layout(4, devices=half), FieldOptions())
    iterator = iter(StreamBatches(spec))
    for _ in range(cut):
      next(iterator)
    saved.append(iterator.get_state())
    iterator.close()
  assert {state["rows"] for state in saved} == {4 * cut}
  iterator = iter(_loader(rows, num_rows=num_rows))
  state = iterator.get_state()
  parts = [part for state in saved for part in state["parts"]]
  iterator.set_state({**state, "rows": 4 * cut, "parts": parts})
  found = _tokens(itertools.islice(iterator, 3))
  iterator.close()
  assert found == _plain(rows, 4 * cut + 3 * num_rows)[4 * cut :]


def test_a_part_that_is_missing_is_said():
  rows = _rows(epochs=None)
  layout = _layout(4, devices=jax.devices()[:4])
  half = iter(StreamBatches(StreamSpec(rows, layout, FieldOptions())))
  next(half)
  iterator = iter(_loader(rows))
  state = iterator.get_state()
  with pytest.raises(ValueError, match="has stream 2: a process's part is"):
    iterator.set_state({**state, **half.get_state()})
  half.close()
  iterator.close()


def test_the_recorded_number_of_streams_wins():
  before = iter(_loader(_rows(num_streams=6)))
  next(before)
  state = before.get_state()
  expected = _tokens(before)
  after = iter(_loader(_rows(num_streams=4)))
  after.set_state(state)
  assert _tokens(after) == expected
  assert after.spec.samples.num_streams == 6
  for iterator in (before, after):
    iterator.close()


@pytest.mark.parametrize(
  "change, message",
  [
    ({"parts": {}}, "a list of every process's streams"),
    ({"parts": [3]}, "a list of every process's streams"),
    ({"rows": -1}, "state's rows must be"),
    ({"parts": [{"num_streams": 0}]}, "num_streams must be"),
    (
      {"parts": [{"num_streams": 4}, {"num_streams": 5}]},
      "unlike numbers of streams",
    ),
    ({"parts": [{"num_streams": 4}]}, "A state of row streams has the keys"),
  ],
)
def test_a_state_that_is_none_is_refused(change, message):
  iterator = iter(_loader(_rows()))
  with pytest.raises(ValueError, match=message):
    iterator.set_state(iterator.get_state() | change)
  iterator.close()


def test_worker_processes_change_neither_rows_nor_state():
  alone = iter(_loader(_rows()))
  expected = [(_tokens([batch]), alone.get_state()) for batch in alone]
  alone.close()
  shared = iter(_loader(_rows(), num_workers=2))
  first = [(_tokens([next(shared)]), shared.get_state()) for _ in range(2)]
  shared.close()
  assert first == expected[:2]
  resumed = iter(_loader(_rows(), num_workers=3))
  resumed.set_state(first[-1][1])
  rest = [(_tokens([batch]), resumed.get_state()) for batch in resumed]
  resumed.close()
  assert rest == expected[2:]


def test_slices_are_refused():
  spec = StreamSpec(_rows(), _layout(8), FieldOptions())
  with pytest.raises(ValueError, match=r"dataloader\.num_workers"):
    StreamBatches(spec).set_slice(slice(0, None, 2))


def test_counters_say_what_became_of_every_token():
  iterator = iter(_loader(_rows(), num_rows=4))
  found = _tokens(iterator)
  counters = iterator.counters()
  iterator.close()
  total = sum(1 + (7 * i) % 8 for i in range(40))
  source = counters["sources"]["a"]
  assert (source["records"], source["tokens_read"]) == (40, total)
  assert source["tokens"] == source["tokens_in_rows"] == total
  assert source["tokens_dropped"] == {}
  rows = sum(map(bool, found))
  assert (counters["rows"], counters["padded"]) == (rows, rows * 8 - total)


def test_a_loader_is_not_sliced():
  with pytest.raises(ValueError, match=r"dataloader\.num_workers"):
    _loader(_rows()).set_slice(slice(0, None, 2))


@pytest.mark.parametrize(
  "num_rows, num_streams, said", [(8, 4, 8), (4, 6, 8), (4, 8, 0), (4, 4, 0)]
)
def test_streams_that_are_made_in_vain_are_said(
  num_rows, num_streams, said, caplog
):
  layout = _layout(num_rows, devices=jax.devices()[:4])
  spec = StreamSpec(_rows(num_streams=num_streams), layout, FieldOptions())
  spec.say_what_is_made_in_vain()
  words = f"no multiple of the {num_rows} rows"
  assert (words in caplog.text) == bool(said)
  assert (f"such as {said}," in caplog.text) == bool(said)


@pytest.mark.parametrize("shuffle", [None, 5])
def test_chance_is_that_of_the_record_and_the_epoch(shuffle):
  change = RecordChange(_longer, "longer")

  def rows(num_streams=4):
    return _rows(
      epochs=2, shuffle=shuffle, num_streams=num_streams, change=change
    )

  expected = sorted(
    tuple(
      _longer(
        {"input_ids": [100 * i + t for t in range(1 + (7 * i) % 8)]},
        sample_generator(3, "a", i, epoch),
      )["input_ids"]
    )
    for epoch in range(2)
    for i in range(40)
  )
  for num_streams in (1, 4):
    fields = rows(num_streams).open(range(num_streams))
    count = 200
    opened = fields.rows(np.arange(count))
    made = opened.fields((0, _BUDGET), num_rows=count, options=FieldOptions())
    found = []
    for ids, segments in zip(made["input_ids"], made["segment_ids"]):
      for segment in range(1, segments.max() + 1):
        found.append(tuple(ids[segments == segment].tolist()))
    assert sorted(found) == expected
    fields.close()
  whole = iter(_loader(rows()))
  batches = [(_tokens([batch]), whole.get_state()) for batch in whole]
  whole.close()
  resumed = iter(_loader(rows(), num_rows=4))
  resumed.set_state(batches[2][1])
  after = [row for tokens, _ in batches[3:] for row in tokens]
  found = _tokens(resumed)
  assert found[: len(after)] == after[: len(found)]
  resumed.close()
  plain = _rows(epochs=2, shuffle=shuffle).unique_identifiers
  assert rows().unique_identifiers == {**plain, "change": "longer"}
