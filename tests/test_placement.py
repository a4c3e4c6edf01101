"""Where the fields of a batch lie, whose memory it is, and when it is put."""

import contextlib
import itertools
import json
import math
import random
import threading

import jax
import ml_collections as mlc
import numpy as np
import pytest
import reference_layouts
from corpora import random_documents, write_pair
from jax.sharding import AxisType, Mesh, PartitionSpec

import hpgrain
from hpgrain import placement, shard
from hpgrain.fields import empty_fields

_ROWS, _POSITIONS = 8, 32


def _values(rows, window):
  """Values that say where they belong: 100 * row + position."""
  values = 100 * np.arange(*rows)[:, None] + np.arange(*window)[None, :]
  return {"a": values.astype(np.int32), "b": -values.astype(np.float32)}


def _aligned_parts(layout):
  """The same, made as the package makes fields."""
  parts = []
  for part in layout.shards:
    values = _values(part.rows, part.window)
    fields = empty_fields(
      *values["a"].shape, {name: v.dtype for name, v in values.items()}
    )
    for name, array in fields.items():
      array[...] = values[name]
    parts.append(fields)
  return parts


def _layout(axes, sizes, *, num_rows=8, num_positions=16, **options):
  mesh = Mesh(np.array(jax.devices()).reshape(sizes), axes)
  return shard.batch_layout(
    shard.batch_sharding(mesh, **options),
    num_rows=num_rows,
    num_positions=num_positions,
  )


