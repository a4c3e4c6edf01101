import json
import pickle
import re

import ml_collections as mlc
import numpy as np
import pytest
from corpora import write_pair

from hpgrain import PrecutSamples
from hpgrain.rearrange_map import PartialMap, load_rearrange_map, resolve
from hpgrain.rearranged import RearrangedSamples


def _file(tmp_path, name, content):
  path = tmp_path / name
  if name.endswith(".npy") and isinstance(content, np.ndarray):
    np.save(path, content)
  elif isinstance(content, bytes):
    path.write_bytes(content)
  else:
    path.write_text(content)
  return path


@pytest.mark.parametrize(
  "value",
  [
    [3, 0, 3],
    (3, 0, 3),
    np.array([3, 0, 3], np.uint16),
    [np.int32(3), 0, 3],
  ],
)
def test_rows_are_taken_as_they_are(value):
  found = load_rearrange_map(value)
  assert found.dtype.kind in "iu" and found.tolist() == [3, 0, 3]
  with pytest.raises(ValueError, match="read-only"):
    found[0] = 1


def test_a_map_does_not_change_with_its_array():
  rows = np.array([1, 2])
  found = load_rearrange_map(rows)
  rows[0] = 7
  assert found.tolist() == [1, 2]


def test_an_array_file_is_mapped(tmp_path):
  path = _file(tmp_path, "m.npy", np.array([2, 0, 1], np.int32))
  for value in (path, str(path)):
    found = load_rearrange_map(value)
    assert isinstance(found, np.memmap) and not found.flags.writeable
    assert found.tolist() == [2, 0, 1]
    assert pickle.loads(pickle.dumps(found)).tolist() == [2, 0, 1]


def test_json_files_hold_a_list_or_an_object(tmp_path):
  path = _file(tmp_path, "m.json", "[2, 0, 1]")
  assert load_rearrange_map(path).tolist() == [2, 0, 1]
  path = _file(tmp_path, "o.json", '{"0": 2, "10": 3}')
  assert load_rearrange_map(path).rows == {0: 2, 10: 3}
  path = _file(tmp_path, "e.json", "{}")
  assert load_rearrange_map(path, num_rows=2).tolist() == [0, 1]


@pytest.mark.parametrize(
  "value",
  [{0: 3, 2: 0}, {"0": 3, "2": 0}, mlc.ConfigDict({"0": 3, "2": 0})],
)
def test_a_mapping_leaves_the_other_rows(value):
  partial = load_rearrange_map(value)
  assert isinstance(partial, PartialMap)
  assert partial.resolve(4).tolist() == [3, 1, 0, 3]
  assert partial.resolve(5).tolist() == [3, 1, 0, 3, 4]
  assert load_rearrange_map(value, num_rows=4).tolist() == [3, 1, 0, 3]
  # The digest is that of the rows.
  whole = load_rearrange_map([3, 1, 0, 3])
  assert resolve(partial, 4)[1] == resolve(whole, 4)[1]
  assert resolve(partial, 5)[1] != resolve(whole, 4)[1]


def test_samples_take_every_form(tmp_path):
  prefix = write_pair(tmp_path / "a", [[[i] * 3] for i in range(4)])
  array = _file(tmp_path, "m.npy", np.array([3, 1, 0, 3], np.int16))
  names = _file(tmp_path, "m.json", '{"0": 3, "2": 0}')
  for value in ([3, 1, 0, 3], {0: 3, 2: 0}, array, names):
    samples = RearrangedSamples(
      PrecutSamples(prefix, seq_length=2, seed=0, shuffle=False),
      order_map=load_rearrange_map(value),
      permute_seed=None,
      wraps=False,
    )
    copy = pickle.loads(pickle.dumps(samples))
    for taken in (samples, copy):
      assert taken.plan_rows(range(5)).sequence.tolist() == [3, 1, 0, 3, 3]


@pytest.mark.parametrize("rows", [{4: 0}, {0: 4}, {0: 1, 9: 9}])
def test_a_mapping_outside_the_rows_is_refused(tmp_path, rows):
  place, row = list(rows.items())[-1]
  message = rf"row {row} at place {place}; both must lie in \[0, 4\)"
  with pytest.raises(ValueError, match=f"^data_rearrange_map has {message}"):
    load_rearrange_map(rows, num_rows=4)
  path = _file(tmp_path, "m.json", json.dumps(rows))
  partial = load_rearrange_map(path)
  with pytest.raises(ValueError, match=f"{re.escape(str(path))} has {message}"):
    resolve(partial, 4)


def test_a_file_outside_the_rows_is_named(tmp_path):
  path = _file(tmp_path, "m.npy", np.array([0, 4]))
  message = rf"{re.escape(str(path))} has row 4 at place 1; .* \[0, 4\)"
  with pytest.raises(ValueError, match=message):
    resolve(load_rearrange_map(path), 4)


