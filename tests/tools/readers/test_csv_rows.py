"""CSV rows: quoting, line ends, places, and what is refused."""

import gzip

import pytest
from reading import placed, texts, write

from hpgrain.tools.inputs import BadRecordError, find_inputs, units
from hpgrain.tools.readers import csv_rows, long_bytes


def test_quoted_fields_hold_commas_quotes_and_line_ends(tmp_path):
  path = write(
    tmp_path / "x.csv",
    'id,text\r\n1,"a, ""b""\nc\r\n"\r\n\r\n2,plain\n3,\n4,"é😀"',
  )
  assert placed(path)[0] == [
    ('a, "b"\nc\r\n', 0, 9),
    ("plain", 1, 29),
    ("", 2, 37),
    ("é😀", 3, 40),
  ]
  (unit,) = units(find_inputs(path), unit_bytes=3)
  assert unit.first_record == 0


def test_columns_are_found_by_name_after_a_byte_order_mark(tmp_path):
  path = write(tmp_path / "x.csv", '\ufeff"text",b\n1,2\n')
  assert texts(path, ("b", "text")) == [("2", "1")]


def test_fields_may_be_long(tmp_path):
  path = write(tmp_path / "x.csv", "text\n" + "x" * 300_000)
  assert texts(path) == ["x" * 300_000]


@pytest.mark.parametrize(
  ("row", "reason"),
  [
    (b"1", "has 1 fields where the header has 2."),
    (b"1,a,b", "has 3 fields where the header has 2."),
    (b'1,"a"b', "is not CSV: "),
    (b"1,\xff", "is not UTF-8: byte 0xff at 2 bytes"),
    (b'1,"\n\xff\n"', "is not UTF-8: byte 0xff"),
  ],
)
def test_bad_row_does_not_hide_the_next(tmp_path, row, reason):
  path = write(tmp_path / "x.csv", b"id,text\n1,a\n" + row + b"\n2,z\n")
  found, bad = placed(path)
  assert found == [
    ("a", 0, 8),
    (None, 1, 12),
    ("z", 2, 12 + len(row) + 1),
  ]
  assert reason in bad[0]
  with pytest.raises(BadRecordError) as caught:
    texts(path)
  assert str(caught.value).startswith(
    f"{path}: record 2 (at byte offset 12) {bad[0]}"
  )


def test_quote_that_is_never_closed_is_a_bad_row(tmp_path):
  path = write(tmp_path / "x.csv", 'text\na\n"b\nc\n')
  found, bad = placed(path)
  assert found == [("a", 0, 5), (None, 1, 7)]
  assert bad == ["is not CSV: unexpected end of data."]


@pytest.mark.parametrize(
  ("header", "message"),
  [
    ("sesame,b", "has no column 'text' among the 2 of its first line"),
    ("text,text", "has more than one column 'text' among the 2"),
  ],
)
def test_header_must_have_the_column_once(tmp_path, header, message):
  path = write(tmp_path / "x.csv", f"{header}\n1,2\n")
  with pytest.raises(ValueError, match=message) as caught:
    placed(path)
  assert "sesame" not in str(caught.value)


def test_header_alone_and_packed_files(tmp_path, any_gzip):
  assert texts(write(tmp_path / "x.csv", "text\n")) == []
  packed = gzip.compress(b"text\r\na\r\n")
  assert texts(write(tmp_path / "x.csv.gz", packed)) == ["a"]


def test_a_line_that_does_not_fit_in_memory_is_an_error(tmp_path, monkeypatch):
  monkeypatch.setattr("hpgrain.tools.readers.lines._BLOCK", 16)
  monkeypatch.setattr(long_bytes, "LONG_BYTES", 40)
  monkeypatch.setattr(csv_rows, "_FIELD_CHARACTERS", 100)
  path = write(tmp_path / "x.csv", f"id,text\n1,{'b' * 80}\n2,{'c' * 120}\n")
  with pytest.raises(ValueError, match="line at byte offset 91 has 122 bytes"):
    texts(path)
  path = write(tmp_path / "y.csv", f"id,text\n1,{'b' * 80}\n")
  assert texts(path) == ["b" * 80]
