"""A data path of online data in, its sources out."""

import pytest

from hpgrain.data_paths import SourceEntry
from hpgrain.online_paths import OnlineSource, name_sources, read_sources


@pytest.mark.parametrize(
  "value, expected",
  [
    ("/a.jsonl", [OnlineSource(("/a.jsonl",), None, None)]),
    ("/a.jsonl,/b.jsonl", [OnlineSource(("/a.jsonl,/b.jsonl",), None, None)]),
    (["/a/*.jsonl"], [OnlineSource(("/a/*.jsonl",), None, None)]),
    (
      ("/a.jsonl", "/b.jsonl"),
      [OnlineSource(("/a.jsonl", "/b.jsonl"), None, None)],
    ),
    # As a checked configuration has them.
    (
      (SourceEntry("/a.jsonl"), SourceEntry("/b.jsonl")),
      [OnlineSource(("/a.jsonl", "/b.jsonl"), None, None)],
    ),
    (
      (0.7, "/a", "0.3", "/b"),
      [OnlineSource(("/a",), 0.7, None), OnlineSource(("/b",), 0.3, None)],
    ),
    (
      [{"path": "/a", "name": "x"}, {"path": "/b", "name": "y"}],
      [OnlineSource(("/a",), None, "x"), OnlineSource(("/b",), None, "y")],
    ),
    # One source is no blend.
    ((3, "/a"), [OnlineSource(("/a",), None, None)]),
    (
      {"path": "/a", "name": "x", "weight": 2},
      [OnlineSource(("/a",), None, "x")],
    ),
  ],
)
def test_lists_are_files_and_weights_or_names_are_sources(value, expected):
  assert read_sources(value) == expected


def test_paths_are_given_on_as_they_are_opened():
  one, two = OnlineSource(("/a",), 1, None), OnlineSource(("/a", "/b"), 1, None)
  assert one.data_path == "/a"
  assert two.data_path == ["/a", "/b"]


def test_sources_are_named_after_their_first_path():
  sources = read_sources(
    [
      {"path": "/x/a.jsonl.gz", "weight": 1},
      {"path": "/x/folder/", "weight": 1},
      {"path": "/x/c.parquet", "weight": 1, "name": "mine"},
    ]
  )
  named = name_sources(sources)
  assert [source.name for source in named] == ["a", "folder", "mine"]
  assert [source.paths for source in named] == [
    source.paths for source in sources
  ]


@pytest.mark.parametrize(
  "value, message",
  [
    ((0.7, "/a", "/b"), r"it must be a weight and a file in turn"),
    ([{"path": "/a", "weight": 1}, "/b"], r"'/b' has none\. Give every entry"),
    ((0, "/a", 1, "/b"), r"gives '/a' the weight 0"),
    ({"pth": "/a"}, r"the field 'pth'; .* Did you mean 'path'"),
    ([], r"^data_path must be a file or folder"),
    (None, r"got None"),
  ],
)
def test_other_forms_are_refused(value, message):
  with pytest.raises(ValueError, match=message):
    read_sources(value)


@pytest.mark.parametrize(
  "value, message",
  [
    (
      [{"path": "/a", "name": "x"}, {"path": "/b", "name": "x"}],
      r"two sources named 'x': '/a' and '/b'\. .* this one as"
      r" \{'path': '/b', 'name': 'x_2'\}\.$",
    ),
    ("{workdir}/a", r"^data_path holds '\{workdir\}/a', and nothing has repl"),
    (["/a", "{workdir}/b"], r"nothing has replaced \{workdir\}"),
  ],
)
def test_sources_that_cannot_be_named_are_refused(value, message):
  with pytest.raises(ValueError, match=message):
    name_sources(read_sources(value))
