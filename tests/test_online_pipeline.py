import json
import random

import numpy as np
import pytest
from corpora import random_documents, write_pair

import hpgrain
from hpgrain import shard
from hpgrain.config import base_config

_LENGTHS = [3, 8, 1, 5, 2, 8, 4, 6, 7, 1, 2, 3]


@pytest.fixture
def data(tmp_path):
  """Records of 1 to 8 ids; id 10 i + t is token t of record i."""
  path = tmp_path / "a.jsonl"
  records = [
    {"input_ids": [10 * i + t for t in range(length)]}
    for i, length in enumerate(_LENGTHS)
  ]
  path.write_text("".join(json.dumps(record) + "\n" for record in records))
  return path


def _build(data, **sections):
  config = base_config()
  config.dataset.kind = "online"
  config.dataset.data_path = str(data)
  config.dataset.data_config.vocab_size = 1000
  config.data_transform.data_type = "pretokenized"
  config.data_transform.max_seq_len = 8
  config.dataloader.type = "dynamic"
  config.training.global_batch_size = 8
  config.training.micro_batch_size = 2
  # As long as its inputs, so that every token is seen.
  config.get_batch.labels_are_shifted = False
  for name, values in sections.items():
    getattr(config, name).update(values)
  mesh = shard.make_mesh(("data", "cp", "tp"), {"data": 4, "cp": 1, "tp": 2})
  return hpgrain.build(config, mesh)


def _batches(loader):
  iterator = iter(loader)
  found = [{k: np.asarray(v) for k, v in batch.items()} for batch in iterator]
  iterator.close()
  return found


def _tokens(batches):
  return sorted(
    int(i) for b in batches for i in b["input_ids"][b["segment_ids"] > 0]
  )


_ALL = sorted(10 * i + t for i, n in enumerate(_LENGTHS) for t in range(n))
_TURN = {"dataset_type": "iterable"}


@pytest.mark.parametrize("dataset_type", ["mapping", "iterable"])
@pytest.mark.parametrize("kind", ["fixed", "dynamic"])
def test_each_way_gives_every_token_of_an_epoch_once(data, dataset_type, kind):
  dataloader = {"type": kind, "epochs": 1, "end_of_data": "pad"}
  if dataset_type == "iterable":
    dataloader["num_streams"] = 4
  loaders = _build(
    data,
    dataset={"data_config": {"dataset_type": dataset_type}},
    dataloader=dataloader,
  )
  assert (loaders.valid, loaders.test) == (None, None)
  batches = _batches(loaders.train)
  assert {b["input_ids"].shape for b in batches} == {(4, 16)}
  assert _tokens(batches) == _ALL
  if kind == "fixed":
    # Two a row; the last row of a stream, or of a window, may have fewer.
    segments = np.concatenate([b["segment_ids"].max(axis=1) for b in batches])
    assert segments.max() == 2


def test_nothing_is_read_before_the_first_batch(data, monkeypatch):
  from hpgrain.transforms.pretokenized import PretokenizedTransform

  def fail(*_):
    raise AssertionError("it was called")

  monkeypatch.setattr(PretokenizedTransform, "__call__", fail)
  for data_config in ({}, _TURN):
    loaders = _build(data, dataset={"data_config": data_config})
    iterator = iter(loaders.train)
    assert iterator.get_state()["rows"] == 0
    iterator.close()


def test_splits_are_cut_from_records_by_number(data):
  loaders = _build(
    data,
    dataset={"data_config": {"split": "2, 1, 0"}},
    dataloader={"epochs": 1, "end_of_data": "pad"},
  )
  train, valid = _tokens(_batches(loaders.train)), _batches(loaders.valid)
  assert sorted(train + _tokens(valid)) == _ALL
  # Valid is read in the order of the file.
  first = valid[0]["input_ids"][valid[0]["segment_ids"] > 0]
  assert first[0] == 80
  assert loaders.test is None


