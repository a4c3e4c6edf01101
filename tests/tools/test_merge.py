import os

import numpy as np
import pytest
from helpers_tokenizer import read_pair

from hpgrain.index import permutation_key, permute
from hpgrain.sources.indexed import IndexedWriter
from hpgrain.tools import dealing, unit_file, unit_records
from hpgrain.tools import merge as merge_module
from hpgrain.tools.merge import Counts, merge, partitions
from hpgrain.tools.packing import Packer, pack
from hpgrain.tools.request import Layout
from hpgrain.tools.shuffle import record_order
from hpgrain.tools.unit_file import UnitWriter
from hpgrain.tools.unit_records import UnitRecords, ranges

U2 = np.dtype("<u2")


@pytest.mark.parametrize(
  ("num_records", "layout", "expected"),
  [
    (5, Layout(partitions=2), [[0, 2, 4], [1, 3]]),
    (2, Layout(partitions=3), [[0], [1], []]),
    (
      5,
      Layout(partitions=3, keep_sequential_samples=True),
      [[0, 1], [2, 3], [4]],
    ),
    # Blocks of ceil(4 / 3), so the last has none.
    (
      4,
      Layout(partitions=3, keep_sequential_samples=True),
      [[0, 1], [2, 3], []],
    ),
    (0, Layout(partitions=2), [[], []]),
  ],
)
def test_records_are_dealt_to_partitions(num_records, layout, expected):
  assert [list(p) for p in partitions(num_records, layout)] == expected


def test_packer_cuts_a_stream_however_it_comes():
  for size in (1, 2, 7):
    stream = np.arange(17)
    packer = Packer(5)
    cut = list(pack(packer, [stream[i : i + size] for i in range(0, 17, size)]))
    assert np.concatenate(cut).tolist() == list(range(15))
    assert all(len(records) % 5 == 0 for records in cut)
    packer.drop_tail()
    assert packer.num_dropped == 2
    assert len(packer.add(np.arange(4))) == 0, "the tail is gone"


def test_the_order_of_a_seed_is_for_ever():
  order = record_order(10, seed=7)
  assert order(range(10)).tolist() == [3, 9, 4, 8, 1, 0, 7, 6, 5, 2]
  key = permutation_key(7, "offline_preparation", 0)
  assert (
    order(range(3, 5)).tolist()
    == permute(np.arange(3, 5), 10, key=key).tolist()
  )
  assert record_order(10, seed=None) is None
  assert record_order(0, seed=1) is None


def test_ranges():
  starts, lengths = np.array([5, 0, 9]), np.array([2, 0, 3])
  assert ranges(starts, lengths).tolist() == [5, 6, 9, 10, 11]
  assert ranges(starts[:0], lengths[:0]).tolist() == []


@pytest.fixture
def units(tmp_path):
  """Records of tokens 10 i, 10 i + 1, ..., in units of 3, 0, 1, 4 records."""
  sizes = [2, 0, 5, 1, 3, 0, 4, 1]
  paths, number = [], 0
  for unit, count in enumerate((3, 0, 1, 4)):
    paths.append(tmp_path / f"{unit}")
    writer = UnitWriter(paths[-1], dtype=U2, num_keys=1)
    for _ in range(count):
      writer.add_tokens(
        0, np.arange(10 * number, 10 * number + sizes[number]).astype(U2)
      )
      writer.end_records(0, np.array([sizes[number]]))
      number += 1
    writer.finish({"records": count})
  documents = [
    list(range(10 * i, 10 * i + size)) for i, size in enumerate(sizes)
  ]
  return paths, documents


@pytest.mark.parametrize("block", [1, 3, 1 << 17])
@pytest.mark.parametrize("most_open", [1, 128])
@pytest.mark.parametrize(
  "numbers",
  [
    range(8),
    range(2, 7),
    range(0, 8, 3),
    range(1, 8, 2),
    range(3, 3),
    np.array([7, 0, 3, 1, 2, 6, 5, 4]),
    np.array([2, 4]),
    np.array([6, 2]),
  ],
  ids=str,
)
def test_records_are_read_by_their_numbers(
  units, monkeypatch, block, most_open, numbers
):
  monkeypatch.setattr(unit_file, "BLOCK_TOKENS", block)
  monkeypatch.setattr(unit_records, "BLOCK_TOKENS", block)
  monkeypatch.setattr(unit_records, "_MAX_OPEN", most_open)
  paths, documents = units
  tokens, lengths, counts = [], [], []
  with UnitRecords(paths, key=0) as records:
    assert len(records) == 8
    for some in records.read(numbers):
      for piece in some.tokens:
        tokens += piece.tolist()
      lengths += some.lengths.tolist()
      counts += some.counts.tolist()
  chosen = [documents[int(i)] for i in numbers]
  assert tokens == [t for document in chosen for t in document]
  assert lengths == list(map(len, chosen))
  assert counts == [1] * len(chosen)


@pytest.mark.parametrize("block", [1, 2, 1 << 16])
def test_merge_counts_what_it_writes(units, tmp_path, monkeypatch, block):
  monkeypatch.setattr(merge_module, "_BLOCK_RECORDS", block)
  paths, documents = units
  told = []
  with IndexedWriter(tmp_path / "x", dtype=U2) as writer:
    counts = merge(
      paths,
      key=0,
      layout=Layout(partitions=2, pack_to_seq_len=2),
      writer=writer,
      report=lambda *written: told.append(written),
    )
  stream = [
    [t for document in documents[p::2] for t in document] for p in (0, 1)
  ]
  assert [len(s) for s in stream] == [14, 2]
  assert counts == Counts(4, 4, 12, 4, dropped_documents=2)
  assert np.sum(told, axis=0).tolist() == [4, 12]
  assert read_pair(tmp_path / "x")[1] == stream[0][:12]


