import itertools

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from hpgrain import shard


def _mesh(axes, sizes, **options):
  return shard.make_mesh(axes, dict(zip(axes, sizes)), **options)


def _fields(rows, window):
  """Values that say where they belong: 100 * row + position."""
  values = 100 * np.arange(*rows)[:, None] + np.arange(*window)[None, :]
  return {"a": values.astype(np.int32), "b": -values.astype(np.float32)}


def _whole(num_rows, num_positions):
  return _fields((0, num_rows), (0, num_positions))


@pytest.mark.parametrize(
  "sizes, shape",
  [
    ((-1, 1, 1), (8, 1, 1)),
    ((2, -1, 2), (2, 2, 2)),
    ((4, 2, -1), (4, 2, 1)),
    ((2, 2, 2), (2, 2, 2)),
  ],
)
def test_one_axis_may_take_the_devices_left(sizes, shape):
  mesh = _mesh(("data", "cp", "tp"), sizes)
  assert mesh.axis_names == ("data", "cp", "tp")
  assert mesh.devices.shape == shape
  assert mesh.axis_types == (AxisType.Auto,) * 3
  assert mesh.devices.ravel().tolist() == jax.devices()


def test_a_mesh_may_use_the_devices_it_is_given():
  devices = jax.devices()[2:6]
  mesh = _mesh(("cp", "data"), (2, 2), devices=devices)
  assert mesh.devices.ravel().tolist() == devices
  assert mesh.axis_names == ("cp", "data")


@pytest.mark.parametrize(
  "axes, sizes, message",
  [
    (("data", "cp"), {"data": 3, "cp": 2}, "does not use the 8 devices"),
    (("data", "cp"), {"data": -1, "cp": 3}, "must multiply to 8"),
    (("data",), {"data": 16}, r"\{'data': 16\} does not use the 8 devices"),
    (("data", "cp"), {"data": -1, "cp": -1}, "one at most may be -1"),
    (("data", "cp"), {"data": 0, "cp": 8}, r"positive.*'data': 0"),
    (("data", "cp"), {"data": 8}, r"axes \['cp'\] have no size"),
  ],
)
def test_meshes_that_do_not_fit_the_devices_are_refused(axes, sizes, message):
  with pytest.raises(ValueError, match=message):
    shard.make_mesh(axes, sizes)


@pytest.mark.parametrize(
  "axes, options, spec",
  [
    (("data", "cp", "tp"), {}, (("data",), ("cp",))),
    (
      ("data", "cp", "tp"),
      {"sequence_parallel": True},
      (("data",), ("cp", "tp")),
    ),
    (("tp", "data", "other"), {}, (("data",), None)),
    (
      ("replica", "fsdp", "cp"),
      {"data_axes": ("replica", "fsdp")},
      (("replica", "fsdp"), ("cp",)),
    ),
  ],
)
def test_rows_lie_over_data_and_positions_over_cp(axes, options, spec):
  sharding = shard.batch_sharding(_mesh(axes, (2, 2, 2)), **options)
  # A lone axis stands in a spec by itself.
  found = [(a,) if isinstance(a, str) else a for a in sharding.spec]
  assert found == list(spec)
  parts = [2 ** len(axes or ()) for axes in spec]
  assert list(shard.num_parts(sharding)) == parts


@pytest.mark.parametrize(
  "axes, options, message",
  [
    (
      ("dat", "cp", "tp"),
      {},
      r"axes \('dat', 'cp', 'tp'\), but mesh\.data_axes is \('data',\): there"
      r" is no 'data'\. Did you mean 'dat'\?",
    ),
    # That another data axis is there does not make it right.
    (
      ("data", "expert", "cp"),
      {"data_axes": ("data", "absent")},
      r"there is no 'absent'\. Name in mesh\.data_axes",
    ),
    (
      ("dcm", "fsdp", "cp"),
      {"data_axes": ("dcn", "fsdp")},
      r"there is no 'dcn'\. Did you mean 'dcm'\?",
    ),
    (
      ("data", "expert", "cp"),
      {"data_axes": ("data", "data")},
      r"unlike axes other than 'cp' and 'tp', got \('data', 'data'\)",
    ),
    (
      ("data", "expert", "cp"),
      {"data_axes": ("data", "cp")},
      r"unlike axes other than 'cp' and 'tp', got \('data', 'cp'\)",
    ),
    (("data", "expert", "cp"), {"data_axes": ()}, "No axis of the mesh .*rows"),
    (
      ("data", "expert", "cp"),
      {"sequence_parallel": True},
      r"over \('cp', 'tp'\), but the mesh has axes \('data', 'expert', 'cp'\)",
    ),
  ],
)
def test_axes_that_the_mesh_lacks_are_refused(axes, options, message):
  with pytest.raises(ValueError, match=message):
    shard.batch_sharding(_mesh(axes, (2, 2, 2)), **options)


_MESHES = [
  (("data", "cp", "tp"), (8, 1, 1)),
  (("data", "cp", "tp"), (2, 2, 2)),
  (("data", "cp", "tp"), (1, 8, 1)),
  (("data", "cp", "tp"), (1, 1, 8)),
  (("tp", "cp", "data"), (2, 2, 2)),
  (("data",), (8,)),
  (("stage", "data", "expert", "cp"), (2, 2, 1, 2)),
]


