"""The reference's orders against Megatron's arrays and cases by hand."""

from pathlib import Path

import corpora
import numpy as np
import pytest
import reference
import reference_orders

DATA = Path(__file__).parent / "data"
GOLDEN = np.load(DATA / "megatron.npz")


def golden(name):
  return reference.read_corpus(DATA / "indexed" / name)


def write(tmp_path, documents):
  prefix = corpora.write_pair(tmp_path / "c", documents)
  return reference.read_corpus(prefix)


@pytest.mark.parametrize(
  ("case", "corpus", "num_samples"),
  [
    ("u16_1_nNone", "u16_1", None),
    ("u16_1_n333", "u16_1", 333),
    ("empty_docs_n50", "empty_docs", 50),
    ("sweep140", "u16_1", 140),
    ("sweep180", "u16_1", 180),
  ],
)
def test_megatron_s_indices_are_the_golden_ones(case, corpus, num_samples):
  made = reference_orders.Megatron(
    golden(corpus), seq_length=32, seed=1234, num_samples=num_samples
  )
  for name in ("document_index", "shuffle_index"):
    np.testing.assert_array_equal(
      getattr(made, name), GOLDEN[f"gpt/{case}/train/{name}"]
    )


@pytest.mark.parametrize("case", ["u16_1_n333", "sweep140"])
def test_rows_are_what_golden_indices_point_at(case):
  corpus = golden("u16_1")
  documents, samples, shuffled = (
    GOLDEN[f"gpt/{case}/train/{name}_index"]
    for name in ("document", "sample", "shuffle")
  )
  made = reference_orders.Megatron(
    corpus, seq_length=32, seed=1234, num_samples=int(case[-3:])
  )
  for row in range(0, len(shuffled), 7):
    (begin, offset), (end, last) = samples[shuffled[row] :][:2]
    tokens = [t for d in documents[begin:end] for t in corpus.sequences[d]]
    tokens += corpus.sequences[documents[end]][: last + 1]
    assert made.row(row).tokens == tokens[offset:]


def test_megatron_s_blend_is_the_golden_one():
  sizes = {}

  def make(number, size):
    sizes[number] = size
    return reference_orders.Megatron(
      golden(f"u16_{number}"), seq_length=32, seed=1234, num_samples=size
    )

  made = reference_orders.MegatronBlend(
    make, count=4, weights=[0.1, 0.2, 0.3, 0.4], num_samples=1000, repeats=False
  )
  assert sizes == {0: 101, 1: 201, 2: 302, 3: 402}
  assert made.num_rows(1) == 1000
  source, k = zip(*made.pattern, strict=True)
  name = "blend/weights_size/train"
  np.testing.assert_array_equal(source, GOLDEN[f"{name}/dataset_index"])
  np.testing.assert_array_equal(k, GOLDEN[f"{name}/dataset_sample_index"])


def test_the_greedy_rule_breaks_ties_to_the_first():
  sources = [source for source, _ in reference_orders.greedy([0.7, 0.3], 10)]
  assert sources == [0, 1, 0, 0, 1, 0, 0, 1, 0, 0]
  sources = [s for s, _ in reference_orders.greedy([0.5, 0.3, 0.2], 10)]
  assert sources == [0, 1, 2, 0, 1, 0, 2, 0, 1, 0]


class Numbers(reference.Source):
  """Row i is the token i."""

  def __init__(self, size):
    self.rows_per_epoch = size

  def row(self, i):
    return reference.Row([i], [0])


def tokens(rows, count):
  return [rows.row(i).tokens[0] for i in range(count)]


def test_a_member_that_is_too_small_is_made_larger():
  made = []

  def make(number, size):
    made.append((number, size))
    return Numbers(size - 2)

  blend = reference_orders.MegatronBlend(
    make, count=2, weights=[3, 1], num_samples=8, repeats=True
  )
  assert made == [(0, 7), (1, 3), (0, 6), (1, 2)]
  assert blend.counts == [6, 2]
  # At its end the sources go on.
  assert tokens(blend, 16)[8:] == [6, 2, 7, 8, 9, 3, 10, 11]


def test_documents_stay_together_and_bounds_cut_them(tmp_path):
  corpus = write(tmp_path, [[[1, 2], [], [3]], [[4]], [[5, 6], [7]], [[8, 9]]])
  made = reference_orders.Documents(
    corpus, seq_length=2, seed=0, name="c", bounds=(2, 6), extra=0
  )
  # [3] of the first document, [4], and [5, 6] with [7].
  assert made.parts == [[2], [3], [4, 5]]
  assert made.rows_per_epoch == 2
  words = [reference.key(0, "c", epoch) for epoch in range(6)]
  parts = [[3], [4], [5, 6, 7]]
  for epoch in range(6):
    order = [parts[reference.permute(p, 3, words[epoch])] for p in range(3)]
    flat = [token for part in order for token in part]
    rows = [made.row(2 * epoch + i).tokens for i in range(2)]
    assert rows == [flat[:2], flat[2:4]]


def test_an_empty_sequence_ends_no_document(tmp_path):
  corpus = write(tmp_path, [[[1], [], [2]], [[]], [[3]], [[4], [5]]])
  walk = reference_orders.Walk(
    corpus, [0, 1, 2, 3, 4, 6, 5], seq_length=6, extra=0
  )
  # 1 and 2 are of one document; 5 before 4 is not how they are stored.
  assert walk.row(0) == reference.Row([1, 2, 3, 5, 4], [0, 2, 3, 4])


def test_buckets_take_turns_and_leave_the_rest():
  made = reference_orders.Buckets(
    Numbers(11), count=3, seed=0, name="a", wraps=False
  )
  assert made.rows_per_epoch == 9
  rows = tokens(made, 18)
  for bucket in range(3):
    own = rows[bucket:9:3]
    assert sorted(own) == [3 * bucket + k for k in range(3)]
    assert sorted(rows[9 + bucket :: 3]) == [11 + row for row in sorted(own)]
  wrapped = reference_orders.Buckets(
    Numbers(11), count=3, seed=0, name="a", wraps=True
  )
  assert tokens(wrapped, 18)[9:] == [row - 11 for row in rows[9:]]


def test_rearranged_rows_are_permuted_then_mapped():
  options = {"order_map": [4, 0, 2], "permute_seed": None}
  made = reference_orders.Rearranged(Numbers(5), wraps=False, **options)
  assert tokens(made, 7) == [4, 0, 2, 9, 5, 7, 14]
  assert made.num_rows(2) == 6
  assert made.num_rows(None) is None
  made = reference_orders.Rearranged(Numbers(5), wraps=True, **options)
  assert tokens(made, 7) == [4, 0, 2, 4, 0, 2, 4]
  cyclic = reference_orders.Rearranged(
    Numbers(5), order_map=[9, 8, 7, 6, 5], permute_seed=3, wraps=True
  )
  words = reference.key(3, "cyclic", 1)
  assert tokens(cyclic, 10)[5:] == [
    9 - reference.permute(place, 5, words) for place in range(5)
  ]
