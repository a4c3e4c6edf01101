"""JSON arrays, element by element, whatever the blocks they are read in."""

import gzip
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import placed, texts, write

from hpgrain.tools.inputs import BadRecordError, find_inputs, units
from hpgrain.tools.readers import json_arrays


@pytest.fixture(params=[1, 3, 1 << 20])
def blocks(request, monkeypatch):
  monkeypatch.setattr(json_arrays, "_BLOCK", request.param)


RECORDS = [
  {"text": "a"},
  {"text": 'b"]},[{\\', "x": [1, {"text": "]"}, []]},
  {"text": "\\\\", "y": '\\"'},
  {"text": "é😀"},
]


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_elements_are_records(tmp_path, indent, ascii_only):
  data = json.dumps(RECORDS, indent=indent, ensure_ascii=ascii_only)
  path = write(tmp_path / "x.json", data)
  assert texts(path) == [record["text"] for record in RECORDS]
  (unit,) = units(find_inputs(path), unit_bytes=3)
  assert (unit.kind, unit.first_record) == ("json_array", 0)


@pytest.mark.usefixtures("blocks")
def test_place_of_an_element_is_where_it_begins(tmp_path):
  path = write(
    tmp_path / "x.json",
    b'\xef\xbb\xbf [\r\n{"text": "a"}\n, {"text": 1} ,{"text":"b"}]\n',
  )
  found, bad = placed(path)
  assert found == [("a", 0, 7), (None, 1, 23), ("b", 2, 36)]
  assert bad == ["holds a number under 'text', not a string."]
  with pytest.raises(BadRecordError) as caught:
    texts(path)
  assert str(caught.value).startswith(
    f"{path}: record 2 (at byte offset 23) holds a number"
  )


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize(
  ("element", "reason"),
  [
    ("", "is missing: a comma has no element beside it"),
    ("5", "is a number, not an object"),
    ('"a, [b"', "is a string, not an object"),
    ("{]", "is not JSON: Expecting property name"),
    ('{"text": "b"} {"text": "c"}', "is not JSON: Extra data"),
  ],
)
def test_bad_element_does_not_hide_the_next(tmp_path, element, reason):
  path = write(
    tmp_path / "x.json", f'[{{"text": "a"}}, {element}, {{"text": "z"}}]'
  )
  found, bad = placed(path)
  assert [text for text, *_ in found] == ["a", None, "z"]
  assert reason in bad[0]


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("data", ["[]", " [ \n ] \n"])
def test_empty_array_has_no_record(tmp_path, data):
  assert texts(write(tmp_path / "x.json", data)) == []


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize(
  ("data", "message"),
  [
    ('[{"text": "a"}', r"ends at byte 14 inside its JSON array, after 0 whole"),
    ('[{"text": "a"}, {"te', r"inside its JSON array, after 1 whole"),
    ('[{"text": "a"}, {"text": [}, 1]', r"inside its JSON array, after 1"),
    ('[{"text": "a"}]  [', r"goes on after its JSON array, at byte offset 17"),
  ],
)
def test_array_must_be_whole_and_all_there_is(tmp_path, data, message):
  path = write(tmp_path / "x.json", data)
  with pytest.raises(ValueError, match=message):
    placed(path)


def test_trailing_comma_is_a_bad_record(tmp_path):
  path = write(tmp_path / "x.json", '[{"text": "a"},]')
  assert placed(path)[0] == [("a", 0, 1), (None, 1, 15)]


def test_dot_json_may_hold_lines_and_dot_jsonl_no_array(tmp_path):
  path = write(tmp_path / "x.json", '\n\n{"text": "a"}\n{"text": "b"}\n')
  assert texts(path) == ["a", "b"]
  path = write(tmp_path / "x.jsonl", '[{"text": "a"}]')
  with pytest.raises(BadRecordError, match="is an array, not an object"):
    texts(path)


def test_packed_arrays_are_read_too(tmp_path, any_gzip):
  path = write(
    tmp_path / "x.json.gz", gzip.compress(b" " * 5000 + b'[{"text": "a"}]')
  )
  assert placed(path)[0] == [("a", 0, 5001)]


VALUES = st.recursive(
  st.none() | st.integers() | st.text(max_size=4),
  lambda inner: (
    st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=2), inner, max_size=3)
  ),
  max_leaves=6,
)


@given(
  st.lists(VALUES, min_size=1),
  st.integers(1, 9),
  st.sampled_from([None, 0]),
  st.booleans(),
)
def test_elements_are_those_of_the_whole(values, block, indent, ascii_only):
  try:
    data = json.dumps(values, indent=indent, ensure_ascii=ascii_only).encode()
  except UnicodeEncodeError:
    return
  before = json_arrays._BLOCK
  json_arrays._BLOCK = block
  try:
    found = list(json_arrays._elements(io.BytesIO(data), "x"))
  finally:
    json_arrays._BLOCK = before
  assert [json.loads(bytes(element)) for _, element in found] == values
  for offset, element in found:
    assert data[offset:].startswith(element)