def test_a_split_that_leaves_nothing_is_said(data, caplog):
  cut = {"data_config": {"split": "999, 1, 0"}}
  with pytest.raises(ValueError, match="leaves valid none of the 12 records"):
    _build(data, dataset=cut)
  loaders = _build(data, dataset=cut, training={"eval_iters": 0})
  assert loaders.valid is None
  assert "leaves valid none of the 12 records" in caplog.text


def test_a_cache_that_nothing_uses_is_said(data, tmp_path, caplog):
  _build(
    data,
    dataset={"data_config": {**_TURN, "data_cache_path": str(tmp_path)}},
  )
  assert "data_cache_path has no effect" in caplog.text


def test_streams_have_a_valid_split_of_their_own(data):
  loaders = _build(
    data,
    dataset={
      "data_path": None,
      "train_data_path": str(data),
      "valid_data_path": str(data),
      "data_config": _TURN,
    },
  )
  assert _tokens(_batches(loaders.valid)) == _ALL
  assert loaders.valid.num_steps is None


@pytest.mark.parametrize(
  "dataloader, shapes",
  [
    ({"packer": "pad", "length_buckets": (4, 8)}, {(4, 4), (4, 8)}),
    ({"packer": "pad", "length_buckets": (8,)}, {(4, 8)}),
    ({"packer": "pad"}, {(4, 16)}),
    ({"type": "fixed", "length_buckets": (12, 16)}, {(4, 12), (4, 16)}),
    (
      {"overlong": "own_row", "token_budget": 6, "length_buckets": (8,)},
      {(4, 6), (4, 8)},
    ),
  ],
)
def test_batches_are_padded_to_buckets(data, dataloader, shapes):
  loaders = _build(
    data, dataloader={"epochs": 1, "end_of_data": "pad", **dataloader}
  )
  batches = _batches(loaders.train)
  found = {b["input_ids"].shape for b in batches}
  assert found <= shapes
  assert _tokens(batches) == _ALL
  for batch in batches:
    used = (batch["segment_ids"] > 0).nonzero()[1].max() + 1
    # No smaller one would have held it.
    assert not any(used <= width < batch["input_ids"].shape[1]
                   for _, width in shapes)  # fmt: skip


@pytest.mark.parametrize("bucket", [8, 32])
def test_streams_take_one_bucket(data, bucket):
  loaders = _build(
    data,
    dataset={"data_config": _TURN},
    dataloader={"packer": "pad", "length_buckets": (bucket,), "epochs": 1},
  )
  batches = _batches(loaders.train)
  assert {b["input_ids"].shape for b in batches} == {(4, bucket)}
  assert _tokens(batches) == _ALL


@pytest.mark.parametrize("data_config", [{}, _TURN])
def test_consumed_samples_begins_at_a_row(data, data_config):
  sections = {"dataset": {"data_config": data_config}}
  whole = _batches(_build(data, dataloader={"epochs": 2}, **sections).train)
  loaders = _build(
    data, dataloader={"epochs": 2, "consumed_samples": 4}, **sections
  )
  rest = _batches(loaders.train)
  assert len(rest) == len(whole) - 1
  for a, b in zip(rest, whole[1:]):
    np.testing.assert_array_equal(a["input_ids"], b["input_ids"])


def test_balanced_shares_are_rows_of_the_same_blocks(data):
  plain = _build(data, dataloader={"epochs": 1, "end_of_data": "pad"})
  balanced = _build(
    data,
    dataloader={"epochs": 1, "end_of_data": "pad", "balance_shares": 4},
  )
  pairs = zip(_batches(plain.train), _batches(balanced.train), strict=True)
  for a, b in pairs:
    assert sorted(map(tuple, a["input_ids"])) == sorted(
      map(tuple, b["input_ids"])
    )


