"""Huge JSON objects: texts in pieces, equal to the strings."""

import gzip
import io
import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import write

from hpgrain.tools.inputs import (
  ConversationKey,
  LongText,
  find_inputs,
  read_batches,
  read_unit,
  units,
)
from hpgrain.tools.readers import long_bytes, long_json, long_text
from hpgrain.tools.readers.bad_text import BadTextError
from hpgrain.tools.readers.json_texts import reference_texts
from hpgrain.tools.readers.long_bytes import LongBytes
from hpgrain.tools.readers.long_json import texts_in_pieces


@pytest.fixture(autouse=True)
def small(monkeypatch):
  monkeypatch.setattr(long_text, "PIECE_BYTES", 16)
  monkeypatch.setattr(long_json, "PIECE_BYTES", 16)
  monkeypatch.setattr(long_json, "VALUE_BYTES", 60)
  monkeypatch.setattr(long_json, "_BLOCK", 7)
  monkeypatch.setattr(long_bytes, "LONG_BYTES", 40)


def long(data):
  return LongBytes(io.BytesIO(), 0, bytearray(data), None)


def joined(data, keys=("text",)):
  return tuple([str(text) for text in texts_in_pieces(long(data), keys)])


@pytest.mark.parametrize(
  "data",
  [
    b'{"text": "0123456789abcdef0123456789abcdef"}',
    b' {"x": [1, {"y": "]}"}], "text" :\t"' + b"a" * 50 + b'" , "z":null}\r',
    b'{"text": "' + b"\\ud83d\\ude00" * 20 + b'"}',
    b'{"text": "1' + b"\\ud83d\\ude00" * 20 + b'"}',
    b'{"text": "' + b"\\\\" * 33 + b'ud83d"}',
    b'{"text": "' + b"\\\\ud83d" * 33 + b'"}',
    b'{"text": "' + b"\\n\\u00e9" * 33 + b'"}',
    '{"text": "x%s"}'.replace("%s", "é€😀" * 20).encode(),
    b'{"text": "short", "x": "' + b"\\ud83d" * 20 + b'"}',
    b'{"text": 1, "text": "' + b"b" * 40 + b'"}',
    b'{"te\\u0078t": "' + b"b" * 40 + b'"}',
  ],
)
def test_pieces_are_the_string(data):
  assert joined(data) == reference_texts(data, keys=["text"])


def test_pieces_are_short_and_length_is_known():
  data = json.dumps({"text": "é\n" * 100}).encode()
  (text,) = texts_in_pieces(long(data), ["text"])
  pieces = list(text.pieces())
  assert len(text) == 200
  assert len(pieces) > 40
  assert max(map(len, pieces)) <= 16
  assert "".join(pieces) == "é\n" * 100


@pytest.mark.parametrize(
  "data",
  [
    b"",
    b"[]",
    b"{}",
    b'{"text": 5}',
    b'{"text": "' + b"a" * 50,
    b'{"text": "' + b"a" * 50 + b'"',
    b'{"text": "' + b"a" * 50 + b'",}',
    b'{"text": "' + b"a" * 50 + b'"} x',
    b'{"text": "' + b"a" * 50 + b'" "x": 1}',
    b'{"x": 01, "text": "' + b"a" * 50 + b'"}',
    b'{"x": [}, "text": "' + b"a" * 50 + b'"}',
    b'{"text": "' + b"a" * 50 + b'\x01"}',
    b'{"text": "' + b"a" * 50 + b'\\x"}',
    b'{"text": "' + b"a" * 50 + b'\xff"}',
    b'{"text": "' + b"\x80" * 50 + b'"}',
    b'{"text": "' + b"a" * 50 + b'\\ud83d"}',
    b'{"text": "\\ud83d"}',
  ],
)
def test_what_the_reference_refuses_is_refused(data):
  with pytest.raises(BadTextError, match=r"is |has |holds "):
    joined(data)
  with pytest.raises(BadTextError, match=r"is |has |holds "):
    reference_texts(data, keys=["text"])


INSIDE = st.lists(
  st.sampled_from(
    [
      "a",
      "\\\\",
      "\\n",
      '\\"',
      "\\u00e9",
      "\\ud83d\\ude00",
      "é",
      "😀",
      "\\ud83d",
    ]
  ),
  min_size=1,
  max_size=40,
).map("".join)


@given(INSIDE, INSIDE, st.integers(-1, 300), st.integers(0, 255))
def test_pieces_never_differ_from_the_reference(first, second, place, byte):
  data = bytearray(f'{{"x": "{first}", "text": "{second}"}}'.encode())
  if 0 <= place < len(data):
    data[place] = byte
  try:
    expected = reference_texts(data, keys=["text"])
  except BadTextError:
    with pytest.raises(BadTextError, match=r"is |has |holds "):
      joined(data)
  else:
    assert joined(data) == expected


