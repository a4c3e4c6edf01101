"""CSV by index, against the csv module and case by case."""

import csv
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from slow_records import slow_csv

from hpgrain.sources.by_index.formats import open_records


def _opened(tmp_path, data):
  path = tmp_path / "a.csv"
  path.write_bytes(data)
  return open_records(path)


@given(
  st.sampled_from([b"", b"\xef\xbb\xbf"]),
  st.text(alphabet='a,"\n\r \u00e9', max_size=30),
)
def test_equal_to_the_csv_module(mark, body):
  data = mark + b"x,y\r\n" + body.encode()
  _, *expected = slow_csv(data)
  with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "a.csv"
    path.write_bytes(data)
    records = open_records(path)
    assert len(records) == len(expected)
    for index, (byte, row) in enumerate(expected):
      place = f"{path}, record {index + 1}, byte {byte}"
      assert records.place(index) == place
      if row is not None and len(row) == 2:
        assert records.read([index]) == [dict(zip("xy", row))]
      else:
        reason = "is not CSV" if row is None else "has . fields where"
        with pytest.raises(ValueError, match=f"byte {byte} {reason}"):
          records.read([index])


def test_quotes_hold_commas_quotes_and_line_ends(tmp_path):
  data = b'text,n\n"a, ""b""\n\nc",1\n\n"",2\r\nlast,3'
  records = _opened(tmp_path, data)
  assert records.read(np.arange(3)) == [
    {"text": 'a, "b"\n\nc', "n": "1"},
    {"text": "", "n": "2"},
    {"text": "last", "n": "3"},
  ]


@pytest.mark.parametrize("data", [b"", b"\n\r\n", b"a,b", b"a,b\n\n"])
def test_a_header_alone_has_no_records(tmp_path, data):
  assert len(_opened(tmp_path, data)) == 0


def test_each_file_has_a_header_of_its_own(tmp_path):
  (tmp_path / "a.csv").write_bytes(b"x,y\n1,2\n")
  (tmp_path / "b.csv").write_bytes(b"")
  (tmp_path / "c.csv").write_bytes(b"\ny\n3\n")
  assert open_records(tmp_path).read([1, 0]) == [
    {"y": "3"},
    {"x": "1", "y": "2"},
  ]


def test_columns_of_one_name_are_refused_and_not_shown(tmp_path):
  with pytest.raises(ValueError, match=r"one name for the columns 1 and 3 of"):
    _opened(tmp_path, b"secret,b,secret\n")


def test_a_header_that_is_not_utf8_is_refused(tmp_path):
  with pytest.raises(ValueError, match=r"a\.csv: the header is not UTF-8"):
    _opened(tmp_path, b"a,\xff\n1,2\n")


def test_a_row_of_too_few_fields_is_named(tmp_path):
  records = _opened(tmp_path, b"a,b\n1,2\n3\n")
  with pytest.raises(
    ValueError, match="record 2, byte 8 has 1 fields where the header has 2"
  ):
    records.read([1])


def test_a_quote_that_is_never_closed_is_named(tmp_path):
  records = _opened(tmp_path, b'a\n1\n"2\n3\n4')
  assert len(records) == 2
  with pytest.raises(
    ValueError, match="record 2, byte 4 is not CSV: unexpected"
  ):
    records.read([1])


def test_fields_may_be_longer_than_the_module_likes(tmp_path):
  before = csv.field_size_limit(1000)
  try:
    records = _opened(tmp_path, b"a\n" + b"x" * 5000)
    assert records.read([0]) == [{"a": "x" * 5000}]
  finally:
    csv.field_size_limit(before)
