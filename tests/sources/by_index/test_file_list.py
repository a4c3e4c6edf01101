"""Data paths: which files, in which order, of which format."""

import fsspec
import pytest

from hpgrain.sources.by_index.file_list import (
  default_name,
  find_files,
  read_format,
  refuse_compressed,
)


def _write(folder, *names):
  folder.mkdir(parents=True, exist_ok=True)
  for name in names:
    (folder / name).write_bytes(b"")


def _names(data_path, **options):
  return [f.path.rsplit("/", 1)[-1] for f in find_files(data_path, **options)]


def test_a_path_a_folder_and_a_pattern(tmp_path):
  _write(tmp_path, "b.jsonl", "a.jsonl", "c.json", "_x.jsonl", ".y.jsonl")
  assert _names(tmp_path / "b.jsonl") == ["b.jsonl"]
  assert _names(str(tmp_path)) == ["a.jsonl", "b.jsonl", "c.json"]
  assert _names(f"{tmp_path}/*.jsonl") == ["_x.jsonl", "a.jsonl", "b.jsonl"]


def test_lists_keep_their_order_and_folders_are_sorted(tmp_path):
  _write(tmp_path / "z", "b.txt", "a.txt")
  _write(tmp_path, "y.txt", "x.txt")
  expected = ["y.txt", "a.txt", "b.txt", "x.txt"]
  parts = [f"{tmp_path}/y.txt", f"{tmp_path}/z", f"{tmp_path}/x*"]
  assert _names(parts) == expected
  assert _names(tuple(parts)) == expected
  assert _names(", ".join(parts)) == expected


def test_a_comma_in_a_name_that_is_there_is_none_between_names(tmp_path):
  _write(tmp_path, "a,b.txt", "a", "b.txt")
  assert _names(tmp_path / "a,b.txt") == ["a,b.txt"]


def test_mixed_formats_are_refused_naming_both(tmp_path):
  _write(tmp_path, "a.jsonl", "b.jsonl", "c.csv")
  with pytest.raises(
    ValueError, match=r"a\.jsonl is 'json' and .*c\.csv is 'csv'"
  ):
    find_files(tmp_path)
  with pytest.raises(ValueError, match="files of one format"):
    find_files([tmp_path / "a.jsonl", tmp_path / "c.csv"])
  assert _names(tmp_path, form="jsonl") == ["a.jsonl", "b.jsonl"]
  assert _names(tmp_path, form="csv") == ["c.csv"]


@pytest.mark.filterwarnings("ignore:Left out of the folder:UserWarning")
def test_a_format_that_is_given_wins_over_names(tmp_path):
  _write(tmp_path, "part-0", "a.txt", "b.json.gz")
  (file,) = find_files(tmp_path / "part-0", form="json")
  assert (file.format, file.compression) == ("json", "")
  (file,) = find_files(tmp_path / "a.txt", form="csv")
  assert file.format == "csv"
  (file,) = find_files(f"{tmp_path}/*.txt", form="csv")
  assert file.format == "csv"
  (file,) = find_files(tmp_path / "b.json.gz", form="json")
  assert file.compression == "gzip"
  with pytest.raises(
    FileNotFoundError, match="no file of the format 'parquet'"
  ):
    find_files(tmp_path, form="parquet")


def test_a_file_named_twice_is_refused(tmp_path):
  _write(tmp_path, "a.txt")
  with pytest.raises(ValueError, match=r"names .*a\.txt twice"):
    find_files([tmp_path, tmp_path / "a.txt"])


@pytest.mark.parametrize(
  "given, match",
  [
    ("{}/none.jsonl", "none.jsonl does not exist"),
    ("{}/none*", "No file matches the pattern"),
    ("{}/empty", "holds no file of a format that is read"),
    ("{}/a.txt,{}/none.txt", "none.txt does not exist"),
  ],
)
def test_what_is_not_there_is_named(tmp_path, given, match):
  _write(tmp_path, "a.txt")
  _write(tmp_path / "empty")
  with pytest.raises(FileNotFoundError, match=match):
    find_files(given.replace("{}", str(tmp_path)))


@pytest.mark.parametrize("given", ["", [], "a.txt,", ["a.txt", " "], ()])
def test_an_empty_entry_is_refused(given):
  with pytest.raises(ValueError, match="has an empty entry"):
    find_files(given)


@pytest.mark.parametrize("given", [None, 3, b"a", {"path": "a"}])
def test_what_is_no_path_is_refused(given):
  with pytest.raises(ValueError, match="A data path is a file, a folder"):
    find_files(given)


def test_an_entry_that_is_no_path_is_refused():
  with pytest.raises(ValueError, match="has the entry 3"):
    find_files(["a.txt", 3])


def test_formats_by_their_names():
  assert read_format(None) is None
  assert read_format("jsonl") == "json"
  assert read_format("array_record") == "array_record"
  with pytest.raises(
    ValueError, match=r"got 'parqet'.* Did you mean 'parquet'"
  ):
    read_format("parqet")


@pytest.mark.parametrize(
  "data_path, name",
  [
    ("/data/books.jsonl", "books"),
    ("/data/books/", "books"),
    ("/data/v1.2/part-*.jsonl", "part-*"),
    ("/data/books.jsonl.gz", "books"),
    (["a/x.csv", "b/y.csv"], "x"),
    ("a/x.csv,b/y.csv", "x"),
    ("s3://bucket/books.parquet", "books"),
    ("/data/.hidden", ".hidden"),
  ],
)
def test_the_first_entry_gives_the_name(data_path, name):
  assert default_name(data_path) == name


@pytest.mark.parametrize(
  "name, how", [("a.jsonl.gz", "gunzip -k"), ("a.txt.zst", "unzstd -k")]
)
def test_compressed_text_is_for_reading_in_turn(tmp_path, name, how):
  _write(tmp_path, name)
  with pytest.raises(
    ValueError, match=rf'type="iterable"\), unpack it \({how}'
  ):
    refuse_compressed(find_files(tmp_path))


def test_objects_of_a_store_are_found():
  system = fsspec.filesystem("memory")
  for name in ("b.txt", "a.txt"):
    system.pipe_file(f"hpgrain-list/{name}", b"x")
  try:
    assert _names("memory://hpgrain-list") == ["a.txt", "b.txt"]
    assert _names("memory://hpgrain-list/b.txt,memory://hpgrain-list/a*") == [
      "b.txt",
      "a.txt",
    ]
  finally:
    system.rm("hpgrain-list", recursive=True)
