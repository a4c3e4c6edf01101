import dataclasses
import inspect

import numpy as np
import pytest

from hpgrain import build_indexed_text_dataset
from hpgrain.config_schema import KEYS
from hpgrain.dataset_options import (
  DatasetOptions,
  read_options,
  schema_keys,
  signature,
  split_samples,
)

_GIVEN = {"seed": 0, "seq_length": 4, "data_path": "/x"}


def _read(**arguments):
  return read_options({**_GIVEN, **arguments})


def test_options_are_the_schemas_with_its_defaults():
  keys = schema_keys()
  options = {field.name: field for field in dataclasses.fields(DatasetOptions)}
  assert options.keys() - keys.keys() == {"num_samples", "tokenizer"}
  sections = ("dataset.data_config.", "dataset.")
  assert options.keys() >= {
    key.name.removeprefix(section)
    for section in sections
    for key in KEYS
    if key.only in ("", "indexed", "cut")
    and key.name.startswith(section)
    and "." not in key.name.removeprefix(section)
    and key.name != "dataset.kind"
  }
  for name in options.keys() & keys.keys() - {"seed", "seq_length"}:
    assert options[name].default == keys[name].default, name


def test_a_reader_sees_the_signature_and_every_argument_is_described():
  found = inspect.signature(build_indexed_text_dataset)
  assert list(found.parameters) == [
    field.name for field in dataclasses.fields(DatasetOptions)
  ]
  assert found.parameters["seed"].default is inspect.Parameter.empty
  assert found.parameters["split"].default == "969, 30, 1"
  assert {p.kind for p in found.parameters.values()} == {
    inspect.Parameter.KEYWORD_ONLY
  }
  for name in found.parameters:
    assert f"\n    {name}: " in build_indexed_text_dataset.__doc__ or (
      f"\n  {name}: " in build_indexed_text_dataset.__doc__
    ), name
  assert signature(int).return_annotation is int


@pytest.mark.parametrize(
  "name, value, message",
  [
    (
      "simple_blend",
      "inetr",
      r"'inter' or 'intra' .*got 'inetr'\. Did you mean 'int.*'\?$",
    ),
    ("simple_blend", True, r"'intra' .*, got True\.$"),
    ("eod_id", -3, r"an int of at least 0 .*, got -3\.$"),
    ("eod_id", 1.0, r"an int of at least 0 .*, got 1\.0\.$"),
    ("pad_id", "9", r"got '9'\.$"),
    ("vocab_size", 0, r"an int of at least 1 .*, got 0\.$"),
    ("mmap", "no", r"True or False, got 'no'\.$"),
    ("data_lazy_load", "false", r"True or False, got 'false'\.$"),
    ("mock_data", "yes", r"True or False, got 'yes'\.$"),
    ("contiguous", 1, r"True or False, got 1\.$"),
    ("skip_data_check", None, r"True or False, got None\.$"),
    ("seq_length", True, r"an int of at least 1 .*, got True\.$"),
    ("seq_length", 8.0, r"got 8\.0\.$"),
    ("seq_length", "8", r"got '8'\.$"),
    ("seq_length", 0, r"got 0\.$"),
    ("seq_length", 2**31, r"at most 2147483646, got 2147483648\.$"),
    ("seed", 1.9, r"an int of at least 0, got 1\.9\.$"),
    ("seed", "7", r"got '7'\.$"),
    ("seed", True, r"got True\.$"),
    ("seed", None, r"got None\.$"),
    ("split", 98, r"a string, got 98\.$"),
    ("max_open_files", 1, r"at least 2, got 1\.$"),
    ("order", "stabel", r"'stable' .*got 'stabel'\. Did you mean 'stable'\?$"),
    ("tokenizer", "gpt2", r"TokenizerInfo, got 'gpt2'\. Make it with"),
  ],
)
def test_illegal_values_are_refused(name, value, message):
  with pytest.raises(ValueError, match=f"^{name} must be .*{message}"):
    _read(**{name: value})


@pytest.mark.parametrize(
  "asked, splits",
  [
    (None, (None, None, None)),
    (7, (7, None, None)),
    ((7, 0, None), (7, 0, None)),
    ([1, 2, 3], (1, 2, 3)),
  ],
)
def test_rows_may_be_asked_for_of_train_or_of_each_split(asked, splits):
  options = _read(order="megatron", num_samples=asked)
  assert split_samples(options) == splits


@pytest.mark.parametrize(
  "name, message",
  [
    ("seq_len", r"^There is no argument 'seq_len'\. Did you mean 'seq_length'"),
    ("spilt", r"Did you mean 'split'\? There are: seed, seq_length, data_path"),
    ("colour", r"^There is no argument 'colour'\. There are: seed,"),
    ("packer", r"^There is no argument 'packer'\. There are: seed,"),
    (
      "hf_dataset_name",
      r"it has a meaning only for online data .*Leave it out",
    ),
  ],
)
def test_unknown_arguments_are_refused_with_the_nearest(name, message):
  with pytest.raises(ValueError, match=message):
    build_indexed_text_dataset(**_GIVEN, **{name: 3})


@pytest.mark.parametrize("name", ["seed", "seq_length"])
def test_missing_arguments_are_named(name):
  given = {key: value for key, value in _GIVEN.items() if key != name}
  with pytest.raises(
    ValueError, match=f"^The argument '{name}' is missing. [A-Z].*[.]$"
  ):
    build_indexed_text_dataset(**given)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint16])
def test_numpy_integers_become_ints(dtype):
  options = _read(seed=dtype(3), seq_length=dtype(8), eod_id=dtype(2))
  for name, value in (("seed", 3), ("seq_length", 8), ("eod_id", 2)):
    assert getattr(options, name) == value
    assert type(getattr(options, name)) is int


def test_false_is_no_simple_blend():
  assert _read(simple_blend=False).simple_blend == "no"


def test_data_must_be_named():
  for given in ({}, {"vocab_size": 9}):
    with pytest.raises(ValueError, match=r"There is no data: set dataset\.dat"):
      read_options({"seed": 0, "seq_length": 4, **given})


def test_keys_of_other_data_that_say_nothing_are_let_pass():
  options = _read(hf_dataset_name=None, shuffle=True, lengths=None)
  assert options == _read()
