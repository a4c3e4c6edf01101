"""The configuration of records that are tokenized while training."""

import pytest
from config_trees import documents, online, packed, streamed, tree
from hypothesis import given, settings
from hypothesis import strategies as st

from hpgrain.config import check
from hpgrain.config_rules_online import dataset_options, transform_arguments
from hpgrain.config_schema import BY_NAME, KEYS
from hpgrain.config_uses import USES, batch_rows, token_budget
from hpgrain.data_paths import SourceEntry

_HUB = {
  "dataset__data_path": None,
  "dataset__data_config__hf_dataset_name": "Salesforce/wikitext",
}
_IDS = {"data_transform__data_type": "pretokenized"}
_CHAT = {"data_transform__data_type": "conversation"}


@pytest.mark.parametrize(
  "name, default, legal",
  [
    ("dataset_type", "mapping", ("mapping", "iterable")),
    ("hf_dataset_name", None, ()),
    ("hf_config_name", None, ()),
    ("cache_dir", None, ()),
    ("shuffle", True, ()),
    ("shuffle_buffer_size", 10000, ()),
    ("split_by_data_parallel", True, ()),
  ],
)
def test_the_references_keys_have_its_defaults(name, default, legal):
  key = BY_NAME[f"dataset.data_config.{name}"]
  assert key.default == default
  assert key.legal == legal
  assert BY_NAME["dataset.data_path"].default is None


def test_the_references_example_of_packed_records():
  # The names are its own; what to build stands in kind and type.
  checked = check(
    {
      "dataset": {
        "kind": "online",
        "data_path": "/data/train.jsonl",
        "data_config": {"dataset_type": "mapping"},
      },
      "model_assets": {
        "chat_template": None,
        "tokenizer": {
          "pretrained_model_name_or_path": "./qwen3-model",
          "use_fast": True,
        },
      },
      "data_transform": {
        "data_type": "plaintext",
        "text_keys": "text",
        "max_seq_len": 4096,
      },
      "dataloader": {"type": "dynamic", "min_buffered_samples": 200},
      "get_batch": {"source_type": "online", "attention_mode": "dense"},
    }
  )
  assert checked.dataset.data_config.lengths == "table"
  assert token_budget(checked) == 4096
  assert batch_rows(checked) == 8


def test_the_references_example_of_a_hub_dataset():
  checked = check(
    online(
      **_HUB,
      dataset__data_config__hf_config_name="wikitext-2-raw-v1",
      dataset__data_config__cache_dir="./dataset_cache",
    )
  )
  options = dataset_options(checked)
  assert options.hf_dataset_name == "Salesforce/wikitext"
  assert options.hub_splits == ("train", None, None)
  assert options.cache_dir == "./dataset_cache"


@pytest.mark.parametrize("dataset_type", ["mapping", "iterable"])
@pytest.mark.parametrize("kind", ["fixed", "dynamic"])
def test_how_records_are_read_and_how_rows_are_filled_are_two_keys(
  dataset_type, kind
):
  checked = check(
    online(
      dataset__data_config__dataset_type=dataset_type, dataloader__type=kind
    )
  )
  assert checked.dataset.data_config.lengths == (
    "table" if dataset_type == "mapping" else "stream"
  )
  assert checked.dataloader.type == kind
  assert check(checked) == checked


def test_what_is_unset_follows_from_the_data():
  checked = check(streamed())
  assert checked.get_batch.source_type == "online"
  assert checked.data_transform.data_type == "plaintext"
  assert checked.dataset.data_config.split == "1, 0, 0"
  assert checked.dataloader.end_of_data == "pad"
  assert check(packed()).dataloader.end_of_data is None
  corpora = check(documents())
  assert corpora.get_batch.source_type == "indexed"
  assert corpora.data_transform.data_type == "identity"
  assert corpora.dataset.data_config.split == "969, 30, 1"
  assert corpora.dataset.data_config.lengths is None


def test_hub_name_wins_over_data_path():
  checked = check(
    online(dataset__data_config__hf_dataset_name="Salesforce/wikitext")
  )
  assert dataset_options(checked).hf_dataset_name == "Salesforce/wikitext"


def test_the_seed_of_the_run_is_that_of_the_shuffle():
  assert dataset_options(check(online(training__seed=7))).seed == 7


