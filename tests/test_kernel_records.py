"""The kernel that finds records: equal to slow readers, however it is fed."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from slow_records import slow_array, slow_csv, slow_lines, slow_text_lines

from hpgrain import _kernels

_BYTES = st.text(alphabet='ab,"\\[]{}:\n\r\t \v', max_size=40)


def _starts(kind, data, sizes=(), offset=0):
  """The starts that a file shows, cut into blocks of `sizes` and a rest."""
  records = _kernels.RecordStarts(kind, offset)
  found, begin = [], 0
  for size in [*sizes, len(data)]:
    block = np.frombuffer(data[begin : begin + size], np.uint8)
    starts = records.feed(block)
    assert starts.dtype == np.int64
    found += starts.tolist()
    begin += len(block)
  assert records.offset == offset + len(data)
  return found, records


@given(_BYTES, st.lists(st.integers(1, 9)))
def test_lines(text, sizes):
  data = text.encode()
  found, _ = _starts("json_lines", data, sizes)
  assert found == [byte for byte, _ in slow_lines(data)]
  found, _ = _starts("text_lines", data, sizes)
  assert found == [byte for byte, _ in slow_text_lines(data)]


@given(_BYTES, st.lists(st.integers(1, 9)))
def test_rows(text, sizes):
  data = text.encode()
  found, _ = _starts("csv_rows", data, sizes)
  assert found == [byte for byte, _ in slow_csv(data)]


@given(
  st.recursive(
    st.integers(0, 9) | st.text(alphabet='a\\"[]{}, ', max_size=5),
    lambda inner: (
      st.lists(inner, max_size=3)
      | st.dictionaries(
        st.text(alphabet='a"\\]', max_size=2), inner, max_size=2
      )
    ),
  ).map(lambda value: value if isinstance(value, list) else [value]),
  st.sampled_from([None, 0, 2]),
  st.lists(st.integers(1, 9)),
)
def test_elements(array, indent, sizes):
  text = f" {json.dumps(array, indent=indent)}\n"
  found, records = _starts("json_array", text.encode(), sizes)
  assert records.closed
  assert records.rest == -1
  assert found == [*(place for place, _ in slow_array(text)), len(text) - 1]


@given(_BYTES, st.lists(st.integers(1, 9)))
def test_what_is_no_array_ends_nothing(text, sizes):
  data = b"[" + text.encode()
  whole, once = _starts("json_array", data)
  cut, again = _starts("json_array", data, sizes)
  assert cut == whole
  assert (again.closed, again.rest) == (once.closed, once.rest)
  assert whole == sorted(whole)
  assert all(0 < place <= len(data) for place in whole)


def test_a_file_may_begin_after_a_mark():
  assert _starts("json_lines", b"a\nb", offset=3)[0] == [3, 5]


def test_what_it_refuses():
  with pytest.raises(ValueError, match='kind is "lines"; there are json_lines'):
    _kernels.RecordStarts("lines", 0)
  with pytest.raises(ValueError, match="offset is -1"):
    _kernels.RecordStarts("json_lines", -1)
  with pytest.raises(ValueError, match="byte 1 stands before the array"):
    _starts("json_array", b" x[")
  with pytest.raises(ValueError, match="block must have one dimension"):
    _kernels.RecordStarts("csv_rows", 0).feed(np.zeros((1, 1), np.uint8))
