"""No thread but the caller's may start what other processes take part in."""

import contextlib
import itertools
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

from hpgrain import MockSamples, placement, shard
from hpgrain.batches import BatchSpec
from hpgrain.fields import FieldOptions
from hpgrain.loader import Loader

_WATCHED = (
  "process_allgather",
  "broadcast_one_to_all",
  "sync_global_devices",
  "assert_equal",
  "reached_preemption_sync_point",
  "host_local_array_to_global_array",
  "global_array_to_host_local_array",
)


class _Watch:
  """Notes what threads other than the caller's enter."""

  def __init__(self):
    self.caller = threading.get_ident()
    self.broken = []
    self.on = False

  def note(self, what):
    if self.on and threading.get_ident() != self.caller:
      self.broken.append(what)

  def wrap(self, function, name):
    def watched(*arguments, **options):
      self.note(name)
      return function(*arguments, **options)

    return watched

  def device_put(self, function):
    def watched(x, device=None, *arguments, **options):
      for target in jax.tree.leaves(
        device, is_leaf=lambda leaf: isinstance(leaf, jax.sharding.Sharding)
      ):
        if isinstance(target, jax.sharding.Sharding) and (
          isinstance(target, NamedSharding) or len(target.device_set) > 1
        ):
          self.note(f"device_put onto {type(target).__name__}")
      return function(x, device, *arguments, **options)

    return watched


@pytest.fixture
def watch(monkeypatch):
  watch = _Watch()
  for name in _WATCHED:
    function = getattr(multihost_utils, name)
    monkeypatch.setattr(multihost_utils, name, watch.wrap(function, name))
  monkeypatch.setattr(jax, "device_put", watch.device_put(jax.device_put))

  # Tracing runs in the thread that calls the function: with the caches empty
  # whatever a thread jits, an operation on an array included, is seen.
  def on_event(event, duration, **unused):
    del duration, unused
    if event.startswith("/jax/core/compile"):
      watch.note(f"jit ({event.rsplit('/', 1)[-1]})")

  jax.monitoring.register_event_duration_secs_listener(on_event)
  jax.clear_caches()
  watch.on = True
  yield watch
  watch.on = False


def _loader(samples):
  mesh = shard.make_mesh(("data", "cp", "tp"), {"data": 2, "cp": 2, "tp": 2})
  layout = shard.batch_layout(
    shard.batch_sharding(mesh), num_rows=4, num_positions=8
  )
  spec = BatchSpec(
    samples=samples,
    layout=layout,
    options=FieldOptions(),
    end_row=30,
    pad_last=True,
  )
  return Loader(spec, prefetch=2)


class _Planted(MockSamples):
  """Rows whose reading does something that only the caller may do."""

  def __init__(self, action):
    super().__init__(seq_length=8, seed=0, vocab_size=50)
    self._action = action

  def read(self, plans, window=None):
    self._action()
    return super().read(plans, window)


def test_the_loaders_thread_starts_no_collective(watch, monkeypatch):
  reading, placing = set(), set()
  place = placement.place

  def spy(layout, parts):
    placing.add(threading.get_ident())
    return place(layout, parts)

  monkeypatch.setattr(placement, "place", spy)
  samples = _Planted(lambda: reading.add(threading.get_ident()))
  with contextlib.closing(iter(_loader(samples))) as iterator:
    steps = sum(1 for _ in iterator)
    iterator.get_state()
  assert steps == 8
  # All of it was done by another thread than this.
  assert reading == placing and reading and watch.caller not in reading
  assert watch.broken == []


def _mesh_sharding():
  mesh = shard.make_mesh(("data",), {"data": 8})
  return NamedSharding(mesh, PartitionSpec("data"))


@pytest.mark.parametrize(
  "action, name",
  [
    (
      lambda: multihost_utils.process_allgather(np.ones(3)),
      "process_allgather",
    ),
    (
      lambda: multihost_utils.sync_global_devices("here"),
      "sync_global_devices",
    ),
    (
      lambda: jax.device_put(np.ones(8), _mesh_sharding()),
      "device_put onto NamedSharding",
    ),
    (
      lambda: jax.device_put({"a": np.ones(8)}, {"a": _mesh_sharding()}),
      "device_put onto NamedSharding",
    ),
    (lambda: jax.jit(lambda x: x * 3)(np.ones(3)), "jit"),
    (lambda: jnp.ones(5) + 7, "jit"),
  ],
)
def test_the_watch_sees_what_is_forbidden(watch, action, name):
  with contextlib.closing(iter(_loader(_Planted(action)))) as iterator:
    for _ in itertools.islice(iterator, 2):
      pass
  assert any(what.startswith(name) for what in watch.broken), watch.broken


def test_the_caller_may_do_it_all(watch):
  jax.device_put(np.ones(8), _mesh_sharding())
  jax.jit(lambda x: x * 5)(np.ones(3))
  multihost_utils.sync_global_devices("here")
  assert watch.broken == []
