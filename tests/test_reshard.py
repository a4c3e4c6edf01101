import contextlib
import re
import threading
import time

import jax
import ml_collections as mlc
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from hpgrain import (
  MockSamples,
  build,
  context_layout,
  placement,
  reshard,
  shard,
)
from hpgrain.batches import BatchSpec
from hpgrain.fields import FieldOptions
from hpgrain.loader import Loader

_ROWS, _SLOTS = 16, 32


@pytest.fixture
def processes(monkeypatch):
  """Lets this process's devices pass for those of several."""

  def pretend(count):
    def numbers(mesh):
      ids = [device.id for device in mesh.devices.flat]
      shape = mesh.devices.shape
      return np.array(ids).reshape(shape) // (len(ids) // count)

    monkeypatch.setattr(reshard, "_processes", numbers)

  return pretend


def _sharding(axes, sizes, *, sequence_parallel=False, types=AxisType.Auto):
  devices = np.array(jax.devices()[:8]).reshape(sizes)
  mesh = Mesh(devices, axes, axis_types=(types,) * len(axes))
  return shard.batch_sharding(
    mesh,
    data_axes=[axis for axis in axes if axis in ("dcn", "data")],
    sequence_parallel=sequence_parallel,
  )


def _placed(sharding, *, slots=_SLOTS):
  whole = np.arange(_ROWS * slots, dtype=np.int32).reshape(_ROWS, slots)
  # Fields of two types; a NaN keeps its bits.
  weights = (whole * 0.5).astype(np.float32)
  weights.view(np.int32)[3, 5] = 0x7FC01234
  fields = {"b": whole + 7000, "w": weights, "a": whole}
  return fields, {
    name: jax.make_array_from_callback(
      values.shape, sharding, lambda index, values=values: values[index]
    )
    for name, values in fields.items()
  }


# (axes, sizes, processes, with sequence parallelism), devices numbered by
# process: the outermost axes lie across processes.
_MESHES = {
  "cp": (("cp", "data", "tp"), (2, 2, 2), 2, False),
  "cp_partly": (("cp", "data", "tp"), (4, 2, 1), 2, False),
  "tp": (("tp", "data", "cp"), (2, 2, 2), 2, False),
  "tp_partly": (("tp", "data", "cp"), (4, 2, 1), 2, False),
  "tp_and_cp": (("tp", "cp", "data"), (2, 2, 2), 4, False),
  "data_too": (("dcn", "cp", "data"), (2, 2, 2), 8, False),
  "cp_sequence": (("cp", "data", "tp"), (2, 2, 2), 4, True),
  "tp_sequence": (("tp", "data", "cp"), (2, 2, 2), 2, True),
  "both_sequence": (("data", "tp", "cp"), (1, 2, 4), 8, True),
  "partly_sequence": (("data", "cp", "tp"), (1, 2, 4), 4, True),
  "unnamed": (("data", "pp", "cp"), (2, 2, 2), 4, False),
}


@pytest.mark.parametrize(
  "processes_of_devices, dimension, expected",
  [
    ([[0, 0], [0, 0]], 0, 1),
    ([[0, 0], [1, 1]], 0, 2),
    ([[0, 0], [1, 1]], 1, 1),
    ([[0, 0, 1, 1]], 1, 2),
    # Every second one: no run is longer than one.
    ([[0, 1, 0, 1]], 1, 4),
    # One of the lines decides.
    ([[0, 0, 0, 0], [0, 0, 1, 1]], 1, 2),
    ([[0, 1, 1, 1, 1, 1]], 1, 6),
    ([[0, 0, 0, 1, 1, 1]], 1, 2),
  ],
)
def test_axes_fall_into_runs_of_one_process(
  processes_of_devices, dimension, expected
):
  found = reshard.num_runs(np.array(processes_of_devices), dimension)
  assert found == expected