@pytest.mark.parametrize(
  "value, found",
  [
    ("/a.jsonl", "/a.jsonl"),
    (
      ["/a.jsonl", "/b.jsonl"],
      (SourceEntry("/a.jsonl"), SourceEntry("/b.jsonl")),
    ),
    (
      (0.7, "/a/*.jsonl", 0.3, "/b"),
      (SourceEntry("/a/*.jsonl", 0.7), SourceEntry("/b", 0.3)),
    ),
    ([{"path": "/a", "name": "x"}], (SourceEntry("/a", None, "x"),)),
  ],
)
def test_data_paths_take_the_forms_of_tokenized_corpora(value, found):
  checked = check(online(dataset__data_path=value))
  assert checked.dataset.data_path == found
  assert check(checked) == checked


def test_a_transform_gets_its_own_keys_alone():
  assert transform_arguments(check(online())) == {
    "data_type": "plaintext",
    "max_seq_len": 2048,
    "labels_are_shifted": True,
    "backend": "auto",
    "special_tokens_in_text": "as_is",
  }
  chat = check(
    online(
      **_CHAT,
      data_transform__max_seq_len=64,
      data_transform__text_keys=["chat", "messages"],
      data_transform__role_names={"bot": "assistant"},
      data_transform__template_variables={"deep": {"list": [1, 2]}},
      model_assets__chat_template="chatml",
      get_batch__labels_are_shifted=False,
    )
  )
  assert transform_arguments(chat) == {
    "data_type": "conversation",
    "max_seq_len": 64,
    "labels_are_shifted": False,
    "text_keys": ("chat", "messages"),
    "truncation": "error",
    "trained_roles": ("assistant",),
    "role_names": {"bot": "assistant"},
    "template_variables": {"deep": {"list": (1, 2)}},
    "chat_template": "chatml",
  }
  assert check(chat) == chat
  ids = check(online(**_IDS, dataset__data_config__vocab_size=100))
  assert transform_arguments(ids) == {
    "data_type": "pretokenized",
    "max_seq_len": 2048,
    "labels_are_shifted": True,
    "vocab_size": 100,
  }


def test_token_ids_need_no_tokenizer():
  name = "model_assets__tokenizer__pretrained_model_name_or_path"
  checked = check(online(**_IDS, **{name: None}))
  assert checked.data_transform.data_type == "pretokenized"


_TOKENIZER = "model_assets__tokenizer__pretrained_model_name_or_path"