@pytest.mark.parametrize(
  ("data", "message"),
  [
    (b'{"text": "aaaaaaaaaaaaaaaaaaaaa\xff"}', "UTF-8: byte 0xff at 31 bytes"),
    (
      b'{"text": "aaaaaaaaaaaaaaaaaaa\\xa"}',
      "Invalid .escape at about byte 29",
    ),
    (
      b'{"text": "aaaaaaaaaaaaaaaaaaaaaaaaa',
      "begins at byte 9 of the record do",
    ),
    (b'{"text": "a"} x' + b" " * 60, "else was expected at byte 14 of"),
    (b'{"text": "a" "b": 1}', "else was expected at byte 13 of"),
    (b'{"x": nul, "text": "a"}', "else was expected at byte 6 of"),
    (
      b'{"x": [1' + b", 1" * 60,
      "more than 60 bytes that is no string, at byte 6",
    ),
    (b'{"x": [1' + b", 1" * 6, "else was expected at byte 26"),
    (b'{"' + b"k" * 50 + b'": 1}', "a key of 50 characters"),
    (b'{"x": ' + b"[" * 20 + b"]" * 20 + b"}", "has no key 'text'; it has 1"),
    (
      b'{"text": "aaaaaaaaaaaaaaaaaaaaa\\ud83d"}',
      "half of a surrogate pair under 'text', at character 21",
    ),
  ],
)
def test_faults_are_named_by_their_place(data, message):
  with pytest.raises(BadTextError, match=message) as caught:
    joined(data)
  assert "aaa" not in str(caught.value)
  assert caught.value.__suppress_context__ or not caught.value.__context__


def test_a_long_string_is_no_conversation():
  data = b'{"text": "' + b"a" * 50 + b'"}'
  with pytest.raises(BadTextError, match="string under 'text', not an array"):
    joined(data, [ConversationKey("text")])


@pytest.mark.parametrize("name", ["x.jsonl", "x.json", "x.jsonl.gz", "x.txt"])
def test_readers_give_long_texts_where_asked_for(tmp_path, monkeypatch, name):
  monkeypatch.setattr("hpgrain.tools.readers.lines._BLOCK", 8)
  monkeypatch.setattr("hpgrain.tools.readers.json_arrays._BLOCK", 8)
  expected = ["a", "é" * 100, "b", "c" * 100, "d"]
  records = [json.dumps({"text": text}) for text in expected]
  content = "\n".join(records)
  if name == "x.json":
    content = f"[ {' , '.join(records)} ]"
  if name == "x.txt":
    content = "\r\n".join(expected)
  content = content.encode()
  if name.endswith(".gz"):
    content = gzip.compress(content)
  (unit,) = units(find_inputs(write(tmp_path / name, content)))
  found, held = [], None
  for record in read_unit(unit, ["text"], long_texts=True, scratch=tmp_path):
    if type(held) is LongText:
      with pytest.raises(RuntimeError, match="after the next record was"):
        str(held)
    (held,) = record.texts
    found.append((type(held), str(held)))
  assert found == [
    (LongText if len(text) > 1 else str, text) for text in expected
  ]
  found = [r.texts[0] for r in read_unit(unit, ["text"])]
  assert found == expected


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_batches_are_the_records(tmp_path, monkeypatch, mark):
  monkeypatch.setattr("hpgrain.tools.readers.lines._BLOCK", 100)
  lines = [
    b'{"text": "one"}',
    b"broken",
    b"",
    b'{"text": "two", "x": NaN}',
    b'{"text": "' + b"\\u00e9" * 100 + b'"}',
    b" " * 300,
    b'{"text": "' + b"a" * 300,
    b'{"text": "three"}',
  ]
  content = mark + lines[4] + b"\n" + b"\n".join(lines)
  path = write(tmp_path / "x.jsonl", content)
  for unit_bytes in (40, 100, 1 << 20):
    for unit in units(find_inputs(path), unit_bytes=unit_bytes):
      bad, expected_bad = [], []
      expected = [
        (*record.texts, record.index, record.offset)
        for record in read_unit(unit, ["text"], expected_bad.append)
      ]
      found = []
      for item in read_batches(unit, ["text"], bad.append):
        if isinstance(item, tuple) and hasattr(item, "texts"):
          found.append((str(item.texts[0]), item.index, item.offset))
        else:
          (texts,) = item.columns
          found += zip(texts.strings(), item.indices, item.offsets, strict=True)
      assert found == expected
      places = [(b.index, b.offset) for b in bad]
      assert places == [(b.index, b.offset) for b in expected_bad]


def test_long_line_takes_no_memory(tmp_path, monkeypatch):
  monkeypatch.setattr(long_bytes, "LONG_BYTES", 1 << 20)
  monkeypatch.setattr(long_text, "PIECE_BYTES", 1 << 16)
  monkeypatch.setattr(long_json, "_BLOCK", 1 << 16)
  size = 1 << 25
  content = json.dumps({"text": "é😀 a\n" * (size // 24)})
  path = write(tmp_path / "x.jsonl", f"{content}\n{content}\n")
  del content
  tracemalloc.start()
  try:
    for unit in units(find_inputs(path)):
      for record in read_unit(unit, ["text"], long_texts=True):
        assert sum(map(len, record.texts[0].pieces())) == len(record.texts[0])
    _, peak = tracemalloc.get_traced_memory()
  finally:
    tracemalloc.stop()
  assert peak < size / 4
