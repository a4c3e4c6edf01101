"""Which files a path, a folder or a pattern stands for."""

import os

import pytest
from reading import write

from hpgrain.tools.inputs import find_inputs


@pytest.fixture
def tree(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  for name in (
    "d/b.jsonl",
    "d/a.json.gz",
    "d/a-1.JSONL",
    "d/c.txt",
    "d/.hidden.jsonl",
    "d/_SUCCESS",
    "d/x_text_document.manifest.json",
    "d/sub/z.parquet",
    "d/sub/deep/y.jsonl",
    "e/b.jsonl",
    "f/sub/only.jsonl",
  ):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, b"")
  return tmp_path


def names(pattern, **options):
  return [file.path for file in find_inputs(pattern, **options)]


@pytest.mark.usefixtures("tree")
@pytest.mark.parametrize(
  ("pattern", "recursive", "expected"),
  [
    ("d/b.jsonl", False, ["d/b.jsonl"]),
    ("d", False, ["d/a-1.JSONL", "d/a.json.gz", "d/b.jsonl", "d/c.txt"]),
    ("d/", False, ["d/a-1.JSONL", "d/a.json.gz", "d/b.jsonl", "d/c.txt"]),
    ("d/sub", True, ["d/sub/deep/y.jsonl", "d/sub/z.parquet"]),
    ("d/*.jsonl", False, ["d/b.jsonl"]),
    ("./d/?.jsonl", False, ["./d/b.jsonl"]),
    ("*/[ab].jsonl", False, ["d/b.jsonl", "e/b.jsonl"]),
    ("d/.h*", False, ["d/.hidden.jsonl"]),
    ("**/*.jsonl", True, None),
    ("d/**/*.parquet", True, ["d/sub/z.parquet"]),
    ("d/**/**/z*", True, ["d/sub/z.parquet"]),
    ("d/sub/**", True, ["d/sub/deep/y.jsonl", "d/sub/z.parquet"]),
  ],
)
def test_files_come_sorted_by_path(pattern, recursive, expected):
  if expected is None:
    expected = [
      "d/b.jsonl",
      "d/sub/deep/y.jsonl",
      "e/b.jsonl",
      "f/sub/only.jsonl",
    ]
  assert names(pattern, recursive=recursive) == expected


def test_absolute_paths_stay_absolute(tree):
  assert names(tree / "e") == [f"{tree}/e/b.jsonl"]
  assert names(f"{tree}/*/b.jsonl") == [
    f"{tree}/d/b.jsonl",
    f"{tree}/e/b.jsonl",
  ]


def test_file_whose_name_is_a_pattern_is_that_file(tree):
  write(tree / "e/[b].jsonl", b"123")
  assert [(f.path, f.size) for f in find_inputs("e/[b].jsonl")] == [
    ("e/[b].jsonl", 3)
  ]


def test_format_size_and_version_are_told(tree):
  path = write(tree / "d/a.json.gz", b"12345")
  (file,) = find_inputs("d/a.json.gz")
  assert (file.format, file.compression, file.size) == ("json", "gzip", 5)
  assert file.version == str(path.stat().st_mtime_ns)
  os.utime(path, ns=(1, 1))
  assert find_inputs("d/a.json.gz")[0].version == "1"


@pytest.mark.usefixtures("tree")
@pytest.mark.parametrize(
  ("pattern", "error", "message"),
  [
    ("no.jsonl", FileNotFoundError, "The input no.jsonl does not exist"),
    ("d/*.csv", FileNotFoundError, r"No file matches the pattern d/\*\.csv"),
    ("no/*.csv", FileNotFoundError, "No file matches the pattern"),
    ("f", FileNotFoundError, r"The folder f holds no file.*--recursive"),
    ("d/_SUCCESS", ValueError, r"tells no format.*\.json, \.jsonl"),
    ("d/_*", ValueError, "d/_SUCCESS has a name that tells no format"),
    ("d/**/*.jsonl", ValueError, r"\*\*, which is only read as.*--recursive"),
    ("", ValueError, "The input is an empty path"),
    ("/dev/null", ValueError, "/dev/null is neither a file nor a folder"),
  ],
)
def test_what_stands_for_nothing_is_refused(pattern, error, message):
  with pytest.raises(error, match=message):
    find_inputs(pattern)


@pytest.mark.usefixtures("tree")
def test_stars_beside_other_characters_are_refused():
  with pytest.raises(ValueError, match="must be alone between slashes"):
    find_inputs("d/**.jsonl", recursive=True)


def test_files_left_out_of_a_folder_are_named(tree):
  for name in ("a.bz2", "README.md", "b.parquet.gz", "z.bin"):
    write(tree / "e" / name, b"")
  with pytest.warns(
    UserWarning,
    match=r"Left out of the folder e.*e/README.md, e/a.bz2, e/b.parquet.gz and"
    r" 1 more",
  ):
    assert names("e") == ["e/b.jsonl"]


def test_recursion_does_not_follow_linked_folders(tree):
  (tree / "e/round").symlink_to(tree / "e", target_is_directory=True)
  assert names("e/**/*.jsonl", recursive=True) == ["e/b.jsonl"]
  # Asked for by name, it is.
  assert names("e/*/b.jsonl") == ["e/round/b.jsonl"]
