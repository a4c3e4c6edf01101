"""JSON arrays by index, against a slow reader and case by case."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from slow_records import slow_array

from hpgrain.sources.by_index.formats import open_records

_SPACE = st.sampled_from(["", " ", "\n", "\r\n\t "])
_STRINGS = st.text(alphabet='ab\\"[]{},: \n\u00e9', max_size=8)


@st.composite
def _arrays(draw):
  values = draw(
    st.lists(
      st.dictionaries(_STRINGS, _STRINGS | st.lists(_STRINGS), max_size=3),
      max_size=5,
    )
  )
  texts = [
    draw(_SPACE) + json.dumps(value, indent=draw(st.sampled_from([None, 1])))
    for value in values
  ]
  inside = ("," if draw(st.booleans()) else " ,").join(texts)
  return f"{draw(_SPACE)}[{inside}{draw(_SPACE)}]{draw(_SPACE)}"


@given(_arrays(), st.booleans())
def test_equal_to_a_slow_reader(text, mark):
  head = b"\xef\xbb\xbf" if mark else b""
  expected = slow_array(text)
  with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "a.json"
    path.write_bytes(head + text.encode())
    records = open_records(path)
    assert records.read(np.arange(len(records))) == [v for _, v in expected]
    assert [records.place(i) for i in range(len(records))] == [
      f"{path}, record {number}, byte {len(head) + len(text[:place].encode())}"
      for number, (place, _) in enumerate(expected, 1)
    ]
    assert records.identity["format"] == "json_array"


def _opened(tmp_path, data):
  path = tmp_path / "a.json"
  path.write_bytes(data)
  return open_records(path)


@pytest.mark.parametrize("data", [b"[]", b" [ ]\n", b"\xef\xbb\xbf[]"])
def test_an_empty_array_has_no_records(tmp_path, data):
  assert len(_opened(tmp_path, data)) == 0


@pytest.mark.parametrize(
  "data, number, byte, reason",
  [
    (b'[{}, "x"]', 2, 5, "is a string, not an object"),
    (b"[{},,{}]", 2, 4, "is missing"),
    (b"[{},]", 2, 4, "is missing"),
    (b"[{}, {\x80}]", 2, 5, "is not UTF-8"),
    (b"[{} {}]", 1, 1, "is not JSON: Extra data at character 3"),
  ],
)
def test_a_bad_element_is_named(tmp_path, data, number, byte, reason):
  records = _opened(tmp_path, data)
  with pytest.raises(
    ValueError, match=f"record {number}, byte {byte} {reason}"
  ):
    records.read([number - 1])


@pytest.mark.parametrize(
  "data, whole", [(b'[{}, {"a": "]', 1), (b"[", 0), (b"[{},\n {}, ", 1)]
)
def test_an_array_that_was_cut_off_is_refused(tmp_path, data, whole):
  with pytest.raises(
    ValueError, match=rf"ends at byte {len(data)} inside its .* {whole} whole"
  ):
    _opened(tmp_path, data)


def test_what_follows_the_array_is_refused(tmp_path):
  with pytest.raises(ValueError, match=r"goes on after .* at byte offset 5"):
    _opened(tmp_path, b"[{}]\n{}")


def test_lines_in_a_json_file_are_lines(tmp_path):
  records = _opened(tmp_path, b'{"a": 1}\n{"a": 2}')
  assert records.identity["format"] == "json_lines"
  assert records.read([1]) == [{"a": 2}]


def test_lines_and_arrays_do_not_mix(tmp_path):
  (tmp_path / "a.json").write_bytes(b"[{}]")
  (tmp_path / "b.json").write_bytes(b"{}")
  with pytest.raises(
    ValueError, match=r"a\.json is one JSON array and .*b\.js"
  ):
    open_records(tmp_path)
