"""What a configuration tells attention, and which adapters it refuses."""

import jax
import numpy as np
import pytest
from config_trees import documents, online, packed, tree
from jax.sharding import AxisType

from hpgrain import attention_adapters, pipeline
from hpgrain.config import check
from hpgrain.config_attention import attention_options, max_segments
from hpgrain.context_layout import ROW_ORDER, ContextLayout

_MOCK = {
  "dataset__data_config__mock_data": True,
  "dataset__data_config__vocab_size": 64,
  "dataset__data_config__seq_length": 16,
  "dataset__data_config__split": "1,0,0",
  "training__global_batch_size": 4,
  "training__train_iters": 2,
  "training__eval_iters": 0,
  "get_batch__attention_mode": "compressed",
}


def _cut(adapter, **overrides):
  return tree({**_MOCK, "get_batch__attention_adapter": adapter}, overrides)


def _options(config, layout=ROW_ORDER):
  return attention_options(check(config), layout)


def test_without_an_adapter_nothing_is_resolved():
  options = _options(tree(_MOCK, {"get_batch__attention_mode": "dense"}))
  assert (options.attention_mode, options.adapter) == ("dense", None)


def test_options_are_those_of_the_configuration():
  layout = ContextLayout("zigzag", 2)
  options = _options(
    _cut(
      "splash",
      get_batch__sliding_window=3,
      get_batch__window_keys="reference",
    ),
    layout,
  )
  assert options.adapter is attention_adapters.ADAPTERS["splash"]
  assert (options.sliding_window, options.window_keys) == (3, "reference")
  assert options.layout is layout


@pytest.mark.parametrize(
  "config, expected",
  [
    (documents(), None),
    (documents(dataloader__max_segments=9), 9),
    (documents(dataloader__packer="pad"), 2),
    (packed(dataloader__max_segments=5), 5),
    (packed(), None),
    (tree(_MOCK, {"get_batch__attention_mode": "dense"}), None),
    (online(training__micro_batch_size=4, training__global_batch_size=8), 5),
    (documents(get_batch__reset_attention_mask=False), 2),
  ],
)
def test_segments_of_a_row_are_limited_by_what_makes_it(config, expected):
  assert max_segments(check(config)) == expected


@pytest.mark.parametrize(
  "config, layout, said",
  [
    (_cut("splahs"), ROW_ORDER, "Did you mean 'splash'"),
    (_cut("no.such:one"), ROW_ORDER, "there is no module 'no'"),
    (
      _cut("pallas_gpu", get_batch__sliding_window=4),
      ROW_ORDER,
      "'pallas_gpu': the kernel has no sliding window, and 4 keys",
    ),
    (
      _cut("pallas_gpu"),
      ContextLayout("contiguous", 2),
      "'pallas_gpu' needs whole rows, .* cp=2",
    ),
    (
      _cut("cudnn"),
      ROW_ORDER,
      r"16 segments of 16 positions .* dataloader\.max_segments",
    ),
    (
      _cut("splash"),
      ContextLayout("document_zigzag", 2, 4),
      "'splash' takes one mask for all rows",
    ),
    (
      _cut("transformer_engine"),
      ContextLayout("zigzag", 2),
      "context_parallel_layout='striped'",
    ),
    (
      documents(
        get_batch__attention_mode="compressed",
        get_batch__attention_adapter="splash",
        get_batch__reset_attention_mask=False,
        dataloader__segment_multiple=8,
      ),
      ROW_ORDER,
      "segment_multiple=8 leaves padding inside it",
    ),
  ],
)
def test_what_an_adapter_cannot_serve_is_refused(config, layout, said):
  with pytest.raises(ValueError, match=said):
    _options(config, layout)


def test_megatrons_mask_and_a_kernels_inputs_exclude_each_other():
  config = _cut("splash", dataset__data_path="/data/books")
  config["dataset"]["data_config"].update(
    mock_data=False, create_ltor_fields_in_dataloader=True
  )
  with pytest.raises(ValueError, match="'compressed' what a kernel takes"):
    check(config)


def _mesh(kind=AxisType.Auto, cp=2):
  return jax.make_mesh(
    (1, cp, 1),
    ("data", "cp", "tp"),
    axis_types=(kind,) * 3,
    devices=jax.devices()[:cp],
  )


def test_a_run_has_what_its_kernel_takes():
  config = _cut(
    "splash",
    mesh__cp=2,
    mesh__data=1,
    mesh__tp=1,
    get_batch__context_parallel_layout="striped",
  )
  loader = pipeline.build(config, _mesh()).train
  batch = next(iter(loader))
  made = jax.jit(loader.model_inputs)(batch)["packed_seq_params"]
  order = loader.context_layout.order(16)
  ids = np.asarray(batch["segment_ids"])
  np.testing.assert_array_equal(made.q, ids)
  np.testing.assert_array_equal(np.asarray(made.kv)[:, order], ids)
  assert (ids != np.asarray(made.kv)).any() or (ids == ids[:, :1]).all()


def test_a_mesh_that_an_adapter_cannot_serve_is_refused_before_data_is_read():
  config = _cut(
    "pallas_gpu",
    dataset__data_path="/nothing/here",
    mesh__cp=2,
    mesh__data=1,
    mesh__tp=1,
  )
  config["dataset"]["data_config"].pop("mock_data")
  with pytest.raises(ValueError, match="'pallas_gpu' needs whole rows"):
    pipeline.build(config, _mesh())


def _ends(*, cu_seq_lens, sliding_window, **others):
  del others
  return {"ends": cu_seq_lens, "window": sliding_window, "name": "mine"}


@pytest.mark.parametrize(
  "adapter, layout, cp",
  [
    ("splash", "zigzag", 2),
    ("transformer_engine", "striped", 2),
    ("context_parallel", "zigzag", 2),
    ("cudnn", "contiguous", 1),
    ("test_config_attention:_ends", "striped", 2),
  ],
)
def test_axes_of_explicit_types_give_the_same(adapter, layout, cp):
  config = _cut(
    adapter,
    mesh__cp=cp,
    mesh__data=1,
    mesh__tp=1,
    get_batch__context_parallel_layout=layout,
    get_batch__reset_attention_mask=adapter != "cudnn",
    get_batch__sliding_window=5,
  )
  made = []
  for kind in (AxisType.Auto, AxisType.Explicit):
    loader = pipeline.build(config, _mesh(kind, cp)).train
    batch = next(iter(loader))
    found = []

    @jax.jit
    def step(batch, loader=loader, found=found):
      inputs = loader.model_inputs(batch)["packed_seq_params"]
      found.append(jax.tree.map(lambda x: isinstance(x, jax.Array), inputs))
      return [x for x in jax.tree.leaves(inputs) if isinstance(x, jax.Array)]

    arrays = [np.asarray(x).tolist() for x in step(batch)]
    made.append((arrays, found))
  assert made[0] == made[1]
  assert made[0][0]
