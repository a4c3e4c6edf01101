"""Files, units and records together: order, pickling, arguments."""

import gzip
import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpgrain.tools.inputs import (
  BadRecord,
  find_inputs,
  read_unit,
  record_number,
  units,
)


def lines(texts):
  return "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()


@pytest.fixture
def folder(tmp_path):
  (tmp_path / "b.jsonl").write_bytes(lines("cdef"))
  (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines("ab")))
  (tmp_path / "c.json").write_text(json.dumps([{"text": "g"}]))
  (tmp_path / "d.csv").write_text("text\nh\n")
  (tmp_path / "e.txt").write_text("i\nj")
  return tmp_path


@pytest.mark.parametrize("unit_bytes", [1, 20, 1 << 23])
def test_records_come_in_the_order_of_paths_and_places(folder, unit_bytes):
  cut = units(find_inputs(folder), unit_bytes=unit_bytes)
  records = [r for unit in cut for r in read_unit(unit, ["text"])]
  assert "".join(record.texts[0] for record in records) == "abcdefghij"


def test_units_can_be_sent_to_another_process(folder):
  cut = units(find_inputs(folder), unit_bytes=20)
  assert pickle.loads(pickle.dumps(cut)) == cut
  assert len(set(cut)) == len(cut)


def test_units_are_the_same_every_time(folder):
  first = units(find_inputs(folder), unit_bytes=20)
  assert units(find_inputs(folder), unit_bytes=20) == first
  assert [unit.num_bytes for unit in first if unit.kind == "json_lines"][
    1:
  ] == ([20, 20, 16])


@pytest.mark.parametrize("keys", [[], "text", ["a", "a"]])
def test_keys_must_be_several_different_ones(folder, keys):
  (unit, *_) = units(find_inputs(folder))
  with pytest.raises(ValueError, match="one or more different keys, got"):
    read_unit(unit, keys)


def test_unit_bytes_must_be_positive(folder):
  with pytest.raises(ValueError, match="unit_bytes must be positive, got 0"):
    units(find_inputs(folder), unit_bytes=0)


def test_skipped_records_are_told_and_numbered(folder):
  (folder / "b.jsonl").write_bytes(lines("c") + b"{}\n" + lines("d"))
  (unit,) = units(find_inputs(folder / "b.jsonl"))
  bad = []
  records = list(read_unit(unit, ["text"], bad.append))
  assert [record.index for record in records] == [0, 2]
  assert bad == [
    BadRecord(str(folder / "b.jsonl"), 1, 14, bad[0].reason),
  ]
  assert record_number(unit, bad[0]) == 2


def test_callback_may_stop_the_reading(folder):
  (folder / "b.jsonl").write_bytes(b"{}\n")
  (unit,) = units(find_inputs(folder / "b.jsonl"))

  def stop(bad):
    raise RuntimeError(f"too many, at {bad.index}")

  with pytest.raises(RuntimeError, match="too many, at 0"):
    list(read_unit(unit, ["text"], stop))


@given(
  st.lists(st.lists(st.text(max_size=5), max_size=6), min_size=1, max_size=3),
  st.integers(1, 60),
  st.booleans(),
)
def test_no_record_is_lost_or_doubled(tmp_path_factory, files, size, packed):
  folder = tmp_path_factory.mktemp("files")
  for number, texts in enumerate(files):
    data = lines(texts)
    path = folder / f"{number}.jsonl"
    path.write_bytes(data.removesuffix(b"\n"))
    if packed:
      path.unlink()
      (folder / f"{number}.jsonl.gz").write_bytes(gzip.compress(data))
  found = []
  for unit in units(find_inputs(folder), unit_bytes=size):
    in_unit = list(read_unit(unit, ["text"]))
    assert [record.index for record in in_unit] == list(range(len(in_unit)))
    found += [record.texts[0] for record in in_unit]
  assert found == [text for texts in files for text in texts]
