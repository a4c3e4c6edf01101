"""Plain text lines by index."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from slow_records import slow_text_lines

from hpgrain.sources.by_index.formats import open_records


@given(st.text(alphabet="a\u00e9 \r\n\x85\u2028", max_size=30))
def test_equal_to_a_slow_reader(text):
  data = text.encode()
  expected = slow_text_lines(data)
  with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "a.txt"
    path.write_bytes(data)
    records = open_records(path)
    assert records.read(np.arange(len(records))) == [
      {"text": line.decode().removesuffix("\r")} for _, line in expected
    ]
    assert [records.place(i) for i in range(len(records))] == [
      f"{path}, record {number}, byte {byte}"
      for number, (byte, _) in enumerate(expected, 1)
    ]


def test_text_that_is_not_utf8_is_named(tmp_path):
  path = tmp_path / "a.txt"
  path.write_bytes(b"one\n\ntw\xff\n")
  with pytest.raises(
    ValueError, match=r"a\.txt, record 2, byte 5 is not UTF-8: byte 0xff at 2"
  ):
    open_records(path).read([1])
