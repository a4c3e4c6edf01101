"""The configuration of how examples fill rows."""

import re

import pytest
from config_trees import documents, online, packed, streamed, tree

from hpgrain.config import check
from hpgrain.config_uses import batch_rows, token_budget

_BUCKETS = {"dataloader__length_buckets": (1024, 2048)}


@pytest.mark.parametrize(
  "config, budget, rows",
  [
    (tree({"dataset__data_path": "/a"}, {}), 4096, 8),
    (
      tree(
        {"dataset__data_path": "/a"},
        {
          "training__micro_batch_size": 4,
          "dataset__data_config__seq_length": 100,
        },
      ),
      100,
      8,
    ),
    (documents(dataset__data_config__seq_length=100), 100, 8),
    (
      documents(
        dataset__data_config__seq_length=100, training__micro_batch_size=4
      ),
      400,
      2,
    ),
    (documents(dataloader__token_budget=77), 77, 8),
    (online(), 2048, 8),
    (online(training__micro_batch_size=4), 8192, 2),
    (packed(training__micro_batch_size=2), 4096, 4),
    (packed(dataloader__token_budget=3000), 3000, 8),
    (streamed(data_transform__max_seq_len=10), 10, 8),
  ],
)
def test_a_rows_positions_and_a_batchs_rows(config, budget, rows):
  checked = check(config)
  assert token_budget(checked) == budget
  assert batch_rows(checked) == rows


def test_packing_has_the_defaults_of_the_reference_and_its_own():
  dataloader = check(packed()).dataloader
  assert dataloader.packer == "best_fit"
  assert dataloader.min_buffered_samples == 200
  assert dataloader.pack_window == 64
  assert dataloader.plan_window == 16384
  assert dataloader.overlong == "error"
  assert dataloader.length_buckets == ()
  assert dataloader.max_segments is None
  assert dataloader.segment_multiple == 1
  assert dataloader.num_streams == 64
  assert dataloader.num_workers == 0


def test_balance_acts_within_a_batch_unless_it_is_said():
  checked = check(packed(dataloader__balance_shares=4))
  assert checked.dataloader.balance_rows == 8
  assert check(checked) == checked
  checked = check(
    packed(dataloader__balance_shares=2, dataloader__balance_rows=4)
  )
  assert checked.dataloader.balance_rows == 4


@pytest.mark.parametrize(
  "config",
  [
    packed(dataloader__packer="first_fit", dataloader__min_buffered_samples=9),
    packed(dataloader__packer="concat", dataloader__token_budget=1000),
    packed(dataloader__packer="pad", **_BUCKETS),
    packed(dataloader__packer="pad", training__micro_batch_size=4, **_BUCKETS),
    packed(dataloader__token_budget=1024, dataloader__overlong="split"),
    packed(
      dataloader__token_budget=1024, dataloader__overlong="own_row", **_BUCKETS
    ),
    online(**_BUCKETS),
    online(training__micro_batch_size=2, dataloader__length_buckets=(4096,)),
    streamed(dataloader__packer="pad", dataloader__length_buckets=(2048,)),
    streamed(dataloader__overlong="drop", dataloader__token_budget=1024),
    documents(dataloader__overlong="truncate", dataloader__max_segments=2),
    documents(dataloader__segment_multiple=8, dataloader__plan_window=5),
    documents(
      dataloader__overlong="own_row", dataloader__length_buckets=[4096, 8192]
    ),
    documents(dataloader__epochs=2, dataset__data_config__split="98,1,1"),
  ],
)
def test_what_goes_together_passes(config):
  checked = check(config)
  assert check(checked) == checked
  assert isinstance(checked.dataloader.length_buckets, tuple)


