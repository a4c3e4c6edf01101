import itertools
import json
import pickle
import random

import grain
import numpy as np
import pytest
import reference
from corpora import random_documents, random_records, write_pair

from hpgrain import BlendSamples, GPTSamples, PrecutSamples

_SEED = 5


def _documents(tmp_path, count, *, num_documents=8, seq_length=4):
  """`count` corpora, as samples and as the slow reference."""
  rng = random.Random(count)
  members, expected = [], []
  for i in range(count):
    prefix = write_pair(
      tmp_path / f"s{i}",
      [
        *random_documents(rng, num_documents=num_documents, max_length=9),
        [[7] * (seq_length + 1)],
      ],
    )
    members.append(GPTSamples(prefix, seq_length=seq_length, seed=_SEED))
    expected.append(
      reference.GPT(
        reference.read_corpus(prefix),
        seq_length=seq_length,
        seed=_SEED,
        name=f"s{i}",
      )
    )
  return members, expected


def _records(tmp_path, counts):
  rng = random.Random(len(counts))
  members, expected = [], []
  for i, count in enumerate(counts):
    prefix = write_pair(
      tmp_path / f"s{i}", random_records(rng, num_records=count, length=5)
    )
    members.append(PrecutSamples(prefix, seq_length=4, seed=_SEED, eod_id=0))
    expected.append(
      reference.PreCut(
        reference.read_corpus(prefix), seed=_SEED, name=f"s{i}", eod=0
      )
    )
  return members, expected


def _check(blend, expected, rows):
  plans = blend.plan_rows(rows)
  wanted = [expected.row(i) for i in rows]
  assert blend.read(plans).tolist() == [row.tokens for row in wanted]
  segments = blend.segments(plans)
  assert [
    segments.starts[a:b].tolist()
    for a, b in itertools.pairwise(segments.row_splits)
  ] == [row.starts for row in wanted]


