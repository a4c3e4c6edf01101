import json
import re
from pathlib import Path

import corpora
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpgrain import build_indexed_text_dataset, index, megatron
from hpgrain.index_cache import IndexCache
from hpgrain.megatron_blend import (
  MegatronMix,
  member_sizes,
  target_sizes,
)
from hpgrain.samples import GPTSamples
from hpgrain.sources.indexed import IndexedReader

_DATA = Path(__file__).parent / "data"
_GOLDEN = np.load(_DATA / "megatron.npz")
_CASES = json.loads((_DATA / "megatron.json").read_text())
_SPLITS = {"train": 0, "valid": 1, "test": 2}


def _golden_samples(name, cache=None):
  case = _CASES["gpt"][name]
  config = case["config"]
  which = config["index_split"]
  return GPTSamples(
    str(_DATA / "indexed" / config["dataset_path"]),
    seq_length=config["sequence_length"],
    seed=config["random_seed"],
    order="megatron",
    num_samples=case["num_samples"],
    split=config["split"],
    split_index=_SPLITS[which],
    add_extra_token="noextra" not in name,
    drop_last=not ("keeplast" in name and which == "valid"),
    cache=cache,
  )


@pytest.mark.parametrize("name", _CASES["gpt"])
def test_the_three_indices_are_megatrons(name):
  samples = _golden_samples(name)
  for kind in ("document_index", "sample_index", "shuffle_index"):
    expected = _GOLDEN[f"{name}/{kind}"]
    found = getattr(samples, kind)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
  assert len(samples) == _CASES["gpt"][name]["length"]


def test_a_cache_changes_nothing(tmp_path):
  for name in ("gpt/sweep260/train", "gpt/keeplast/valid"):
    for _ in range(2):
      cache = IndexCache(tmp_path)
      samples = _golden_samples(name, cache)
      for kind in ("document_index", "sample_index", "shuffle_index"):
        np.testing.assert_array_equal(
          getattr(samples, kind), _GOLDEN[f"{name}/{kind}"]
        )
    assert [event.built for event in cache.events] == [False] * 3


def test_another_row_length_finds_the_documents_where_they_were(tmp_path):
  prefix = str(_DATA / "indexed/u16_1")
  built = []
  for seq_length in (32, 48):
    cache = IndexCache(tmp_path)
    GPTSamples(
      prefix, seq_length=seq_length, seed=5, order="megatron", cache=cache
    ).build_index()
    built.append({event.kind: event.built for event in cache.events})
  everything = {"documents": True, "samples": True, "shuffle": True}
  assert built == [everything, everything | {"documents": False}]


def _built(name):
  """The blend of a golden case, built as its users build it."""
  case = _CASES["blend"][name]
  members = [
    _CASES["gpt"][f"{name}/member{i}"] for i in range(len(case["weights"]))
  ]
  config = members[0]["config"]
  which = config["index_split"]
  weighted = name.startswith("blend/weights")
  path = [
    {
      "path": str(_DATA / "indexed" / member["config"]["dataset_path"]),
      "name": f"{i}",
      **({"weight": weight} if weighted else {}),
    }
    for i, (member, weight) in enumerate(zip(members, case["weights"]))
  ]
  asked = [None, None, None]
  asked[_SPLITS[which]] = case["size"]
  if name == "blend/weights_splits/test":
    # Each source's share is rounded up: 2 + 3 + 4 + 5 rows.
    asked[_SPLITS[which]] = 12
  if weighted:
    # Every split of a weighted blend needs a number.
    asked = [1 if n is None else n for n in asked]
  splits = build_indexed_text_dataset(
    data_path=path,
    seq_length=config["sequence_length"],
    seed=config["random_seed"],
    split=config["split"],
    order="megatron",
    num_samples=asked,
    skip_data_check=True,
  )
  return splits[_SPLITS[which]]


@pytest.mark.parametrize("name", _CASES["blend"])
def test_blends_are_megatrons(name):
  samples = _built(name)
  source, sample = samples._pattern.locate(np.arange(len(samples)))
  np.testing.assert_array_equal(source, _GOLDEN[f"{name}/dataset_index"])
  np.testing.assert_array_equal(sample, _GOLDEN[f"{name}/dataset_sample_index"])
  for i, member in enumerate(samples.members):
    for kind in ("document_index", "sample_index", "shuffle_index"):
      np.testing.assert_array_equal(
        getattr(member, kind), _GOLDEN[f"{name}/member{i}/{kind}"]
      )
  first = _GOLDEN[f"{name}/first_tokens"]
  rows = samples.read(samples.plan_rows(np.arange(len(first))))
  np.testing.assert_array_equal(rows[:, :-1], first)
  assert [samples[i]["dataset_id"] for i in range(8)] == source[:8].tolist()