def test_tokenized_corpora_are_packed_whole(tmp_path):
  documents = random_documents(
    random.Random(0), num_documents=40, max_length=12, vocab_size=90
  )
  config = base_config()
  config.dataset.data_path = write_pair(tmp_path / "a", documents)
  config.dataset.data_config.update(
    seq_length=32, vocab_size=90, split="1, 0, 0"
  )
  config.dataloader.update(type="dynamic", epochs=1, end_of_data="pad")
  config.training.update(global_batch_size=8)
  mesh = shard.make_mesh(("data", "cp", "tp"), {"data": 4, "cp": 2, "tp": 1})
  batches = _batches(hpgrain.build(config, mesh).train)
  found = []
  for batch in batches:
    for ids, labels, segments in zip(
      batch["input_ids"], batch["labels"], batch["segment_ids"]
    ):
      for segment in range(1, segments.max() + 1):
        chosen = segments == segment
        found.append([*ids[chosen].tolist(), int(labels[chosen][-1])])
  # A document is one example, whatever sequences it was written in.
  whole = [[int(i) for part in d for i in part] for d in documents]
  long = [d for d in whole if len(d) > 1]
  assert sorted(found) == sorted(long)


def _packed(tmp_path, documents, *, eval_iters=1, **data_config):
  path = write_pair(tmp_path / "corpus", documents)
  config = base_config()
  if "split" in data_config:
    config.dataset.data_path = path
  else:
    config.dataset.train_data_path = config.dataset.test_data_path = path
  config.dataset.data_config.update(seq_length=32, vocab_size=90, **data_config)
  config.dataloader.type = "dynamic"
  config.training.update(global_batch_size=8, eval_iters=eval_iters)
  mesh = shard.make_mesh(("data", "cp", "tp"), {"data": 4, "cp": 2, "tp": 1})
  return hpgrain.build(config, mesh)


# Those of a document of one token are as good as none: it has no label.
_TWO, _ONE = [[1, 2]], [[3]]


@pytest.mark.parametrize(
  "documents, split, eval_iters, without",
  [
    # Bounds 10, 10, 10 of 10 documents; then 9, 10, 10.
    ([_TWO] * 10, "969, 30, 1", 0, ("valid", "test")),
    ([_TWO] * 10, "9, 1, .01", 1, ("test",)),
    # The bounds lie in the one document, 10, 10.
    ([[[1, 2]] * 10], "969, 30, 1", 0, ("valid", "test")),
    ([_TWO] * 9 + [_ONE], "9, 0, 1", 1, ("test",)),
    ([_TWO] * 9 + [_ONE], "9, 1, 0", 0, ("valid",)),
  ],
)
def test_a_packed_split_without_a_row_is_said(
  tmp_path, caplog, *, documents, split, eval_iters, without
):
  loaders = _packed(tmp_path, documents, split=split, eval_iters=eval_iters)
  next(iter(loaders.train))
  found = [r.getMessage() for r in caplog.records if "no loader" in r.msg]
  assert found == [
    f"dataset.data_config.split={split!r} leaves {name} no document that makes"
    " a row, of 10 sequences. Give it a larger share, or 0. There is no loader"
    " for it."
    for name in without
  ]
  assert [n for n in ("valid", "test") if getattr(loaders, n) is None] == [
    n
    for n in ("valid", "test")
    if n in without or split.split(",")[1 + (n == "test")].strip() == "0"
  ]


@pytest.mark.parametrize(
  "documents, split, name",
  [
    ([_TWO] * 10, "969, 30, 1", "valid"),
    ([_TWO] * 10, "1, 969, 30", "train"),
    ([_ONE] + [_TWO] * 9, "1, 9", "train"),
  ],
)
def test_a_packed_split_that_is_needed_has_a_row(
  tmp_path, documents, split, name
):
  with pytest.raises(
    ValueError,
    match=rf"^dataset\.data_config\.split='{split}' leaves {name} no document",
  ):
    _packed(tmp_path, documents, split=split)


def test_a_path_of_a_split_without_a_row_is_named(tmp_path):
  with pytest.raises(
    ValueError,
    match=r"dataset\.train_data_path has no document that makes a row \(3 seq",
  ):
    _packed(tmp_path, [_ONE] * 3)


def test_a_batch_that_does_not_divide_over_the_mesh_is_refused(data):
  with pytest.raises(ValueError, match="3 rows of a batch"):
    _build(data, training={"global_batch_size": 6})
