import re
from pathlib import Path

import ml_collections as mlc
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpgrain.config import (
  base_config,
  check,
  parse_arg,
)
from hpgrain.config_docs import markdown
from hpgrain.config_schema import BY_NAME, KEYS, SECTIONS
from hpgrain.data_paths import SourceEntry

_ROOT = Path(__file__).parents[1]


def _config(**overrides):
  """A valid config, with `{"training__seed": 1}` as training.seed = 1."""
  tree = {"dataset": {"data_path": "/data/books"}}
  for name, value in overrides.items():
    *sections, leaf = name.split("__")
    section = tree
    for part in sections:
      section = section.setdefault(part, {})
    section[leaf] = value
  return tree


def test_every_key_has_a_default_in_the_base_config():
  config = base_config()
  for key in KEYS:
    section = config
    for part in key.name.split("."):
      section = section[part]
    assert section == key.default, key.name


def test_the_schema_speaks_of_each_key_once():
  assert len(BY_NAME) == len(KEYS)
  assert not SECTIONS & BY_NAME.keys()
  for key in KEYS:
    assert key.meaning.endswith("."), key.name
    assert "|" not in key.meaning, key.name


def test_defaults_alone_lack_only_the_data():
  with pytest.raises(ValueError, match=r"^dataset\.data_path is missing"):
    check(base_config())
  config = base_config()
  config.dataset.data_path = "/data/books"
  checked = check(config)
  assert checked.training.to_dict() == {
    "global_batch_size": 8,
    "micro_batch_size": 1,
    "train_iters": 1000,
    "train_samples": None,
    "eval_iters": 10,
    "eval_interval": 0,
    "seed": 0,
    "log_interval": 10,
    "checkpoint_interval": 0,
  }
  assert checked.mesh.axes == ("data", "cp", "tp")
  assert checked.dataset.data_path == "/data/books"


def test_a_partial_config_is_completed():
  for partial in (_config(training__seed=7), mlc.ConfigDict(_config())):
    checked = check(partial)
    assert checked.training.global_batch_size == 8
    assert checked.dataset.data_config.seq_length == 4096
  assert check(_config(training__seed=7)).training.seed == 7


def test_a_checked_config_is_frozen_and_checks_again():
  checked = check(_config(dataset__data_path=["/a", "/b"]))
  with pytest.raises(AttributeError, match="immutable"):
    checked.training.seed = 3
  assert check(checked) == checked
  assert check(checked).dataset.data_path == (
    SourceEntry("/a"),
    SourceEntry("/b"),
  )


def test_the_reference_example_for_documents_needs_no_key_of_ours():
  checked = check(
    {
      "dataset": {
        "data_path": "/data/corpus_text_document",
        "data_config": {
          "seq_length": 4096,
          "split": "98, 1, 1",
          "mock_data": False,
          "is_dataset_from_mr": False,
          "simple_blend": "no",
          "data_lazy_load": True,
          "create_ltor_fields_in_dataloader": False,
        },
      },
      "get_batch": {"source_type": "indexed"},
    }
  )
  assert checked.dataset.data_config.data_lazy_load is True
  assert checked.dataset.data_config.order == "stable"


def test_words_of_the_reference_are_translated():
  assert check(
    _config(dataset__data_config__simple_blend=False)
  ).dataset.data_config.simple_blend == ("no")
  assert (
    check(_config(dataloader__drop_last=True)).dataloader.end_of_data == "drop"
  )
  assert (
    check(_config(dataloader__drop_last=False)).dataloader.end_of_data == "pad"
  )
  assert check(_config()).dataloader.end_of_data is None
  assert check(_config(prepare="none")).prepare is None


_MEGATRON = {"dataset__data_config__order": "megatron"}


@pytest.mark.parametrize(
  ("name", "message"),
  [
    (
      "training__train_itrs",
      r"training\.train_itrs is no configuration key\. Did you mean"
      r" 'training\.train_iters'\? There are: training\.checkpoint_interval,",
    ),
    ("dataset__seq_length", r"Did you mean 'dataset\.data_config\.seq_length'"),
    ("dataset__data_config__spilt", r"Did you mean 'dataset\.data_config\.spl"),
    ("trainng__seed", r"^trainng is no .* Did you mean 'training'"),
    ("mesh__replica", r"^mesh\.replica is no configuration key"),
    ("mesh__Data", r"Did you mean 'mesh\.data'"),
    ("colour", r"^colour is no configuration key\. There are: data_transform,"),
    ("training__seed__x", r"^training\.seed must be an int of at least 0, got"),
    ("dataset___target_", r"name what to build in dataset\.kind"),
    ("dataset__data_transform", r"Did you mean 'data_transform'\?"),
    ("data_transform__text_key", r"Did you mean 'data_transform\.text_keys'"),
    ("model_assets__datasets_type", r"say data_transform\.data_type, as 'pret"),
    ("dataset__data_config__streaming", r"dataset_type, as 'iterable'"),
    (
      "dataset__data_config__num_samples",
      r"asked for by training\.train_samples",
    ),
  ],
)
def test_unknown_keys_are_refused_with_the_nearest(name, message):
  with pytest.raises(ValueError, match=message):
    check(_config(**{name: 1}))