@pytest.mark.parametrize(
  "overrides, message",
  [
    (
      {"dataset__data_path": None},
      r"^dataset\.data_path is missing\. Give it files, .*hf_dataset_name",
    ),
    (
      {_TOKENIZER: None},
      r"data_type='plaintext' needs a tokenizer\. Set model_assets\.tokenizer",
    ),
    (
      {**_CHAT, _TOKENIZER: None},
      r"data_type='conversation' needs a tokenizer",
    ),
    (
      {"get_batch__source_type": "indexed"},
      r"source_type is 'indexed', but dataset\.kind is 'online'",
    ),
    (
      {"data_transform__data_type": "identity"},
      r"data_type='identity' is of indexed data",
    ),
    (
      {"data_transform__data_type": "plain"},
      r"data_type must be 'plaintext' or .* Did you mean 'plaintext'",
    ),
    (
      {"model_assets__chat_template": "chatml"},
      r"chat_template is 'chatml', and has a meaning only for .*conversation'",
    ),
    (
      {**_IDS, "model_assets__chat_template": "chatml"},
      r"Here .* data_type 'pretokenized', .*Leave it unset",
    ),
    (
      {**_IDS, "data_transform__text_keys": "text"},
      r"text_keys is 'text', and has a meaning only for .*'plaintext' or 'conv",
    ),
    (
      {**_IDS, "dataset__data_path": None},
      r"'pretokenized' reads token ids from files: dataset\.data_path must",
    ),
    ({**_IDS, **_HUB}, r"hf_dataset_name stay unset, got None and 'Salesforce"),
    (
      {"data_transform__text_keys": "a", "data_transform__template": "{a}"},
      r"text_keys and data_transform\.template exclude each other",
    ),
    ({"data_transform__template": "text"}, r"template names no field"),
    (
      {**_CHAT, "data_transform__role_names": {"bot": "robot"}},
      r"role_names may name system, user, assistant, tool, got \['robot'\]",
    ),
    (
      {**_CHAT, "data_transform__trained_roles": ("robot",)},
      r"trained_roles may name",
    ),
    (
      {**_CHAT, "data_transform__role_names": "bot"},
      r"role_names must be a mapping, got 'bot'",
    ),
    (
      {
        **_IDS,
        "data_transform__records_are_shifted": True,
        "get_batch__labels_are_shifted": False,
      },
      r"records_are_shifted=True goes with get_batch\.labels_are_shifted=True",
    ),
    (
      {"data_transform__text_keys": 3},
      r"text_keys must be a name or a tuple of names, got 3",
    ),
    ({"data_transform__max_seq_len": 0}, r"max_seq_len must be .*, got 0"),
    (
      {"dataset__data_config__dataset_type": "map"},
      r"dataset_type must be 'mapping' or 'iterable', got 'map'\. Did you mean",
    ),
    (
      {"dataset__data_config__shuffle_buffer_size": 0},
      r"shuffle_buffer_size must be an int of at least 1, got 0",
    ),
    (
      {"dataset__data_config__shuffle_buffer_size": 5},
      r"has a meaning only for online data in streams .* lengths 'table'",
    ),
    (
      {"dataset__data_config__split_by_data_parallel": False},
      r"=False is refused: rows would then depend on the number of processes",
    ),
    (
      {"dataset__data_config__hf_config_name": "x"},
      r"hf_config_name is 'x', and has a meaning only for a Hugging Face",
    ),
    (
      {**_HUB, "dataset__data_config__format": "json"},
      r"format is 'json', and has a meaning only for files of online data",
    ),
    (
      {**_HUB, "dataset__valid_data_path": "/v.jsonl"},
      r"hf_dataset_name and dataset\.valid_data_path exclude each other",
    ),
    (
      {"dataset__valid_data_path": "/v.jsonl"},
      r"data_path and dataset\.valid_data_path exclude each other",
    ),
    (
      {
        **_HUB,
        "dataset__data_config__hf_valid_split": "validation",
        "dataset__data_config__split": "98,2,0",
      },
      r"split='98,2,0' and hf_valid_split='validation' exclude each other",
    ),
    (
      {"dataset__data_config__split": "98,-2"},
      r"weights cannot be negative, got '98,-2'",
    ),
    (
      {"dataset__data_path": (1, "/a", 0, "/b")},
      r"^dataset\.data_path gives '/b' the weight 0;",
    ),
    (
      {"dataset__data_config__seq_length": 512},
      r"seq_length is 512, .* tokenized corpora .* Leave it at 4096; say"
      r" data_transform\.max_seq_len instead",
    ),
    (
      {"dataset__data_config__mock_data": True},
      r"mock_data is True, and has a meaning only for rows cut from tokenized",
    ),
    (
      {"dataset__data_config__lengths": "tabel"},
      r"lengths must be 'table' or 'stream', got 'tabel'\. Did you mean",
    ),
    (
      {"dataset__data_config__keep_tokens": True},
      r"keep_tokens=True keeps .* data_cache_path, and there is none\. Set",
    ),
    ({"training__train_samples": 3}, r"train_samples is 3, but rows do not"),
    ({"dataloader__num_workers": -1}, r"num_workers must be an int of at leas"),
    ({"dataloader__num_streams": 8}, r"num_streams is 8, and .* in streams"),
    (
      {"dataloader__sampler_type": "single", "dataloader__epochs": 2},
      r"sampler_type='single' is one epoch, but dataloader\.epochs is 2",
    ),
  ],
)
def test_what_contradicts_is_refused(overrides, message):
  with pytest.raises(ValueError, match=message):
    check(online(**overrides))


@pytest.mark.parametrize(
  "overrides, message",
  [
    (
      {"dataset__data_config__lengths": "table"},
      r"lengths='table' needs records that can be read by number",
    ),
    (
      {"dataset__data_config__keep_tokens": True},
      r"keep_tokens is True, and has a meaning only for .* known lengths",
    ),
    (
      {"dataset__data_config__split": "98,2,0"},
      r"split='98,2,0' cuts records by number, and dataset_type='iterable'",
    ),
    (
      {
        "dataset__data_path": [
          {"path": "/a", "name": "x"},
          {"path": "/b", "name": "y"},
        ]
      },
      r"^dataset\.data_path has 2 sources without weights\. They would take",
    ),
    (
      {
        "dataset__data_path": None,
        "dataset__train_data_path": "/a",
        "dataset__valid_data_path": (1, "/b", 2, "/c"),
      },
      r"^dataset\.valid_data_path has 2 sources\. Each of its records is read"
      r" once, .*List the paths without weights",
    ),
    (
      {
        "dataset__data_path": (1, "/b", 2, "/c"),
        "dataset__data_config__dataset_type": "mapping",
        "dataset__data_config__lengths": "stream",
        "dataset__data_config__split": "98,2,0",
      },
      r"split='98,2,0' cuts 2 sources, and in streams .*valid_data_path",
    ),
    (
      {"dataloader__end_of_data": "drop"},
      r"end_of_data='drop' needs to know the last row beforehand",
    ),
    (
      {"dataloader__drop_last": True},
      r"drop_last=True needs to know the last row beforehand",
    ),
    (
      {"dataloader__plan_window": 8},
      r"plan_window is 8, and has a meaning only for examples of known length",
    ),
    ({"dataloader__num_streams": 0}, r"num_streams must be .* least 1"),
    (
      {"dataloader__handover_bytes": -1},
      r"handover_bytes must be an int of at",
    ),
  ],
)
def test_what_streams_cannot_do_is_refused(overrides, message):
  with pytest.raises(ValueError, match=message):
    check(streamed(**overrides))


