"""Parquet by index."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet
from table_checks import check_broken, check_changes, check_reading

from hpgrain.sources.by_index import parquet as by_index
from hpgrain.sources.by_index import row_groups, table_files
from hpgrain.sources.by_index.formats import open_records


def _rows(first, count):
  return [
    {"text": f"text {i}", "ids": [i, i + 1], "none": None}
    for i in range(first, first + count)
  ]


def _write(path, rows, group=3, **options):
  schema = pa.schema(
    [("text", pa.string()), ("ids", pa.list_(pa.int32())), ("none", pa.null())]
  )
  table = pa.Table.from_pylist(rows, schema)
  parquet.write_table(table, path, row_group_size=group, **options)


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd", "gzip"])
def test_rows_of_files_one_after_another(tmp_path, compression):
  _write(tmp_path / "a.parquet", _rows(0, 7), compression=compression)
  _write(tmp_path / "b.parquet", [])
  _write(tmp_path / "c.parquet", _rows(7, 4), group=2)
  records = open_records(tmp_path)
  check_reading(records, _rows(0, 11))
  assert records.place(6) == f"{tmp_path}/a.parquet, record 7"
  assert records.place(7) == f"{tmp_path}/c.parquet, record 1"
  assert records.identity["num_records"] == 11


def test_changed_and_broken_files(tmp_path):
  path = tmp_path / "a.parquet"
  _write(path, _rows(0, 300))
  check_broken(lambda: open_records(path), path)
  _write(path, _rows(0, 7))
  check_changes(lambda: open_records(path), path)


def test_a_file_without_rows_is_a_source_of_none(tmp_path):
  _write(tmp_path / "a.parquet", [])
  assert open_records(tmp_path).read([]) == []


@pytest.fixture
def groups_read(monkeypatch):
  found = []
  read = by_index.ParquetRecords._read_group
  monkeypatch.setattr(
    by_index.ParquetRecords,
    "_read_group",
    lambda self, group: found.append(group) or read(self, group),
  )
  return found


def test_a_batch_reads_each_group_once(tmp_path, groups_read, monkeypatch):
  monkeypatch.setattr(row_groups.HeldGroups.__init__, "__defaults__", (0,))
  _write(tmp_path / "a.parquet", _rows(0, 12))
  records = open_records(tmp_path)
  records.read([11, 0, 4, 1, 10, 0])
  assert groups_read == [0, 1, 3]
  # Only the last one is held where there is no room.
  records.read([11])
  records.read([0])
  assert groups_read == [0, 1, 3, 0]


def test_groups_are_held_up_to_so_many_bytes(tmp_path, groups_read):
  _write(tmp_path / "a.parquet", _rows(0, 12))
  records = open_records(tmp_path)
  for _ in range(3):
    records.read([0, 11])
  assert groups_read == [0, 3]


def test_few_files_are_held_open(tmp_path, monkeypatch):
  monkeypatch.setattr(table_files, "OPEN_FILES", 2)
  for i in range(5):
    _write(tmp_path / f"{i}.parquet", _rows(i, 1))
  records = open_records(tmp_path)
  assert [r["ids"][0] for r in records.read([4, 0, 3, 1, 2])] == [4, 0, 3, 1, 2]
  assert len(records._open) == 2


def test_text_that_is_not_utf8_is_named(tmp_path):
  array = pa.array([b"good", b"bad\xff"]).view(pa.string())
  parquet.write_table(pa.table({"text": array}), tmp_path / "a.parquet")
  records = open_records(tmp_path)
  with pytest.raises(
    ValueError, match=r"a\.parquet, record 2 is not UTF-8: byte 0xff"
  ) as error:
    records.read([0, 1])
  assert "good" not in str(error.value)
  assert records.read([0]) == [{"text": "good"}]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.booleans())
def test_rows_are_taken_or_sliced(asked, large):
  table = pa.concat_tables(
    [pa.table({"n": list(range(4))}), pa.table({"n": list(range(4, 10))})]
  )
  with pytest.MonkeyPatch.context() as patch:
    if large:
      patch.setattr(row_groups, "_TAKEN_BYTES", 0)
    found = row_groups.table_rows(table, np.array(asked), place=str, first=0)
  assert found == [{"n": row} for row in asked]


@given(
  st.lists(st.integers(1, 4), max_size=5),
  st.lists(st.integers(0, 19), max_size=8),
)
def test_groups_of_any_sizes(sizes, asked):
  # The arithmetic alone: group g has rows (g, 0), (g, 1), ...
  first_row = np.concatenate([[0], np.cumsum(np.array(sizes, np.int64))])
  rows = [(g, r) for g, size in enumerate(sizes) for r in range(size)]
  asked = [i for i in asked if i < len(rows)]
  calls = []

  def read(group, chosen):
    calls.append(group)
    return [(group, row) for row in chosen.tolist()]

  found = row_groups.read_grouped(np.array(asked, np.int64), first_row, read)
  assert found == [rows[i] for i in asked]
  assert len(calls) == len(set(calls))