@pytest.mark.parametrize("axis_type", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize(
  "axes, sizes",
  [
    (("data", "cp", "tp"), (8, 1, 1)),
    (("data", "cp", "tp"), (2, 2, 2)),
    (("data", "cp", "tp"), (1, 8, 1)),
    (("data", "cp", "tp"), (1, 1, 8)),
    (("tp", "cp", "data"), (2, 2, 2)),
    (("data",), (8,)),
    (("stage", "data", "expert", "cp"), (2, 2, 1, 2)),
  ],
)
def test_placed_parts_are_the_global_batch(axes, sizes, axis_type):
  mesh = Mesh(
    np.array(jax.devices()).reshape(sizes),
    axes,
    axis_types=(axis_type,) * len(axes),
  )
  layout = shard.batch_layout(
    shard.batch_sharding(mesh), num_rows=8, num_positions=16
  )
  parts = [_values(part.rows, part.window) for part in layout.shards]
  placed = placement.place(layout, parts)
  assert list(placed) == ["a", "b"]
  for name, expected in _values((0, 8), (0, 16)).items():
    assert placed[name].shape == (8, 16)
    assert placed[name].dtype == expected.dtype
    assert placed[name].sharding == layout.sharding
    np.testing.assert_array_equal(placed[name], expected)
  total = jax.jit(lambda batch: batch["a"].sum())(placed)
  assert int(total) == int(_values((0, 8), (0, 16))["a"].sum())


@pytest.mark.parametrize("axis_type", [AxisType.Auto, AxisType.Explicit])
def test_values_of_rows_lie_where_the_rows_do(axis_type):
  mesh = Mesh(
    np.array(jax.devices()).reshape(2, 2, 2),
    ("dcn", "fsdp", "cp"),
    axis_types=(axis_type,) * 3,
  )
  layout = shard.batch_layout(
    shard.batch_sharding(mesh, data_axes=("fsdp", "dcn")),
    num_rows=8,
    num_positions=4,
  )
  parts = [np.arange(*part.rows, dtype=np.int32) for part in layout.shards]
  placed = placement.place_rows(layout, parts)
  assert np.asarray(placed).tolist() == list(range(8))
  held = {
    device: part.rows for part in layout.shards for device in part.devices
  }
  for part in placed.addressable_shards:
    assert part.data.tolist() == list(range(*held[part.device]))


# Meshes.


def _slices(*within):
  """Two slices of four devices, each wired as `within` says: dcn outermost.

  The order that mesh_utils.create_hybrid_device_mesh gives, whose devices
  must have a slice_index, which CPU devices do not.
  """
  devices = np.array(jax.devices()).reshape(2, 4)
  return devices[:, list(within)]


_SNAKE = _slices(0, 1, 3, 2)
_SHUFFLED = np.array(jax.devices())[[5, 2, 7, 0, 3, 6, 1, 4]]

# Axes, their devices, and the data axes.
_MESHES = {
  "data cp tp": (
    ("data", "cp", "tp"),
    np.array(jax.devices()).reshape(2, 2, 2),
    ("data",),
  ),
  "permuted": (("data", "cp", "tp"), _SHUFFLED.reshape(2, 2, 2), ("data",)),
  "slices": (
    ("dcn", "fsdp", "cp"),
    _SNAKE.reshape(2, 2, 2),
    ("dcn", "fsdp"),
  ),
  "slices, inner first": (
    ("dcn", "fsdp", "cp"),
    _SNAKE.reshape(2, 2, 2),
    ("fsdp", "dcn"),
  ),
  # One axis that is across slices and within them.
  "slices of one axis": (("data", "cp"), _SNAKE.reshape(4, 2), ("data",)),
  # cp itself goes across.
  "slices of cp": (("cp", "data"), _SNAKE.reshape(4, 2), ("data",)),
  "unnamed": (
    ("stage", "data", "expert", "cp"),
    _SHUFFLED.reshape(2, 2, 1, 2),
    ("data",),
  ),
  "four names": (
    ("dcn", "fsdp", "cp", "tp"),
    _SHUFFLED.reshape(1, 2, 2, 2),
    ("dcn", "fsdp"),
  ),
  "data": (("data",), _SHUFFLED, ("data",)),
  "no cp": (("data", "tp"), _SHUFFLED.reshape(4, 2), ("data",)),
}


def _coordinate(mesh, device, axes):
  """Which part a device holds of what lies over axes, the first outermost."""
  (where,) = np.argwhere(mesh.devices == device).tolist()
  number = 0
  for axis in axes:
    size = mesh.shape[axis]
    number = number * size + where[mesh.axis_names.index(axis)]
  return number


def _config(prefix, layout, *, packed=False, **mesh):
  config = {
    "training": {"global_batch_size": _ROWS, "seed": 3},
    "mesh": mesh,
    "dataset": {
      "data_path": prefix,
      "data_config": {"seq_length": _POSITIONS, "split": "1, 0, 0"},
    },
    "get_batch": {"context_parallel_layout": layout},
  }
  if packed:
    config["dataloader"] = {
      "type": "dynamic",
      "packer": "best_fit",
      "segment_multiple": 8,
      "overlong": "split",
    }
  return mlc.ConfigDict(config)


def _corpus(folder):
  return write_pair(
    folder / "a",
    random_documents(random.Random(0), num_documents=300, max_length=12),
  )


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
  return _corpus(tmp_path_factory.mktemp("corpus"))


def _host(batch):
  """A batch, copied from its devices."""
  return {name: np.array(values) for name, values in batch.items()}


def _take(loader, count):
  with contextlib.closing(iter(loader)) as iterator:
    return [_host(batch) for batch in itertools.islice(iterator, count)]


@pytest.fixture(scope="module")
def whole(prefix):
  """Batches as one device has them, of rows that are cut, and packed."""
  mesh = shard.make_mesh(("data",), {"data": 1}, jax.devices()[:1])
  return {
    packed: _take(
      hpgrain.build(_config(prefix, "contiguous", packed=packed), mesh).train, 3
    )
    for packed in (False, True)
  }


@pytest.mark.parametrize("layout", reference_layouts.LAYOUTS)
@pytest.mark.parametrize(
  "name, axis_type",
  [
    *((name, AxisType.Auto) for name in _MESHES),
    *((name, AxisType.Explicit) for name in ("permuted", "slices", "data")),
  ],
)
def test_devices_hold_their_rows_and_slots(
  prefix, whole, name, layout, axis_type
):
  axes, devices, data_axes = _MESHES[name]
  mesh = Mesh(devices, axes, axis_types=(axis_type,) * len(axes))
  packed = layout == "document_zigzag"
  # Where there is a tp, it shares positions of packed rows.
  sequence_parallel = packed and "tp" in axes
  config = _config(
    prefix,
    layout,
    packed=packed,
    axes=axes,
    sizes=devices.shape,
    data_axes=data_axes,
    sequence_parallel=sequence_parallel,
  )
  loader = hpgrain.build(config, mesh).train
  position_axes = [axis for axis in ("cp",) if axis in axes]
  position_axes += ["tp"] if sequence_parallel else []
  num_rows = _ROWS // math.prod(mesh.shape[axis] for axis in data_axes)
  num_slots = _POSITIONS // math.prod(mesh.shape[a] for a in position_axes)
  with contextlib.closing(iter(loader)) as iterator:
    for in_row_order in whole[packed]:
      batch = next(iterator)
      expected = reference_layouts.in_slots(
        in_row_order,
        layout,
        mesh.shape.get("cp", 1),
        multiple=8 if packed else 1,
      )
      assert batch.keys() == expected.keys()
      for field, values in expected.items():
        assert batch[field].sharding.mesh == mesh
        for part in batch[field].addressable_shards:
          row = _coordinate(mesh, part.device, data_axes) * num_rows
          slot = _coordinate(mesh, part.device, position_axes) * num_slots
          np.testing.assert_array_equal(
            np.asarray(part.data),
            values[row : row + num_rows, slot : slot + num_slots],
            err_msg=f"{field} on {part.device}",
          )
  assert batch["input_ids"].sharding.spec[0] in (data_axes, data_axes[0])


def test_jax_s_own_meshes_are_explicit_and_taken(prefix, whole):
  mesh = jax.make_mesh((2, 2, 2), ("data", "cp", "tp"))
  assert mesh.axis_types == (AxisType.Explicit,) * 3
  config = _config(prefix, "zigzag", sequence_parallel=True)
  loader = hpgrain.build(config, mesh).train
  with contextlib.closing(iter(loader)) as iterator:
    batch = next(iterator)
    count = jax.jit(lambda b: b["loss_mask"].sum())(batch)
  assert int(count) == whole[False][0]["loss_mask"].sum()
  expected = reference_layouts.in_slots(whole[False][0], "zigzag", 2)
  np.testing.assert_array_equal(batch["labels"], expected["labels"])


# Memory.


def _address(array):
  return array.__array_interface__["data"][0]


def test_replicas_share_the_host_s_memory_on_a_cpu():
  layout = _layout(("data", "cp", "tp"), (2, 2, 2))
  parts = _aligned_parts(layout)
  placed = placement.place(layout, parts)
  for part, fields in zip(layout.shards, parts):
    for name, field in fields.items():
      held = {
        s.data.unsafe_buffer_pointer()
        for s in placed[name].addressable_shards
        if s.device in part.devices
      }
      # No copy at all, so none for a replica either.
      assert held == {_address(field)}


class _Placed:
  """The fields that were placed, and copies of what they were then."""

  def __init__(self, monkeypatch):
    self.parts, self.copies, self.threads = [], [], []
    self._changed = threading.Condition()
    self._place = placement.place
    monkeypatch.setattr(placement, "place", self)

  def __call__(self, layout, parts):
    copies = [{n: f.copy() for n, f in part.items()} for part in parts]
    placed = self._place(layout, parts)
    with self._changed:
      self.parts.append(parts)
      self.copies.append(copies)
      self.threads.append(threading.get_ident())
      self._changed.notify_all()
    return placed

  def wait_for(self, count):
    with self._changed:
      return self._changed.wait_for(lambda: len(self.parts) >= count, 20)

  def check(self):
    """That nobody wrote to a field again, nor used its memory twice."""
    for parts, copies in zip(self.parts, self.copies):
      for part, copied in zip(parts, copies):
        for name, field in part.items():
          np.testing.assert_array_equal(field, copied[name])
    # Held here, so none of it can have been given back and made anew.
    fields = [
      f for parts in self.parts for part in parts for f in part.values()
    ]
    spans = sorted((_address(f), _address(f) + f.nbytes) for f in fields)
    for (_, end), (begin, _) in itertools.pairwise(spans):
      assert end <= begin


def _online(tmp_path, lengths):
  """Records that are tokenized while training, by plans or in streams."""
  path = tmp_path / "a.jsonl"
  rng = random.Random(1)
  records = [
    {"input_ids": [rng.randrange(90) for _ in range(rng.randint(2, 20))]}
    for _ in range(400)
  ]
  path.write_text("\n".join(map(json.dumps, records)))
  return mlc.ConfigDict(
    {
      "training": {"global_batch_size": _ROWS, "seed": 3},
      "dataset": {
        "kind": "online",
        "data_path": str(path),
        "data_config": {
          "dataset_type": "mapping",
          "lengths": lengths,
          "vocab_size": 90,
        },
      },
      "data_transform": {"data_type": "pretokenized", "max_seq_len": 32},
      "dataloader": {
        "type": "dynamic",
        "packer": "best_fit",
        "segment_multiple": 4,
      },
      "get_batch": {"context_parallel_layout": "document_zigzag"},
    }
  )


@pytest.mark.parametrize(
  "rows, prefetch, num_workers",
  [
    ("contiguous", 2, 0),
    ("zigzag", 3, 0),
    ("zigzag", 0, 0),
    ("striped", 2, 0),
    ("document_zigzag", 2, 0),
    ("table", 2, 0),
    ("stream", 2, 0),
    # What comes from a worker lies in memory that two processes share.
    ("table", 2, 1),
  ],
)
def test_batches_that_are_kept_stay_what_they_were(
  tmp_path, monkeypatch, rows, prefetch, num_workers
):
  mesh = shard.make_mesh(("data", "cp", "tp"), {"data": 2, "cp": 2, "tp": 2})
  if rows in ("table", "stream"):
    config = _online(tmp_path, rows)
  else:
    config = _config(_corpus(tmp_path), rows, packed=rows == "document_zigzag")
  wanted = _take(hpgrain.build(config, mesh).train, 10)
  placed = _Placed(monkeypatch)
  if "dataloader" not in config:
    config.dataloader = {}
  config.dataloader.update(prefetch=prefetch, num_workers=num_workers)
  loader = hpgrain.build(config, mesh).train
  with contextlib.closing(iter(loader)) as iterator:
    batches = [next(iterator) for _ in range(10)]
    assert placed.wait_for(10 + prefetch)
  placed.check()
  for batch, expected in zip(batches, wanted, strict=True):
    for name, values in expected.items():
      np.testing.assert_array_equal(batch[name], values, err_msg=name)
      # Every replica, not only the one that is read back.
      for part in batch[name].addressable_shards:
        np.testing.assert_array_equal(part.data, values[part.index])


def _overwrite(batch):
  """A step that writes its result where the batch was, on each replica."""
  return {name: values * 2 + 1 for name, values in batch.items()}


def test_a_donated_batch_is_overwritten_on_no_other_device():
  layout = _layout(("data", "cp", "tp"), (2, 1, 4), num_positions=1024)
  mesh = layout.sharding.mesh
  parts = _aligned_parts(layout)
  copies = [{n: f.copy() for n, f in part.items()} for part in parts]
  # The same memory twice: what one step does must not reach the other's batch.
  one, other = (placement.place(layout, parts) for _ in range(2))
  spec = PartitionSpec("data", None)

  def by_replica(batch):
    replica = jax.lax.axis_index("tp")
    return {name: v * 0 + replica for name, v in batch.items()}

  # Each replica writes another value; the result has them side by side.
  write = jax.jit(
    jax.shard_map(
      by_replica,
      mesh=mesh,
      in_specs=spec,
      out_specs=PartitionSpec("data", "tp"),
    ),
    donate_argnums=0,
  )
  step = jax.jit(_overwrite, donate_argnums=0)
  whole = _values((0, 8), (0, 1024))
  written = jax.block_until_ready(write(one))
  assert all(values.is_deleted() for values in one.values())
  for name, values in written.items():
    numbers = np.repeat(np.arange(4), 1024)
    np.testing.assert_array_equal(values, np.tile(numbers, (8, 1)), name)
  for name, values in other.items():
    for part in values.addressable_shards:
      np.testing.assert_array_equal(part.data, whole[name][part.index])
  stepped = step(other)
  assert all(values.is_deleted() for values in other.values())
  for name, values in stepped.items():
    for part in values.addressable_shards:
      np.testing.assert_array_equal(part.data, 2 * whole[name][part.index] + 1)
  for part, copied in zip(parts, copies):
    for name, field in part.items():
      np.testing.assert_array_equal(field, copied[name])


@pytest.mark.parametrize("layout", ["contiguous", "zigzag"])
def test_steps_may_overwrite_the_batches_they_are_given(
  prefix, monkeypatch, layout
):
  mesh = shard.make_mesh(("data", "cp", "tp"), {"data": 2, "cp": 2, "tp": 2})
  config = _config(prefix, layout)
  wanted = _take(hpgrain.build(config, mesh).train, 8)
  placed = _Placed(monkeypatch)
  step = jax.jit(_overwrite, donate_argnums=0)
  with contextlib.closing(iter(hpgrain.build(config, mesh).train)) as iterator:
    for i, expected in enumerate(wanted):
      # The batches after it are on the devices before it is overwritten.
      batch = next(iterator)
      assert placed.wait_for(i + 3)
      result = step(batch)
      assert batch["labels"].is_deleted()
      for name, values in expected.items():
        for part in result[name].addressable_shards:
          np.testing.assert_array_equal(
            part.data, 2 * values[part.index] + 1, err_msg=name
          )
  placed.check()


def test_what_is_read_back_outlives_a_donated_batch():
  layout = _layout(("data", "cp", "tp"), (2, 2, 2))
  placed = placement.place(layout, _aligned_parts(layout))
  views = {name: np.asarray(values) for name, values in placed.items()}
  jax.block_until_ready(jax.jit(_overwrite, donate_argnums=0)(placed))
  for name, values in _values((0, 8), (0, 16)).items():
    np.testing.assert_array_equal(views[name], values)


# Time.


def test_batches_are_put_on_devices_while_the_caller_does_other_things(
  prefix, monkeypatch
):
  mesh = shard.make_mesh(("data", "tp"), {"data": 4, "tp": 2})
  config = _config(prefix, "contiguous")
  config.dataloader = {"prefetch": 2}
  placed = _Placed(monkeypatch)
  with contextlib.closing(iter(hpgrain.build(config, mesh).train)) as iterator:
    for step in range(4):
      next(iterator)
      # The caller is in its step, and asks for nothing: the next batches come
      # to the devices all the same, as many as are to be ready.
      assert placed.wait_for(step + 1 + 2)
  assert threading.get_ident() not in placed.threads


def test_without_prefetch_a_batch_is_put_on_devices_when_it_is_asked_for(
  prefix, monkeypatch
):
  mesh = shard.make_mesh(("data", "tp"), {"data": 4, "tp": 2})
  config = _config(prefix, "contiguous")
  config.dataloader = {"prefetch": 0}
  placed = _Placed(monkeypatch)
  with contextlib.closing(iter(hpgrain.build(config, mesh).train)) as iterator:
    for step in range(3):
      assert len(placed.parts) == step
      next(iterator)
      assert len(placed.parts) == step + 1
  assert set(placed.threads) == {threading.get_ident()}
