"""Files in turn give what they give by index, from any place, packed or not."""

import gzip
import json
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import zstandard
from array_record.python import array_record_module
from hypothesis import given, settings
from hypothesis import strategies as st
from in_turn_checks import check_in_turn
from pyarrow import parquet

from hpgrain.sources.by_index.formats import open_records
from hpgrain.sources.in_turn import tables, text_pieces
from hpgrain.sources.in_turn.formats import open_in_turn

_TEXT = st.text("ab,\"'\\\r é[]{}:", max_size=6)
_OBJECTS = st.dictionaries(
  st.sampled_from("ab"), _TEXT | st.lists(_TEXT, max_size=2), max_size=2
)
_SPACE = st.sampled_from(["", " ", "\n", " \r\n\t"])


@st.composite
def _json_lines(draw):
  return "".join(
    json.dumps(record, ensure_ascii=False)
    + draw(st.sampled_from(["\n", "\r\n", " \n\n", "\n \t\v\f\r\n"]))
    for record in draw(st.lists(_OBJECTS, max_size=5))
  )


@st.composite
def _json_array(draw):
  elements = [
    draw(_SPACE) + json.dumps(record) + draw(_SPACE)
    for record in draw(st.lists(_OBJECTS, max_size=5))
  ]
  return f"{draw(_SPACE)}[{','.join(elements)}]{draw(_SPACE)}"


_LINES = st.text("ab \r\né", max_size=12)


@st.composite
def _csv(draw):
  fields = st.sampled_from(["", "a", '"b,""\n"', "é", '"\n\n"'])
  rows = draw(st.lists(st.tuples(fields, fields), max_size=5))
  ends = st.sampled_from(["\n", "\r\n", "\n\n"])
  return "".join(
    f"{first},{second}{draw(ends)}" for first, second in [("x", "y"), *rows]
  )


def _packed(data, suffix):
  if suffix == ".gz":
    half = len(data) // 2
    return gzip.compress(data[:half]) + gzip.compress(data[half:])
  return zstandard.compress(data) if suffix == ".zst" else data


def _by_index(folder):
  records = open_records(folder)
  found = records.read(np.arange(len(records)))
  return [(record, records.place(i)) for i, record in enumerate(found)]


@settings(max_examples=60)
@given(
  kind=st.sampled_from(
    [
      (".jsonl", _json_lines()),
      (".json", _json_array()),
      (".txt", _LINES),
      (".csv", _csv()),
    ]
  ),
  packing=st.sampled_from(["", "", ".gz", ".zst"]),
  block=st.integers(1, 40),
  data=st.data(),
)
def test_text_files_from_any_place(kind, packing, block, data):
  suffix, contents = kind
  with (
    tempfile.TemporaryDirectory() as folder,
    pytest.MonkeyPatch.context() as patch,
  ):
    patch.setattr(text_pieces, "_BLOCK", block)
    patch.setattr(text_pieces, "_MOST", data.draw(st.integers(1, 99)))
    plain, packed = Path(folder) / "plain", Path(folder) / "packed"
    plain.mkdir()
    packed.mkdir()
    for number in range(data.draw(st.integers(1, 3))):
      text = data.draw(contents)
      if data.draw(st.booleans()):
        text = text.removesuffix("\n")
      mark = data.draw(st.sampled_from(["", "\ufeff"]))
      content = (mark + text).encode()
      (plain / f"{number}{suffix}").write_bytes(content)
      (packed / f"{number}{suffix}{packing}").write_bytes(
        _packed(content, packing)
      )
    expected = [
      (
        record,
        place.replace("/plain/", "/packed/").replace(
          f"{suffix},", f"{suffix}{packing},"
        ),
      )
      for record, place in _by_index(plain)
    ]
    source = open_in_turn(packed)
    assert source.seekable == (not packing)
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    check_in_turn(source, expected, sizes)


def _table(rows):
  schema = pa.schema([("text", pa.string()), ("ids", pa.list_(pa.int32()))])
  return pa.Table.from_pylist(rows, schema)


def _write_parquet(path, rows, size):
  parquet.write_table(_table(rows), path, row_group_size=size)


def _write_arrow(path, rows, size, *, stream):
  table = _table(rows)
  new = pa.ipc.new_stream if stream else pa.ipc.new_file
  with new(str(path), table.schema) as writer:
    writer.write_table(table, max_chunksize=size)
    # Batches without rows are stepped over.
    writer.write_batch(pa.record_batch([[], []], schema=table.schema))


def _write_array_record(path, rows, size):
  del size
  writer = array_record_module.ArrayRecordWriter(str(path), "group_size:2")
  for row in rows:
    writer.write(json.dumps(row).encode())
  writer.close()


_WRITERS = {
  "parquet": ("parquet", _write_parquet),
  "arrow file": (
    "arrow",
    lambda path, rows, size: _write_arrow(path, rows, size, stream=False),
  ),
  "arrow stream": (
    "arrow",
    lambda path, rows, size: _write_arrow(path, rows, size, stream=True),
  ),
  "array_record": ("array_record", _write_array_record),
}


@settings(max_examples=40)
@given(
  kind=st.sampled_from(sorted(_WRITERS)),
  counts=st.lists(st.integers(0, 7), min_size=1, max_size=3),
  size=st.integers(1, 4),
  batch=st.integers(1, 4),
  sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3),
)
def test_tables_from_any_place(kind, counts, size, batch, sizes):
  suffix, write = _WRITERS[kind]
  with (
    tempfile.TemporaryDirectory() as folder,
    pytest.MonkeyPatch.context() as patch,
  ):
    patch.setattr(tables, "_ROWS", batch)
    for number, count in enumerate(counts):
      rows = [{"text": f"{number} {i}", "ids": [i]} for i in range(count)]
      write(Path(folder) / f"{number}.{suffix}", rows, size)
    check_in_turn(open_in_turn(folder), _by_index(folder), sizes)
