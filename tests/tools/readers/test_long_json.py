"""Huge JSON objects: texts in pieces, equal to the strings."""

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import write

from hpgrain.tools.inputs import LongText, find_inputs, read_unit, units
from hpgrain.tools.readers import long_json, long_text
from hpgrain.tools.readers.json_texts import reference_texts
from hpgrain.tools.readers.long_json import texts_in_pieces
from hpgrain.tools.readers.records import BadTextError


@pytest.fixture(autouse=True)
def small(monkeypatch):
  monkeypatch.setattr(long_text, "PIECE_BYTES", 16)
  monkeypatch.setattr(long_json, "PIECE_BYTES", 16)
  monkeypatch.setattr(long_json, "LONG_BYTES", 40)


def joined(data, keys=("text",)):
  found = texts_in_pieces(bytearray(data), keys)
  return found and tuple([str(text) for text in found])


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
  data = bytearray(json.dumps({"text": "é\n" * 100}).encode())
  (text,) = texts_in_pieces(data, ["text"])
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
def test_doubt_is_left_to_the_reader_of_whole_objects(data):
  assert joined(data) is None
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
  found = joined(data)
  if found is not None:
    assert found == reference_texts(data, keys=["text"])
  elif "\\ud83d" not in second.replace("\\ud83d\\ude00", "") and place < 0:
    raise AssertionError("refused a plain object")


@pytest.mark.parametrize("name", ["x.jsonl", "x.json"])
def test_readers_give_long_texts_where_asked_for(tmp_path, monkeypatch, name):
  monkeypatch.setattr("hpgrain.tools.readers.lines._BLOCK", 8)
  expected = ["a", "é" * 100, "b", "c" * 100]
  records = [json.dumps({"text": text}) for text in expected]
  content = "\n".join(records)
  if name == "x.json":
    content = f"[{','.join(records)}]"
  (unit,) = units(find_inputs(write(tmp_path / name, content)))
  found, long = [], None
  for record in read_unit(unit, ["text"], long_texts=True):
    if found and type(long) is LongText:
      with pytest.raises(RuntimeError, match="after the next record was"):
        str(long)
    (long,) = record.texts
    found.append((type(long), str(long)))
  assert found == [
    (LongText if len(text) > 1 else str, text) for text in expected
  ]
  found = [r.texts[0] for r in read_unit(unit, ["text"])]
  assert found == expected


def test_long_line_takes_its_bytes_once(tmp_path, monkeypatch):
  monkeypatch.setattr(long_json, "LONG_BYTES", 1 << 20)
  monkeypatch.setattr(long_text, "PIECE_BYTES", 1 << 16)
  size = 1 << 25
  content = json.dumps({"text": "é😀 a\n" * (size // 24)})
  path = write(tmp_path / "x.jsonl", f"{content}\n{content}\n")
  size = len(content)
  del content
  tracemalloc.start()
  try:
    for unit in units(find_inputs(path)):
      for record in read_unit(unit, ["text"], long_texts=True):
        assert sum(map(len, record.texts[0].pieces())) == len(record.texts[0])
    _, peak = tracemalloc.get_traced_memory()
  finally:
    tracemalloc.stop()
  assert peak < 1.3 * size
