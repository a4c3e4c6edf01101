import dataclasses
import logging
import re
from pathlib import Path

import pytest
from corpora import write_pair

from hpgrain import (
  BlendSamples,
  GPTSamples,
  IndexedReader,
  IndexedWriter,
  MockSamples,
  PrecutSamples,
  build_indexed_text_dataset,
  indexed_dataset,
  log,
)
from hpgrain.indexed_dataset import build_splits
from hpgrain.lazy import LazySamples
from hpgrain.manifest import Manifest, storage_fields, write_manifest
from hpgrain.token_ids import TokenIds
from hpgrain.tokenizer import TokenizerInfo

_DOCUMENTS = [[[i] * (3 + i % 4)] for i in range(1, 41)]
_RECORDS = [[[i] * 5] for i in range(1, 21)]
_TOKENIZER = TokenizerInfo(
  name="bpe",
  digest="0123456789abcdef" * 2,
  vocab_size=50,
  eod_id=0,
  pad_id=None,
  bos_id=None,
  eos_id=0,
)


@pytest.fixture
def documents(tmp_path):
  return write_pair(tmp_path / "documents", _DOCUMENTS)


@pytest.fixture
def records(tmp_path):
  return write_pair(tmp_path / "records", _RECORDS)


def _build(**arguments):
  return build_indexed_text_dataset(**{"seed": 0, "seq_length": 4, **arguments})


def _write_manifest(prefix, *, tokenizer=_TOKENIZER, pack_to_seq_len=None):
  reader = IndexedReader(prefix)
  write_manifest(
    prefix,
    Manifest(
      tool="hpgrain test",
      tokenizer=tokenizer,
      append_eod=True,
      pack_to_seq_len=pack_to_seq_len,
      dtype="uint16",
      documents=reader.num_documents,
      sequences=len(reader),
      tokens=reader.num_tokens,
      dropped_tokens=0,
      empty_documents=0,
      inputs=(),
      **storage_fields(prefix, {}),
    ),
  )


def _tokens(samples, rows):
  return [samples[i]["tokens"].tolist() for i in range(rows)]


def test_documents_give_gpt_samples(documents):
  train, valid, test = _build(data_path=documents, split="8,1,1")
  for samples in (train, valid, test):
    assert type(samples) is GPTSamples
    assert samples.corpus.name == "documents"
  assert len(train) == (sum(3 + i % 4 for i in range(1, 33)) - 1) // 4
  # Train is shuffled; valid and test are read in file order.
  alone = GPTSamples(documents, seq_length=4, seed=0, split="8,1,1")
  assert _tokens(train, 9) == _tokens(alone, 9)
  assert valid[0]["tokens"].tolist() == [33, 33, 33, 33]
  assert test[0]["tokens"].tolist() == [37, 37, 37, 37]


def test_records_give_precut_samples(records):
  train, valid, test = _build(
    data_path=records, split="8,1,1", is_dataset_from_mr=True, eod_id=3
  )
  for samples in (train, valid, test):
    assert type(samples) is PrecutSamples
    assert samples.eod_id == 3
  assert [len(samples) for samples in (train, valid, test)] == [16, 2, 2]
  assert _tokens(valid, 2) == [[17] * 4, [18] * 4]


def test_mock_data_reads_no_file():
  train, valid, test = _build(mock_data=True, vocab_size=30, split="1,1,0")
  assert type(train) is MockSamples and type(valid) is MockSamples
  assert test is None
  alone = MockSamples(seq_length=4, seed=0, vocab_size=30, split_index=1)
  assert _tokens(valid, 3) == _tokens(alone, 3)


def test_a_split_without_weight_is_none(documents):
  train, valid, test = _build(data_path=documents, split="1,0,1")
  assert valid is None
  assert len(train) and len(test)


def test_splits_may_have_paths_of_their_own(tmp_path, documents):
  other = write_pair(tmp_path / "other", _DOCUMENTS[:10])
  train, valid, test = _build(train_data_path=documents, valid_data_path=other)
  assert test is None
  assert train.corpus.name == "documents" and valid.corpus.name == "other"
  # Each is read whole.
  assert len(train) == (IndexedReader(documents).num_tokens - 1) // 4
  assert len(valid) == (IndexedReader(other).num_tokens - 1) // 4


