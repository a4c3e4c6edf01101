"""The reference against cases worked out by hand."""

import itertools
import json
import re
from pathlib import Path

import corpora
import numpy as np
import pytest
import reference


def write(tmp_path, documents, **options):
  prefix = corpora.write_pair(tmp_path / "c", documents, **options)
  return reference.read_corpus(prefix)


def gpt(corpus, **options):
  defaults = {"seq_length": 4, "seed": 0, "name": "c", "shuffle": False}
  return reference.GPT(corpus, **{**defaults, **options})


def test_mix64_is_splitmix64():
  # The published first outputs of splitmix64 seeded with 0 and 1234567.
  assert reference.mix64(reference.PHI) == 0xE220A8397B1DCDAF
  states = [1234567 + (i + 1) * reference.PHI for i in range(2)]
  assert [reference.mix64(state) for state in states] == [
    6457827717110365317,
    3203168211198807973,
  ]


def test_key_is_over_compact_unescaped_json():
  # blake2b(b'[1,"\xc3\xa4",2]'), computed with b2sum.
  low, high = reference.key(1, "ä", 2)
  made = low.to_bytes(8, "little") + high.to_bytes(8, "little")
  assert made.hex() == "3622beffe6e2acad9ed01db6c91578ec"


@pytest.mark.parametrize("size", [1, 2, 3, 5, 16, 255, 256, 257, 1000])
def test_permute_is_a_bijection_that_moves_rows(size):
  words = reference.key(3, "a", 0)
  images = [reference.permute(i, size, words) for i in range(size)]
  assert sorted(images) == list(range(size))
  assert size < 16 or images != list(range(size))


def test_corpus_knows_documents_and_empty_sequences(tmp_path):
  documents = [[[1, 2]], [], [[3], [], [4, 5]], [[]], [[6]]]
  corpus = write(tmp_path, documents, dtype="int32")
  assert corpus.sequences == [[1, 2], [3], [], [4, 5], [], [6]]
  assert corpus.documents == [0, 2, 2, 2, 3, 4]


@pytest.mark.parametrize("dtype", sorted(corpora.DTYPE_CODES))
def test_corpus_reads_every_token_dtype(tmp_path, dtype):
  corpus = write(tmp_path, [[[1, 127]], [[0]]], dtype=dtype)
  assert corpus.sequences == [[1, 127], [0]]


@pytest.mark.parametrize(
  ("split", "count", "bounds"),
  [
    ("98, 1, 1", 1000, [(0, 980), (980, 990), (990, 1000)]),
    ("98, 1, 1", 17, [(0, 17), (17, 17), (17, 17)]),
    ("969,30,1", 1001, [(0, 970), (970, 1000), (1000, 1001)]),
    ("1", 5, [(0, 5), None, None]),
    (".5,0,.5", 5, [(0, 2), None, (2, 5)]),
  ],
)
def test_split_bounds(split, count, bounds):
  assert reference.split_bounds(split, count) == bounds


def test_gpt_rows_overlap_by_the_extra_token(tmp_path):
  corpus = write(tmp_path, [[[1, 2, 3]], [[4, 5, 6], [7, 8]], [[], [9, 10]]])
  rows = gpt(corpus)
  assert rows.rows_per_epoch == 2
  assert rows.row(0) == reference.Row([1, 2, 3, 4, 5], [0, 3])
  assert rows.row(1) == reference.Row([5, 6, 7, 8, 9], [0, 4])


def test_gpt_without_extra_token_and_with_a_kept_tail(tmp_path):
  corpus = write(tmp_path, [[[1, 2, 3, 4, 5]], [[6, 7, 8, 9, 10]]])
  assert gpt(corpus, extra=0).row(1) == reference.Row([5, 6, 7, 8], [0, 1])
  kept = gpt(corpus, extra=0, keep_last=True)
  assert kept.rows_per_epoch == 3
  assert kept.row(2) == reference.Row([9, 10], [0])
  assert kept.row(5) == reference.Row([9, 10], [0])
  # With the extra token a last row of one token would train nothing.
  nine = gpt(corpus, bounds=(0, 1), keep_last=True)
  assert nine.rows_per_epoch == 1
  assert gpt(corpus, keep_last=True).row(2) == reference.Row([9, 10], [0])


