"""A process reads what its devices hold of a row, under every layout.

  16 positions, 2 ranks     rank 0               rank 1        tokens read
    contiguous              0..7, label 8        8..15, 16     9 and 9
    zigzag                  0..3, 4; 12..15, 16  4..11, 12     10 and 9
    striped                 0..14, 15            1..15, 16     16 and 16

`document_zigzag` reads two chunks of each document. Bytes are counted where
tokens are gathered.
"""

import itertools

import numpy as np
import pytest
from corpora import write_pair

from hpgrain import _kernels, batches, shard, slices
from hpgrain.context_layout import ContextLayout
from hpgrain.fields import FieldOptions
from hpgrain.packed_samples import PackedSamples
from hpgrain.packing import PackingOptions
from hpgrain.samples import GPTSamples

# Of a token.
BYTES = 2
ROWS, LENGTH, MULTIPLE = 4, 48, 8


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
  rng = np.random.default_rng(3)
  documents = [
    [rng.integers(1, 99, rng.integers(2, 40)).tolist()] for _ in range(60)
  ]
  return write_pair(tmp_path_factory.mktemp("corpus") / "a", documents)


@pytest.fixture(scope="module")
def cut(prefix):
  return GPTSamples(prefix, seq_length=LENGTH, seed=1)


@pytest.fixture(scope="module")
def packed(prefix):
  options = PackingOptions(budget=LENGTH, segment_multiple=MULTIPLE)
  return PackedSamples([prefix], options=options, seed=1)


def tokens_read(samples, name, ranks, held, *, tp=1, rows=ROWS):
  """Tokens read for some rows, of which a process holds (cp, tp) parts."""
  width = LENGTH // (ranks * tp)
  windows = [((r * tp + t) * width, (r * tp + t + 1) * width) for r, t in held]
  layout = shard.HostLayout(
    (rows, LENGTH),
    tuple(shard.Shard((0, rows), window, ()) for window in windows),
    ContextLayout(name, ranks, MULTIPLE),
  )
  _kernels.reset_gathered_bytes()
  batches.make_shards(
    samples, layout, first_row=0, end_row=None, options=FieldOptions()
  )
  read, rest = divmod(_kernels.gathered_bytes(), BYTES)
  assert not rest
  return read


def check_rows_that_are_cut(cut):
  def read(name, ranks, rank):
    tokens, rest = divmod(tokens_read(cut, name, ranks, [(rank, 0)]), ROWS)
    assert not rest
    return tokens

  for ranks in (2, 3, 4):
    each = LENGTH // ranks
    for rank in range(ranks):
      assert read("contiguous", ranks, rank) == each + 1
      # The last rank's two are one.
      windows = 1 if rank == ranks - 1 else 2
      assert read("zigzag", ranks, rank) == each + windows
      assert read("striped", ranks, rank) == LENGTH - ranks + 1 + 1
  whole = ROWS * (LENGTH + 1)
  for ranks in (2, 4):
    shares = [tokens_read(cut, "zigzag", ranks, [(r, 0)]) for r in range(ranks)]
    assert sum(shares) == whole + ROWS * (2 * ranks - 2)
    everyone = [(r, 0) for r in range(ranks)]
    for name in ("zigzag", "striped"):
      assert tokens_read(cut, name, ranks, everyone) == whole
  # A tensor-parallel part of a rank's two chunks of 12: of one, or of both.
  parts = [tokens_read(cut, "zigzag", 2, [(0, t)], tp=2) for t in range(2)]
  assert parts == [ROWS * 13, ROWS * 13]
  parts = [tokens_read(cut, "zigzag", 2, [(0, t)], tp=3) for t in range(3)]
  assert parts == [ROWS * 9, ROWS * (4 + 1 + 4 + 1), ROWS * 9]


def check_documents(packed):
  plans = packed.plan_rows(range(ROWS))

  def expected(windows_of):
    """One token more than each part of a document that is held."""
    total = 0
    for length, start in zip(plans.length, plans.start, strict=True):
      for begin, end in windows_of(int(length), int(start)):
        count = min(start + length, end) - max(start, begin)
        total += count + 1 if count > 0 else 0
    return total

  for ranks in (2, 4):
    half = LENGTH // (2 * ranks)
    shares = []
    for rank in range(ranks):
      last = 2 * ranks - 1 - rank
      chunks = [rank, last]

      def of_documents(length, start, chunks=chunks, ranks=ranks):
        size = -(-length // MULTIPLE) * MULTIPLE // (2 * ranks)
        return [(start + c * size, start + (c + 1) * size) for c in chunks]

      def of_rows(length, start, chunks=chunks, half=half):
        del length, start
        if chunks[0] + 1 == chunks[1]:
          return [(chunks[0] * half, (chunks[1] + 1) * half)]
        return [(c * half, (c + 1) * half) for c in chunks]

      held = [(rank, 0)]
      read = tokens_read(packed, "document_zigzag", ranks, held)
      assert read == expected(of_documents)
      assert tokens_read(packed, "zigzag", ranks, held) == expected(of_rows)
      shares.append(read)
    whole = int((plans.length + 1).sum())
    # Chunks of a document have a label of their own each, and no more.
    assert whole <= sum(shares) <= whole + (2 * ranks - 1) * len(plans.length)
    assert max(shares) < whole
    everyone = [(r, 0) for r in range(ranks)]
    for name in ("zigzag", "striped", "document_zigzag"):
      assert tokens_read(packed, name, ranks, everyone) == whole


def test_rows_that_are_cut_are_read_in_windows(cut):
  check_rows_that_are_cut(cut)


def test_documents_are_read_in_chunks(packed):
  check_documents(packed)


def test_whoever_reads_all_rows_is_found(cut, packed, monkeypatch):
  monkeypatch.setattr(slices.Slices, "_spans", [(0, LENGTH)])
  monkeypatch.setattr(slices, "PartlyReadRows", ())
  with pytest.raises(AssertionError, match="assert"):
    check_rows_that_are_cut(cut)
  with pytest.raises(AssertionError, match="assert"):
    check_documents(packed)


def test_a_batch_is_shared_out_by_devices(cut):
  """Processes of a mesh, each with the devices of one cp rank."""
  mesh = shard.make_mesh(("cp", "data", "tp"), {"cp": 4, "data": 2, "tp": 1})
  sharding = shard.batch_sharding(mesh)
  read = {}
  for name, process in itertools.product(("contiguous", "zigzag"), range(4)):
    layout = shard.batch_layout(
      sharding,
      num_rows=ROWS,
      num_positions=LENGTH,
      devices=list(mesh.devices[process].flat),
      context=shard.context_layout(mesh, name),
    )
    _kernels.reset_gathered_bytes()
    batches.make_shards(
      cut, layout, first_row=0, end_row=None, options=FieldOptions()
    )
    read[name, process] = _kernels.gathered_bytes() // BYTES
  assert [read["contiguous", i] for i in range(4)] == [ROWS * 13] * 4
  assert [read["zigzag", i] for i in range(4)] == [*[ROWS * 14] * 3, ROWS * 13]
