"""ArrayRecord files of JSON objects, in units of records."""

import json

import pytest
from reading import placed, texts, write

from hpgrain.tools.inputs import BadRecordError, find_inputs, units

array_record = pytest.importorskip("array_record.python.array_record_module")


def save(path, records):
  writer = array_record.ArrayRecordWriter(str(path), "group_size:1")
  for record in records:
    data = record if isinstance(record, bytes) else json.dumps(record).encode()
    writer.write(data)
  writer.close()
  return path


@pytest.mark.parametrize("unit_bytes", [1, 100_000, 1 << 23])
def test_records_come_in_order_from_any_units(tmp_path, any_json, unit_bytes):
  expected = [f"{i} é" for i in range(150)]
  path = save(tmp_path / "x.array_record", [{"text": t} for t in expected])
  assert texts(path, unit_bytes=unit_bytes) == expected
  cut = units(find_inputs(path), unit_bytes=unit_bytes)
  assert sum(unit.num_bytes for unit in cut) == path.stat().st_size
  assert [unit.first_record for unit in cut] == [unit.start for unit in cut]
  assert len(cut) == {1: 150, 1 << 23: 1}.get(unit_bytes, len(cut))


def test_bad_record_is_named_by_its_number(tmp_path):
  path = save(tmp_path / "x.array_record", [{"text": "a"}, b"b", {"text": "c"}])
  found, bad = placed(path)
  assert found == [("a", 0, None), (None, 1, None), ("c", 2, None)]
  assert bad[0].startswith("is not JSON: Expecting value at character 0")
  with pytest.raises(BadRecordError) as caught:
    texts(path, unit_bytes=1)
  assert str(caught.value).startswith(f"{path}: record 2 is not JSON")


def test_no_records_no_units(tmp_path):
  path = save(tmp_path / "x.arrayrecord", [])
  assert units(find_inputs(path)) == []


def test_other_content_is_refused(tmp_path):
  path = write(tmp_path / "x.array_record", b"no record" * 100)
  with pytest.raises(ValueError, match="cannot be read as ArrayRecord"):
    texts(path)
