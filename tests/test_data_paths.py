import math
from pathlib import Path

import ml_collections as mlc
import numpy as np
import pytest

from hpgrain.data_paths import (
  SourceEntry,
  SourceSpec,
  parse_data_path,
  read_entries,
)


def _touch(folder, *names):
  for name in names:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


@pytest.mark.parametrize(
  "value",
  [
    "/data/books",
    "/data/books.bin",
    "/data/books.idx",
    Path("/data/books"),
    ("/data/books",),
    ["/data/books"],
    (3, "/data/books"),
    {"path": "/data/books"},
    mlc.ConfigDict({"path": "/data/books", "weight": 0.5}),
    ({"path": "/data/books", "weight": 1},),
  ],
)
def test_one_prefix_is_no_blend(value):
  assert parse_data_path(value) == [SourceSpec("/data/books", None, "books")]


@pytest.mark.parametrize(
  ("value", "weights"),
  [
    (("/a/x", "/b/y"), [None, None]),
    (["/a/x", "/b/y"], [None, None]),
    ((0.7, "/a/x", 0.3, "/b/y"), [0.7, 0.3]),
    (("0.7", "/a/x", "0.3", "/b/y"), [0.7, 0.3]),
    ((70, "/a/x", "30", "/b/y"), [70, 30.0]),
    ((np.float32(0.5), "/a/x", np.int64(2), "/b/y"), [0.5, 2]),
    (
      ({"path": "/a/x", "weight": 7}, {"path": "/b/y", "weight": "3"}),
      [7, 3.0],
    ),
    (({"path": "/a/x"}, "/b/y"), [None, None]),
    ((SourceEntry("/a/x", 1), SourceEntry("/b/y", 2)), [1, 2]),
    ((10**400, "/a/x", 1e-300, "/b/y"), [10**400, 1e-300]),
  ],
)
def test_two_prefixes(value, weights):
  assert parse_data_path(value) == [
    SourceSpec("/a/x", weights[0], "x"),
    SourceSpec("/b/y", weights[1], "y"),
  ]


def test_an_int_weight_stays_exact():
  specs = parse_data_path((2**60 + 1, "/a", 1, "/b"))
  assert specs[0].weight == 2**60 + 1
  assert [type(spec.weight) for spec in specs] == [int, int]


def test_names_may_be_given():
  value = ({"path": "/a/x", "name": "old"}, {"path": "/b/x", "name": "new"})
  assert [spec.name for spec in parse_data_path(value)] == ["old", "new"]
  assert parse_data_path({"path": "/a/x", "name": "n"})[0].name == "n"


def test_an_entry_says_what_was_written():
  assert read_entries(("/a", {"path": "/b.bin", "name": "n"})) == [
    SourceEntry("/a", None, None),
    SourceEntry("/b", None, "n"),
  ]


def test_a_path_on_a_store_keeps_its_slashes():
  assert parse_data_path("gs://bucket//books.bin") == [
    SourceSpec("gs://bucket//books", None, "books")
  ]


def test_a_folder_is_its_bin_files_sorted_by_path(tmp_path):
  _touch(tmp_path, "b.bin", "b.idx", "a/z.bin", "a-1/y.bin", "a.bin", "c.txt")
  for value in (str(tmp_path), f"{tmp_path}/", tmp_path, (str(tmp_path),)):
    # "-" sorts before ".", and "." before "/".
    assert parse_data_path(value) == [
      SourceSpec(f"{tmp_path}/{name}", 1, name)
      for name in ("a-1/y", "a", "a/z", "b")
    ]


def test_a_folder_of_one_is_no_blend(tmp_path):
  _touch(tmp_path, "deep/er/x.bin")
  assert parse_data_path(str(tmp_path)) == [
    SourceSpec(f"{tmp_path}/deep/er/x", None, "deep/er/x")
  ]


def test_a_pair_beside_a_folder_of_its_name_wins(tmp_path):
  _touch(tmp_path, "x.idx", "x.bin", "x/y.bin")
  assert parse_data_path(f"{tmp_path}/x") == [
    SourceSpec(f"{tmp_path}/x", None, "x")
  ]


def test_folders_stand_alone(tmp_path):
  _touch(tmp_path, "f/x.bin", "e/readme")
  for value in (
    (f"{tmp_path}/f", "/b"),
    (1, f"{tmp_path}/f", 2, "/b"),
    {"path": f"{tmp_path}/f", "name": "n"},
    {"path": f"{tmp_path}/f", "weight": 2},
  ):
    with pytest.raises(ValueError, match=r"f' is a folder, .* alone, or list"):
      parse_data_path(value)
  with pytest.raises(ValueError, match=r"e' holds no \.bin file"):
    parse_data_path(f"{tmp_path}/e")