@pytest.mark.parametrize("case", _CASES["sizes"])
def test_sizes_are_megatrons(case):
  for target, column in zip(case["target"], zip(*case["out"])):
    sizes = member_sizes if case["surplus"] else target_sizes
    assert sizes(case["weights"], target) == list(column)


@pytest.mark.parametrize(
  "num_samples, shape",
  [
    # T = 10, S = 4, x = 1: an epoch holds (10 - 1) // 4 = 2 samples.
    (None, (1, False, 2, 2)),
    (0, (1, False, 2, 2)),
    (2, (1, False, 2, 2)),
    # 3 * 4 + 1 = 13 tokens: two epochs of 19 // 4 = 4 samples; the last has
    # 3 - 2 = 1, not less than int(0.8 * 2) = 1.
    (3, (2, False, 4, 4)),
    (4, (2, False, 4, 4)),
    (7, (3, False, 7, 7)),
  ],
)
def test_epochs_are_as_many_as_the_rows_need(num_samples, shape):
  found = megatron.index_shape(
    num_samples, tokens_per_epoch=10, seq_length=4, extra=1, drop_last=True
  )
  assert found == megatron.IndexShape(*shape)


def test_a_short_last_epoch_is_shuffled_by_itself():
  # 100 tokens, S = 4: 24 samples an epoch, 49 in two; int(0.8 * 24) = 19.
  for num_samples, separate in ((25, True), (42, True), (43, False)):
    shape = megatron.index_shape(
      num_samples, tokens_per_epoch=100, seq_length=4, extra=1, drop_last=True
    )
    first = 24 if separate else 49
    assert shape == megatron.IndexShape(2, separate, first, 49)


def test_a_kept_tail_is_counted_exactly_above_two_to_the_24():
  # Megatron's float32 ceil gives 2^24 / 4 + 1 for the first of these.
  for tokens in (2**24 + 1, 2**24 + 2, 2**40 + 1, 2**62 + 3):
    found = megatron.num_samples_in(
      tokens, seq_length=1, extra=1, drop_last=False
    )
    assert found == tokens - 1


def test_a_split_without_tokens_has_no_rows_whatever_is_asked_for(tmp_path):
  prefix = corpora.write_pair(tmp_path / "empty", [[[]], [[1, 2, 3]], [[]]])
  samples = GPTSamples(
    prefix,
    seq_length=2,
    seed=0,
    order="megatron",
    num_samples=100,
    split="1,1,1",
    split_index=2,
  )
  assert len(samples) == 0
  with pytest.raises(
    ValueError,
    match=r"^Source 'empty', split test of '1,1,1': its 1 sequences hold T = 0"
    r" tokens, .* smallest share that works is 2 of its 3 sequences",
  ):
    samples.plan(0)


def test_a_split_smaller_than_a_row_is_read_many_times(tmp_path):
  prefix = corpora.write_pair(tmp_path / "small", [[[1, 2]], [[3]]])
  samples = GPTSamples(
    prefix, seq_length=4, seed=0, order="megatron", num_samples=3
  )
  # 3 * 4 + 1 tokens need five epochs of three.
  assert len(samples) == (5 * 3 - 1) // 4
  rows = samples.read(samples.plan_rows(range(3)))
  assert sorted(set(rows.ravel().tolist())) == [1, 2, 3]


def test_rows_past_the_index_are_refused():
  samples = GPTSamples(
    str(_DATA / "indexed/u16_1"), seq_length=32, seed=0, order="megatron"
  )
  with pytest.raises(
    IndexError, match=r'^Row 97 was asked for, but order="megatron" .* 97 rows'
  ):
    samples.plan_rows([3, 97])
  with pytest.raises(IndexError, match="-1"):
    samples.plan_rows([-1])


def test_only_megatrons_order_has_its_indices():
  samples = GPTSamples(str(_DATA / "indexed/u16_1"), seq_length=32, seed=0)
  with pytest.raises(AttributeError, match=r"order='stable'; only order="):
    _ = samples.document_index