@pytest.mark.parametrize(
  "overrides, message",
  [
    (
      {"dataloader__token_budget": 1024},
      r"max_seq_len=2048 is more than a row holds \(dataloader\.token_budget="
      r"1024\).* Raise the budget, lower max_seq_len, or say in",
    ),
    (
      {"training__micro_batch_size": 3},
      r"micro_batch_size must divide training\.global_batch_size, got 3 and 8",
    ),
    (
      {
        "training__micro_batch_size": 8,
        "data_transform__max_seq_len": 2**30,
      },
      r"A row would have 8589934592 positions, .* Lower one of them",
    ),
    ({"dataloader__packer": "bestfit"}, r"Did you mean 'best_fit'"),
    ({"dataloader__overlong": "cut"}, r"overlong must be 'error' or 'split'"),
    (
      {"dataloader__min_buffered_samples": 9},
      r"min_buffered_samples is 9, .*packer='first_fit'.* packer 'best_fit'",
    ),
    (
      {"dataloader__min_buffered_samples": 0},
      r"min_buffered_samples must be an int of at least 1, got 0",
    ),
    (
      {"dataloader__pack_window": 9},
      r"pack_window is 9, and has a meaning only for online data in streams",
    ),
    (
      {"dataloader__packer": "concat", "dataloader__overlong": "drop"},
      r"overlong is 'drop', and has no meaning with packer='concat'",
    ),
    (
      {"dataloader__packer": "concat", "dataloader__segment_multiple": 8},
      r"segment_multiple is 8, and has no meaning with packer='concat'",
    ),
    (
      {"dataloader__segment_multiple": 3},
      r"segment_multiple=3 must divide the row's 2048 positions",
    ),
    (
      {"dataloader__max_segments": 1},
      r"max_segments must be an int of at least 2, got 1",
    ),
    (
      {"dataloader__length_buckets": (2048, 1024), "dataloader__packer": "pad"},
      r"length_buckets must be ascending, each once; got \(2048, 1024\)",
    ),
    (
      {"dataloader__length_buckets": (5, 5), "dataloader__packer": "pad"},
      r"must be ascending, each once; got \(5, 5\)",
    ),
    (
      {"dataloader__length_buckets": (0, 2048), "dataloader__packer": "pad"},
      r"length_buckets must be a tuple of integers, each of at least 1",
    ),
    (
      {"dataloader__length_buckets": 2048, "dataloader__packer": "pad"},
      r"length_buckets must be a tuple of integers, .* got 2048",
    ),
    (
      {"dataloader__length_buckets": (1024,), "dataloader__packer": "pad"},
      r"length_buckets ends with 1024, but a row may have 2048 positions",
    ),
    (
      {
        "dataloader__length_buckets": (1024,),
        "dataloader__overlong": "own_row",
        "dataloader__token_budget": 512,
      },
      r"length_buckets ends with 1024, but a row may have 2048 positions",
    ),
    (
      _BUCKETS,
      r"length_buckets is \(1024, 2048\), but packer='best_fit' fills",
    ),
    (
      {"dataloader__overlong": "own_row"},
      r"overlong='own_row' puts .* there are none\. Set it, such as",
    ),
    (
      {"dataloader__balance_shares": 3},
      r"balance_shares must divide dataloader\.balance_rows, got 3 and 8",
    ),
    (
      {"dataloader__balance_shares": 2, "dataloader__balance_rows": 6},
      r"balance_rows must divide the rows of a batch, got 6 and 8",
    ),
    (
      {"dataloader__balance_rows": 8},
      r"balance_rows is 8, and has a meaning only for dataloader\.balance_sha",
    ),
  ],
)
def test_what_contradicts_is_refused(overrides, message):
  with pytest.raises(ValueError, match=message):
    check(packed(**overrides))


@pytest.mark.parametrize(
  "overrides, message",
  [
    (
      {
        "dataloader__overlong": "own_row",
        "dataloader__token_budget": 1024,
        **_BUCKETS,
      },
      r"overlong='own_row' gives batches of several lengths, .*lengths='table'",
    ),
    (
      {"dataloader__packer": "pad", **_BUCKETS},
      r"length_buckets=\(1024, 2048\) gives batches of several lengths",
    ),
    (
      {"dataloader__balance_shares": 2},
      r"balance_shares is 2, and has a meaning only for .*lengths='table'",
    ),
  ],
)
def test_what_streams_cannot_do_is_refused(overrides, message):
  with pytest.raises(ValueError, match=message):
    check(streamed(**overrides))


