import contextlib
import itertools
import logging
import re

import jax
import ml_collections as mlc
import numpy as np
import pytest
import reference
from corpora import write_pair

from hpgrain import Loaders, build, config, log, shard

_DOCUMENTS = [[[1 + i % 9] * (3 + i % 6) + [0]] for i in range(60)]


@pytest.fixture
def prefix(tmp_path):
  return write_pair(tmp_path / "a", _DOCUMENTS)


def _indexed(prefix, **sections):
  """A partial configuration: what is given, and nothing else."""
  data_config = {"seq_length": 8, "split": "8,1,1"}
  data_config |= sections.pop("data_config", {})
  dataset = {"data_path": prefix, **sections.pop("dataset", {})}
  training = {"global_batch_size": 4, "seed": 3}
  training |= sections.pop("training", {})
  return mlc.ConfigDict(
    {
      "training": training,
      "dataset": {**dataset, "data_config": data_config},
      **sections,
    }
  )


def _mesh(data=4, cp=2, tp=1):
  return shard.make_mesh(
    ("data", "cp", "tp"), {"data": data, "cp": cp, "tp": tp}
  )


def _take(loader, count):
  with contextlib.closing(iter(loader)) as iterator:
    return [
      {name: np.asarray(values) for name, values in batch.items()}
      for batch in itertools.islice(iterator, count)
    ]


def _reference(prefix, index, *, shuffle, split="8,1,1", keep_last=False):
  corpus = reference.read_corpus(prefix)
  return reference.GPT(
    corpus,
    seq_length=8,
    seed=3,
    name="a",
    bounds=reference.split_bounds(split, len(corpus.sequences))[index],
    shuffle=shuffle,
    keep_last=keep_last,
  )


def _assert_equal(found, expected):
  assert len(found) == len(expected)
  for one, other in zip(found, expected):
    assert one.keys() == other.keys()
    for name in one:
      np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def test_a_partial_config_builds_all_three_loaders(prefix):
  loaders = build(_indexed(prefix), _mesh())
  assert isinstance(loaders, Loaders)
  fields = reference.Fields(8)
  for i, (name, end) in enumerate(
    (("train", None), ("valid", "pad"), ("test", "pad"))
  ):
    expected = reference.batches(
      _reference(prefix, i, shuffle=not i),
      fields=fields,
      batch_size=4,
      epochs=None if end is None else 1,
      end_of_data=end or "drop",
    )
    wanted = [batch for _, batch in itertools.islice(expected, 12)]
    loader = getattr(loaders, name)
    _assert_equal(_take(loader, 12), wanted)
    assert loader.num_steps == (None if end is None else len(wanted))


def test_the_full_default_config_builds_too(prefix):
  given = config.base_config()
  given.dataset.data_path = prefix
  given.dataset.data_config.update(seq_length=8, split="8,1,1")
  given.training.update(global_batch_size=4, seed=3)
  loaders = build(given, _mesh())
  _assert_equal(
    _take(loaders.train, 3), _take(build(_indexed(prefix), _mesh()).train, 3)
  )


def test_rows_are_the_same_on_every_mesh(prefix):
  batches = [
    _take(build(_indexed(prefix), _mesh(*sizes)).train, 4)
    for sizes in ((4, 2, 1), (4, 1, 2), (1, 8, 1), (2, 2, 2))
  ]
  for other in batches[1:]:
    _assert_equal(other, batches[0])


def test_axes_of_the_mesh_are_the_configurations(prefix):
  mesh = shard.make_mesh(
    ("replica", "fsdp", "cp"), {"replica": 2, "fsdp": 2, "cp": 2}
  )
  given = _indexed(
    prefix,
    mesh={
      "axes": ("replica", "fsdp", "cp"),
      "data_axes": ("replica", "fsdp"),
      "replica": 2,
      "fsdp": 2,
      "cp": 2,
    },
  )
  loader = build(given, mesh).train
  assert loader.spec.layout.sharding.spec[0] == ("replica", "fsdp")
  _assert_equal(
    _take(loader, 2), _take(build(_indexed(prefix), _mesh()).train, 2)
  )


def test_a_split_of_no_weight_is_none(prefix):
  given = _indexed(prefix, data_config={"split": "1,0,0"})
  loaders = build(given, _mesh())
  assert loaders.valid is None and loaders.test is None
  assert loaders.train is not None


def test_field_options_come_from_the_configuration(prefix):
  loader = build(
    _indexed(
      prefix,
      data_config={"eod_id": 0},
      get_batch={
        "reset_position_ids": True,
        "reset_attention_mask": False,
        "eod_mask_loss": True,
        "mask_boundary_labels": False,
      },
    ),
    _mesh(),
  ).train
  fields = reference.Fields(
    8,
    mask_boundary_labels=False,
    reset_position_ids=True,
    reset_attention_mask=False,
    eod_mask_loss=True,
    eod=0,
  )
  expected = reference.batches(
    _reference(prefix, 0, shuffle=True), fields=fields, batch_size=4
  )
  wanted = [batch for _, batch in itertools.islice(expected, 5)]
  _assert_equal(_take(loader, 5), wanted)


