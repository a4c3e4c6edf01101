"""What is made of a batch, on a mesh of jax.make_mesh as on any other."""

import contextlib
import random

import jax
import ml_collections as mlc
import numpy as np
import pytest
import reference_layouts
from corpora import random_documents, write_pair
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import hpgrain
from hpgrain.explicit_axes import made_of_batch


def _mesh(axis_type, sizes=(2, 2, 2), axes=("data", "cp", "tp")):
  return jax.make_mesh(sizes, axes, axis_types=(axis_type,) * len(axes))


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
  return write_pair(
    tmp_path_factory.mktemp("corpus") / "a",
    random_documents(random.Random(0), num_documents=100, max_length=12),
  )


def _made(prefix, mesh, layout, mode):
  """What a model gets of the first batch, and the positions of its slots."""
  get_batch = {
    "context_parallel_layout": layout,
    "attention_mode": mode,
    "sliding_window": 3,
  }
  config = {
    "training": {"global_batch_size": 4},
    "dataset": {
      "data_path": prefix,
      "data_config": {"seq_length": 16, "split": "1, 0, 0"},
    },
    "get_batch": get_batch,
  }
  if layout == "document_zigzag":
    config["dataloader"] = {
      "type": "dynamic",
      "packer": "best_fit",
      "segment_multiple": 4,
      "overlong": "split",
    }
  loader = hpgrain.build(mlc.ConfigDict(config), mesh).train
  with contextlib.closing(iter(loader)) as iterator:
    batch = next(iterator)
    return jax.jit(
      lambda batch: {
        **loader.model_inputs(batch),
        # Beside a batch: alone it would not be known where it is to lie.
        "row_positions": loader.row_positions(batch)
        + 0 * batch["labels"].sum(),
      }
    )(batch)


@pytest.mark.parametrize(
  "layout, mode, in_mesh",
  [
    *((layout, "dense", False) for layout in reference_layouts.LAYOUTS),
    ("document_zigzag", "segment_ids", True),
  ],
)
def test_explicit_axes_give_what_auto_axes_do(prefix, layout, mode, in_mesh):
  wanted = _made(prefix, _mesh(AxisType.Auto), layout, mode)
  mesh = _mesh(AxisType.Explicit)
  with jax.set_mesh(mesh) if in_mesh else contextlib.nullcontext():
    found = _made(prefix, mesh, layout, mode)
  assert found.keys() == wanted.keys()
  assert ("attention_mask" in found) == (mode == "dense")
  for name, values in wanted.items():
    np.testing.assert_array_equal(found[name], values, err_msg=name)
  # Queries stay on the devices of their positions, keys are on all.
  assert found["swa_mask"].shape == (4, 1, 16, 16)
  assert found["swa_mask"].sharding.spec == PartitionSpec(
    "data", None, "cp", None
  )
  assert found["labels"].sharding.spec == PartitionSpec("data", "cp")


@pytest.mark.parametrize("axis_type", [AxisType.Auto, AxisType.Explicit])
def test_results_lie_as_their_shapes_say(axis_type):
  sharding = NamedSharding(_mesh(axis_type), PartitionSpec("data", "cp"))
  x = np.arange(32, dtype=np.int32).reshape(4, 8)
  batch = {"x": jax.device_put(x, sharding)}

  def make(fields):
    x = fields["x"]
    return {
      "whole": x.sum(),
      "rows": x.sum(axis=1),
      "pairs": x[:, :, None] * x[:, None, :],
      "positions": x[:1],
      "counts": x[:, :3],
    }

  made = jax.jit(lambda fields: made_of_batch(make, fields, sharding))(batch)
  for name, values in make({"x": x}).items():
    np.testing.assert_array_equal(made[name], values, err_msg=name)
  if axis_type == AxisType.Explicit:
    assert {name: tuple(v.sharding.spec) for name, v in made.items()} == {
      "whole": (),
      "rows": ("data",),
      "pairs": ("data", "cp", None),
      "positions": (None, None),
      "counts": ("data", None),
    }
