"""Meshes and configurations that do not fit: one error, before any data.

Every case names a folder where nothing is, so that whoever opens data before
the mesh is known to fit says something else.
"""

import re

import jax
import ml_collections as mlc
import numpy as np
import pytest
from corpora import write_pair
from jax.sharding import Mesh

import hpgrain
from hpgrain import config_rules_mesh
from hpgrain.config import check
from hpgrain.context_layout import ContextLayout


def _mesh(**sizes):
  count = int(np.prod(list(sizes.values())))
  devices = np.array(jax.devices()[:count]).reshape(tuple(sizes.values()))
  return Mesh(devices, tuple(sizes))


def _indexed(path="/nothing/here", **keys):
  """A configuration of rows of 16 positions, 8 a batch; keys as a__b."""
  made = {
    "training": {"global_batch_size": 8},
    "dataset": {
      "data_path": path,
      "data_config": {"seq_length": 16, "split": "1, 0, 0"},
    },
  }
  for name, value in keys.items():
    *sections, leaf = name.split("__")
    section = made
    for part in sections:
      section = section.setdefault(part, {})
    section[leaf] = value
  return mlc.ConfigDict(made)


def _packed(path="/nothing/here", **keys):
  """The same of packed documents: 4 rows of 32 positions a batch."""
  common = {
    "training__micro_batch_size": 2,
    "dataloader__type": "dynamic",
    "dataloader__packer": "best_fit",
  }
  return _indexed(path, **common | keys)


def _online(path="/nothing/here.jsonl", **keys):
  """Rows of token ids that are packed while training."""
  return _packed(
    path,
    **{
      "dataset__kind": "online",
      "dataset__data_config": {"dataset_type": "mapping", "vocab_size": 9},
      "data_transform__data_type": "pretokenized",
      "data_transform__max_seq_len": 16,
    }
    | keys,
  )


def _refused(config, mesh, message):
  with pytest.raises(ValueError, match=message):
    hpgrain.build(config, mesh)


@pytest.mark.parametrize(
  "config, mesh, message",
  [
    (
      _indexed(training__global_batch_size=6),
      {"data": 4, "cp": 2},
      r"6 rows of a batch \(training\.global_batch_size=6\) do not divide over"
      r" 4 parts of the mesh \{'data': 4, 'cp': 2\}, .*mesh\.data_axes"
      r" \('data',\)\. .*global_batch_size that is a multiple of 4,",
    ),
    (
      _indexed(
        training__global_batch_size=6,
        mesh__axes=("dcn", "fsdp"),
        mesh__data_axes=("dcn", "fsdp"),
        mesh__sizes=(2, 2),
      ),
      {"dcn": 2, "fsdp": 2, "tp": 2},
      r"6 rows .* over 4 parts of the mesh .*data_axes \('dcn', 'fsdp'\)",
    ),
    # Of packed rows a batch has fewer, and both keys have a part in it.
    (
      _packed(),
      {"data": 8},
      r"4 rows of a batch \(training\.global_batch_size=8 /"
      r" training\.micro_batch_size=2\) do not divide over 8 parts of the mesh"
      r" \{'data': 8\}.*global_batch_size that is a multiple of 16,",
    ),
    (
      _online(training__global_batch_size=12),
      {"data": 4, "tp": 2},
      r"6 rows of a batch \(training\.global_batch_size=12 /"
      r" training\.micro_batch_size=2\) do not .*multiple of 8,",
    ),
  ],
)
def test_rows_that_do_not_divide_are_refused(config, mesh, message):
  _refused(config, _mesh(**mesh), message)