@pytest.mark.parametrize(
  "case, types",
  [(case, AxisType.Auto) for case in _MESHES]
  + [("tp_and_cp", AxisType.Explicit), ("partly_sequence", AxisType.Explicit)],
)
def test_rows_are_made_once_and_reach_who_wants_them(processes, case, types):
  axes, sizes, count, sequence_parallel = _MESHES[case]
  processes(count)
  wanted = _sharding(
    axes, sizes, sequence_parallel=sequence_parallel, types=types
  )
  exchange = reshard.find_exchange(wanted)
  # Each row is one process's, and each has as many.
  makers = [set() for _ in range(_ROWS)]
  made = exchange.made.devices_indices_map((_ROWS, _SLOTS))
  for device, (rows, slots) in made.items():
    assert slots.indices(_SLOTS) == (0, _SLOTS, 1)
    for row in range(*rows.indices(_ROWS)):
      makers[row].add(device.id * count // 8)
  assert [len(who) for who in makers] == [1] * _ROWS
  shares = [sum(p in who for who in makers) for p in range(count)]
  assert shares == [_ROWS // count] * count
  fields, placed = _placed(exchange.made)
  moved = exchange(placed)
  assert list(moved) == list(fields)
  for name, values in fields.items():
    assert moved[name].sharding == wanted
    for held in moved[name].addressable_shards:
      np.testing.assert_array_equal(
        np.asarray(held.data).view(np.int32), values.view(np.int32)[held.index]
      )


@pytest.mark.parametrize(
  "case, collectives",
  [
    ("cp", ["all-to-all"]),
    ("cp_partly", ["all-to-all"]),
    ("tp", ["all-gather"]),
    ("tp_partly", ["all-gather"]),
    ("tp_and_cp", ["all-gather", "all-to-all"]),
    ("both_sequence", ["all-to-all"]),
  ],
)
def test_no_more_is_moved_than_is_wanted(processes, case, collectives):
  """Asked for a sharding, a partitioner gathers the whole batch."""
  axes, sizes, count, sequence_parallel = _MESHES[case]
  processes(count)
  exchange = reshard.find_exchange(
    _sharding(axes, sizes, sequence_parallel=sequence_parallel)
  )
  _, placed = _placed(exchange.made)
  compiled = reshard.jitted(exchange).lower(placed).compile().as_text()
  kinds = "all-to-all|all-gather|all-reduce|collective-permute"
  found = re.findall(rf" = (.*?) ({kinds})(?:-start)?\(", compiled)
  assert sorted({kind for _, kind in found}) == collectives
  parts = np.prod(shard.num_parts(exchange.wanted))
  for shapes, _ in found:
    moved = sum(
      np.prod([int(size) for size in dims.split(",")])
      for dims in re.findall(r"[sf]32\[([\d,]+)\]", shapes)
    )
    # Two fields of one type at most, of what a device is to hold.
    assert moved <= 2 * _ROWS * _SLOTS // parts


@pytest.mark.parametrize(
  "axes, sizes, count",
  [
    (("cp", "data", "tp"), (2, 2, 2), 1),
    # Each process has rows of its own.
    (("data", "cp", "tp"), (4, 2, 1), 4),
  ],
)
def test_where_no_two_processes_need_a_row_nothing_is_exchanged(
  processes, monkeypatch, axes, sizes, count
):
  processes(count)
  sharding = _sharding(axes, sizes)
  size = {"num_rows": _ROWS, "num_positions": _SLOTS}
  layout = reshard.batch_layout(sharding, replica_read="split", **size)
  assert layout == reshard.batch_layout(sharding, replica_read="each", **size)
  assert layout == shard.batch_layout(sharding, **size)

  def refuse(*unused):
    raise AssertionError("nothing is to be exchanged")

  monkeypatch.setattr(reshard.Exchange, "__call__", refuse)
  compiled = []

  def on_event(event, duration, **unused):
    del duration, unused
    if event.startswith("/jax/core/compile"):
      compiled.append(event)

  loader = _loader(layout, sharding)
  jax.clear_caches()
  jax.monitoring.register_event_duration_secs_listener(on_event)
  try:
    with contextlib.closing(iter(loader)) as iterator:
      batch = next(iterator)
  finally:
    jax.monitoring.unregister_event_duration_listener(on_event)
  assert not compiled
  assert batch["input_ids"].sharding == sharding
  assert iterator.stats()["exchange_seconds"] == 0


def test_on_one_process_devices_are_asked():
  assert reshard.find_exchange(_sharding(("cp", "data"), (2, 4))) is None


def _loader(layout, sharding, *, prefetch=0):
  samples = MockSamples(seq_length=_SLOTS, seed=3, vocab_size=50)
  spec = BatchSpec(
    samples=samples,
    layout=layout,
    options=FieldOptions(),
    end_row=3 * _ROWS - 5,
    pad_last=True,
  )
  return Loader(spec, prefetch=prefetch, sharding=sharding)


def _loaders(sharding, *, context=context_layout.ROW_ORDER, prefetch=0):
  """The loader of each way of reading."""
  return {
    how: _loader(
      reshard.batch_layout(
        sharding,
        replica_read=how,
        num_rows=_ROWS,
        num_positions=_SLOTS,
        context=context,
      ),
      sharding,
      prefetch=prefetch,
    )
    for how in ("each", "split")
  }


@pytest.mark.parametrize(
  "case, name",
  [
    ("cp", context_layout.CONTIGUOUS),
    ("cp_partly", context_layout.ZIGZAG),
    ("cp_partly", context_layout.STRIPED),
    ("tp_sequence", context_layout.ZIGZAG),
  ],
)
def test_split_batches_are_those_that_each_makes(processes, case, name):
  axes, sizes, count, sequence_parallel = _MESHES[case]
  processes(count)
  sharding = _sharding(axes, sizes, sequence_parallel=sequence_parallel)
  context = shard.context_layout(sharding.mesh, name)
  loaders = _loaders(sharding, context=context)
  each, split = (iter(loader) for loader in loaders.values())
  assert split.spec.layout.sharding != each.spec.layout.sharding
  assert loaders["split"].sharding == loaders["each"].sharding == sharding
  steps = 0
  for wanted, found in zip(each, split, strict=True):
    assert list(found) == list(wanted)
    for field, values in wanted.items():
      assert found[field].sharding == values.sharding == sharding
      np.testing.assert_array_equal(found[field], values)
    assert split.get_state() == each.get_state()
    steps += 1
  assert steps == 3
  stats = split.stats()
  assert 0 < stats["exchange_seconds"]
  assert 0 < split.last_times["exchange"]
  assert stats.keys() == each.stats().keys()
  assert each.stats()["exchange_seconds"] == 0


def _built(mesh, how):
  return build(
    mlc.ConfigDict(
      {
        "training": {"global_batch_size": 8},
        "dataset": {
          "data_config": {
            "mock_data": True,
            "vocab_size": 50,
            "seq_length": 16,
          }
        },
        "dataloader": {"replica_read": how},
        "get_batch": {"context_parallel_layout": "zigzag"},
      }
    ),
    mesh,
  ).train


def test_the_configuration_says_who_makes_rows(processes):
  mesh = shard.make_mesh(("data", "cp", "tp"), {"data": 2, "cp": 2, "tp": 2})
  here = [_built(mesh, how).spec.layout for how in ("each", "split")]
  # One process has nobody to share with.
  assert here[0] == here[1]
  processes(8)
  each, split = (_built(mesh, how) for how in ("each", "split"))
  assert each.spec.layout == here[0]
  # Every device has a row of its own, and hands out all that it is to hold.
  assert split.spec.layout.sharding.num_devices == len(split.spec.layout.shards)
  assert split.sharding == each.sharding == here[0].sharding
  with (
    contextlib.closing(iter(each)) as one,
    contextlib.closing(iter(split)) as other,
  ):
    for _ in range(2):
      wanted, found = next(one), next(other)
      for name, values in wanted.items():
        assert found[name].sharding == values.sharding
        np.testing.assert_array_equal(found[name], values)


def test_a_state_of_one_way_goes_on_the_other(processes):
  processes(4)
  axes, sizes, _, _ = _MESHES["tp_and_cp"]
  loaders = _loaders(_sharding(axes, sizes))
  for one, other in (("each", "split"), ("split", "each")):
    began, goes_on = iter(loaders[one]), iter(loaders[other])
    next(began)
    goes_on.set_state(began.get_state())
    wanted, found = next(began), next(goes_on)
    np.testing.assert_array_equal(found["input_ids"], wanted["input_ids"])
    assert (np.asarray(wanted["segment_ids"]) > 0).all()


def test_rows_of_several_lengths_are_exchanged(processes):
  processes(2)
  axes, sizes, _, _ = _MESHES["cp"]
  exchange = reshard.find_exchange(_sharding(axes, sizes))
  for slots in (8, 16):
    fields, placed = _placed(exchange.made, slots=slots)
    for name, values in exchange(placed).items():
      assert values.sharding == exchange.wanted
      np.testing.assert_array_equal(values, fields[name])


def test_the_caller_alone_issues_the_exchange(processes, monkeypatch):
  processes(2)
  axes, sizes, _, _ = _MESHES["cp"]
  loader = _loaders(_sharding(axes, sizes), prefetch=2)["split"]
  issued, compiled, placed = set(), set(), set()
  call, place = reshard.Exchange.__call__, placement.place

  def noted_call(self, fields):
    issued.add(threading.get_ident())
    return call(self, fields)

  def noted_place(layout, parts):
    placed.add(threading.get_ident())
    return place(layout, parts)

  def on_event(event, duration, **unused):
    del duration, unused
    if event.startswith("/jax/core/compile"):
      compiled.add(threading.get_ident())

  monkeypatch.setattr(reshard.Exchange, "__call__", noted_call)
  monkeypatch.setattr(placement, "place", noted_place)
  jax.clear_caches()
  jax.monitoring.register_event_duration_secs_listener(on_event)
  try:
    with contextlib.closing(iter(loader)) as iterator:
      assert sum(1 for _ in iterator) == 3
  finally:
    jax.monitoring.unregister_event_duration_listener(on_event)
  assert issued == compiled == {threading.get_ident()}
  # While batches are made and placed by another.
  assert placed and not placed & issued


def test_issuing_the_exchange_is_no_part_of_the_wait(processes, monkeypatch):
  processes(2)
  axes, sizes, _, _ = _MESHES["cp"]
  call = reshard.Exchange.__call__

  def slow_call(self, fields):
    time.sleep(1.0)
    return call(self, fields)

  monkeypatch.setattr(reshard.Exchange, "__call__", slow_call)
  loader = _loaders(_sharding(axes, sizes), prefetch=2)["split"]
  with contextlib.closing(iter(loader)) as iterator:
    next(iterator)
    next(iterator)
    stats = iterator.stats()
    # The second was made meanwhile.
    assert iterator.last_times["wait"] < 0.9 < iterator.last_times["exchange"]
  assert stats["exchange_seconds"] > 1.9
  assert stats["wait_seconds"] < stats["exchange_seconds"] - 0.9


@pytest.mark.parametrize(
  "case, rows, message",
  [
    (
      "tp_and_cp",
      4,
      r"replica_read='split': of 4 rows of a batch \(training"
      r"\.global_batch_size\) over 2 parts of the mesh .* each has 2, which 4"
      r" runs of one process's devices \({'tp': 2, 'cp': 2}\) need and cannot"
      r" share evenly\. Use a multiple of 8 rows, or replica_read='each'",
    ),
    (
      "tp_partly",
      2,
      r"2 rows .* 2 runs of one process's devices \({'tp': 2}\) .* multiple of"
      r" 4 rows",
    ),
    # What does not divide anyhow is told as ever.
    ("cp", 3, r"^3 rows of a batch .*do not divide over"),
  ],
)
def test_rows_that_cannot_be_shared_are_refused(processes, case, rows, message):
  axes, sizes, count, sequence_parallel = _MESHES[case]
  processes(count)
  sharding = _sharding(axes, sizes, sequence_parallel=sequence_parallel)
  with pytest.raises(ValueError, match=message):
    reshard.batch_layout(
      sharding, replica_read="split", num_rows=rows, num_positions=_SLOTS
    )


def test_positions_are_divided_as_they_are_wanted(processes):
  """Whole rows would do with any number."""
  processes(2)
  axes, sizes, _, _ = _MESHES["cp"]
  with pytest.raises(ValueError, match="31 positions of a batch"):
    reshard.batch_layout(
      _sharding(axes, sizes),
      replica_read="split",
      num_rows=_ROWS,
      num_positions=31,
    )


def test_a_layout_of_another_split_is_refused(processes):
  processes(2)
  cp, tp = (_sharding(*_MESHES[case][:2]) for case in ("cp", "tp"))
  layout = reshard.batch_layout(
    cp, replica_read="split", num_rows=_ROWS, num_positions=_SLOTS
  )
  with pytest.raises(ValueError, match=r"is no split of .*batch_layout"):
    iter(_loader(layout, tp))
  other = NamedSharding(cp.mesh, PartitionSpec(None, "data"))
  with pytest.raises(ValueError, match="is no split of"):
    iter(_loader(shard.batch_layout(other, num_rows=8, num_positions=8), cp))
