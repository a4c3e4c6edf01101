"""ArrayRecord files of JSON objects by index."""

import json

import pytest
from array_record.python import array_record_module
from table_checks import check_broken, check_changes, check_reading

from hpgrain.sources.by_index.formats import open_records


def _rows(first, count):
  return [{"text": f"text {i}", "n": i} for i in range(first, first + count)]


def _write(path, rows):
  writer = array_record_module.ArrayRecordWriter(str(path), "group_size:2")
  for row in rows:
    writer.write(row if isinstance(row, bytes) else json.dumps(row).encode())
  writer.close()


def test_records_of_files_one_after_another(tmp_path):
  _write(tmp_path / "a.array_record", _rows(0, 5))
  _write(tmp_path / "b.array_record", [])
  _write(tmp_path / "c.arrayrecord", _rows(5, 3))
  records = open_records(tmp_path)
  check_reading(records, _rows(0, 8))
  assert records.place(4) == f"{tmp_path}/a.array_record, record 5"
  assert records.place(5) == f"{tmp_path}/c.arrayrecord, record 1"


def test_changed_and_broken_files(tmp_path):
  path = tmp_path / "a.array_record"
  _write(path, _rows(0, 3))
  check_broken(lambda: open_records(path), path)
  path.unlink()
  _write(path, _rows(0, 3))
  check_changes(lambda: open_records(path), path)


def test_a_record_that_is_no_object_is_named(tmp_path):
  _write(tmp_path / "a.array_record", [b"{}", b'"secret"', b"{\xff}"])
  records = open_records(tmp_path)
  with pytest.raises(
    ValueError, match="record 2 is a string, not an object"
  ) as error:
    records.read([0, 1])
  assert "secret" not in str(error.value)
  with pytest.raises(ValueError, match="record 3 is not UTF-8"):
    records.read([2])


def test_object_stores_are_refused():
  import fsspec

  system = fsspec.filesystem("memory")
  system.pipe_file("hpgrain-ar/a.array_record", b"x")
  try:
    with pytest.raises(ValueError, match="Copy it to a disk first"):
      open_records("memory://hpgrain-ar/a.array_record")
  finally:
    system.rm("hpgrain-ar", recursive=True)