@pytest.mark.parametrize(
  "seq_length, mesh, keys, message",
  [
    (
      15,
      {"data": 4, "cp": 2},
      {},
      r"15 positions of a row \(dataset\.data_config\.seq_length\) do not"
      r" divide over 2 parts of the mesh \{'data': 4, 'cp': 2\}: cp takes"
      r" multiples of 2\. Take a seq_length that is a multiple of 2,",
    ),
    (
      18,
      {"data": 2, "cp": 2, "tp": 2},
      {"mesh__sequence_parallel": True},
      r"18 positions .* over 4 parts .*: \(cp, tp\) takes multiples of 4\. Take"
      r" a seq_length that is a multiple of 4,",
    ),
    (
      18,
      {"data": 4, "cp": 2},
      {"get_batch__context_parallel_layout": "zigzag"},
      r"18 positions .*: cp takes multiples of 2,"
      r" get_batch\.context_parallel_layout='zigzag' on cp=2 multiples of 4\."
      r" .*multiple of 4,",
    ),
    # Neither 6 nor 4 alone, but both.
    (
      16,
      {"cp": 2, "tp": 3},
      {
        "mesh__sequence_parallel": True,
        "mesh__data_axes": ("data",),
        "get_batch__context_parallel_layout": "zigzag",
      },
      r"16 positions .*: \(cp, tp\) takes multiples of 6,"
      r" .*'zigzag' on cp=2 multiples of 4\. .*multiple of 12,",
    ),
    (
      12,
      {"cp": 8},
      {"get_batch__context_parallel_layout": "striped"},
      r"12 positions .*'striped' on cp=8 multiples of 8\. .*multiple of 8,",
    ),
  ],
)
def test_positions_that_do_not_divide_are_refused(
  seq_length, mesh, keys, message
):
  config = _indexed(**keys)
  config.dataset.data_config.seq_length = seq_length
  _refused(config, _mesh(**{"data": 1, **mesh}), message)


def test_packed_rows_are_padded_to_what_the_mesh_splits(tmp_path):
  path = write_pair(tmp_path / "a", [[[1, 2, 3, 0]]] * 40)
  config = _packed(
    path,
    dataloader__token_budget=9,
    get_batch__context_parallel_layout="zigzag",
  )
  loaders = hpgrain.build(config, _mesh(data=2, cp=2))
  assert loaders.train.spec.layout.shape == (4, 12)


@pytest.mark.parametrize(
  "multiple, cp, message",
  [
    (1, 2, r"'document_zigzag' .*multiple of 4, got 1\..*largest cp"),
    (4, 4, r"2 x 4 chunks, so dataloader\.segment_multiple .* of 8, got 4\."),
  ],
)
def test_rooms_that_do_not_divide_are_refused(multiple, cp, message):
  config = _packed(
    dataloader__token_budget=32,
    dataloader__segment_multiple=multiple,
    get_batch__context_parallel_layout="document_zigzag",
  )
  _refused(config, _mesh(data=2, cp=cp), message)


_DCN = {"mesh__axes": ("dcn", "fsdp", "cp"), "mesh__sizes": (2, 2, 2)}


@pytest.mark.parametrize(
  "keys, mesh, message",
  [
    (
      {},
      {"dat": 4, "cp": 2},
      r"axes \('dat', 'cp'\), but mesh\.data_axes is \('data',\): there is no"
      r" 'data'\. Did you mean 'dat'\?",
    ),
    # One of two is missing: every device of the other would have all its rows.
    (
      {**_DCN, "mesh__data_axes": ("dcn", "fsdp")},
      {"dnc": 2, "fsdp": 2, "cp": 2},
      r"data_axes is \('dcn', 'fsdp'\): there is no 'dcn'\. Did you mean 'dnc'",
    ),
    (
      {**_DCN, "mesh__data_axes": ("dcn", "fsdp")},
      {"fsdp": 4, "cp": 2},
      r"there is no 'dcn'\. Name in mesh\.data_axes the axes that split rows,"
      " and no other; one of size 1 will do",
    ),
    (
      {"mesh__cp": 2},
      {"data": 4, "context": 2},
      r"mesh\.cp is 2, but the axis 'cp' is missing in the mesh"
      r" \{'data': 4, 'context': 2\}.*set mesh\.cp=1\.",
    ),
    (
      {"mesh__cp": 4},
      {"data": 4, "cp": 2},
      r"mesh\.cp is 4, but the axis 'cp' has size 2 .*set mesh\.cp=2\.",
    ),
    # All that mesh.sizes says must hold, the first axis that does not is told.
    (
      {
        "mesh__axes": ("dcn", "fsdp", "cp", "tp"),
        "mesh__sizes": (2, 2, 2, 1),
        "mesh__data_axes": ("dcn", "fsdp"),
      },
      {"dcn": 2, "fsdp": 1, "cp": 2, "tp": 2},
      r"mesh\.sizes gives 'fsdp' the size 2, but the axis 'fsdp' has size 1 in"
      r" the mesh \{'dcn': 2, 'fsdp': 1, 'cp': 2, 'tp': 2\} .* or leave"
      r" mesh\.sizes empty",
    ),
    (
      {"mesh__sizes": (4, 1, 1)},
      {"data": 4, "cp": 1, "tp": 2},
      r"mesh\.sizes gives 'tp' the size 1, but the axis 'tp' has size 2",
    ),
    (
      {"mesh__sizes": (4, 1, 2)},
      {"data": 4, "cp": 1, "model": 2},
      r"mesh\.sizes gives 'tp' the size 2, but the axis 'tp' is missing",
    ),
    # A key of an axis of one's own is there only where it was set.
    (
      {"mesh__fsdp": 4, "mesh__data_axes": ("fsdp",)},
      {"fsdp": 2, "tp": 2},
      r"mesh\.fsdp is 4, but the axis 'fsdp' has size 2 .*set mesh\.fsdp=2\.",
    ),
    (
      {"mesh__data_axes": ("dcn", "tp")},
      {"dcn": 2, "tp": 2},
      r"mesh\.data_axes are unlike axes other than 'cp' and 'tp'",
    ),
    (
      {"mesh__data_axes": ()},
      {"dcn": 2, "tp": 2},
      r"No axis of the mesh \('dcn', 'tp'\) splits rows\. Name in mesh\.data_a",
    ),
    (
      {"mesh__tp": 2, "mesh__sequence_parallel": True},
      {"data": 4, "tp": 1},
      r"mesh\.tp is 2, but the axis 'tp' has size 1 .*set mesh\.tp=1\.",
    ),
    (
      {"mesh__sequence_parallel": True},
      {"data": 4, "tensor": 2},
      r"splits positions over \('cp', 'tp'\), but the mesh has axes"
      r" \('data', 'tensor'\)",
    ),
  ],
)
def test_meshes_without_an_axis_that_was_asked_for_are_refused(
  keys, mesh, message
):
  _refused(_indexed(**keys), _mesh(**mesh), message)