def test_gpt_split_bound_inside_a_document_ends_it(tmp_path):
  corpus = write(tmp_path, [[[1, 2, 3], [4, 5, 6]], [[7]]])
  rows = gpt(corpus, seq_length=1, bounds=(1, 3))
  assert [rows.row(i).tokens for i in range(3)] == [[4, 5], [5, 6], [6, 7]]
  assert [rows.row(i).starts for i in range(3)] == [[0], [0], [0, 1]]


def test_gpt_epochs_shift_inside_the_slack_and_reach_every_token(tmp_path):
  corpus = write(tmp_path, [[list(range(11))]])
  rows = gpt(corpus)
  assert rows.rows_per_epoch == 2
  begins = [rows.span(2 * epoch)[0] for epoch in range(40)]
  assert begins[0] == 0
  assert set(begins) == {0, 1, 2}
  for epoch, begin in enumerate(begins):
    assert rows.span(2 * epoch + 1) == (begin + 4, begin + 9)
  kept = gpt(corpus, keep_last=True)
  assert [kept.span(3 * epoch)[0] for epoch in range(9)] == [0] * 9


def test_gpt_shuffle_is_a_permutation_of_each_epoch(tmp_path):
  corpus = write(tmp_path, [[list(range(101))]])
  rows = gpt(corpus, shuffle=True)
  epochs = [[rows.span(25 * e + i)[0] for i in range(25)] for e in range(2)]
  for epoch in epochs:
    assert sorted(epoch) == list(range(0, 100, 4))
  assert epochs[0] != epochs[1]


def test_eod_bounds():
  found = reference.eod_bounds([1, 9, 2, 3, 9, 4, 5, 6], 9)
  assert found == [0, 2, 5, 8]
  assert reference.eod_bounds([9, 9, 1, 9], 9) == [0, 1, 2, 4]
  assert reference.eod_bounds([9, 9, 1, 9], None) == [0, 4]


def test_precut_rows_are_records(tmp_path):
  corpus = write(tmp_path, [[[1, 9, 2]], [[9, 9, 9]], [[3, 4, 5]]])
  rows = reference.PreCut(
    corpus, seed=0, name="c", eod=9, bounds=(0, 2), shuffle=False
  )
  assert rows.rows_per_epoch == 2
  assert rows.row(0) == reference.Row([1, 9, 2], [0, 2])
  assert rows.row(3) == reference.Row([9, 9, 9], [0, 1, 2])


def test_mock_rows_differ_by_seed_split_and_row():
  def row(i, **options):
    defaults = {"seq_length": 8, "seed": 1, "split_name": "train"}
    source = reference.Mock(**{**defaults, "vocab_size": 50, **options})
    return source.row(i)

  assert row(3) == row(3)
  assert row(3).starts == [0]
  assert len(row(3).tokens) == 9
  assert all(0 <= token < 50 for token in row(3).tokens)
  others = [row(4), row(3, seed=2), row(3, split_name="valid")]
  assert all(other != row(3) for other in others)
  # A position's token does not know how long the row is.
  assert row(3, seq_length=4).tokens == row(3).tokens[:5]


def located(weights, count):
  tree = reference.Tree(weights)
  return [tree.locate(g) for g in range(count)]


def test_tree_of_two_splits_by_rounded_shares():
  # c(n) = floor(n * 3/10 + 1/2) of the first n rows are the smaller's:
  # 0 0 1 1 1 2 2 2 2 3 3, so rows 1, 4 and 8 go there.
  sources = [1, 0, 1, 1, 0, 1, 1, 1, 0, 1]
  for weights in ([3, 7], [0.3, 0.7], [30, 70]):
    got = located(weights, 10)
    assert [1 - source for source, _ in got] == [1 - s for s in sources]
  counts = {0: itertools.count(), 1: itertools.count()}
  assert got == [(source, next(counts[source])) for source in sources]


