"""JSON Lines by index, against a slow reader and case by case."""

import json
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from slow_records import slow_lines

from hpgrain.index_cache import IndexCache
from hpgrain.sources.by_index import json_objects
from hpgrain.sources.by_index.formats import open_records

_VALUES = st.recursive(
  st.none()
  | st.booleans()
  | st.integers(-(2**63), 2**63 - 1)
  | st.floats(allow_nan=False, allow_infinity=False)
  | st.text(max_size=5),
  lambda inner: (
    st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=3), inner, max_size=3)
  ),
  max_leaves=5,
)
_OBJECTS = st.dictionaries(st.text(max_size=3), _VALUES, max_size=3)


@st.composite
def _files(draw):
  """The bytes of a JSON Lines file."""
  data = draw(st.sampled_from([b"", b"\xef\xbb\xbf"]))
  for record in draw(st.lists(_OBJECTS, max_size=6)):
    text = json.dumps(record, ensure_ascii=draw(st.booleans()))
    # A lone half of a pair is its own test.
    data += text.encode("utf-8", "replace")
    data += draw(st.sampled_from([b"\n", b"\r\n", b" \n\n", b"\n \t\v\f\r\n"]))
  if draw(st.booleans()):
    data = data.removesuffix(b"\n")
  return data


def _written(folder, name, data):
  path = Path(folder) / name
  path.write_bytes(data)
  return str(path)


def _read_all(records):
  return records.read(np.arange(len(records)))


@given(st.lists(_files(), min_size=1, max_size=3), st.data())
def test_equal_to_a_slow_reader(contents, data):
  with tempfile.TemporaryDirectory() as folder:
    paths = [
      _written(folder, f"{i}.jsonl", file) for i, file in enumerate(contents)
    ]
    expected = [
      (f"{path}, record {number}, byte {byte}", json.loads(line))
      for path, file in zip(paths, contents)
      for number, (byte, line) in enumerate(slow_lines(file), 1)
    ]
    records = open_records(folder)
    assert len(records) == len(expected)
    indices = data.draw(
      st.lists(st.integers(0, len(expected) - 1), max_size=10)
      if expected
      else st.just([])
    )
    assert records.read(np.array(indices, np.int64)) == [
      expected[i][1] for i in indices
    ]
    assert [records.place(i) for i in range(len(records))] == [
      place for place, _ in expected
    ]


@pytest.mark.parametrize("orjson", [True, False])
@pytest.mark.parametrize(
  "data, expected",
  [
    (b"", []),
    (b"\n\n", []),
    (b"\xef\xbb\xbf", []),
    (b'{"a": 1}', [{"a": 1}]),
    (b'\xef\xbb\xbf{"a": 1}\r\n\r\n{"a": 2}\r\n', [{"a": 1}, {"a": 2}]),
    # Line ends of Unicode end no line of a file.
    ('{"a": "\u2028\x85"}\n{}'.encode(), [{"a": "\u2028\x85"}, {}]),
    (b'{"a": NaN}\n', None),
    (b'{"a": 1e999}', [{"a": float("inf")}]),
    (b'{"a": "\\u0000", "a": 2}', [{"a": 2}]),
  ],
)
def test_records_case_by_case(tmp_path, monkeypatch, orjson, data, expected):
  if not orjson:
    monkeypatch.setattr(json_objects, "_fast_loads", lambda: None)
  records = open_records(_written(tmp_path, "a.jsonl", data))
  found = _read_all(records)
  if expected is None:
    assert found[0]["a"] != found[0]["a"]
  else:
    assert found == expected


