"""`source_ids` of every kind of rows, against the tokens themselves.

Token ids of source k lie in [1000 k + 1, 1000 (k + 1)), so that each token of
a batch tells which source it is of.
"""

import contextlib
import itertools
import json
import random

import jax
import numpy as np
import pytest
from corpora import write_pair
from test_multiprocess import _run

import hpgrain
from hpgrain import context_parallel, packed_fields, shard, slices
from hpgrain.config import base_config

_LAYOUTS = ("contiguous", "zigzag", "striped", "document_zigzag")
_NAMES = ("b", "c", "a")


def _tokens(rng, source, length):
  return [1000 * source + rng.randint(1, 999) for _ in range(length)]


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
  """Three corpora of documents, by the length of all; 0 for any length."""
  folder = tmp_path_factory.mktemp("corpora")
  rng = random.Random(0)

  def write(length):
    for source, name in enumerate(_NAMES):
      sizes = [length or rng.randint(1, 14) for _ in range(30)]
      documents = [[_tokens(rng, source, size)] for size in sizes]
      write_pair(folder / f"{name}{length}", documents)

  write(0)
  write(9)
  return folder


@pytest.fixture(scope="module")
def records(tmp_path_factory):
  """Three files of records of 1 to 8 ids."""
  folder = tmp_path_factory.mktemp("records")
  rng = random.Random(1)
  for source, name in enumerate(_NAMES):
    lines = [
      json.dumps({"input_ids": _tokens(rng, source, rng.randint(1, 8))})
      for _ in range(30)
    ]
    (folder / f"{name}.jsonl").write_text("\n".join(lines))
  return folder


def _entries(folder, ending, weights=(1, 3, 2)):
  return tuple(
    {"path": str(folder / f"{name}{ending}"), "name": name, "weight": weight}
    if weights
    else {"path": str(folder / f"{name}{ending}"), "name": name}
    for name, weight in zip(_NAMES, weights or _NAMES)
  )


def _config(data_path, **changes):
  """A configuration; changes are named section__key."""
  config = base_config()
  config.dataset.data_path = data_path
  config.dataset.data_config.update(vocab_size=3000, split="1, 0, 0")
  config.training.update(global_batch_size=8, train_iters=6)
  config.get_batch.source_ids = True
  for name, value in changes.items():
    *sections, key = name.split("__")
    section = config
    for part in sections:
      section = section[part]
    section[key] = value
  return config


def _indexed(data_path, **changes):
  return _config(
    data_path, **{"dataset__data_config__seq_length": 8, **changes}
  )


def _online(records, **changes):
  return _config(
    _entries(records, ".jsonl"),
    **{
      "dataset__kind": "online",
      "data_transform__data_type": "pretokenized",
      "data_transform__max_seq_len": 8,
      "training__micro_batch_size": 2,
      "training__global_batch_size": 16,
      "dataloader__type": "dynamic",
      **changes,
    },
  )


def _mesh(data=2, cp=2, tp=2):
  return shard.make_mesh(
    ("data", "cp", "tp"), {"data": data, "cp": cp, "tp": tp}
  )


def _take(loader, count):
  with contextlib.closing(iter(loader)) as batches:
    return [
      {name: np.asarray(values) for name, values in batch.items()}
      for batch in itertools.islice(batches, count)
    ]


