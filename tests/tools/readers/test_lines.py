"""Lines cut by ranges of bytes: none lost, none twice, each in its place."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import placed, texts, write

from hpgrain.tools.inputs import (
  BadRecordError,
  find_inputs,
  read_unit,
  record_number,
  units,
)
from hpgrain.tools.readers import lines
from hpgrain.tools.readers.lines import line_blocks

A, B, C = (json.dumps({"text": text}).encode() for text in ("a", "bb", "c"))


@pytest.mark.parametrize("unit_bytes", [1, 2, 7, 14, 15, 16, 1 << 23])
@pytest.mark.parametrize(
  "content",
  [
    b"\n".join([A, B, C, b""]),
    b"\n".join([A, B, C]),
    b"\r\n".join([A, B, C, b""]),
    b"\n\n".join([b" ", A, b"\t\r", B, b"", C, b"\n\n"]),
    b"\xef\xbb\xbf" + b"\n".join([A, B, C]),
    b"\xef\xbb\xbf\r\n" + b"\n".join([A, B, C]),
  ],
  ids=["lf", "no final newline", "crlf", "blank lines", "bom", "bom alone"],
)
def test_ends_and_blank_lines_do_not_matter(
  tmp_path, any_json, content, unit_bytes
):
  path = write(tmp_path / "x.jsonl", content)
  assert texts(path, unit_bytes=unit_bytes) == ["a", "bb", "c"]


def test_index_counts_records_and_offset_is_the_lines(tmp_path, any_json):
  path = write(tmp_path / "x.jsonl", A + b"\n\n  \r\n" + B + b"\r\n{}\n" + C)
  assert len(A) == 13
  found, bad = placed(path)
  assert found == [("a", 0, 0), ("bb", 1, 19), (None, 2, 35), ("c", 3, 38)]
  assert bad == [
    "has no key 'text'; it has 0 other keys. Name the key that holds the text"
    " with --json-keys."
  ]


def test_offset_of_the_first_record_is_before_the_byte_order_mark(tmp_path):
  path = write(tmp_path / "x.jsonl", b"\xef\xbb\xbf" + A + b"\n" + B)
  assert placed(path)[0] == [("a", 0, 0), ("bb", 1, 17)]


def test_a_line_is_in_the_unit_it_begins_in(tmp_path):
  path = write(tmp_path / "x.jsonl", b"\n".join([A, B, C]))
  cut = units(find_inputs(path), unit_bytes=14)
  assert [(unit.start, unit.stop) for unit in cut] == [
    (0, 14),
    (14, 28),
    (28, 42),
  ]
  found = [[r.texts[0] for r in read_unit(unit, ["text"])] for unit in cut]
  assert found == [["a"], ["bb"], ["c"]]
  assert sum(unit.num_bytes for unit in cut) == path.stat().st_size


@pytest.mark.parametrize("unit_bytes", [1, 20, 41, 1 << 23])
def test_record_is_named_by_file_number_line_and_offset(
  tmp_path, any_json, unit_bytes
):
  path = write(tmp_path / "x.jsonl", A + b"\n\n" + B + b"\n{}\n" + C)
  with pytest.raises(BadRecordError) as caught:
    texts(path, unit_bytes=unit_bytes)
  assert str(caught.value).startswith(
    f"{path}: record 3 (line 4, at byte offset 30) has no key 'text'"
  )


def test_record_number_counts_what_lies_before_its_unit(tmp_path):
  path = write(tmp_path / "x.jsonl", b"\n".join([A, b"", b"broken", B, C]))
  numbers = {}
  for unit in units(find_inputs(path), unit_bytes=10):
    for record in read_unit(unit, ["text"], lambda bad: None):
      numbers[record.texts[0]] = record_number(unit, record)
  assert numbers == {"a": 1, "bb": 3, "c": 4}


def test_long_lines_are_read_whole(tmp_path, monkeypatch, any_json):
  monkeypatch.setattr(lines, "_BLOCK", 8)
  monkeypatch.setattr(lines, "_AHEAD", 4)
  long = "é" * 1000
  data = [json.dumps({"text": t}, ensure_ascii=False) for t in ("a", long, "b")]
  path = write(tmp_path / "x.jsonl", "\n".join(data))
  for unit_bytes in (3, 20, 500, 5000):
    assert texts(path, unit_bytes=unit_bytes) == ["a", long, "b"]


def test_empty_file_has_no_unit(tmp_path):
  assert units(find_inputs(write(tmp_path / "x.jsonl", b""))) == []


def test_several_keys_give_several_texts(tmp_path, any_json):
  path = write(tmp_path / "x.jsonl", '{"a": "1", "b": "2"}\n{"a": "3"}\n')
  assert placed(path, ("b", "a"))[0] == [("2", "1", 0, 0), (None, 1, 21)]


def test_text_lines_are_the_texts(tmp_path):
  content = "\ufeffeins\r\n\r\n\n  \nzwei\x85\u2028drei\n\rx"
  path = write(tmp_path / "x.txt", content)
  for unit_bytes in (1, 5, 1 << 23):
    found = texts(path, unit_bytes=unit_bytes)
    assert found == ["eins", "  ", "zwei\x85\u2028drei", "\rx"]
  assert placed(path)[0][1] == ("  ", 1, 12)


def test_text_that_is_not_utf8_is_a_bad_record(tmp_path):
  path = write(tmp_path / "x.txt", b"a\n\n\xffb\nc")
  found, bad = placed(path)
  assert found == [("a", 0, 0), (None, 1, 3), ("c", 2, 6)]
  assert bad[0].startswith("is not UTF-8: byte 0xff at 0 bytes into the record")
  with pytest.raises(BadRecordError, match=r"record 2 \(line 3, at byte off"):
    texts(path)


def test_text_lines_have_one_key(tmp_path):
  path = write(tmp_path / "x.txt", b"a")
  with pytest.raises(ValueError, match="plain text, whose lines have the one"):
    texts(path, ("body",))


@given(
  st.lists(st.sampled_from([b"", b"a", b"bc", b"\r", b"0123456789"])),
  st.booleans(),
  st.integers(1, 30),
  st.integers(1, 12),
)
def test_ranges_part_the_lines(parts, final_newline, size, block):
  data = b"\n".join(parts) + (b"\n" if final_newline else b"")
  # By the book: where each line begins, and what it is.
  expected, offset = [], 0
  for line in data.split(b"\n"):
    if offset < len(data):
      expected.append((offset, line))
    offset += len(line) + 1
  before = lines._BLOCK, lines._AHEAD
  lines._BLOCK, lines._AHEAD = block, max(block // 2, 1)
  try:
    found = []
    for start in range(0, len(data), size):
      stream = io.BytesIO(data)
      stream.seek(max(start - 1, 0))
      stop = min(start + size, len(data))
      for offset, held in line_blocks(stream, start=start, stop=stop):
        for line in held:
          assert start <= offset < stop
          found.append((offset, bytes(line)))
          offset += len(line) + 1  # noqa: PLW2901
  finally:
    lines._BLOCK, lines._AHEAD = before
  assert found == expected
