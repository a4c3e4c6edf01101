"""What a configuration tells attention, and which adapters it refuses."""

import random

import corpora
import jax
import numpy as np
import pytest
from config_trees import documents, online, packed, streamed, tree
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


def _options(config, layout=ROW_ORDER, multiple=1):
  multiple = np.lcm(multiple, layout.multiple)
  return attention_options(check(config), layout, multiple=int(multiple))


def test_without_an_adapter_nothing_is_resolved():
  options = _options(tree(_MOCK, {"get_batch__attention_mode": "dense"}))
  assert (options.attention_mode, options.adapter) == ("dense", None)


def test_options_are_those_of_the_configuration():
  layout = ContextLayout("zigzag", 2)
  options = _options(
    _cut(
      "splash",
      dataset__data_config__seq_length=256,
      get_batch__sliding_window=3,
      get_batch__window_keys="reference",
    ),
    layout,
  )
  assert options.adapter is attention_adapters.ADAPTERS["splash"]
  assert (options.sliding_window, options.window_keys) == (3, "reference")
  # The loader adds its batches' own.
  assert options.layout is ROW_ORDER


def test_a_window_is_what_gives_its_kind_a_meaning():
  said = r"window_keys is 'reference', and has a meaning only for a window"
  with pytest.raises(ValueError, match=said):
    check(documents(get_batch__window_keys="reference"))
  check(
    documents(get_batch__window_keys="reference", get_batch__sliding_window=1)
  )