def test_the_tail_of_valid_and_test_is_kept_when_asked(tmp_path):
  prefix = write_pair(tmp_path / "a", [[list(range(11))]] * 3)
  arguments = {"data_path": prefix, "split": "1,1,1"}
  dropped = _build(**arguments)
  kept = _build(**arguments, drop_last_partial_validation_sequence=False)
  assert [len(samples) for samples in dropped] == [2, 2, 2]
  assert [len(samples) for samples in kept] == [2, 3, 3]


def test_several_prefixes_are_blended(tmp_path, documents):
  other = write_pair(tmp_path / "other", _DOCUMENTS[:20])
  train, _, _ = _build(data_path=(0.75, documents, 0.25, other), split="1")
  assert type(train) is BlendSamples
  assert [source.name for source in train.sources] == ["documents", "other"]
  assert train.rows_per_source(100).tolist() == [75, 25]
  every, _, _ = _build(data_path=(documents, other), split="1")
  sizes = [member.rows_per_epoch for member in every.members]
  assert len(every) == sum(sizes)
  assert every.rows_per_source(len(every)).tolist() == sizes
  named, _, _ = _build(
    data_path=(
      {"path": documents, "weight": 1, "name": "x"},
      {"path": documents, "weight": 1, "name": "y"},
    ),
    split="1",
  )
  assert [source.name for source in named.sources] == ["x", "y"]
  assert _tokens(named, 20) != _tokens(every, 20)


def test_a_source_of_one_weight_is_no_blend(documents):
  train, _, _ = _build(data_path=(0.3, documents), split="1")
  assert type(train) is GPTSamples


def test_a_folder_is_all_pairs_below_it(tmp_path):
  (tmp_path / "all" / "deep").mkdir(parents=True)
  for name in ("b", "deep/c", "a"):
    write_pair(tmp_path / "all" / name, _DOCUMENTS)
  train, _, _ = _build(data_path=str(tmp_path / "all"), split="1")
  assert [source.name for source in train.sources] == ["a", "b", "deep/c"]
  assert train.rows_per_source(30).tolist() == [10, 10, 10]


@pytest.mark.parametrize("kind", ["inter", "intra"])
def test_simple_blends_take_records(tmp_path, records, kind):
  other = write_pair(tmp_path / "other", _RECORDS[:4])
  train, _, _ = _build(
    data_path=(records, other),
    split="1",
    is_dataset_from_mr=True,
    simple_blend=kind,
  )
  drawn = [int(train[i]["dataset_id"]) for i in range(10)]
  expected = {"inter": [0, 1] * 4 + [0, 0], "intra": [0] * 10}
  assert drawn == expected[kind]
  for path in (str(tmp_path), tmp_path, (tmp_path,)):
    folder, _, _ = _build(
      data_path=path,
      split="1",
      is_dataset_from_mr=True,
      simple_blend=kind,
    )
    assert len(folder) == 24


def test_simple_blend_no_may_be_written_as_false(tmp_path, documents):
  other = write_pair(tmp_path / "other", _DOCUMENTS)
  train, _, _ = _build(
    data_path=(documents, other), split="1", simple_blend=False
  )
  assert len(train) == 2 * len(train.members[0])


def test_lazy_sources_give_the_same_rows(tmp_path, documents):
  other = write_pair(tmp_path / "other", _DOCUMENTS[:20])
  for path in (documents, (2, documents, 1, other)):
    eager, _, _ = _build(data_path=path)
    lazy, _, _ = _build(data_path=path, data_lazy_load=True)
    members = getattr(lazy, "members", (lazy,))
    assert all(type(member) is LazySamples for member in members)
    assert _tokens(lazy, 20) == _tokens(eager, 20)
    assert lazy.unique_identifiers == eager.unique_identifiers


def test_reading_options_change_no_row(documents):
  plain, _, _ = _build(data_path=documents)
  for options in ({"mmap": False}, {"contiguous": False}):
    other, _, _ = _build(data_path=documents, **options)
    assert _tokens(other, 20) == _tokens(plain, 20)


def test_max_open_files_is_set(documents, monkeypatch):
  given = []
  monkeypatch.setattr(indexed_dataset, "set_max_open_files", given.append)
  _build(data_path=documents, max_open_files=7)
  _build(data_path=documents)
  assert given == [7, 512]


def test_splits_of_a_source_share_its_reader(documents):
  train, valid, test = _build(data_path=documents, split="1,1,1")
  assert train.corpus.reader is valid.corpus.reader is test.corpus.reader