def test_tree_joins_the_two_smallest_and_ties_go_to_the_earlier():
  # 1 + 1 -> a node of 2, joined after source 2 (made earlier) of equal weight.
  tree = reference.Tree([1, 1, 2])
  assert tree.root[2][0][2] == 2
  assert [leaf[2] for leaf in tree.root[2][1][2]] == [0, 1]
  # c(n) = floor(n / 2 + 1/2): every even row goes left, to source 2, and the
  # others alternate in the same way.
  assert [s for s, _ in located([1, 1, 2], 8)] == [2, 0, 2, 1, 2, 0, 2, 1]


def test_tree_stays_near_every_share():
  weights = [0.8] + [0.01] * 20
  seen = [0] * len(weights)
  for g, (source, k) in enumerate(located(weights, 1000)):
    assert k == seen[source]
    seen[source] += 1
    for count, weight in zip(seen, weights, strict=True):
      assert abs(count - (g + 1) * weight) < 1.5


class Plain(reference.Source):
  """A source whose rows are its number and their own."""

  def __init__(self, number, rows_per_epoch):
    self.number, self.rows_per_epoch = number, rows_per_epoch

  def row(self, i):
    return reference.Row([self.number, i], [0])


def first_rows(rows, count):
  return [tuple(rows.row(i).tokens) for i in range(count)]


def test_blend_without_weights_gives_every_row_once():
  blend = reference.Blend([Plain(0, 3), Plain(1, 11), Plain(2, 1)])
  assert blend.num_rows(None) is None
  assert blend.num_rows(2) == 30
  assert sorted(first_rows(blend, 30)) == sorted(
    [(0, k) for k in range(6)]
    + [(1, k) for k in range(22)]
    + [(2, k) for k in range(2)]
  )


def test_blend_without_weights_leaves_out_a_source_without_rows():
  blend = reference.Blend([Plain(0, 2), Plain(1, 0), Plain(2, 1)])
  assert blend.num_rows(1) == 3
  assert first_rows(blend, 3) == [(0, 0), (2, 0), (0, 1)]


def test_blend_with_weights_ends_before_an_epoch_too_many():
  # As above rows 1, 4 and 8 are source 0's; its third row is one too many.
  blend = reference.Blend([Plain(0, 2), Plain(1, 100)], [3, 7])
  assert blend.num_rows(1) == 8
  assert reference.Blend([Plain(0, 1), Plain(1, 6)], [3, 7]).num_rows(2) == 8


def test_inter_takes_turns_and_intra_takes_one_after_another():
  sources = [Plain(0, 1), Plain(1, 3), Plain(2, 2)]
  assert first_rows(reference.Inter(sources), 7) == [
    (0, 0), (1, 0), (2, 0), (1, 1), (2, 1), (1, 2), (0, 1),
  ]  # fmt: skip
  assert first_rows(reference.Intra(sources), 9) == [
    (0, 0), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (0, 1), (1, 3), (1, 4),
  ]  # fmt: skip
  assert reference.Inter(sources).num_rows(3) == 18


ROW = reference.Row([5, 9, 6, 9], [0, 2])
LONG = reference.Row([5, 9, 6, 9, 7, 8], [0, 2, 4, 5])


@pytest.mark.parametrize(
  ("row", "options", "expected"),
  [
    # A row of four tokens in five positions: the last is padding.
    (
      ROW,
      {},
      {
        "input_ids": [5, 9, 6, 9, 0],
        "labels": [9, -100, 9, -100, -100],
        "loss_mask": [1, 0, 1, 0, 0],
        "position_ids": [0, 1, 2, 3, 4],
        "segment_ids": [1, 1, 2, 2, 0],
      },
    ),
    (
      ROW,
      {"reset_position_ids": True, "reset_attention_mask": False},
      {
        "position_ids": [0, 1, 0, 1, 0],
        "segment_ids": [1, 1, 1, 1, 0],
      },
    ),
    (
      ROW,
      {"mask_boundary_labels": False},
      {"labels": [9, 6, 9, -100, -100], "loss_mask": [1, 1, 1, 0, 0]},
    ),
    (
      ROW,
      {"mask_boundary_labels": False, "eod_mask_loss": True, "eod": 9},
      {"labels": [9, 6, 9, -100, -100], "loss_mask": [1, 0, 1, 0, 0]},
    ),
    # The extra token is a label, and here another document's.
    (
      LONG,
      {},
      {
        "input_ids": [5, 9, 6, 9, 7],
        "labels": [9, -100, 9, -100, -100],
        "loss_mask": [1, 0, 1, 0, 0],
        "segment_ids": [1, 1, 2, 2, 3],
      },
    ),
    (
      LONG,
      {"mask_boundary_labels": False},
      {"labels": [9, 6, 9, 7, 8], "loss_mask": [1, 1, 1, 1, 1]},
    ),
    (
      ROW,
      {"labels_are_shifted": False, "eod_mask_loss": True, "eod": 9},
      {"labels": [5, 9, 6, 9, -100], "loss_mask": [1, 0, 1, 0, 0]},
    ),
    (
      reference.PADDING_ROW,
      {"reset_position_ids": True},
      {
        "input_ids": [0] * 5,
        "labels": [-100] * 5,
        "loss_mask": [0] * 5,
        "position_ids": [0, 1, 2, 3, 4],
        "segment_ids": [0] * 5,
      },
    ),
  ],
)
def test_row_fields(row, options, expected):
  fields = reference.Fields(seq_length=5, **options)
  got = reference.row_fields(row, fields)
  assert {name: got[name] for name in expected} == expected


