"""Files or a dataset of the hub in, each split's records out."""

import inspect
import json
import logging

import numpy as np
import pytest

from hpgrain import build_online_text_dataset, log, online_dataset
from hpgrain.config_schema import KEYS
from hpgrain.online_options import OnlineOptions, schema_keys
from hpgrain.sources.by_index.in_memory import InMemoryRecords
from hpgrain.sources.in_turn.numbered import NumberedInTurn


def _write(path, *texts):
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
  return str(path)


@pytest.fixture
def ten(tmp_path):
  return _write(tmp_path / "ten.jsonl", *(f"t{i}" for i in range(10)))


@pytest.fixture
def five(tmp_path):
  return _write(tmp_path / "five.jsonl", *(f"f{i}" for i in range(5)))


def _texts(records):
  return [record["text"] for record in records]


def test_records_by_number_are_what_the_file_has(tmp_path):
  chat = {"conversation": [{"role": "user", "content": "Hello"}], "n": 1}
  path = tmp_path / "a.jsonl"
  path.write_text('{"text": "A short document."}\n' + json.dumps(chat) + "\n")
  train, valid, test = build_online_text_dataset(data_path=str(path))
  assert (valid, test) == (None, None)
  assert len(train) == 2
  assert [train[0], train[1]] == [{"text": "A short document."}, chat]
  assert train[np.int64(-1)] == chat
  assert list(train) == [train[0], train[1]]
  for index in (2, -3):
    with pytest.raises(IndexError, match=r"There are 2 records, from 0; got"):
      _ = train[index]
  with pytest.raises(ValueError, match=r"index must be an integer, got '0'"):
    _ = train["0"]


def test_records_in_turn_are_what_the_file_has(ten):
  train, valid, test = build_online_text_dataset(
    data_path=ten, dataset_type="iterable", shuffle=False
  )
  assert (valid, test) == (None, None)
  assert _texts(train) == [f"t{i}" for i in range(10)]
  assert _texts(train) == [f"t{i}" for i in range(10)]
  for asked in (len, lambda ds: ds[0]):
    with pytest.raises(TypeError, match=r"no len|not subscriptable"):
      asked(train)


def test_two_builds_give_the_same_records(ten):
  for kind in ("mapping", "iterable"):
    first, second = (
      build_online_text_dataset(data_path=ten, dataset_type=kind, seed=3)[0]
      for _ in range(2)
    )
    assert list(first) == list(second)


def test_records_in_turn_are_mixed_within_the_buffer_by_the_seed(ten):
  def read(**options):
    return _texts(
      build_online_text_dataset(
        data_path=ten, dataset_type="iterable", **options
      )[0]
    )

  mixed = read(shuffle_buffer_size=4, seed=1)
  assert mixed != [f"t{i}" for i in range(10)]
  for first in (0, 4, 8):
    window = {f"t{i}" for i in range(first, min(first + 4, 10))}
    assert set(mixed[first : first + 4]) == window
  assert read(shuffle_buffer_size=4, seed=1) == mixed
  assert read(shuffle_buffer_size=4, seed=2) != mixed
  assert read(shuffle_buffer_size=1) == [f"t{i}" for i in range(10)]
  assert sorted(read()) == sorted(mixed)


def test_files_that_are_listed_are_one_source(ten, five):
  train, *_ = build_online_text_dataset(data_path=[five, ten])
  assert [source.name for source in train.sources] == ["five"]
  assert train.weights is None
  texts = [f"f{i}" for i in range(5)] + [f"t{i}" for i in range(10)]
  assert _texts(train) == texts
  turned, *_ = build_online_text_dataset(
    data_path=f"{five},{ten}", dataset_type="iterable", shuffle=False
  )
  assert _texts(turned) == texts


def test_weights_make_sources(ten, five):
  train, *_ = build_online_text_dataset(data_path=(0.7, ten, 0.3, five))
  assert [source.name for source in train.sources] == ["ten", "five"]
  assert train.weights == (0.7, 0.3)
  assert len(train) == 15
  assert [train[9]["text"], train[10]["text"]] == ["t9", "f0"]


@pytest.mark.parametrize(
  "weights, expected",
  [
    ((2, 1), "t0 f0 t1 t2 f1 t3 t4 f2 t5 t6 f3 t7 t8 f4 t9"),
    # There is no f5.
    ((1, 1), "t0 f0 t1 f1 t2 f2 t3 f3 t4 f4 t5"),
  ],
)
def test_sources_in_turn_take_turns_by_weight_until_one_ends(
  ten, five, weights, expected
):
  train, *_ = build_online_text_dataset(
    data_path=(weights[0], ten, weights[1], five),
    dataset_type="iterable",
    shuffle=False,
  )
  assert _texts(train) == expected.split()