@pytest.mark.parametrize(
  "arguments, message",
  [
    ({}, r"There is no data: set dataset\.data_path"),
    ({"mock_data": True}, "needs to know the vocabulary"),
    (
      {"mock_data": True, "vocab_size": 9, "data_path": "/x"},
      "mock_data=True reads no file, and a data path is given",
    ),
    (
      {"data_path": "/x", "test_data_path": "/y"},
      "data_path is shared out by `split`",
    ),
    (
      {"data_path": "/x", "simple_blend": "inter"},
      r"simple_blend='inter' takes pre-cut records only",
    ),
    (
      {
        "mock_data": True,
        "vocab_size": 9,
        "create_ltor_fields_in_dataloader": True,
      },
      "mock_data=True has no documents",
    ),
    (
      {"mock_data": True, "vocab_size": 9, "data_sharding": 2},
      "data_sharding=2 orders rows that are read",
    ),
    (
      {"data_path": "/x", "order": "megatron", "is_dataset_from_mr": True},
      "^order='megatron' is of documents, and is_dataset_from_mr=True has",
    ),
    (
      {"mock_data": True, "vocab_size": 9, "order": "documents"},
      "^order='documents' is of documents, and mock_data=True has none",
    ),
    (
      {"data_path": "/x", "order": "documents", "num_samples": 9},
      '^num_samples=9 goes with order="megatron" alone',
    ),
    *(
      (
        {"data_path": "/x", "order": "megatron", "num_samples": wrong},
        "^num_samples is a number of train rows, or three .* Got",
      )
      for wrong in (-1, (1, 2), (1, -2, 3), "12", True, 1.5)
    ),
    ({"data_path": "/x", "split": "1,-1"}, "cannot be negative"),
    ({"data_path": (1, "/x", "/y")}, "weight and a prefix in turn"),
  ],
)
def test_contradicting_arguments_are_refused(arguments, message):
  with pytest.raises(ValueError, match=message):
    _build(**arguments)


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("lazy", [True, False])
def test_floats_are_no_token_ids(tmp_path, mmap, lazy):
  for dtype in ("float32", "float64"):
    prefix = tmp_path / dtype
    with IndexedWriter(prefix, dtype=dtype) as writer:
      writer.add_document([1.0, 2.5, 3.0, 4.0, 5.0, 6.0])
    arguments = {"data_path": str(prefix), "split": "1", "mmap": mmap}
    with pytest.raises(
      ValueError,
      match=rf"{re.escape(str(prefix))}\.idx says .* of {dtype}, but token ids"
      r" are integers.*write them again with IndexedWriter",
    ):
      train, _, _ = _build(**arguments, data_lazy_load=lazy)
      # Whoever opens late hears it late, but still before a row.
      assert lazy
      len(train)


def test_another_order_is_refused(documents):
  with pytest.raises(
    ValueError,
    match=r"^order must be 'stable' or 'documents' or 'megatron', got 'random'",
  ):
    _build(data_path=documents, order="random")


def test_a_path_without_a_pair_is_refused(tmp_path):
  with pytest.raises(FileNotFoundError, match="nothing"):
    _build(data_path=str(tmp_path / "nothing"))


def test_simple_blends_refuse_weights(tmp_path, records):
  other = write_pair(tmp_path / "other", _RECORDS)
  with pytest.raises(
    ValueError, match=r"knows no weights, got weights \[1, 2\]"
  ):
    _build(
      data_path=(1, records, 2, other),
      is_dataset_from_mr=True,
      simple_blend="inter",
    )


def test_records_are_not_taken_for_documents(tmp_path, records):
  with pytest.raises(
    ValueError,
    match=r"All 20 sequences of .*records have 5 tokens, exactly a row.*"
    r"is_dataset_from_mr=True.*skip_data_check=True",
  ):
    _build(data_path=records)
  train, _, _ = _build(data_path=records, skip_data_check=True)
  assert type(train) is GPTSamples
  # Of another length, or one among others, they are documents.
  assert type(_build(data_path=records, seq_length=7)[0]) is GPTSamples
  mixed = write_pair(tmp_path / "mixed", [*_RECORDS, [[1]]])
  assert type(_build(data_path=mixed)[0]) is GPTSamples