def test_unshifted_labels_are_said_by_the_loader(prefix):
  given = _indexed(prefix, get_batch={"labels_are_shifted": False})
  loader = build(given, _mesh(4, 1, 2)).train
  assert loader.labels_are_shifted is False
  (batch,) = _take(loader, 1)
  np.testing.assert_array_equal(batch["labels"], batch["input_ids"])


@pytest.mark.parametrize(
  "dataloader, steps",
  [
    ({}, None),
    ({"sampler_type": "single"}, 9),
    ({"epochs": 1}, 9),
    ({"epochs": 2}, 19),
    ({"epochs": 1, "end_of_data": "pad"}, 10),
    ({"epochs": 1, "drop_last": False}, 10),
    ({"epochs": 1, "drop_last": True}, 9),
    ({"epochs": 1, "consumed_samples": 4}, 8),
    ({"consumed_samples": 4}, None),
  ],
)
def test_samplers_and_ends_of_train(prefix, dataloader, steps):
  loader = build(_indexed(prefix, dataloader=dataloader), _mesh()).train
  size = loader.samples.rows_per_epoch
  assert size == _reference(prefix, 0, shuffle=True).rows_per_epoch == 38
  assert loader.num_steps == steps
  if steps is not None:
    assert len(_take(loader, 100)) == steps
  else:
    assert len(_take(loader, 20)) == 20


def test_consumed_samples_is_where_train_begins(prefix):
  given = _indexed(prefix, dataloader={"consumed_samples": 8})
  loaders = build(given, _mesh())
  plain = build(_indexed(prefix), _mesh())
  _assert_equal(_take(loaders.train, 2), _take(plain.train, 4)[2:])
  _assert_equal(_take(loaders.valid, 2), _take(plain.valid, 2))


def test_the_last_partial_row_of_valid_is_kept_when_asked(prefix):
  options = {"drop_last_partial_validation_sequence": False}
  loaders = build(_indexed(prefix, data_config=options), _mesh())
  expected = reference.batches(
    _reference(prefix, 1, shuffle=False, keep_last=True),
    fields=reference.Fields(8),
    batch_size=4,
    epochs=1,
    end_of_data="pad",
  )
  _assert_equal(_take(loaders.valid, 99), [batch for _, batch in expected])


def test_mock_data_needs_a_vocabulary_alone():
  mock = {"mock_data": True, "vocab_size": 50, "seq_length": 16}
  given = mlc.ConfigDict(
    {
      "training": {"global_batch_size": 8},
      "dataset": {"data_config": mock},
    }
  )
  loaders = build(given, _mesh())
  (batch,) = _take(loaders.train, 1)
  rows = reference.Mock(
    seq_length=16, seed=0, split_name="train", vocab_size=50
  )
  expected = reference.batch(
    [rows.row(i) for i in range(8)], reference.Fields(16)
  )
  _assert_equal([batch], [expected])


def test_weighted_blends_say_how_often_sources_are_read(tmp_path, prefix):
  other = write_pair(tmp_path / "b", _DOCUMENTS[:20])
  given = _indexed((0.75, prefix, 0.25, other), data_config={"split": "1"})
  loader = build(given, _mesh()).train
  # Before any batch was read.
  epochs = loader.epochs(400)
  sizes = [member.rows_per_epoch for member in loader.samples.members]
  assert epochs == {"a": 300 / sizes[0], "b": 100 / sizes[1]}


def test_a_blend_with_an_end_reports_it(tmp_path, prefix, caplog):
  other = write_pair(tmp_path / "b", _DOCUMENTS[:20])
  given = _indexed(
    (1, prefix, 1, other),
    data_config={"split": "1"},
    dataloader={"epochs": 1},
  )
  with caplog.at_level(logging.INFO, logger="hpgrain"):
    loader = build(given, _mesh()).train
  (said,) = [r.getMessage() for r in caplog.records if "used up" in r.msg]
  assert "source 'b'" in said and "'a'" in said
  assert loader.num_steps == loader.samples.num_rows(1) // 4


def test_prefetch_is_the_configurations(prefix):
  given = _indexed(prefix, dataloader={"prefetch": 5})
  assert build(given, _mesh()).train._prefetch == 5


def test_masks_are_the_configurations(prefix):
  options = {
    "attention_mode": "dense",
    "sliding_window": 3,
    "window_keys": "reference",
  }
  loader = build(_indexed(prefix, get_batch=options), _mesh()).train
  with contextlib.closing(iter(loader)) as iterator:
    inputs = jax.jit(loader.model_inputs)(next(iterator))
  window = np.tril(np.ones((8, 8), bool)) & ~np.tril(np.ones((8, 8), bool), -4)
  segments = np.asarray(inputs["segment_ids"])[:, None]
  same = segments[..., :, None] == segments[..., None, :]
  same &= segments[..., None, :] > 0
  causal = np.tril(np.ones((8, 8), bool))
  np.testing.assert_array_equal(inputs["attention_mask"], same & causal)
  np.testing.assert_array_equal(inputs["swa_mask"], same & window)
  plain = build(_indexed(prefix), _mesh()).train
  with contextlib.closing(iter(plain)) as iterator:
    inputs = plain.model_inputs(next(iterator))
  assert "attention_mask" not in inputs and "swa_mask" not in inputs