def test_numbers_of_numpy_become_pythons():
  checked = check(
    _config(training__seed=np.int64(7), optimizer__clip=np.float32(0.5))
  )
  assert type(checked.training.seed) is int and checked.training.seed == 7
  assert type(checked.optimizer.clip) is float


def test_a_value_in_a_sections_place_is_refused():
  with pytest.raises(ValueError, match=r"^training must be a section of keys"):
    check({"training": 3})
  with pytest.raises(ValueError, match=r"^The configuration must be a section"):
    check(None)


@pytest.mark.parametrize(
  ("name", "value", "message"),
  [
    ("training__seed", "1", r"training\.seed must be an int of at least 0"),
    ("training__seed", 1.0, r"got 1\.0\.$"),
    ("training__seed", True, r"got True\.$"),
    ("training__seed", None, r"got None\.$"),
    ("training__seed", -1, r"of at least 0, got -1\.$"),
    ("training__global_batch_size", 0, r"of at least 1, got 0\.$"),
    ("training__train_iters", 0, r"of at least 1, got 0\.$"),
    ("dataloader__consumed_samples", -1, r"of at least 0, got -1\.$"),
    ("dataloader__epochs", 0, r"epochs must be an int of at least 1, got 0"),
    ("dataloader__prefetch", -1, r"prefetch must be an int of at least 0"),
    ("dataset__data_config__seq_length", 2**31, r"at most 2147483646, got 21"),
    ("dataset__data_config__mmap", 1, r"mmap must be True or False, got 1\."),
    ("dataset__data_config__split", 98, r"split must be a string, got 98"),
    ("optimizer__learning_rate", float("nan"), r"a number .* got nan\.$"),
    ("optimizer__clip", True, r"clip must be a number of at least 0\.0, got T"),
    ("mesh__axes", "data", r"mesh\.axes must be a tuple of names, got 'data'"),
    ("mesh__axes", ("data", 2), r"tuple of names, got \('data', 2\)"),
    (
      "dataloader__sampler_type",
      "cylic",
      r"must be 'cyclic' or 'single', got 'cylic'\. Did you mean 'cyclic'\?$",
    ),
    ("dataset__data_config__simple_blend", True, r"'intra' .*, got True\."),
    ("dataset__data_config__simple_blend", 0, r"got 0\."),
    ("debug__check_dataset", "Debug", r"Did you mean 'debug'"),
    ("prepare", "embeded_example", r"Did you mean 'embedded_example'"),
  ],
)
def test_illegal_values_are_refused(name, value, message):
  with pytest.raises(ValueError, match=message) as caught:
    check(_config(**{name: value}))
  assert str(caught.value).startswith(name.replace("__", "."))


@pytest.mark.parametrize(
  ("name", "value", "reason"),
  [
    (
      "dataset__data_config__split_by_data_parallel",
      False,
      "rows would then depend on the number of processes",
    ),
  ],
)
def test_values_known_elsewhere_are_refused_with_the_reason(
  name, value, reason
):
  message = f"{re.escape(name.replace('__', '.'))}={value!r} is refused: "
  with pytest.raises(ValueError, match=message + reason):
    check(_config(**{name: value}))


_MR = {"dataset__data_config__is_dataset_from_mr": True}
_MOCK = {"dataset__data_config__mock_data": True}