def test_a_blend_that_draws_more_than_a_member_has_is_sized_anew(tmp_path):
  # One source of a thousandth: 0.5 % in reserve of one row is one row.
  pairs = []
  for i in range(3):
    documents = [[[10 * i + 1, 10 * i + 2, 10 * i + 3]]] * (4 if i else 400)
    pairs.append(str(corpora.write_pair(tmp_path / f"{i}", documents)))
  weights = (0.998, 0.001, 0.001)
  path = [x for pair in zip(weights, pairs) for x in pair]
  train, _, _ = build_indexed_text_dataset(
    data_path=path,
    seq_length=4,
    seed=0,
    split="1,0,0",
    order="megatron",
    num_samples=4000,
  )
  rows = train.read(train.plan_rows(np.arange(len(train))))
  counts = train.rows_per_source(len(train))
  assert counts.sum() == len(train) == 3992 + 4 + 4
  for i, member in enumerate(train.members):
    assert member.rows_per_epoch >= counts[i]
  assert set((rows // 10).max(1).tolist()) == {0, 1, 2}


def test_sources_without_rows_are_told_apart_in_the_cache(tmp_path):
  cache = IndexCache(tmp_path)
  for sizes, drawn in (((5, 0, 5), {0, 2}), ((5, 5, 0), {0, 1})):
    mix = MegatronMix(None, 6, cache=cache)
    source, _ = mix.pattern(sizes).locate(np.arange(6))
    assert set(source.tolist()) == drawn


def test_weights_need_a_number_of_rows():
  prefix = str(_DATA / "indexed/u16_1")
  other = str(_DATA / "indexed/u16_0")
  with pytest.raises(ValueError, match=r"training\.train_samples"):
    build_indexed_text_dataset(
      data_path=(0.5, prefix, 0.5, other),
      seq_length=32,
      seed=0,
      split="1,0,0",
      order="megatron",
    )


@given(
  length=st.integers(0, 300),
  seed=st.integers(0, 2**32 - 1),
  drawn=st.integers(0, 700),
)
def test_shuffle_is_numpys_and_so_is_the_state(length, seed, drawn):
  ours, numpys = (np.random.RandomState(seed) for _ in range(2))
  for generator in (ours, numpys):
    generator.randint(0, 7, size=drawn)
  expected = np.arange(length, dtype=np.int32)
  found = expected.copy()
  numpys.shuffle(expected)
  index.shuffle(found, ours)
  np.testing.assert_array_equal(found, expected)
  assert ours.randint(2**31) == numpys.randint(2**31)


@pytest.mark.parametrize("array", [[1, 2], np.ma.arange(3), None])
def test_shuffle_refuses_what_is_no_plain_array(array):
  with pytest.raises(ValueError, match="works in place on a NumPy array, got"):
    index.shuffle(array, np.random.RandomState(0))


@pytest.mark.parametrize("weights", [(1e308, 1e308), (1e-320, 1e300)])
def test_weights_too_far_apart_are_named_as_they_were_given(weights):
  with pytest.raises(
    ValueError, match=rf"source 0 has {re.escape(repr(weights[0]))}"
  ):
    member_sizes(weights, 10)


def test_shuffle_refuses_other_generators():
  array = np.arange(3)
  with pytest.raises(ValueError, match=r"RandomState, got Generator"):
    index.shuffle(array, np.random.default_rng(0))
  other = np.random.RandomState(np.random.PCG64(0))
  with pytest.raises(ValueError, match="over MT19937, got one over PCG64"):
    index.shuffle(array, other)


def test_sample_index_is_the_worked_example():
  lengths = np.array([5, 3, 4, 6], np.int32)
  order = np.array([2, 0, 3, 1], np.int32)

  def walk(**options):
    return index.sample_index(
      lengths, order, seq_length=4, num_epochs=1, tokens_per_epoch=18, **options
    ).tolist()

  five = [[0, 0], [1, 0], [1, 4], [2, 3], [3, 1]]
  assert walk() == five
  assert walk(drop_last=False) == [*five, [3, 2]]
  assert walk(add_extra_token=False) == [
    [0, 0],
    [0, 4],
    [1, 4],
    [2, 3],
    [3, 1],
  ]


@pytest.mark.parametrize(
  "options, message",
  [
    ({"seq_length": 0}, "seq_length must be at least 1, got 0"),
    ({"num_epochs": 0}, "num_epochs must be at least 1, got 0"),
    ({"tokens_per_epoch": -1}, "tokens_per_epoch must be at least 0, got -1"),
    ({"tokens_per_epoch": 99}, r"num_epochs=1 times tokens_per_epoch=99 pro"),
    ({"tokens_per_epoch": 2**70}, "tokens_per_epoch must be at most"),
    ({"seq_length": 2**70}, "seq_length must be at most"),
    (
      {"seq_length": 1, "num_epochs": 2**40, "tokens_per_epoch": 2**40},
      r"promises 1208925819614629174706175 samples, more than 2\^62",
    ),
  ],
)
def test_numbers_that_do_not_fit_are_refused(options, message):
  arguments = {"seq_length": 4, "num_epochs": 1, "tokens_per_epoch": 3}
  with pytest.raises(ValueError, match=message):
    index.sample_index(
      np.array([3], np.int32), np.array([0], np.int32), **arguments | options
    )


def test_blend_index_takes_weights_as_they_are():
  for weights in ([0.7, 0.3], [7, 3]):
    source, _ = index.blend_index(weights, 10)
    expected = _slow_blend(weights, 10)
    assert source.tolist() == expected
  assert index.blend_index([0.7, 0.3], 10)[0].tolist() == [
    0,
    1,
    0,
    0,
    1,
    0,
    0,
    1,
    0,
    0,
  ]
  assert index.blend_index([0.5, 0.3, 0.2], 10)[0].tolist() == [
    0,
    1,
    2,
    0,
    1,
    0,
    2,
    0,
    1,
    0,
  ]


def _slow_blend(weights, size):
  counts = [0] * len(weights)
  drawn = []
  for t in range(size):
    errors = [w * max(t, 1.0) - c for w, c in zip(weights, counts)]
    drawn.append(errors.index(max(errors)))
    counts[drawn[-1]] += 1
  return drawn


@pytest.mark.parametrize(
  "call, message",
  [
    (lambda: index.blend_index([], 3), "at least one weight"),
    (lambda: index.blend_index([1, 0], 3), "source 1 has 0"),
    (lambda: index.blend_index([1, -1], 3), "source 1 has -1"),
    (lambda: index.blend_index([float("nan")], 3), "source 0 has nan"),
    (lambda: index.blend_index([1], -3), "size must be at least 0, got -3"),
    (lambda: index.exhaustive_blend_index([]), "at least one source"),
    (lambda: index.exhaustive_blend_index([3, -1]), "at least 0, got -1"),
    (lambda: index.blend_index([1], 2**70), "size must be at most"),
    (lambda: index.exhaustive_blend_index([2**70]), "size must be at most"),
  ],
)
def test_illegal_blends_are_refused(call, message):
  with pytest.raises(ValueError, match=message):
    call()


def test_exhaustive_blends_take_every_row_once():
  source, sample = index.exhaustive_blend_index([3, 0, 1, 5])
  assert sorted(zip(source.tolist(), sample.tolist())) == [
    *((0, k) for k in range(3)),
    (2, 0),
    *((3, k) for k in range(5)),
  ]


def test_the_documented_example_goes_on_where_megatron_stopped(capsys):
  text = (Path(__file__).parents[1] / "docs/megatron.md").read_text("utf-8")
  (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
  (printed,) = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
  data = str(_DATA / "indexed/u16_1")
  assert code.count("tests/data/indexed/u16_1") == 1
  exec(code.replace("tests/data/indexed/u16_1", data), {})
  assert capsys.readouterr().out == printed
  found = np.fromstring(re.sub(r"[\[\]]", " ", printed), np.int64, sep=" ")
  rows = [_golden_row("gpt/u16_1_n333/train", i)[:6] for i in range(160, 164)]
  np.testing.assert_array_equal(found.reshape(4, 6), rows)


def _golden_row(name, row):
  """The tokens between two entries of Megatron's sample index."""
  documents, samples, order = (
    _GOLDEN[f"{name}/{kind}_index"]
    for kind in ("document", "sample", "shuffle")
  )
  dataset = _CASES["gpt"][name]["config"]["dataset_path"]
  reader = IndexedReader(_DATA / "indexed" / dataset)
  (first, begin), (last, end) = samples[order[row] : order[row] + 2]
  tokens = [reader[documents[i]].tolist() for i in range(first, last + 1)]
  tokens[-1] = tokens[-1][: end + 1]
  tokens[0] = tokens[0][begin:]
  return [token for part in tokens for token in part]


def test_a_shared_source_with_a_weight_is_a_blend_as_megatron_has_it():
  prefix = str(_DATA / "indexed/u16_1")
  options = {"seq_length": 32, "seed": 1234, "split": "1,0,0"}
  options |= {"order": "megatron", "num_samples": 97}
  plain, *_ = build_indexed_text_dataset(data_path=prefix, **options)
  weighted, *_ = build_indexed_text_dataset(data_path=(1.0, prefix), **options)
  own, *_ = build_indexed_text_dataset(
    train_data_path=(1.0, prefix), **options | {"split": "969, 30, 1"}
  )
  # ceil(97 * 1.005) = 98 rows take a second epoch, and with it another order.
  (member,) = weighted.members
  assert (plain.num_samples, member.num_samples) == (97, 98)
  assert (len(plain), len(weighted), len(member)) == (97, 97, 195)
  assert own.num_samples == 97
  rows = np.arange(97)
  first = plain.read(plain.plan_rows(rows))
  assert (weighted.read(weighted.plan_rows(rows)) != first).any()
  np.testing.assert_array_equal(own.read(own.plan_rows(rows)), first)
