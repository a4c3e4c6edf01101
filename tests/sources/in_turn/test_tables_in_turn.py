"""Parquet, Arrow and ArrayRecord in turn: what is read, and broken files."""

import json

import pyarrow as pa
import pytest
from array_record.python import array_record_module
from in_turn_checks import check_changes, check_takes, read_all
from pyarrow import parquet

from hpgrain.sources.in_turn import array_records, tables
from hpgrain.sources.in_turn.formats import open_in_turn
from hpgrain.sources.in_turn.window_shuffle import Epochs

_ROWS = [{"text": f"text {i}", "n": i} for i in range(20)]


def write_parquet(path, rows=_ROWS, size=5):
  parquet.write_table(pa.Table.from_pylist(rows), path, row_group_size=size)


def write_arrow(path, rows=_ROWS, size=5, new=pa.ipc.new_file):
  table = pa.Table.from_pylist(rows)
  with new(str(path), table.schema) as writer:
    writer.write_table(table, max_chunksize=size)


def write_stream(path):
  write_arrow(path, new=pa.ipc.new_stream)


def write_array_record(path, rows=_ROWS):
  writer = array_record_module.ArrayRecordWriter(str(path), "group_size:1")
  for row in rows:
    writer.write(row if isinstance(row, bytes) else json.dumps(row).encode())
  writer.close()


WRITERS = pytest.mark.parametrize(
  "suffix, write",
  [
    ("parquet", write_parquet),
    ("arrow", write_arrow),
    ("arrow", write_stream),
    ("array_record", write_array_record),
  ],
)


@WRITERS
def test_rows_are_taken_in_any_order(tmp_path, suffix, write):
  path = tmp_path / f"a.{suffix}"
  write(path)
  source = open_in_turn(path)
  assert source.seekable
  check_takes(source.open().read(20), _ROWS)


@WRITERS
def test_changed_and_missing_files(tmp_path, suffix, write):
  path = tmp_path / f"a.{suffix}"
  write(path)
  check_changes(lambda: open_in_turn(path), path)


@WRITERS
def test_broken_files(tmp_path, suffix, write):
  path = tmp_path / f"a.{suffix}"
  write(path)
  whole = path.read_bytes()
  for data in (whole[: len(whole) // 2], b"", b"not of this format" * 10000):
    path.write_bytes(data)
    with pytest.raises(ValueError, match=rf"{path.name} cannot be read"):
      read_all(open_in_turn(path).open())


@WRITERS
@pytest.mark.parametrize("place", [(9, 0, 9), (4, 3, 23), (1, 7, 12)])
def test_places_that_are_not_there(tmp_path, suffix, write, place):
  path = tmp_path / f"a.{suffix}"
  write(path)
  if suffix == "array_record":
    place = (21, 0, 21)
  with pytest.raises(ValueError, match=r"no record that begins at the cursor"):
    open_in_turn(path).open([0, *place]).read(1)


def test_a_seek_reads_no_group_before_its_window(tmp_path, monkeypatch):
  write_parquet(tmp_path / "a.parquet")
  write_parquet(tmp_path / "b.parquet")
  source = open_in_turn(tmp_path)
  options = {"seed": 0, "shuffle_buffer_size": 6, "epochs": None}
  epochs = Epochs(source, **options)
  epochs.read(40 + 32)
  position = epochs.position()
  # Record 32 lies in the window from 30: row 10 of the second file, the first
  # of its group 2.
  assert position == [1, 32, 1, 2, 0, 10]
  expected = epochs.read(4)
  read = []
  read_batches = parquet.ParquetFile.iter_batches

  def spied(self, **options):
    read.append(options["row_groups"])
    return read_batches(self, **options)

  monkeypatch.setattr(parquet.ParquetFile, "iter_batches", spied)
  again = Epochs(source, **options)
  again.seek(position)
  assert again.read(4) == expected
  assert read == [[2], [3]]


def test_a_large_group_is_read_in_parts(tmp_path, monkeypatch):
  rows = [{"text": f"{i:01000}", "n": i} for i in range(100)]
  write_parquet(tmp_path / "a.parquet", rows, size=100)
  monkeypatch.setattr(tables, "_BYTES", 4000)
  most = []
  table = tables._table
  monkeypatch.setattr(
    tables, "_table", lambda batch: most.append(batch.num_rows) or table(batch)
  )
  reader = open_in_turn(tmp_path).open()
  assert reader.read(100).records() == rows
  assert max(most) <= 4
  assert sum(most) == 100


def test_what_is_not_wanted_is_not_decoded(tmp_path):
  array = pa.array([b"good", b"bad\xff"]).view(pa.string())
  parquet.write_table(pa.table({"text": array}), tmp_path / "a.parquet")
  write_array_record(tmp_path / "a.array_record", [b"{}", b'"secret"'])
  for suffix, wrong in (
    ("parquet", "is not UTF-8: byte 0xff"),
    ("array_record", "is a string, not an object"),
  ):
    block = open_in_turn(tmp_path, format=suffix).open().read(2)
    assert len(block.take([0])) == 1
    with pytest.raises(ValueError, match=rf"record 2 {wrong}") as error:
      block.take([1])
    assert "secret" not in str(error.value)


def test_records_of_an_array_record_are_read_by_the_megabyte(
  tmp_path, monkeypatch
):
  write_array_record(
    tmp_path / "a.array_record",
    [{"text": "x" * (1 << 20), "n": i} for i in range(20)],
  )
  asked = []
  checked = array_records.checked

  def spied(path, call, *arguments):
    if call.__name__ == "read":
      asked.append(arguments)
    return checked(path, call, *arguments)

  monkeypatch.setattr(array_records, "checked", spied)
  reader = open_in_turn(tmp_path).open()
  assert [row["n"] for row in reader.read(20).records()] == list(range(20))
  # The first alone shows how large they are.
  assert asked[:3] == [(0, 1), (1, 4), (4, 7)]