@pytest.mark.parametrize("count", [1, 2, 300])
@pytest.mark.parametrize("weighted", [True, False])
def test_rows_are_the_slow_references(tmp_path, count, weighted):
  members, sources = _documents(
    tmp_path, count, num_documents=8 if count < 10 else 1
  )
  weights = [1 + i % 7 for i in range(count)] if weighted else None
  blend = BlendSamples(members, weights=weights)
  expected = reference.Blend(sources, weights)
  epoch = sum(source.rows_per_epoch for source in sources)
  assert len(blend) == expected.num_rows(1)
  assert blend.num_rows(2) == expected.num_rows(2)
  rng = random.Random(1)
  rows = rng.sample(range(epoch), min(epoch, 200))
  if weighted:
    rows += [rng.randrange(10**9) for _ in range(30)]
    _check(blend, expected, rows)
    return
  _check(blend, expected, rows)
  # Later epochs repeat the pattern with each source's next epoch.
  far = [rng.randrange(3, 9) * epoch + row for row in rows[:50]]
  plans = blend.plan_rows(far)
  for row, text in zip(far, blend.read(plans).tolist()):
    number, k = expected.locate(row % epoch)
    source = sources[number]
    wanted = source.row(k + row // epoch * source.rows_per_epoch)
    assert text == wanted.tokens


@pytest.mark.parametrize(
  "kind, plain", [("inter", reference.Inter), ("intra", reference.Intra)]
)
@pytest.mark.parametrize("counts", [[3], [3, 1, 2], [1, 5], [4, 4]])
def test_simple_blends_are_the_slow_references(tmp_path, kind, plain, counts):
  members, sources = _records(tmp_path, counts)
  blend = BlendSamples(members, simple_blend=kind)
  assert len(blend) == sum(counts)
  assert blend.num_rows(3) == 3 * sum(counts)
  _check(blend, plain(sources), list(range(3 * sum(counts) + 1)))


def test_plans_number_the_sources_and_rows_carry_it(tmp_path):
  members, sources = _records(tmp_path, [2, 2])
  blend = BlendSamples(members, simple_blend="intra")
  # Before anything else was asked of the blend.
  assert [source.name for source in blend.sources] == ["s0", "s1"]
  plan = blend.plan_rows([3, 0])
  assert plan.source.tolist() == [1, 0]
  row = blend[2]
  assert sorted(row) == ["dataset_id", "labels", "tokens"]
  assert row["dataset_id"] == 1 and row["dataset_id"].dtype == np.int32
  assert row["tokens"].tolist() == sources[1].row(0).tokens[:-1]


def test_a_window_of_a_row_is_that_part_of_it(tmp_path):
  members, _ = _documents(tmp_path, 3)
  blend = BlendSamples(members, weights=[1, 2, 3])
  plans = blend.plan_rows(range(20))
  whole = blend.read(plans)
  for begin, end in itertools.combinations(range(5), 2):
    found = blend.read(plans, (begin, end))
    assert found.tolist() == whole[:, begin : end + 1].tolist()


def test_members_keep_the_rows_they_have_alone(tmp_path):
  members, _ = _documents(tmp_path, 3)
  blend = BlendSamples(members, weights=[3, 1, 2])
  plans = blend.plan_rows(range(30))
  text = blend.read(plans)
  source = plans.source[plans.row_splits[:-1]]
  for i, member in enumerate(members):
    mine = text[source == i]
    alone = member.read(member.plan_rows(range(len(mine))))
    assert mine.tolist() == alone.tolist()
  counts = np.bincount(source, minlength=3)
  assert blend.rows_per_source(30).tolist() == counts.tolist()


def test_adding_a_source_leaves_the_others_rows_alone(tmp_path):
  members, _ = _documents(tmp_path, 3)

  def rows_of(blend, number):
    plans = blend.plan_rows(range(60))
    source = plans.source[plans.row_splits[:-1]]
    return blend.read(plans)[source == number].tolist()[:8]

  two = BlendSamples(members[:2], weights=[1, 1])
  three = BlendSamples(members, weights=[1, 1, 3])
  for number in (0, 1):
    assert rows_of(two, number) == rows_of(three, number)


def test_a_weighted_blend_ends_before_a_source_repeats(tmp_path):
  members, sources = _records(tmp_path, [6, 2])
  blend = BlendSamples(members, weights=[1, 1])
  expected = reference.Blend(sources, [1, 1])
  for epochs in (1, 2, 5):
    rows, ending = blend.end(epochs)
    assert rows == expected.num_rows(epochs) == blend.num_rows(epochs)
    assert ending == 1
    counts = blend.rows_per_source(rows)
    assert counts[1] == 2 * epochs
    assert blend.rows_per_source(rows + 1)[1] == 2 * epochs + 1
  assert BlendSamples(members).end(2) == (16, None)


def test_a_source_without_rows_is_named_when_it_would_be_drawn(tmp_path):
  full = write_pair(tmp_path / "full", [[[1] * 20]])
  empty = write_pair(tmp_path / "empty", [[[1] * 3]])
  members = [GPTSamples(path, seq_length=4, seed=0) for path in (full, empty)]
  blend = BlendSamples(members, weights=[1, 1])
  assert len(blend) == 0
  with pytest.raises(ValueError, match=r"Source 'empty'.*needs S \+ x = 5"):
    blend.plan(0)
  # By their rows it has no share, and the others make the blend.
  unweighted = BlendSamples(members)
  assert len(unweighted) == 4
  plans = unweighted.plan_rows(range(9))
  assert plans.source.tolist() == [0] * 9
  assert unweighted.rows_per_source(9).tolist() == [9, 0]
  nothing = BlendSamples(members[1:])
  assert len(nothing) == 0
  with pytest.raises(ValueError, match="Source 'empty'"):
    nothing.plan(0)


def test_members_must_agree_and_have_unlike_names(tmp_path):
  prefix = write_pair(tmp_path / "a", [[[1] * 20]])
  member = GPTSamples(prefix, seq_length=4, seed=0)
  other = GPTSamples(prefix, seq_length=5, seed=0, name="b")
  with pytest.raises(
    ValueError, match="agree in seq_length; source 0 has 4, source 1 5"
  ):
    BlendSamples([member, other]).plan(0)
  for change in ({"seed": 1}, {"shuffle": False}, {"vocab_size": 3}):
    options = {"seq_length": 4, "seed": 0, "name": "b"} | change
    with pytest.raises(ValueError, match=f"agree in {next(iter(change))};"):
      BlendSamples([member, GPTSamples(prefix, **options)]).plan(0)
  twin = GPTSamples(prefix, seq_length=4, seed=0)
  with pytest.raises(ValueError, match="Sources 0 and 1 are both named 'a'"):
    BlendSamples([member, twin]).plan(0)


@pytest.mark.parametrize(
  "options, message",
  [
    ({"weights": [1.0]}, "1 weights for 2 sources"),
    ({"weights": [1.0, 0.0]}, "source 1 has 0.0"),
    ({"simple_blend": "both"}, r'"no", "inter" or "intra", got \'both\''),
    (
      {"weights": [1, 2], "simple_blend": "inter"},
      r"simple_blend='inter' takes every row .* got weights \[1, 2\]",
    ),
  ],
)
def test_illegal_arguments_are_refused(tmp_path, options, message):
  members, _ = _records(tmp_path, [2, 2])
  with pytest.raises(ValueError, match=message):
    BlendSamples(members, **options)


def test_no_members_are_no_blend():
  with pytest.raises(ValueError, match="at least one source, got none"):
    BlendSamples([])


def test_negative_rows_are_no_rows(tmp_path):
  members, _ = _records(tmp_path, [2, 2])
  with pytest.raises(IndexError, match="got row -1"):
    BlendSamples(members)[-1]


def test_an_id_outside_the_vocabulary_names_its_source(tmp_path):
  paths = [
    write_pair(tmp_path / name, [[[token] * 9]])
    for name, token in (("low", 1), ("high", 90))
  ]
  members = [
    GPTSamples(path, seq_length=4, seed=0, vocab_size=50) for path in paths
  ]
  blend = BlendSamples(members)
  with pytest.raises(ValueError, match="Source 'high', sequence 0, offset"):
    blend.read(blend.plan_rows(range(4)))


def test_identity_is_the_members_and_their_weights(tmp_path):
  members, _ = _documents(tmp_path, 2)
  expected = BlendSamples(members, weights=[1, 2]).unique_identifiers
  assert BlendSamples(members, weights=[1, 2]).unique_identifiers == expected
  assert [source["name"] for source in expected["sources"]] == ["s0", "s1"]
  for other in (
    BlendSamples(members, weights=[2, 1]),
    BlendSamples(members),
    BlendSamples(members[::-1], weights=[1, 2]),
    BlendSamples(members, simple_blend="inter"),
  ):
    assert other.unique_identifiers != expected


def test_rows_compose_with_grain(tmp_path):
  members, _ = _records(tmp_path, [2, 3])
  blend = BlendSamples(members)
  batches = blend.map(lambda row: row["dataset_id"]).batch(5)
  assert sorted(batches[0].tolist()) == [0, 0, 1, 1, 1]
  assert len(blend[1:4]) == 3
  grain.experimental.assert_equal_output_after_checkpoint(
    blend.map(lambda row: row["tokens"]).to_iter_dataset()
  )


def test_copies_read_the_same_rows(tmp_path):
  members, _ = _records(tmp_path, [2, 5])
  for options in ({"weights": [2, 1]}, {}):
    samples = BlendSamples(members, **options)
    other = pickle.loads(pickle.dumps(samples))
    for row in range(9):
      np.testing.assert_array_equal(
        other[row]["tokens"], samples[row]["tokens"]
      )


def test_weights_in_any_unit_are_one_identity(tmp_path):
  members, _ = _records(tmp_path, [2, 5])
  seen = [
    BlendSamples(members, weights=weights).unique_identifiers
    for weights in ([7, 3], [0.7, 0.3], np.array([70, 30]))
  ]
  assert seen[0] == seen[1] == seen[2]
  assert seen[0] != BlendSamples(members, weights=[6, 4]).unique_identifiers
  json.dumps(seen)