@pytest.mark.parametrize(
  ("overrides", "message"),
  [
    (
      {"training__global_batch_size": 8, "training__micro_batch_size": 3},
      r"micro_batch_size must divide .*, got 3 and 8\.",
    ),
    ({"training__train_samples": 100}, r"train_samples is 100, but rows do"),
    (
      {
        **_MEGATRON,
        "training__train_samples": 800,
        "dataloader__consumed_samples": 800,
      },
      r"consumed_samples=800 leaves none of the training\.train_samples=800",
    ),
    (
      {**_MEGATRON, "dataloader__consumed_samples": 8},
      r"consumed_samples is 8, .* Say it in training\.train_samples",
    ),
    (
      {**_MEGATRON, "dataloader__data_rearrange_map": (1, 0)},
      r"data_rearrange_map names rows .* Say it in training\.train_samples",
    ),
    (
      {**_MEGATRON, "dataloader__data_sharding": 4},
      r"data_sharding=4 permutes rows, .* Set dataloader\.sampler_type='cyc",
    ),
    (
      {**_MEGATRON, "dataset__data_config__is_dataset_from_mr": True},
      r"order='megatron' is of documents, and is_dataset_from_mr=True",
    ),
    (
      {**_MEGATRON, "dataloader__epochs": 2},
      r"sampler_type='single' is one epoch, but dataloader\.epochs is 2",
    ),
    *(
      (
        {
          "dataset__data_config__create_ltor_fields_in_dataloader": True,
          f"get_batch__{name}": value,
        },
        r"create_ltor_fields_in_dataloader=True (makes an|is of shifted)",
      )
      for name, value in (
        ("attention_mode", "dense"),
        ("sliding_window", 8),
        ("labels_are_shifted", False),
      )
    ),
    (
      {"dataset__train_data_path": "/data/code"},
      r"data_path and dataset\.train_data_path exclude each other",
    ),
    (
      {"dataset__valid_data_path": "/data/code"},
      r"data_path and dataset\.valid_data_path exclude each other",
    ),
    (
      {"dataset__data_path": (0.5, "/a", 0, "/b")},
      r"^dataset\.data_path gives '/b' the weight 0;",
    ),
    (
      {"dataset__data_config__simple_blend": "inter"},
      r"simple_blend='inter' is for pre-cut records only",
    ),
    (
      {
        "dataset__data_config__simple_blend": "intra",
        "dataset__data_path": (1, "/a", 2, "/b"),
        **_MR,
      },
      r"^dataset\.data_path has weights, which .*'intra' would not use",
    ),
    (_MOCK, r"^dataset\.data_path is set, but .*mock_data=True reads no file"),
    (
      {**_MOCK, "dataset__data_path": None},
      r"mock_data needs a vocabulary: set dataset\.data_config\.vocab_size",
    ),
    (
      {**_MOCK, **_MR, "dataset__data_path": None},
      r"mock_data and is_dataset_from_mr exclude each other",
    ),
    (
      {"model_assets__chat_template": "x"},
      r"^model_assets\.chat_template is 'x', and has a meaning only for online"
      r" data .* Here dataset\.kind is 'indexed', dataloader\.type 'fixed'\."
      r" Leave it unset\.$",
    ),
    (
      {
        "dataset__data_config__vocab_size": 10,
        "dataset__data_config__eod_id": 10,
      },
      r"eod_id is 10, outside the vocabulary of vocab_size=10",
    ),
    (
      {"dataloader__drop_last": True, "dataloader__end_of_data": "pad"},
      r"drop_last=True means end_of_data='drop', but .* is 'pad'",
    ),
    (
      {"dataloader__drop_last": False, "dataloader__end_of_data": "drop"},
      r"drop_last=False means end_of_data='pad', but .* is 'drop'",
    ),
    (
      {"dataloader__sampler_type": "single", "dataloader__epochs": 2},
      r"sampler_type='single' is one epoch, but dataloader\.epochs is 2",
    ),
    ({"model__heads": 3}, r"heads must divide model\.width, got 3 and 128"),
    ({"mesh__axes": ()}, r"mesh\.axes must be unlike names, got \(\)"),
    ({"mesh__axes": ("data", "data")}, r"mesh\.axes must be unlike names"),
    ({"mesh__axes": ("data", "x")}, r"mesh\.axes names 'x', so mesh\.x must"),
    (
      {"mesh__axes": ("data", "x"), "mesh__x": "2"},
      r"mesh\.x must say its number of devices; got '2'",
    ),
    ({"mesh__cp": 0}, r"mesh\.cp must be -1 or at least 1, got 0"),
    ({"mesh__cp": -1}, r"Only one axis can take .*\['data', 'cp'\]"),
    ({"mesh__axes": ("data",), "mesh__cp": 2}, r"mesh\.cp is 2, but mesh\.axe"),
    ({"mesh__data_axes": ("cp",)}, r"data_axes must be some of .* \('cp',\)"),
    ({"mesh__data_axes": ("dta",)}, r"data_axes must be some of mesh\.axes"),
    ({"mesh__data_axes": ()}, r"data_axes must be some of mesh\.axes"),
    (
      {"mesh__axes": ("data", "cp"), "mesh__sequence_parallel": True},
      r"sequence_parallel shares positions over tp",
    ),
  ],
)
def test_contradictions_are_refused(overrides, message):
  with pytest.raises(ValueError, match=message):
    check(_config(**overrides))