@pytest.mark.parametrize("orjson", [True, False])
@pytest.mark.parametrize(
  "line, reason",
  [
    (b'{"secret', "is not JSON: Unterminated string at character 1 of"),
    (b'{"a": "secret\xff"}', "is not UTF-8: byte 0xff at 13 bytes into the"),
    (b'["secret"]', "is an array, not an object"),
    (b'"secret"', "is a string, not an object"),
    (b"null", "is null, not an object"),
    (b"1", "is a number, not an object"),
    (b"true", "is a boolean, not an object"),
    (b'{"secret": 1} {}', "is not JSON: Extra data at character 14"),
    (b'{"a": "secret\\ud800"}', "holds half of a surrogate pair"),
    (b'{"a":' + b"[" * 501 + b"]" * 501 + b"}", "nested deeper than 500"),
    (b'{"a":' + b"[" * 9999 + b"]" * 9999 + b"}", "nested too deep"),
    (b'{"a": 1' + b"0" * 5000 + b"}", "a number of too many digits"),
    (b"{} \v", "is not JSON: Extra data at character 3"),
  ],
)
def test_a_bad_line_is_named_and_not_shown(
  tmp_path, monkeypatch, orjson, line, reason
):
  if not orjson:
    monkeypatch.setattr(json_objects, "_fast_loads", lambda: None)
  path = _written(tmp_path, "a.jsonl", b'{"a": 1}\n\n' + line + b"\n{}\n")
  records = open_records(path)
  assert len(records) == 3
  with pytest.raises(ValueError, match="record 2, byte 10 ") as error:
    _read_all(records)
  assert reason in str(error.value)
  assert path in str(error.value)
  assert "secret" not in str(error.value)
  assert error.value.__cause__ is None
  # The others can be read.
  assert records.read([2, 0]) == [{}, {"a": 1}]


def test_a_file_that_was_cut_off_says_so(tmp_path):
  records = open_records(_written(tmp_path, "a.jsonl", b'{}\n{"a": "tex'))
  with pytest.raises(ValueError, match=r"record 2, byte 3 .*may have been cut"):
    records.read([1])


def test_depth_alone_is_no_fault(tmp_path):
  line = b'{"a": [' + b"[]," * 600 + b"[]]}"
  records = open_records(_written(tmp_path, "a.jsonl", line))
  assert records.read([0]) == [{"a": [[]] * 601}]


def test_a_file_changed_while_a_run_goes_on_is_refused(tmp_path):
  path = _written(tmp_path, "a.jsonl", b'{"a": 1}\n{"a": 2}\n')
  records = open_records(path)
  assert records.read([1]) == [{"a": 2}]
  Path(path).write_bytes(b'{"a": 1}\n\n{"a":2}\n')
  os.utime(path, ns=(1, 1))
  with pytest.raises(ValueError, match=r"a\.jsonl was written again"):
    records.read([1])


def test_a_file_changed_between_runs_is_looked_at_again(tmp_path):
  path = _written(tmp_path, "a.jsonl", b'{"a": 1}\n{"a": 2}\n')
  cache = IndexCache(tmp_path / "cache")
  first = open_records(path, cache=cache)
  Path(path).write_bytes(b'{"a": 1}\n\n{"a":2}\n')
  os.utime(path, ns=(1, 1))
  second = open_records(path, cache=cache)
  assert second.read([1]) == [{"a": 2}]
  assert first.cache_identity != second.cache_identity
  assert first.identity != second.identity


def test_a_file_that_hides_its_change_is_found_out(tmp_path):
  # Neither its size, its time, nor a sampled block tells.
  line = b'{"a": "' + b"x" * 100 + b'"}\n'
  data = line * 2000
  path = _written(tmp_path, "a.jsonl", data)
  cache = IndexCache(tmp_path / "cache")
  times = Path(path).stat()
  records = open_records(path, cache=cache)
  changed = bytearray(data)
  # Sampled are the bytes up to 4096, and from 14526 on.
  index = 60
  begin = index * len(line)
  changed[begin + 50 : begin + 53] = b'"}\n'
  Path(path).write_bytes(changed)
  os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
  again = open_records(path, cache=cache)
  assert again.cache_identity == records.cache_identity
  assert [event.built for event in cache.events] == [True] * 2 + [False] * 2
  with pytest.raises(ValueError, match="goes on over more than one line"):
    again.read([index])