@pytest.mark.parametrize(
  "config",
  [
    streamed(dataset__data_path=(0.7, "/a", 0.3, "/b")),
    streamed(dataset__data_path=["/a.jsonl", "/b.jsonl"]),
    streamed(
      dataset__data_path=None,
      dataset__train_data_path=(0.7, "/a", 0.3, "/b"),
      dataset__valid_data_path=("/c", "/d"),
    ),
    streamed(dataset__data_config__shuffle=False),
    streamed(dataloader__num_streams=8, dataloader__pack_window=16),
    streamed(dataloader__epochs=2, dataloader__end_of_data="pad"),
    streamed(dataset__data_path=None, dataset__train_data_path="/a"),
    streamed(**_HUB, dataset__data_config__hf_valid_split="validation"),
    online(
      dataset__data_config__lengths="stream",
      dataset__data_config__split="98,2,0",
    ),
    online(
      dataset__data_config__keep_tokens=True,
      dataset__data_config__data_cache_path="/cache",
      dataloader__num_workers=2,
    ),
    online(
      dataset__data_path=None,
      dataset__train_data_path="/a",
      dataset__valid_data_path="/b",
    ),
    online(**_HUB, dataset__data_config__split="98, 1, 1"),
  ],
)
def test_what_goes_together_passes(config):
  checked = check(config)
  assert check(checked) == checked


_INDEXED = {"dataset__data_path": "/data/books"}


@pytest.mark.parametrize(
  "overrides, message",
  [
    (
      {"data_transform__data_type": "pretokenized"},
      r"data_type='pretokenized' is of online data, and dataset\.kind is 'in",
    ),
    (
      {"data_transform__max_seq_len": 512},
      r"max_seq_len is 512, .* only for online data .* say"
      r" dataset\.data_config\.seq_length instead",
    ),
    (
      {"dataset__data_config__hf_dataset_name": "x/y"},
      r"hf_dataset_name is 'x/y', and has a meaning only for online data",
    ),
    ({"dataloader__packer": "concat"}, r"packer is 'concat', .* packed rows"),
    ({"dataloader__token_budget": 8}, r"token_budget is 8, .* packed rows"),
    (
      {"get_batch__source_type": "online"},
      r"source_type is 'online', but dataset\.kind is 'indexed'",
    ),
  ],
)
def test_keys_of_online_data_are_refused_for_rows_cut_from_corpora(
  overrides, message
):
  with pytest.raises(ValueError, match=message):
    check(tree(_INDEXED, overrides))


@pytest.mark.parametrize("key", [key for key in KEYS if key.only])
def test_every_use_is_known(key):
  assert key.only in USES


_VALUES = (
  st.none()
  | st.booleans()
  | st.integers(-3, 5000)
  | st.floats()
  | st.text(max_size=3)
  | st.lists(st.text(max_size=2) | st.integers(-1, 9), max_size=3)
  | st.dictionaries(st.text(max_size=2), st.integers(), max_size=2)
)


_KIND = "dataset.kind"


@settings(max_examples=200, deadline=None)
@given(
  st.sampled_from([online, packed, streamed, documents]),
  st.data(),
)
def test_any_value_passes_or_is_refused_by_name(base, data):
  # Another kind of data needs other keys, which are named instead.
  key = data.draw(st.sampled_from([k for k in KEYS if k.name != _KIND]))
  legal = [st.sampled_from(key.legal)] if key.legal else []
  value = data.draw(st.one_of(*legal, _VALUES))
  config = base(**{key.name.replace(".", "__"): value})
  try:
    checked = check(config)
  except ValueError as error:
    assert key.name.rpartition(".")[2] in str(error)
  else:
    assert check(checked) == checked
    assert token_budget(checked) >= 1
    assert batch_rows(checked) >= 1