def test_rows_far_into_a_map_are_checked(monkeypatch):
  monkeypatch.setattr("hpgrain.rearrange_map._CHUNK", 3)
  rows = [0, 1, 2, 3, 0, 1, 2]
  digest = resolve(np.array(rows), 4)[1]
  with pytest.raises(ValueError, match="row 3 at place 3"):
    resolve(np.array(rows), 3)
  monkeypatch.undo()
  assert resolve(np.array(rows), 4)[1] == digest


@pytest.mark.parametrize(
  ("value", "message"),
  [
    ([], "is empty: no row would ever be read"),
    ([0, 1.0], r"the row at place 1 must be an integer, got 1\.0"),
    ([0, True], "the row at place 1 must be an integer, got True"),
    ([0, "1"], "the row at place 1 must be an integer, got '1'"),
    ([[0, 1]], r"the row at place 0 must be an integer, got \[0, 1\]"),
    ([1 << 70], r"has shape \(1,\) and dtype object"),
    (np.array(3), r"has shape \(\) and dtype int64"),
    (np.array([0.5]), r"has shape \(1,\) and dtype float64"),
    (5, "data_rearrange_map is 5. Give a list of integers, .* a mapping"),
    ({0.5: 1}, r"a place must be an integer, got 0\.5"),
    ({True: 1}, "a place must be an integer, got True"),
    ({-1: 1}, "a place must be at least 0, got -1"),
    ({0: -1}, "the row at place 0 must be at least 0, got -1"),
    ({0: None}, "the row at place 0 must be an integer, got None"),
    ({"a": 1}, "place 'a' is no integer from 0 on"),
    ({"01": 1}, "place '01' is no integer from 0 on"),
    ({"-1": 1}, "place '-1' is no integer from 0 on"),
    ({"²": 1}, "place '²' is no integer from 0 on"),
    ({"٣": 1}, "place '٣' is no integer from 0 on"),
    ({"9" * 5000: 1}, "is no integer from 0 on"),
    ({"1": 0, 1: 2}, "names place 1 twice"),
    ("m.txt", r"data_rearrange_map m\.txt: a map's file ends with \.npy or"),
    ("no.npy", r"data_rearrange_map no\.npy cannot be read: .*No such file"),
    ("no.json", r"data_rearrange_map no\.json cannot be read: .*No such file"),
  ],
)
def test_other_forms_are_refused(value, message):
  with pytest.raises(ValueError, match=message):
    load_rearrange_map(value)


@pytest.mark.parametrize(
  ("name", "content", "message"),
  [
    ("m.npy", b"", "cannot be read"),
    ("m.npy", b"not an array", "cannot be read"),
    (
      "m.npy",
      np.zeros((2, 2), np.int64),
      r"has shape \(2, 2\) and dtype int64",
    ),
    ("m.npy", np.zeros(3), r"has shape \(3,\) and dtype float64"),
    ("m.npy", np.zeros(3, bool), r"has shape \(3,\) and dtype bool"),
    ("m.npy", np.zeros(0, np.int64), "cannot be read|is empty"),
    ("m.npy", np.array([None]), "cannot be read"),
    ("m.json", "", "cannot be read"),
    ("m.json", b"\xff\xfe", "cannot be read"),
    ("m.json", "[" * 100_000, "cannot be read"),
    ("m.json", "7", "cannot be read: neither a list nor an object"),
    ("m.json", '"0"', "cannot be read: neither a list nor an object"),
    ("m.json", "[]", "is empty"),
    ("m.json", "[0, 1.5]", r"the row at place 1 must be an integer, got 1\.5"),
    ("m.json", "[0, true]", "the row at place 1 must be an integer, got True"),
    ("m.json", "[[0]]", r"the row at place 0 must be an integer, got \[0\]"),
    ("m.json", '{"a": 0}', "place 'a' is no integer from 0 on"),
    ("m.json", '{"0": "1"}', "the row at place 0 must be an integer, got '1'"),
    ("m.json", '{"0": 1, "0": 2}', "names place 0 twice"),
  ],
)
def test_files_of_other_forms_are_named(tmp_path, name, content, message):
  path = _file(tmp_path, name, content)
  with pytest.raises(ValueError, match=message) as raised:
    load_rearrange_map(path)
  assert f"data_rearrange_map {path}" in str(raised.value)


def test_an_archive_of_arrays_is_refused(tmp_path):
  np.savez(tmp_path / "m.npz", a=np.arange(3))
  path = (tmp_path / "m.npz").rename(tmp_path / "m.npy")
  with pytest.raises(ValueError, match="an archive of arrays, not one array"):
    load_rearrange_map(path)