def _expected(batch):
  """What the tokens say."""
  return np.where(batch["segment_ids"] > 0, batch["input_ids"] // 1000, -1)


def _check(config, *, count=6, mesh=None, split="train"):
  """Compares some batches, and returns the sources that were in them."""
  loader = getattr(hpgrain.build(config, mesh or _mesh()), split)
  seen = set()
  for batch in _take(loader, count):
    assert batch["source_ids"].dtype == np.int32
    np.testing.assert_array_equal(batch["source_ids"], _expected(batch))
    seen |= set(batch["source_ids"].flat)
  return seen


_WAYS = {
  "stable": {},
  "documents": {"dataset__data_config__order": "documents"},
  "megatron": {
    "dataset__data_config__order": "megatron",
    "training__train_samples": 48,
  },
}


def test_rows_that_are_cut(corpora):
  for way, changes in _WAYS.items():
    config = _indexed(_entries(corpora, "0"), **changes)
    assert _check(config) >= {0, 1, 2}, way


def test_rows_of_a_blend_that_ends_and_rows_of_padding(corpora):
  config = _indexed(
    _entries(corpora, "0", weights=None),
    dataloader__epochs=1,
    dataloader__end_of_data="pad",
  )
  assert _check(config, count=30) == {-1, 0, 1, 2}


def test_a_last_row_that_is_cut_short(corpora):
  config = _indexed(
    _entries(corpora, "0"),
    dataset__data_config__split="1, 1, 0",
    dataset__data_config__drop_last_partial_validation_sequence=False,
  )
  loader = hpgrain.build(config, _mesh()).valid
  filled = [(b["segment_ids"] > 0).sum(axis=1) for b in _take(loader, 30)]
  assert {*np.concatenate(filled)} - {0, 8}
  assert _check(config, count=30, split="valid") == {-1, 0, 1, 2}


def test_rows_that_were_cut_offline(corpora):
  config = _indexed(
    _entries(corpora, "9"),
    dataset__data_config__is_dataset_from_mr=True,
    dataset__data_config__eod_id=5,
  )
  assert _check(config) == {0, 1, 2}


def test_rows_that_are_rearranged(corpora, tmp_path):
  order_map = np.random.default_rng(0).permutation(40)
  np.save(tmp_path / "map.npy", order_map)
  config = _indexed(
    _entries(corpora, "0"),
    dataloader__data_rearrange_map=str(tmp_path / "map.npy"),
  )
  assert _check(config) == {0, 1, 2}


def test_one_source_is_0(corpora):
  config = _indexed(str(corpora / "b0"))
  assert _check(config) == {0}


def test_made_up_rows_are_of_source_0():
  config = _indexed(None, dataset__data_config__mock_data=True)
  (batch,) = _take(hpgrain.build(config, _mesh()).train, 1)
  assert (batch["source_ids"] == 0).all()


@pytest.mark.parametrize("layout", _LAYOUTS)
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_packed_documents_in_every_layout(corpora, layout, sequence_parallel):
  config = _indexed(
    _entries(corpora, "0"),
    dataloader__type="dynamic",
    dataloader__token_budget=32,
    dataloader__segment_multiple=4,
    get_batch__context_parallel_layout=layout,
    mesh__sequence_parallel=sequence_parallel,
  )
  assert _check(config) == {-1, 0, 1, 2}


@pytest.mark.parametrize("layout", ["zigzag", "striped"])
def test_cut_rows_in_the_layouts_they_may_have(corpora, layout):
  config = _indexed(
    _entries(corpora, "0"), get_batch__context_parallel_layout=layout
  )
  assert _check(config) == {0, 1, 2}


def test_one_segment_a_row_hides_no_source(corpora):
  config = _indexed(
    _entries(corpora, "0"),
    dataloader__type="dynamic",
    dataloader__token_budget=32,
    dataloader__segment_multiple=4,
    get_batch__reset_attention_mask=False,
  )
  assert _check(config) == {-1, 0, 1, 2}


_ONLINE = {
  "packed": {},
  "a number in each row": {"dataloader__type": "fixed"},
  "lengths in buckets": {
    "dataloader__packer": "pad",
    "dataloader__length_buckets": (4, 8),
  },
  "balanced": {"dataloader__balance_shares": 2},
  "with room between": {"dataloader__segment_multiple": 4},
}


def test_records_by_number(records):
  for way, changes in _ONLINE.items():
    seen = _check(_online(records, **changes))
    assert seen >= {0, 1, 2}, way


@pytest.mark.parametrize("layout", _LAYOUTS)
def test_streams(records, layout):
  config = _online(
    records,
    dataset__data_config__dataset_type="iterable",
    dataloader__num_streams=6,
    dataloader__segment_multiple=4,
    get_batch__context_parallel_layout=layout,
  )
  assert _check(config) == {-1, 0, 1, 2}


def test_streams_that_end(records):
  config = _online(
    records,
    dataset__data_config__dataset_type="iterable",
    dataloader__num_streams=6,
    dataloader__epochs=1,
  )
  assert _check(config, count=100) == {-1, 0, 1, 2}


@pytest.mark.parametrize("streams", [{}, {"dataloader__num_streams": 6}])
def test_workers_make_them_too(records, streams):
  config = _online(
    records,
    dataset__data_config__dataset_type="iterable" if streams else "mapping",
    dataloader__num_workers=2,
    **streams,
  )
  assert _check(config, count=3) >= {0, 1, 2}


def test_processes_hold_their_part_and_share_the_making_of_rows(
  corpora, records, tmp_path
):
  packed = _indexed(
    _entries(corpora, "0"),
    dataloader__type="dynamic",
    dataloader__token_budget=32,
    dataloader__segment_multiple=4,
    dataloader__replica_read="split",
    get_batch__context_parallel_layout="zigzag",
  )
  streams = _online(
    records,
    dataset__data_config__dataset_type="iterable",
    dataloader__num_streams=6,
    get_batch__context_parallel_layout="striped",
  )
  tasks = []
  for name, config, axes in (
    ("packed", packed, ("tp", "data", "cp")),
    ("streams", streams, ("cp", "data", "tp")),
  ):
    made = config.to_dict()
    # The worker makes the mesh.
    del made["mesh"]
    task = {"config": made, "axes": axes, "sizes": (2, 2, 2), "steps": 3}
    tasks.append({"run": "batches", "name": name, "split": "train", **task})
  _run(tasks, 2, tmp_path / "out")
  for name, process in itertools.product(("packed", "streams"), range(2)):
    held = np.load(tmp_path / "out" / f"{name}_{process}.npz")
    keys = [key.split("|") for key in held.files]
    places = [key for key in keys if key[1] == "source_ids"]
    # Of four devices, three batches.
    assert len(places) == 12
    seen = set()
    for step, _, *place in places:
      part = {
        field: held["|".join([step, field, *place])]
        for field in ("source_ids", "segment_ids", "input_ids")
      }
      np.testing.assert_array_equal(part["source_ids"], _expected(part))
      seen |= set(part["source_ids"].flat)
    assert seen >= {0, 1, 2}


def test_names_are_in_the_order_of_the_configuration(corpora, records):
  for config in (
    _indexed(_entries(corpora, "0")),
    _indexed(_entries(corpora, "0"), dataloader__type="dynamic"),
    _online(records),
    _online(records, dataset__data_config__dataset_type="iterable"),
  ):
    assert hpgrain.build(config, _mesh()).train.source_names == _NAMES
  mock = _indexed(None, dataset__data_config__mock_data=True)
  assert len(hpgrain.build(mock, _mesh()).train.source_names) == 1


def test_other_fields_are_the_same_with_or_without(corpora):
  config = _indexed(_entries(corpora, "0"))
  (with_sources,) = _take(hpgrain.build(config, _mesh()).train, 1)
  config.get_batch.source_ids = False
  (without,) = _take(hpgrain.build(config, _mesh()).train, 1)
  assert with_sources.keys() - without.keys() == {"source_ids"}
  for name, values in without.items():
    np.testing.assert_array_equal(with_sources[name], values)


def test_a_state_goes_on_with_or_without(corpora):
  config = _indexed(_entries(corpora, "0"))
  saved = iter(hpgrain.build(config, _mesh()).train)
  next(saved)
  expected = (saved.get_state(), np.asarray(next(saved)["input_ids"]))
  config.get_batch.source_ids = False
  restored = iter(hpgrain.build(config, _mesh()).train)
  restored.set_state(expected[0])
  np.testing.assert_array_equal(next(restored)["input_ids"], expected[1])
  for iterator in (saved, restored):
    iterator.close()


def test_a_field_in_row_order_is_that_of_the_row(corpora):
  changes = {"dataloader__type": "dynamic", "dataloader__token_budget": 32}
  plain = _indexed(_entries(corpora, "0"), **changes)
  (expected,) = _take(hpgrain.build(plain, _mesh()).train, 1)
  plain.get_batch.context_parallel_layout = "zigzag"
  loader = hpgrain.build(plain, _mesh()).train
  (found,) = _take(loader, 1)
  assert (found["source_ids"] != expected["source_ids"]).any()
  positions = loader.row_positions(found)
  in_order = context_parallel.in_row_order(
    jax.numpy.asarray(found["source_ids"]), positions
  )
  np.testing.assert_array_equal(in_order, expected["source_ids"])


def _sources_of_the_whole_row(monkeypatch):
  """Sources lie as if every window began with the row."""
  real = packed_fields.lay_out_sources

  def planted(plans, window):
    return real(plans, (0, window[1] - window[0]))

  monkeypatch.setattr(packed_fields, "lay_out_sources", planted)


def _padding_is_of_the_last_source(monkeypatch):
  real = packed_fields.lay_out_sources

  def planted(plans, window):
    made = real(plans, window)
    for t in range(1, made.shape[1]):
      made[:, t] = np.where(made[:, t] < 0, made[:, t - 1], made[:, t])
    return made

  monkeypatch.setattr(packed_fields, "lay_out_sources", planted)


def _not_permuted(monkeypatch):
  """The layout's order is that of every field but this one."""
  real = slices.Slices.fields

  def planted(self, window):
    made = real(self, window)
    natural = self._make(window)["source_ids"]
    return {**made, "source_ids": np.ascontiguousarray(natural)}

  monkeypatch.setattr(slices.Slices, "fields", planted)


@pytest.mark.parametrize(
  "plant, layout",
  [
    (_sources_of_the_whole_row, "contiguous"),
    (_padding_is_of_the_last_source, "contiguous"),
    (_not_permuted, "zigzag"),
  ],
)
def test_planted_bugs_are_found(corpora, monkeypatch, plant, layout):
  config = _indexed(
    _entries(corpora, "0"),
    dataloader__type="dynamic",
    dataloader__token_budget=32,
    dataloader__segment_multiple=4,
    get_batch__context_parallel_layout=layout,
  )
  _check(config)
  plant(monkeypatch)
  with pytest.raises(AssertionError, match="Arrays are not equal"):
    _check(config)