def test_a_unit_that_is_not_there_is_an_error(units, tmp_path):
  paths, _ = units
  with pytest.raises(FileNotFoundError, match="missing"):
    UnitRecords([*paths, tmp_path / "missing"], key=0)


def test_a_record_of_many_blocks_waits_in_one_array():
  packer = Packer(1000)
  block = np.arange(100, dtype=U2)
  for _ in range(9):
    assert len(packer.add(block)) == 0
    assert packer._waiting.nbytes <= 2000
  records = packer.add(np.tile(block, 2))
  assert (len(records), records.dtype) == (1000, U2)
  assert (records == np.tile(block, 10)).all()
  assert packer.add(np.zeros(950, U2)).tolist() == [*range(100), *[0] * 900]
  assert (records == np.tile(block, 10)).all(), "not written over"
  packer.drop_tail()
  assert packer.num_dropped == 50


@pytest.fixture
def divided_units(tmp_path):
  """Four units of 50 records, each of 0 to 3 sequences of 0 to 40 tokens."""
  rng = np.random.default_rng(0)
  paths, documents = [], []
  for unit in range(4):
    paths.append(tmp_path / f"{unit}")
    writer = UnitWriter(paths[-1], dtype=U2, num_keys=1, divided=True)
    for _ in range(50):
      sequences = [
        rng.integers(0, 1 << 16, n).astype(U2)
        for n in rng.integers(0, 40, rng.integers(0, 4))
      ]
      for sequence in sequences:
        writer.add_tokens(0, sequence)
      writer.end_records(
        0,
        np.array([len(s) for s in sequences], np.int64),
        np.array([len(sequences)]),
      )
      documents.append([s.tolist() for s in sequences])
    writer.finish({"records": 50})
  return paths, documents


@pytest.mark.parametrize(
  ("wave", "block"), [(1, 10), (60, 10), (1000, 100), (1 << 23, 1 << 17)]
)
@pytest.mark.parametrize(
  "layout",
  [
    Layout(partitions=2),
    Layout(partitions=16),
    Layout(partitions=300),
    Layout(partitions=3, pack_to_seq_len=6),
    Layout(partitions=16, pack_to_seq_len=50, carry_tails=True),
  ],
  ids=str,
)
def test_dealt_records_are_those_of_each_partition(
  divided_units, tmp_path, monkeypatch, wave, *, block, layout
):
  monkeypatch.setattr(os, "fsync", lambda fd: None)
  monkeypatch.setattr(dealing, "_WAVE", wave)
  monkeypatch.setattr(dealing, "_BLOCK_RECORDS", 70)
  for module in (dealing, unit_file, unit_records):
    monkeypatch.setattr(module, "BLOCK_TOKENS", block)
  paths, documents = divided_units
  count = layout.partitions
  written = []
  for name, passes in (("dealt", 1), ("passes", count)):
    monkeypatch.setattr(merge_module, "_MAX_PASSES", passes)
    with IndexedWriter(tmp_path / name, dtype=U2) as writer:
      counts = merge(paths, key=0, layout=layout, writer=writer)
      writer.finalize()
    written.append(
      (
        counts,
        *((tmp_path / f"{name}.{end}").read_bytes() for end in ("bin", "idx")),
      )
    )
  assert written[0] == written[1]
  if layout.pack_to_seq_len is None:
    dealt = [d for p in range(count) for d in documents[p::count]]
    assert read_pair(tmp_path / "dealt")[1] == [
      t for document in dealt for sequence in document for t in sequence
    ]


@pytest.mark.parametrize(
  "layout",
  [
    Layout(partitions=2),
    Layout(partitions=16),
    Layout(partitions=16, shuffle_seed=1),
    Layout(partitions=16, keep_sequential_samples=True),
  ],
  ids=str,
)
def test_many_partitions_read_the_units_about_once(
  divided_units, tmp_path, monkeypatch, layout
):
  # Far less than a unit, so that each wave and each pass is of many reads.
  monkeypatch.setattr(dealing, "_WAVE", 4000)
  for module in (dealing, unit_file, unit_records):
    monkeypatch.setattr(module, "BLOCK_TOKENS", 500)
  num_tokens = 0
  read = unit_file.UnitReader.tokens

  def counted(reader, key, first, last):
    nonlocal num_tokens
    for block in read(reader, key, first, last):
      num_tokens += len(block)
      yield block

  monkeypatch.setattr(unit_file.UnitReader, "tokens", counted)
  num_bytes = 0
  pread = os.pread

  def counting(fd, size, at):
    nonlocal num_bytes
    num_bytes += size
    return pread(fd, size, at)

  paths, documents = divided_units
  with IndexedWriter(tmp_path / "x", dtype=U2) as writer:
    # Only here, since a writer reads its own columns in the end.
    with monkeypatch.context() as context:
      context.setattr(os, "pread", counting)
      counts = merge(paths, key=0, layout=layout, writer=writer)
  assert counts.documents == len(documents)
  assert counts.tokens <= num_tokens <= 2 * counts.tokens
  # Where shuffled records begin and end is read for each alone.
  if layout.shuffle_seed is None:
    assert num_bytes <= 2.2 * sum(path.stat().st_size for path in paths)