def test_debug_check_dataset_logs(prefix, capsys, monkeypatch):
  monkeypatch.setattr(logging.getLogger(), "handlers", [])
  try:
    build(_indexed(prefix, debug={"check_dataset": "info"}), _mesh())
    assert "train: batches of 4 rows of 8" in capsys.readouterr().err
  finally:
    log.enable_dataset_logging(None)


@pytest.mark.parametrize(
  "sections, message",
  [
    ({"trainig": {"seed": 1}}, "trainig.*Did you mean 'training"),
    (
      {"training": {"global_batch": 4}},
      r"training\.global_batch .*'training\.global_batch_size'",
    ),
    ({"training": {"global_batch_size": "4"}}, r"training\.global_batch_size"),
    ({"training": {"global_batch_size": 6}}, r"6 rows .* over 4 parts"),
    ({"data_config": {"seq_length": 9}}, r"9 positions .* over 2 parts"),
    ({"data_config": {"order": "megatro"}}, r"data_config\.order"),
    ({"data_config": {"split": "1,-1,0"}}, "cannot be negative"),
    ({"data_config": {"split": "0,1,0,3"}}, "at most three weights"),
    ({"dataset": {"kind": "online"}}, r"dataset\.kind"),
    ({"dataset": {"train_data_path": "/x"}}, "exclude each other"),
    ({"dataset": {"data_path": None}}, r"dataset\.data_path is missing"),
    ({"get_batch": {"attention_mode": "compressed"}}, "attention_mode"),
    ({"get_batch": {"eod_mask_loss": True}}, "eod_mask_loss needs the end-of"),
    (
      {"get_batch": {"labels_are_shifted": False}},
      r"labels_are_shifted=False needs whole rows: .* over 2 parts",
    ),
    ({"mesh": {"data_axes": ("rows",)}}, r"mesh\.data_axes"),
    ({"dataloader": {"type": "dynamical"}}, r"dataloader\.type"),
    (
      {"dataloader": {"end_of_data": "pad", "drop_last": True}},
      "drop_last=True",
    ),
    (
      {"data_config": {"is_dataset_from_mr": True}},
      r"pre-cut records must have seq_length \+ extra = 9 tokens",
    ),
    ({"data_config": {"simple_blend": "inter"}}, "pre-cut records only"),
    (
      {"data_config": {"seq_length": 1024}},
      r"Source 'a', split train .* a row needs S \+ x = 1025",
    ),
  ],
)
def test_what_cannot_be_built_is_refused(prefix, sections, message):
  with pytest.raises(ValueError, match=message):
    build(_indexed(prefix, **sections), _mesh())


def test_a_mesh_without_data_axis_is_refused(prefix):
  mesh = shard.make_mesh(("rows", "cp"), {"rows": 4, "cp": 2})
  with pytest.raises(
    ValueError, match=r"data_axes is \('data',\): there is no"
  ):
    build(_indexed(prefix), mesh)


def test_a_path_that_does_not_exist_is_named(tmp_path):
  path = str(tmp_path / "nothing")
  with pytest.raises(FileNotFoundError, match=re.escape(path)):
    build(_indexed(path), _mesh())


def test_valid_without_a_row_is_an_error_unless_it_is_not_read(
  prefix, caplog, monkeypatch
):
  # One document of nine tokens or fewer makes no row of 64 + 1.
  small = {"split": "58,1,1", "seq_length": 64}
  with pytest.raises(ValueError, match=r"Source 'a', split valid .*T = \d "):
    build(_indexed(prefix, data_config=small), _mesh())
  given = _indexed(prefix, data_config=small)
  given.training.eval_iters = 0
  with caplog.at_level(logging.WARNING, logger="hpgrain"):
    loaders = build(given, _mesh())
  assert loaders.train is not None
  assert loaders.valid is None and loaders.test is None
  said = [r.args[0] for r in caplog.records if "too little data" in r.msg]
  assert said == ["valid", "test"]


def test_nothing_is_built_before_the_mesh_is_checked(tmp_path):
  given = _indexed(str(tmp_path / "nothing"))
  given.training.global_batch_size = 6
  with pytest.raises(ValueError, match="6 rows"):
    build(given, _mesh())


def test_batches_can_be_used_in_jit(prefix):
  loader = build(_indexed(prefix), _mesh(2, 2, 2)).train
  with contextlib.closing(iter(loader)) as iterator:
    batch = next(iterator)
    total = jax.jit(lambda b: b["loss_mask"].sum())(batch)
  assert float(total) == np.asarray(batch["loss_mask"]).sum()