def test_names_make_sources_and_key_their_order(ten, five):
  train, *_ = build_online_text_dataset(
    data_path=[{"path": ten, "name": "a"}, {"path": five, "name": "b"}]
  )
  assert [source.name for source in train.sources] == ["a", "b"]
  assert train.weights is None


def test_shares_are_runs_of_records(ten, five):
  train, valid, test = build_online_text_dataset(
    data_path=(7, ten, 3, five), split="60, 40, 0"
  )
  assert _texts(train) == [f"t{i}" for i in range(6)] + ["f0", "f1", "f2"]
  assert _texts(valid) == ["t6", "t7", "t8", "t9", "f3", "f4"]
  assert test is None
  # Every record of valid once: no weight could promise that.
  assert (train.weights, valid.weights) == ((7, 3), None)


def test_all_of_it_is_the_source_itself(ten):
  whole = build_online_text_dataset(data_path=ten)[0].sources[0]
  assert "ranges" not in whole.identity
  part = build_online_text_dataset(data_path=ten, split="9,1,0")[0].sources[0]
  assert part.identity["ranges"] == [[0, 9]]


@pytest.mark.parametrize("dataset_type", ["mapping", "iterable"])
def test_splits_have_paths_of_their_own(ten, five, dataset_type):
  train, valid, test = build_online_text_dataset(
    train_data_path=ten,
    valid_data_path=five,
    dataset_type=dataset_type,
    shuffle_buffer_size=3,
  )
  assert sorted(_texts(train)) == sorted(f"t{i}" for i in range(10))
  # In the order of the file, always.
  assert _texts(valid) == [f"f{i}" for i in range(5)]
  assert test is None
  only, valid, _ = build_online_text_dataset(
    valid_data_path=five, dataset_type=dataset_type
  )
  assert only is None and len(list(valid)) == 5


def test_the_format_may_be_said(tmp_path):
  path = _write(tmp_path / "records.of.mine", "a", "b")
  for kind in ("mapping", "iterable"):
    train, *_ = build_online_text_dataset(
      data_path=path, format="json", dataset_type=kind, shuffle=False
    )
    assert _texts(train) == ["a", "b"]


def test_places_of_records_are_kept(ten, tmp_path):
  cache = tmp_path / "cache"
  train, *_ = build_online_text_dataset(
    data_path=ten, data_cache_path=str(cache)
  )
  assert len(train) == 10
  assert [path.name for path in cache.iterdir()]


def _hub_spy(monkeypatch, calls):
  def opened(name, **arguments):
    calls.append((name, arguments))
    texts = [f"{arguments['split']}{i}" for i in range(4)]
    return InMemoryRecords(texts, name=name, column="text")

  def in_turn(name, **arguments):
    return NumberedInTurn(opened(name, **arguments))

  monkeypatch.setattr(online_dataset, "open_hugging_face", opened)
  monkeypatch.setattr(online_dataset, "open_hugging_face_in_turn", in_turn)


@pytest.mark.parametrize("dataset_type", ["mapping", "iterable"])
def test_a_hub_dataset_is_read_by_its_names(monkeypatch, dataset_type):
  calls = []
  _hub_spy(monkeypatch, calls)
  train, valid, test = build_online_text_dataset(
    hf_dataset_name="Salesforce/wikitext",
    dataset_type=dataset_type,
    hf_config_name="wikitext-2-raw-v1",
    revision="v1",
    cache_dir="./dataset_cache",
    hf_valid_split="validation[:10%]",
  )
  common = {
    "subset": "wikitext-2-raw-v1",
    "revision": "v1",
    "cache_dir": "./dataset_cache",
  }
  assert calls == [
    ("Salesforce/wikitext", {**common, "split": "train"}),
    ("Salesforce/wikitext", {**common, "split": "validation[:10%]"}),
  ]
  assert sorted(_texts(train)) == ["train0", "train1", "train2", "train3"]
  assert _texts(valid) == [f"validation[:10%]{i}" for i in range(4)]
  assert test is None


def test_a_hub_split_is_cut_where_it_is_the_only_one(monkeypatch):
  calls = []
  _hub_spy(monkeypatch, calls)
  train, valid, test = build_online_text_dataset(
    hf_dataset_name="x/y", split="50,25,25"
  )
  assert len(calls) == 1
  assert [_texts(split) for split in (train, valid, test)] == [
    ["train0", "train1"],
    ["train2"],
    ["train3"],
  ]