@pytest.mark.parametrize("sequence_parallel", [False, True])
@pytest.mark.parametrize("axes, sizes", _MESHES)
def test_shards_are_what_the_devices_hold(axes, sizes, sequence_parallel):
  sharding = shard.batch_sharding(
    _mesh(axes, sizes), sequence_parallel=sequence_parallel and "tp" in axes
  )
  layout = shard.batch_layout(sharding, num_rows=8, num_positions=16)
  assert layout.shape == (8, 16)
  # Each rectangle once, each device once; together they are the batch.
  keys = [(part.rows, part.window) for part in layout.shards]
  assert len(set(keys)) == len(keys) and keys == sorted(keys)
  devices = [device for part in layout.shards for device in part.devices]
  assert sorted(d.id for d in devices) == list(range(8))
  cover = np.zeros((8, 16), int)
  for rows, window in keys:
    cover[slice(*rows), slice(*window)] += 1
  assert (cover == 1).all()
  row_parts, position_parts = shard.num_parts(sharding)
  assert len(keys) == row_parts * position_parts
  # JAX itself, asked to place the whole array, agrees.
  placed = jax.device_put(_whole(8, 16)["a"], sharding)
  for part in layout.shards:
    for device in part.devices:
      (held,) = [s for s in placed.addressable_shards if s.device == device]
      expected = _fields(part.rows, part.window)["a"]
      assert np.asarray(held.data).tolist() == expected.tolist()


def test_several_data_axes_split_rows_together():
  sharding = shard.batch_sharding(
    _mesh(("replica", "fsdp", "cp"), (2, 2, 2)), data_axes=("replica", "fsdp")
  )
  layout = shard.batch_layout(sharding, num_rows=8, num_positions=4)
  assert [(part.rows, part.window) for part in layout.shards] == [
    ((2 * i, 2 * i + 2), (2 * j, 2 * j + 2))
    for i, j in itertools.product(range(4), range(2))
  ]
  # Their order is the order they are given in, not the mesh's.
  swapped = shard.batch_sharding(
    _mesh(("replica", "fsdp", "cp"), (2, 2, 2)), data_axes=("fsdp", "replica")
  )
  layout = shard.batch_layout(swapped, num_rows=8, num_positions=4)
  ids = {part.rows: part.devices[0].id for part in layout.shards[::2]}
  assert ids == {(0, 2): 0, (2, 4): 4, (4, 6): 2, (6, 8): 6}


def test_a_layout_holds_only_the_devices_asked_for():
  mesh = _mesh(("data", "cp", "tp"), (2, 2, 2))
  sharding = shard.batch_sharding(mesh)
  layout = shard.batch_layout(
    sharding, num_rows=4, num_positions=8, devices=jax.devices()[4:]
  )
  assert [(p.rows, p.window) for p in layout.shards] == [
    ((2, 4), (0, 4)),
    ((2, 4), (4, 8)),
  ]
  assert [d.id for d in layout.shards[0].devices] == [4, 5]


@pytest.mark.parametrize(
  "num_rows, num_positions, message",
  [
    (
      6,
      8,
      r"6 rows of a batch do not divide over the mesh \{'data': 4, 'cp': 2\}"
      ".*multiple of 4",
    ),
    (
      8,
      9,
      r"9 positions of a batch do not divide over the mesh .*multiple of 2",
    ),
  ],
)
def test_batches_that_do_not_divide_are_refused(
  num_rows, num_positions, message
):
  sharding = shard.batch_sharding(_mesh(("data", "cp"), (4, 2)))
  with pytest.raises(ValueError, match=message):
    shard.batch_layout(sharding, num_rows=num_rows, num_positions=num_positions)


def test_positions_divide_over_the_chunks_of_a_layout():
  sharding = shard.batch_sharding(
    _mesh(("data", "cp", "tp"), (2, 2, 2)), sequence_parallel=True
  )
  context = shard.context_layout(sharding.mesh, "zigzag")
  assert shard.positions_multiple(sharding, context) == 4
  with pytest.raises(
    ValueError, match=r"context_parallel_layout='zigzag'.*multiple of 4"
  ):
    shard.batch_layout(sharding, num_rows=2, num_positions=6, context=context)


def test_a_process_without_a_device_of_the_mesh_is_refused():
  sharding = shard.batch_sharding(
    _mesh(("data", "cp"), (2, 2), devices=jax.devices()[:4])
  )
  with pytest.raises(ValueError, match=r"no device of the mesh \{'data': 2"):
    shard.batch_layout(
      sharding, num_rows=2, num_positions=2, devices=jax.devices()[4:]
    )


def test_a_sharding_given_from_outside_may_leave_positions_whole():
  mesh = _mesh(("data", "cp"), (4, 2))
  sharding = NamedSharding(mesh, PartitionSpec("data", None))
  assert shard.num_parts(sharding) == (4, 1)
  layout = shard.batch_layout(sharding, num_rows=4, num_positions=3)
  assert [len(part.devices) for part in layout.shards] == [2, 2, 2, 2]