@pytest.mark.parametrize(
  ("value", "entry"),
  [
    (("/a/x", "/b/x"), r"\{'path': '/b/x', 'name': 'x_2'\}"),
    (("/a/x.bin", "/a/x.idx"), r"\{'path': '/a/x', 'name': 'x_2'\}"),
    ((1, "/a/x", 2, "/b/x"), r"\{'path': '/b/x', 'weight': 2, 'name': 'x_2'\}"),
    (({"path": "/b", "name": "x"}, "/b/x"), r"\{'path': '/b/x', 'name': 'x_2'"),
  ],
)
def test_two_names_alike_show_the_entry_to_write(value, entry):
  with pytest.raises(
    ValueError, match=r"two sources named 'x': .* this one as " + entry
  ):
    parse_data_path(value)


@pytest.mark.parametrize(
  "weight", [0, -1, -0.5, 0.0, math.nan, math.inf, -math.inf, "0", "nan", "inf"]
)
def test_bad_weights_are_refused(weight):
  with pytest.raises(
    ValueError, match=r"^dataset\.x gives '/b' the weight .*above 0\. Leave"
  ):
    read_entries((1, "/a", weight, "/b"), key="dataset.x")
  with pytest.raises(ValueError, match=r"gives '/b' the weight"):
    read_entries([{"path": "/b", "weight": weight}])
  with pytest.raises(ValueError, match=r"gives '/b' the weight"):
    read_entries([SourceEntry("/b", weight)])


@pytest.mark.parametrize("weight", [True, "many", [1], 1j])
def test_weights_that_are_no_number_are_refused(weight):
  with pytest.raises(ValueError, match=r"gives '/b' the weight"):
    read_entries([{"path": "/b", "weight": weight}])


@pytest.mark.parametrize(
  "value",
  [
    (0.7, "/a", 0.3),
    (0.7, "/a", "/b"),
    ("/a", 0.7, "/b", 0.3),
    ("/a", "0.7"),
    (0.7, 0.3),
    (0.7, "/a", 0.3, "7"),
    (0.7, "/a", 0.3, {"path": "/b"}),
    (0.7,),
    ((0.7, "/a"), 0.3, "/b"),
  ],
)
def test_weights_and_prefixes_out_of_step_are_refused(value):
  with pytest.raises(
    ValueError, match=r"must be a weight and a prefix in turn"
  ):
    read_entries(value)


def test_a_weight_for_some_only_is_refused():
  value = ({"path": "/a", "weight": 1}, {"path": "/b"}, "/c")
  with pytest.raises(
    ValueError, match=r"weights to 1 of 3 entries; '/b' has none"
  ):
    read_entries(value)


@pytest.mark.parametrize(
  ("value", "message"),
  [
    (None, r"^data_path must be a prefix or folder, .*; got None\.$"),
    ((), r"got \(\)\.$"),
    (True, r"got True\. A flag needs `=` before its value"),
    (7, r"got 7\. A path that reads as a number is written '\./7'"),
    ({1, 2}, r"got \{1, 2\}"),
    (b"/a", r"got b'/a'"),
    ("", r"has the path '', which is empty"),
    (" ", r"has the path ' '"),
    (("/a", None), r"got the entry None"),
    (("/a", ("/b",)), r"got the entry \('/b',\)"),
    ({"weight": 1}, r"an entry without a path: \{'weight': 1\}"),
    ({"path": 3}, r"has the path 3, which is no string"),
    ({"path": "/a", "wight": 1}, r"field 'wight'; .* Did you mean 'weight'\?"),
    ({"path": "/a", "name": ""}, r"names '/a' ''; a name is a string"),
    ({"path": "/a", "name": 3}, r"names '/a' 3; a name is a string"),
    (
      "0.7 /a 0.3 /b",
      r'begins with a weight: .* \(0\.7, "/a", 0\.3, "/b"\); a path',
    ),
    ("70,/a,30,/b", r'Write a tuple: \(70, "/a", 30, "/b"\)'),
  ],
)
def test_unknown_forms_are_refused(value, message):
  with pytest.raises(ValueError, match=message):
    read_entries(value)


def test_paths_that_name_nothing_are_refused():
  with pytest.raises(ValueError, match=r"'/none/' ends in a slash but is no"):
    parse_data_path("/none/")
  with pytest.raises(ValueError, match=r"nothing has replaced \{workdir\}"):
    parse_data_path("{workdir}/data/x")
  with pytest.raises(ValueError, match=r"'a\\udcff', which cannot be printed"):
    parse_data_path("/data/a\udcff")
  assert read_entries("{workdir}/x") == [SourceEntry("{workdir}/x")]


def test_a_prefix_may_begin_with_a_number_when_written_so():
  assert parse_data_path("./7 books/x")[0].path == "./7 books/x"
  assert parse_data_path(("./7", "./8"))[1].name == "8"