def test_the_hub_name_wins_and_it_is_said_once(monkeypatch, ten, caplog):
  _hub_spy(monkeypatch, [])
  log._said.clear()
  with caplog.at_level(logging.WARNING, "hpgrain"):
    for _ in range(2):
      train, *_ = build_online_text_dataset(
        hf_dataset_name="x/y", data_path=ten
      )
  assert train[0] == {"text": "train0"}
  assert [record.getMessage() for record in caplog.records] == [
    f"hf_dataset_name='x/y' wins over data_path={ten!r}, which is not read."
  ]


@pytest.mark.parametrize("dataset_type", ["mapping", "iterable"])
def test_a_local_dataset_goes_by_the_librarys_own_reading(
  tmp_path, dataset_type
):
  pytest.importorskip("datasets")
  folder = tmp_path / "mine"
  _write(folder / "train.jsonl", "a", "b", "c")
  _write(folder / "test.jsonl", "d")
  train, valid, _ = build_online_text_dataset(
    hf_dataset_name=str(folder),
    hf_valid_split="test",
    cache_dir=str(tmp_path / "cache"),
    dataset_type=dataset_type,
    shuffle=False,
  )
  assert _texts(train) == ["a", "b", "c"]
  assert _texts(valid) == ["d"]


def test_the_signature_is_that_of_the_keys():
  found = inspect.signature(build_online_text_dataset)
  defaults = {name: p.default for name, p in found.parameters.items()}
  assert defaults == OnlineOptions().__dict__
  keys = schema_keys()
  assert keys.keys() == defaults.keys()
  # Every key of the dataset's own section that is of online data, and not of
  # what becomes of it, is an argument.
  of_records = {
    key.name.rpartition(".")[2]
    for key in KEYS
    if key.name.startswith("dataset.data_config.")
    and key.only in ("online", "hub", "files")
  }
  assert of_records - {"lengths"} <= keys.keys()
  for key in KEYS:
    name = key.name.rpartition(".")[2]
    if key.name.startswith("dataset.") and name in keys and name != "split":
      assert defaults[name] == key.default, name
  for name in defaults:
    assert f"\n    {name}: " in inspect.getdoc(
      build_online_text_dataset
    ).replace("\n  ", "\n    "), name


@pytest.mark.parametrize(
  "arguments, message",
  [
    ({}, r"^dataset\.data_path is missing\. Give it files"),
    ({"data_pth": "/a"}, r"no argument 'data_pth'\. Did you mean 'data_path'"),
    ({"streaming": True}, r"'streaming': say dataset\.data_config\.dataset_ty"),
    ({"data_path": 3}, r"^dataset\.data_path must be a file or folder"),
    (
      {"data_path": "/a", "shuffle_buffer_size": 0},
      r"shuffle_buffer_size must be an int of at least 1, got 0",
    ),
    (
      {"data_path": "/a", "split_by_data_parallel": False},
      r"=False is refused: rows would then depend on the number of processes",
    ),
    (
      {"data_path": "/a", "dataset_type": "map"},
      r"must be 'mapping' or 'iterable', got 'map'",
    ),
    ({"data_path": "/a", "split": None}, r"split must be a string, got None"),
    (
      {"data_path": "/a", "valid_data_path": "/b"},
      r"data_path and dataset\.valid_data_path exclude each other",
    ),
    (
      {"data_path": "/a", "dataset_type": "iterable", "split": "9,1"},
      r"split='9,1' cuts records by number",
    ),
    (
      {"hf_dataset_name": "x/y", "train_data_path": "/b"},
      r"hf_dataset_name and dataset\.train_data_path exclude each other",
    ),
    (
      {"data_path": "{workdir}/a.jsonl"},
      r"nothing has replaced \{workdir\}\. Run launch/train\.py",
    ),
    (
      {"data_path": (1, "/x/a.jsonl", 2, "/y/a.jsonl")},
      r"two sources named 'a': .* this one as \{'path': '/y/a\.jsonl', 'weight'"
      r": 2, 'name': 'a_2'\}",
    ),
  ],
)
def test_wrong_arguments_are_refused(arguments, message):
  with pytest.raises(ValueError, match=message):
    build_online_text_dataset(**arguments)


@pytest.mark.parametrize("dataset_type", ["mapping", "iterable"])
def test_a_path_of_nothing_is_named(tmp_path, dataset_type):
  with pytest.raises(FileNotFoundError, match=r"nothing\.jsonl"):
    build_online_text_dataset(
      data_path=str(tmp_path / "nothing.jsonl"), dataset_type=dataset_type
    )