@pytest.mark.parametrize(
  "keys, sizes",
  [
    # Nobody said how large it is to be.
    ({}, {"data": 2, "cp": 4}),
    ({"mesh__data": 1, "mesh__cp": -1}, {"data": 2, "cp": 4}),
    ({"mesh__sizes": (-1, 4, 1)}, {"data": 2, "cp": 4}),
    ({"mesh__cp": 4}, {"data": 2, "cp": 4}),
    # Replicas, wherever they are.
    ({"mesh__tp": 4}, {"data": 2, "model": 4}),
  ],
)
def test_meshes_of_other_sizes_are_taken_where_no_row_changes(keys, sizes):
  config_rules_mesh.check_sizes(check(_indexed(**keys)).mesh, sizes)


@pytest.mark.parametrize(
  "keys, mesh",
  [
    (
      {"data_axes": ("dcn", "fsdp")},
      {"dcn": 2, "fsdp": 2, "cp": 2, "tp": 1},
    ),
    ({"data_axes": ("fsdp",), "fsdp": 2}, {"pp": 2, "fsdp": 2, "cp": 2}),
    ({"data_axes": ("fsdp",), "fsdp": -1}, {"fsdp": 2, "tp": 2}),
    (
      {
        "axes": ("dcn", "fsdp", "cp", "tp"),
        "sizes": (2, -1, 2, 1),
        "data_axes": ("dcn", "fsdp"),
      },
      {"dcn": 2, "fsdp": 2, "cp": 2},
    ),
  ],
)
def test_a_mesh_of_axes_of_ones_own_needs_its_data_axes_alone(keys, mesh):
  config = _indexed(path=None)
  config.mesh = mlc.ConfigDict(keys)
  config.dataset.data_config.update(mock_data=True, vocab_size=9)
  loader = hpgrain.build(config, _mesh(**mesh)).train
  axes = keys["data_axes"] if len(keys["data_axes"]) > 1 else "fsdp"
  assert loader.sharding.spec[0] in (axes, (axes,))
  shape = next(iter(loader))["input_ids"].sharding.shard_shape((8, 16))
  parts = int(np.prod([mesh[axis] for axis in keys["data_axes"]]))
  assert shape == (8 // parts, 16 // mesh.get("cp", 1))


def test_a_mesh_to_be_made_is_described_by_the_config():
  config = _indexed(mesh__data_axes=("dcn", "fsdp"))
  with pytest.raises(ValueError, match=r"must be some of mesh\.axes"):
    check(config)
  assert check(config, mesh_axes=("dcn", "fsdp")).mesh.axes == (
    "data", "cp", "tp",
  )  # fmt: skip
  with pytest.raises(ValueError, match=r"mesh\.fsbp is no configuration key"):
    check(_indexed(mesh__fsbp=2), mesh_axes=("fsdp",))


@pytest.mark.parametrize(
  "mesh, parts, keys",
  [
    ({"data": 4, "cp": 2}, 2, {}),
    (
      {"data": 4, "tp": 2},
      2,
      {"mesh__sequence_parallel": True},
    ),
  ],
)
def test_labels_that_the_model_shifts_need_whole_rows(mesh, parts, keys):
  _refused(
    _indexed(get_batch__labels_are_shifted=False, **keys),
    _mesh(**mesh),
    f"labels_are_shifted=False needs whole rows: .* over {parts} parts",
  )


@pytest.mark.parametrize(
  "shares, block, rows, mesh, message",
  [
    (
      2,
      None,
      8,
      {"data": 4},
      r"balance_shares=2 makes 2 shares of 4 rows that cost alike of the 8 rows"
      r" of a batch, but the mesh \{'data': 4\} splits them over 4 parts of 2"
      r" rows .*multiple of 4,",
    ),
    (
      2,
      None,
      6,
      {"data": 3},
      r"2 shares of 3 rows .* over 3 parts of 2 rows .*multiple of 3,",
    ),
    # 3 shares of 2 rows, twice; and 4 parts of 3 rows.
    (
      3,
      6,
      12,
      {"dcn": 2, "fsdp": 2, "cp": 2},
      r"balance_shares=3 makes 6 shares of 2 rows .* over 4 parts of 3 rows"
      r" \(mesh\.data_axes \('dcn', 'fsdp'\)\)",
    ),
  ],
)
def test_meshes_that_tear_a_share_are_refused(
  shares, block, rows, mesh, message
):
  data_axes = tuple(axis for axis in mesh if axis != "cp")
  config = _packed(
    training__global_batch_size=2 * rows,
    dataloader__balance_shares=shares,
    mesh__axes=tuple(mesh),
    mesh__sizes=tuple(mesh.values()),
    mesh__data_axes=data_axes,
  )
  if block is not None:
    config.dataloader.balance_rows = block
  _refused(config, _mesh(**mesh), message)


@pytest.mark.parametrize(
  "shares, block, parts",
  [(4, 8, 4), (4, 8, 2), (4, 8, 1), (2, 4, 4), (2, 4, 2), (8, 8, 4)],
)
def test_meshes_that_hold_whole_shares_are_taken(shares, block, parts):
  config = _packed(
    training__global_batch_size=16,
    dataloader__balance_shares=shares,
    dataloader__balance_rows=block,
  )
  config_rules_mesh.check_fits(
    check(config), {"data": parts}, parts=(parts, 1), context=ContextLayout()
  )


@pytest.mark.parametrize(
  "keys, message",
  [
    (
      {"mesh__sizes": (4, 2)},
      r"mesh\.sizes has 2 sizes \(4, 2\) for the 3 axes of mesh\.axes \('data',"
      r" 'cp', 'tp'\)",
    ),
    (
      {"mesh__sizes": (4, 2, 1), "mesh__cp": 4},
      r"mesh\.sizes gives 'cp' the size 2, but mesh\.cp is 4\. Say it once",
    ),
    ({"mesh__sizes": (4, 0, 2)}, r"mesh\.cp must be -1 or at least 1, got 0"),
    ({"mesh__sizes": (-1, -1, 2)}, r"Only one axis .*\['data', 'cp'\]"),
    ({"mesh__sizes": ("4", 2, 1)}, r"mesh\.sizes .*integers"),
    ({"mesh__axes": ("dcn", "cp")}, r"so mesh\.dcn must .* give all sizes in"),
    (
      {
        "mesh__axes": ("data", "fsdp"),
        "mesh__fsdp": 2,
        "mesh__data_axes": ("data", "data"),
      },
      r"data_axes names each axis once, got \('data', 'data'\)",
    ),
  ],
)
def test_sizes_that_contradict_are_refused(keys, message):
  with pytest.raises(ValueError, match=message):
    check(_indexed(**keys))


def test_sizes_are_the_axes_own_keys():
  config = _indexed(
    mesh__axes=("dcn", "fsdp", "cp", "tp"),
    mesh__data_axes=("dcn", "fsdp"),
    mesh__sizes=(2, -1, 2, 1),
  )
  checked = check(config)
  sizes = {axis: checked.mesh[axis] for axis in checked.mesh.axes}
  assert sizes == {"dcn": 2, "fsdp": -1, "cp": 2, "tp": 1}
  # What was checked may be checked again.
  assert check(checked) == checked


def test_a_mesh_that_fits_comes_to_the_data():
  with pytest.raises(FileNotFoundError, match=re.escape("/nothing/here")):
    hpgrain.build(_indexed(), _mesh(data=4, cp=2))