@pytest.mark.parametrize(
  "name, value",
  [
    ("packer", "concat"),
    ("overlong", "split"),
    ("token_budget", 4096),
    ("max_segments", 4),
    ("segment_multiple", 2),
  ],
)
def test_a_fixed_number_of_examples_is_not_packed(name, value):
  message = rf"{name} is .*, and has a meaning only for packed rows"
  with pytest.raises(ValueError, match=message):
    check(online(**{f"dataloader__{name}": value}))


@pytest.mark.parametrize(
  "overrides, message",
  [
    (
      {"dataset__data_config__order": "documents"},
      r"order is 'documents', and has a meaning only for rows cut from tokeni",
    ),
    (
      {"dataset__data_config__is_dataset_from_mr": True},
      r"is_dataset_from_mr is True, and has a meaning only for rows cut",
    ),
    (
      {"dataset__data_config__create_ltor_fields_in_dataloader": True},
      r"create_ltor_fields_in_dataloader is True, .* only for rows cut",
    ),
    (
      {"get_batch__mask_boundary_labels": False},
      r"mask_boundary_labels is False, .* rows cut .* Leave it at True",
    ),
    ({"dataloader__data_sharding": 2}, r"data_sharding is 2, .* rows cut from"),
    (
      {"dataloader__data_rearrange_map": (0,)},
      r"data_rearrange_map is \(0,\), .* rows cut from",
    ),
    (
      {"data_transform__max_seq_len": 8},
      r"max_seq_len is 8, and has a meaning only for online data",
    ),
    (
      {"dataloader__overlong": "own_row", "dataloader__length_buckets": (64,)},
      r"length_buckets ends with 64, but a row may have 4096 positions",
    ),
  ],
)
def test_whole_documents_are_not_cut(overrides, message):
  with pytest.raises(ValueError, match=message):
    check(documents(**overrides))


_ZIGZAG = {"get_batch__context_parallel_layout": "document_zigzag"}


@pytest.mark.parametrize(
  "config, message",
  [
    (
      tree({"dataset__data_path": "/a"}, _ZIGZAG),
      r"only rows that are packed .* dataloader\.type 'fixed'",
    ),
    # It must not send the reader to segment_multiple, which has no meaning.
    (
      online(mesh__cp=4, **_ZIGZAG),
      r"only rows that are packed .* dataloader\.type 'fixed'",
    ),
    (
      packed(dataloader__packer="concat", **_ZIGZAG),
      r"a packer other than 'concat'.* packer 'concat'\. Take 'zigzag'",
    ),
    (
      packed(get_batch__reset_attention_mask=False, **_ZIGZAG),
      "reset_attention_mask=False makes a row one",
    ),
    (
      packed(mesh__cp=4, dataloader__segment_multiple=4, **_ZIGZAG),
      r"segment_multiple must be a multiple of 8 with mesh\.cp=4, got 4",
    ),
  ],
)
def test_only_packed_documents_are_divided_among_ranks(config, message):
  with pytest.raises(ValueError, match=message):
    check(config)


def test_packed_documents_are_divided_where_their_room_divides():
  config = packed(mesh__cp=4, dataloader__segment_multiple=8, **_ZIGZAG)
  assert check(config).dataloader.segment_multiple == 8


@pytest.mark.parametrize(
  "overrides, said",
  [
    (
      {"get_batch__attention_adapter": "splash"},
      "get_batch.attention_adapter is 'splash', and has a meaning only for"
      " get_batch.attention_mode='compressed'. Here get_batch.attention_mode is"
      " 'segment_ids'. Set get_batch.attention_mode='compressed', or leave"
      " get_batch.attention_adapter unset.",
    ),
    (
      {
        "get_batch__attention_adapter": "splash",
        "get_batch__attention_mode": "dense",
      },
      "Here get_batch.attention_mode is 'dense'. Set get_batch.attention_mode=",
    ),
    (
      {"dataloader__balance_rows": 8},
      "Here dataloader.balance_shares is unset. Set dataloader.balance_shares,"
      " or leave dataloader.balance_rows unset.",
    ),
  ],
)
def test_what_one_key_decides_is_told_by_that_key(overrides, said):
  with pytest.raises(ValueError, match=re.escape(said)):
    check(documents(**overrides))