def test_documents_are_not_taken_for_records(documents):
  with pytest.raises(
    ValueError, match=r"seq_length \+ extra = 5 tokens; record 0 has 4"
  ):
    _build(data_path=documents, is_dataset_from_mr=True)


def test_a_manifest_knows_that_records_were_cut(documents, records):
  _write_manifest(records, pack_to_seq_len=4)
  with pytest.raises(
    ValueError, match=r"were cut to 4 \+ 1 tokens \(its manifest says\)"
  ):
    _build(data_path=records, seq_length=7)
  train, _, _ = _build(data_path=records, is_dataset_from_mr=True)
  assert type(train) is PrecutSamples


def test_a_manifest_knows_documents_that_look_like_records(records):
  _write_manifest(records)
  assert type(_build(data_path=records)[0]) is GPTSamples


def test_the_manifest_gives_the_ids(documents):
  _write_manifest(documents)
  (train, _, _), ids = build_splits(seed=0, seq_length=4, data_path=documents)
  assert ids == TokenIds(vocab_size=50, eod_id=0, pad_id=None)
  assert train.vocab_size == 50
  agreeing = _build(data_path=documents, vocab_size=50, eod_id=0)
  assert agreeing[0].vocab_size == 50
  with pytest.raises(
    ValueError,
    match=r"data_config\.vocab_size is 60, but the manifest of source .* says"
    r" 50",
  ):
    _build(data_path=documents, vocab_size=60)


def test_ids_come_from_the_arguments_where_nothing_else_knows(documents):
  _, ids = build_splits(
    seed=0, seq_length=4, data_path=documents, vocab_size=70, eod_id=3, pad_id=9
  )
  assert ids == TokenIds(vocab_size=70, eod_id=3, pad_id=9)


@pytest.mark.parametrize(
  "special, pad_id",
  [({"pad_id": 7}, 7), ({"pad_id": 0}, None), ({"pad_id": 5}, None)],
)
def test_padding_that_shares_an_ending_is_no_padding(
  documents, special, pad_id
):
  info = dataclasses.replace(_TOKENIZER, bos_id=5, **special)
  _write_manifest(documents, tokenizer=info)
  _, ids = build_splits(seed=0, seq_length=4, data_path=documents)
  assert ids.pad_id == pad_id


def test_corpora_of_two_tokenizers_are_refused(tmp_path, documents):
  other = write_pair(tmp_path / "other", _DOCUMENTS)
  _write_manifest(documents)
  _write_manifest(
    other,
    tokenizer=dataclasses.replace(_TOKENIZER, name="unigram", digest="f" * 32),
  )
  with pytest.raises(
    ValueError,
    match=r"manifest of source .* name different tokenizers \(bpe, digest"
    r" 0123456789ab, and unigram, digest ffffffffffff\)",
  ):
    _build(data_path=(documents, other))
  # One without a manifest is taken at its word.
  third = write_pair(tmp_path / "third", _DOCUMENTS)
  assert _build(data_path=(documents, third))[0].vocab_size == 50


def test_another_tokenizer_than_the_corpuss_is_refused(documents):
  _write_manifest(documents)
  assert _build(data_path=documents, tokenizer=_TOKENIZER)[0].vocab_size == 50
  other = dataclasses.replace(_TOKENIZER, digest="e" * 32)
  with pytest.raises(
    ValueError, match=r"model_assets\.tokenizer and the manifest of source"
  ):
    _build(data_path=documents, tokenizer=other)


def test_a_pair_changed_after_its_manifest_is_refused(documents):
  _write_manifest(documents)
  with Path(f"{documents}.bin").open("ab") as file:
    file.write(b"\0\0")
  with pytest.raises(ValueError, match="changed after it was written"):
    _build(data_path=documents)


def test_keys_without_meaning_are_said_once(documents, caplog, monkeypatch):
  monkeypatch.setattr(log, "_said", set())
  with caplog.at_level(logging.WARNING, logger="hpgrain"):
    for _ in range(2):
      _build(
        data_path=documents, data_cache_path="/cache", data_index_cache=True
      )
  said = [r.getMessage() for r in caplog.records if "no effect" in r.msg]
  assert said == [
    "data_index_cache=True has no effect: every process finds or builds an"
    " index by itself, and data_cache_path says where it is kept.",
    "data_cache_path='/cache' has no effect: order=\"stable\" builds no index"
    " to cache.",
  ]