def test_batches_drop_or_pad_the_end_and_start_anywhere():
  rows = Plain(7, 5)
  fields = reference.Fields(seq_length=1)

  def run(**options):
    return [
      (consumed, made["labels"][:, 0].tolist())
      for consumed, made in reference.batches(
        rows, fields=fields, batch_size=2, epochs=1, **options
      )
    ]

  assert run() == [(2, [0, 1]), (4, [2, 3])]
  assert run(end_of_data="pad") == [
    (2, [0, 1]),
    (4, [2, 3]),
    (5, [4, -100]),
  ]
  assert run(start_row=3) == [(5, [3, 4])]
  assert run(start_row=5, end_of_data="pad") == []
  endless = reference.batches(rows, fields=fields, batch_size=4, start_row=9)
  consumed, made = next(endless)
  assert consumed == 13
  assert {name: (array.shape, array.dtype) for name, array in made.items()} == {
    "input_ids": ((4, 1), np.int32),
    "labels": ((4, 1), np.int32),
    "loss_mask": ((4, 1), np.float32),
    "position_ids": ((4, 1), np.int32),
    "segment_ids": ((4, 1), np.int32),
  }
  np.testing.assert_array_equal(made["labels"][:, 0], [9, 10, 11, 12])


def documented(kind):
  """The vectors of one kind in docs/orders.md."""
  page = Path(__file__).parents[1] / "docs" / "orders.md"
  found = re.findall(rf"```json {kind}\n(.*?)```", page.read_text(), re.DOTALL)
  return [vector for block in found for vector in json.loads(block)]


def test_documented_keys_permutations_and_offsets():
  for *name, hexadecimal in documented("key"):
    words = reference.key(*name)
    made = b"".join(word.to_bytes(8, "little") for word in words)
    assert made.hex() == hexadecimal
  for name, size, images in documented("permute"):
    words = reference.key(*name)
    assert [
      reference.permute(i, size, words) for i in range(len(images))
    ] == images
  for name, slack, offset in documented("offset"):
    assert reference.epoch_offset(reference.key(*name), slack) == offset


def test_documented_spans():
  lengths = [5, 3, 0, 4, 6]
  corpus = reference.Corpus(
    [[0] * n for n in lengths], [*range(5)], [*range(6)]
  )
  rows = gpt(corpus, name="a", shuffle=True)
  spans = documented("spans")
  assert len(spans) == 16
  assert [list(rows.span(i)) for i in range(16)] == spans


def test_documented_blends():
  for weights, sources in documented("blend"):
    got = located(weights, len(sources))
    assert [source for source, _ in got] == sources
  for weights, g, source, k in documented("locate"):
    assert reference.Tree(weights).locate(g) == (source, k)


def test_documented_mock_rows():
  for seed, split, vocab_size, i, tokens in documented("mock"):
    source = reference.Mock(
      seq_length=len(tokens) - 1,
      seed=seed,
      split_name=split,
      vocab_size=vocab_size,
    )
    assert source.row(i).tokens == tokens