def test_a_window_is_an_int32():
  said = "sliding_window must be an int of at least 1 and at most 2147483646"
  with pytest.raises(ValueError, match=said):
    check(documents(get_batch__sliding_window=2**31 - 1))
  check(documents(get_batch__sliding_window=2**31 - 2))


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
      _cut("splash", dataset__data_config__seq_length=192),
      ROW_ORDER,
      "'splash' needs rows of a multiple of 128 positions, and a row has 192",
    ),
    (
      _cut("splash", dataset__data_config__seq_length=128),
      ContextLayout("striped", 2),
      "multiple of 256 positions, and a row has 128, 64 on each of cp=2",
    ),
    (
      _cut("pallas_gpu", dataset__data_config__seq_length=192),
      ROW_ORDER,
      "'pallas_gpu' needs rows of a multiple of 128 positions, .* has 192",
    ),
    (
      _cut("pallas_gpu", dataset__data_config__seq_length=96),
      ROW_ORDER,
      "a row has 96. The kernel takes blocks of 128, or one of 64, 32 or 16",
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


def _compressed(make, adapter, **overrides):
  return make(
    get_batch__attention_mode="compressed",
    get_batch__attention_adapter=adapter,
    **overrides,
  )


_FIXED = {"training__micro_batch_size": 4, "training__global_batch_size": 8}


@pytest.mark.parametrize(
  "config, said",
  [
    (
      # So many segments of so few positions, in one of the three alone.
      _compressed(
        online,
        "cudnn",
        data_transform__max_seq_len=16,
        dataloader__length_buckets=(4, 8, 64),
        **_FIXED,
      ),
      "5 segments of 4 positions would be an S x S array",
    ),
    (
      _compressed(
        documents,
        "splash",
        dataset__data_config__seq_length=256,
        dataloader__overlong="own_row",
        dataloader__length_buckets=(256, 320),
      ),
      "multiple of 128 positions, and a row has 320",
    ),
    (
      _compressed(
        streamed,
        "splash",
        data_transform__max_seq_len=256,
        dataloader__packer="pad",
        dataloader__length_buckets=(320,),
      ),
      "multiple of 128 positions, and a row has 320",
    ),
  ],
)
def test_every_length_that_a_batch_may_have_is_tried(config, said):
  with pytest.raises(ValueError, match=said):
    _options(config)


def test_lengths_that_no_batch_has_are_not_tried():
  _options(
    _compressed(
      online,
      "splash",
      data_transform__max_seq_len=50,
      dataloader__length_buckets=(128, 256),
      **_FIXED,
    )
  )


_seen = []


def _shapes(*, cu_seq_lens, local_input_shape, **others):
  del others
  _seen.append(local_input_shape)
  return cu_seq_lens


def test_an_adapter_is_tried_on_the_rows_and_positions_of_a_batch(monkeypatch):
  monkeypatch.setattr("test_config_attention._seen", [])
  config = _compressed(
    online,
    "test_config_attention:_shapes",
    data_transform__max_seq_len=5,
    dataloader__length_buckets=(9, 20),
    **_FIXED,
  )
  # Rows are padded to what cp and tp split; a rank has a half of them.
  _options(config, ContextLayout("zigzag", 2), multiple=12)
  assert _seen == [(2, 6), (2, 12)]


def test_the_mesh_says_what_positions_are_rounded_up_to(monkeypatch):
  monkeypatch.setattr("test_config_attention._seen", [])
  config = _compressed(
    documents,
    "test_config_attention:_shapes",
    dataset__data_path="/nothing/here",
    dataset__data_config__seq_length=20,
    dataloader__segment_multiple=4,
    training__global_batch_size=2,
    mesh__data=1,
    mesh__cp=2,
    mesh__tp=3,
    mesh__sequence_parallel=True,
    get_batch__context_parallel_layout="zigzag",
  )
  mesh = jax.make_mesh(
    (1, 2, 3),
    ("data", "cp", "tp"),
    axis_types=(AxisType.Auto,) * 3,
    devices=jax.devices()[:6],
  )
  # Before data is read, of which there is none.
  with pytest.raises(FileNotFoundError, match="/nothing/here"):
    pipeline.build(config, mesh)
  assert _seen == [(2, 12)]


def test_a_loader_has_the_layout_of_its_batches():
  loader = pipeline.build(
    _cut(
      "context_parallel",
      mesh__cp=2,
      mesh__data=1,
      get_batch__context_parallel_layout="zigzag",
      get_batch__sliding_window=3,
    ),
    _mesh(),
  ).train
  assert loader.attention.layout is loader.context_layout
  assert loader.attention.layout == ContextLayout("zigzag", 2)
  assert loader.attention.keys_seen == 3


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


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
  """Documents of up to 90 tokens: a row of 256 holds some of them."""
  documents_of = corpora.random_documents(
    random.Random(0), num_documents=60, max_length=90, vocab_size=64
  )
  return corpora.write_pair(tmp_path_factory.mktemp("pair") / "a", documents_of)


def _packed_batch(prefix, adapter, layout, cp=2):
  """A loader's first batch of packed documents, and what its kernel takes.

  Besides, the segments in the order of the row, and that order: of
  "document_zigzag" it is the rows' own.
  """
  config = _compressed(
    documents,
    adapter,
    dataset__data_path=prefix,
    dataset__data_config__seq_length=256,
    dataset__data_config__vocab_size=64,
    dataset__data_config__split="1,0,0",
    dataloader__segment_multiple=4,
    dataloader__overlong="split",
    dataloader__max_segments=16,
    training__global_batch_size=4,
    training__eval_iters=0,
    mesh__cp=cp,
    mesh__data=1,
    mesh__tp=1,
    get_batch__context_parallel_layout=layout,
  )
  loader = pipeline.build(config, _mesh(cp=cp)).train
  batches = iter(loader)
  batch = next(batches)
  batches.close()
  takes = jax.jit(lambda batch: loader.model_inputs(batch)["packed_seq_params"])
  made = takes(batch)
  slots = np.asarray(batch["segment_ids"])
  # Positions count up in a row, so they say its order.
  order = np.asarray(batch["position_ids"])
  rows = np.take_along_axis(slots, np.argsort(order, axis=1), axis=1)
  # What the rows are worth: more than one segment, room behind one, padding.
  assert slots.max() > 1 and (slots == 0).any()
  assert all((np.diff(row[row > 0]) >= 0).all() for row in rows)
  return jax.tree.map(np.asarray, made), slots, rows, order


@pytest.mark.parametrize("layout", ["contiguous", "zigzag", "striped"])
def test_a_run_has_what_splash_attention_takes(prefix, layout):
  made, slots, rows, _ = _packed_batch(prefix, "splash", layout)
  np.testing.assert_array_equal(made.q, slots)
  np.testing.assert_array_equal(made.kv, rows)
  assert (slots != rows).any() == (layout != "contiguous")


@pytest.mark.parametrize("layout", ["zigzag", "striped", "document_zigzag"])
def test_a_run_has_what_a_ring_takes(prefix, layout):
  made, slots, _, order = _packed_batch(prefix, "context_parallel", layout)
  np.testing.assert_array_equal(made["segment_ids"], slots)
  np.testing.assert_array_equal(made["row_positions"], order)
  np.testing.assert_array_equal(made["position_ids"], order)


def test_a_run_has_what_transformer_engine_takes(prefix):
  made, slots, rows, order = _packed_batch(
    prefix, "transformer_engine", "striped"
  )
  begins = [{i: row.tolist().index(i) for i in set(row)} for row in rows]
  behind = [
    [position - begin[i] for i, position in zip(ids, positions)]
    for begin, ids, positions in zip(begins, slots.tolist(), order.tolist())
  ]
  for ids, positions in zip(made["segment_ids"], made["segment_pos"]):
    np.testing.assert_array_equal(ids, slots)
    np.testing.assert_array_equal(
      positions[slots > 0], np.array(behind)[slots > 0]
    )


def _begins(row):
  """Where segments of a row begin, the padding at its end one of them."""
  begins = [row.tolist().index(i) for i in range(1, row.max() + 1)]
  end = int(np.flatnonzero(row)[-1]) + 1
  return begins + [end] * (end < len(row))


def test_a_run_has_what_cudnn_takes(prefix):
  made, _, rows, _ = _packed_batch(prefix, "cudnn", "contiguous", cp=1)
  for row, offsets, lengths in zip(rows, made["q_offsets"], made["q_seqlen"]):
    begins = _begins(row)
    assert offsets[offsets >= 0].tolist() == begins
    assert lengths[lengths >= 0].tolist() == np.diff([*begins, 256]).tolist()


def test_a_run_has_the_ids_that_pallas_takes(prefix):
  made, slots, _, _ = _packed_batch(prefix, "pallas_gpu", "contiguous", cp=1)
  np.testing.assert_array_equal(made["segment_ids"], slots)


@pytest.mark.parametrize("layout", ["zigzag", "striped"])
def test_a_run_tells_a_function_where_segments_end(prefix, layout):
  name = "test_config_attention:_only_ends"
  made, _, rows, _ = _packed_batch(prefix, name, layout)
  for row, ends in zip(rows, made["ends"]):
    expected = [*_begins(row), 256]
    assert ends[: len(expected)].tolist() == expected
    assert (ends[len(expected) :] == 256).all()


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


def _only_ends(*, cu_seq_lens, **others):
  del others
  return {"ends": cu_seq_lens}


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
    dataset__data_config__seq_length=256,
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
