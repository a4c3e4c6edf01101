"""Arrow IPC files and streams by index."""

import datasets
import pyarrow as pa
import pytest
from table_checks import check_broken, check_changes, check_reading

from hpgrain.sources.by_index.formats import open_records


def _rows(first, count):
  return [
    {"text": f"text {i}", "n": i, "ids": [i]}
    for i in range(first, first + count)
  ]


def _write(path, rows, *, stream=False, batch=3, compression=None):
  schema = pa.schema(
    [("text", pa.string()), ("n", pa.int64()), ("ids", pa.list_(pa.int32()))]
  )
  table = pa.Table.from_pylist(rows, schema)
  new = pa.ipc.new_stream if stream else pa.ipc.new_file
  options = pa.ipc.IpcWriteOptions(compression=compression)
  with (
    pa.OSFile(str(path), "wb") as sink,
    new(sink, schema, options=options) as writer,
  ):
    writer.write_table(table, max_chunksize=batch)


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("stream", [False, True])
def test_rows_of_files_one_after_another(tmp_path, stream, compression):
  options = {"stream": stream, "compression": compression}
  _write(tmp_path / "a.arrow", _rows(0, 7), **options)
  _write(tmp_path / "b.arrow", [], **options)
  # Files and streams may stand side by side.
  _write(tmp_path / "c.arrow", _rows(7, 4), stream=not stream, batch=2)
  records = open_records(tmp_path)
  check_reading(records, _rows(0, 11))
  assert records.place(6) == f"{tmp_path}/a.arrow, record 7"
  assert records.place(7) == f"{tmp_path}/c.arrow, record 1"


@pytest.mark.parametrize("stream", [False, True])
def test_changed_and_broken_files(tmp_path, stream):
  path = tmp_path / "a.arrow"
  _write(path, _rows(0, 300), stream=stream)
  check_broken(lambda: open_records(path), path)
  _write(path, _rows(0, 7), stream=stream)
  check_changes(lambda: open_records(path), path)


def test_what_datasets_saves_is_read(tmp_path):
  datasets.Dataset.from_list(_rows(0, 5)).save_to_disk(tmp_path / "saved")
  records = open_records(f"{tmp_path}/saved/*.arrow")
  check_reading(records, _rows(0, 5))


def test_a_schema_without_columns_has_no_rows(tmp_path):
  with (
    pa.OSFile(str(tmp_path / "a.arrow"), "wb") as sink,
    pa.ipc.new_file(sink, pa.schema([])),
  ):
    pass
  assert len(open_records(tmp_path)) == 0


def test_text_that_is_not_utf8_is_named(tmp_path):
  array = pa.array([b"good", b"bad\xff"]).view(pa.string())
  table = pa.table({"text": array})
  with (
    pa.OSFile(str(tmp_path / "a.arrow"), "wb") as sink,
    pa.ipc.new_file(sink, table.schema) as writer,
  ):
    writer.write_table(table)
  with pytest.raises(ValueError, match=r"a\.arrow, record 2 is not UTF-8"):
    open_records(tmp_path).read([1, 0])