@pytest.mark.parametrize(
  "overrides",
  [
    {"dataset__data_config__split": "98, 1, 1"},
    {
      "dataset__data_path": None,
      "dataset__train_data_path": "/a",
      "dataset__data_config__split": "98, 1, 1",
    },
    {
      **_MOCK,
      "dataset__data_path": None,
      "dataset__data_config__vocab_size": 9,
    },
    {
      **_MR,
      "dataset__data_config__simple_blend": "inter",
      "dataset__data_path": ("/a", "/b"),
    },
    {"dataloader__sampler_type": "single", "dataloader__epochs": 1},
    {"dataloader__drop_last": True, "dataloader__end_of_data": "drop"},
    {"get_batch__labels_are_shifted": False},
    {"mesh__axes": ("replica", "data"), "mesh__replica": 2},
    {
      "mesh__axes": ("replica", "data"),
      "mesh__replica": 2,
      "mesh__data_axes": ("replica", "data"),
    },
    {"mesh__data": 2, "mesh__cp": -1},
    {"training__seed": np.int64(3)},
    {"optimizer__learning_rate": 1},
    {"dataset__data_config__data_index_cache": True},
  ],
)
def test_values_that_go_together_pass(overrides):
  checked = check(_config(**overrides))
  for name, value in overrides.items():
    section = checked
    for part in name.split("__"):
      section = section[part]
    if part != "data_path":
      assert section == value


@settings(max_examples=200, deadline=None)
@given(
  st.sampled_from([key.name for key in KEYS]),
  st.none()
  | st.booleans()
  | st.integers(-3, 3)
  | st.floats()
  | st.text(max_size=3)
  | st.lists(st.text(max_size=2) | st.integers(), max_size=3)
  | st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
)
def test_any_value_passes_or_is_refused_by_name(name, value):
  config = _config(**{name.replace(".", "__"): value})
  try:
    checked = check(config)
  except ValueError as error:
    assert name.split(".")[0] in str(error) or name in ("prepare",)
  else:
    assert check(checked) == checked


def test_parse_arg_reads_values_of_the_defaults_types():
  arg = parse_arg(
    "size=3,rate=1e-2,name=a=b,fast,slow=false",
    size=1,
    rate=1.0,
    name="",
    fast=False,
    slow=True,
    left=5,
  )
  assert arg.to_dict() == {
    "size": 3,
    "rate": 0.01,
    "name": "a=b",
    "fast": True,
    "slow": False,
    "left": 5,
  }
  assert type(arg.size) is int
  assert parse_arg(None, size=1).size == 1
  assert parse_arg("", size=1).size == 1
  assert parse_arg("fast=True", fast=False).fast is True


@pytest.mark.parametrize(
  ("arg", "message"),
  [
    (
      "siz=3",
      r"no argument 'siz'\. Did you mean 'size'\? It has: size, fast\.",
    ),
    ("size", r"'size' is of type int, got 'size'\. Write size=1\."),
    ("size=x", r"'size' is of type int, got 'size=x'"),
    ("size=1.5", r"'size' is of type int, got 'size=1\.5'"),
    ("fast=maybe", r"'fast' is of type bool, got 'fast=maybe'"),
    ("size=1,size=2", r"'size' is given twice: size=1,size=2"),
    ("size=1,", r"no argument ''"),
  ],
)
def test_parse_arg_refuses(arg, message):
  with pytest.raises(ValueError, match=message):
    parse_arg(arg, size=1, fast=False)


def test_the_table_in_docs_is_up_to_date():
  written = (_ROOT / "docs/config.md").read_text(encoding="utf-8")
  assert written == markdown(), (
    "run python -m hpgrain.config_docs > docs/config.md"
  )


@pytest.mark.parametrize(
  "order, sampler",
  [("stable", "cyclic"), ("documents", "cyclic"), ("megatron", "single")],
)
def test_each_order_has_its_sampler_where_none_is_said(order, sampler):
  checked = check(_config(dataset__data_config__order=order))
  assert checked.dataloader.sampler_type == sampler
  assert check(checked) == checked


@pytest.mark.parametrize(
  "value, found",
  [
    ("/data/map.npy", "/data/map.npy"),
    ([2, 0, 1], (2, 0, 1)),
    ((2, 0, 1), (2, 0, 1)),
    (np.array([2, 0, 1]), (2, 0, 1)),
    (None, None),
  ],
)
def test_a_row_map_is_a_path_or_integers(value, found):
  checked = check(_config(dataloader__data_rearrange_map=value))
  assert checked.dataloader.data_rearrange_map == found


@pytest.mark.parametrize("value", [3, 1.5, [1.5], ["a"], [True]])
def test_other_row_maps_are_refused(value):
  with pytest.raises(
    ValueError,
    match=r"data_rearrange_map must be a file's path or a tuple of integers",
  ):
    check(_config(dataloader__data_rearrange_map=value))
