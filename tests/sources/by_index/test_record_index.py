"""The index of records: built once, kept, correct when cut short."""

import os
import sys
import tracemalloc

import numpy as np
import pytest

from hpgrain.index_cache import IndexCache
from hpgrain.sources.by_index import record_index
from hpgrain.sources.by_index.record_index import find_records
from hpgrain.tools.readers.files import size_and_version
from hpgrain.tools.readers.records import InputFile


def _file(path, data):
  path.write_bytes(data)
  return InputFile(str(path), "json", "", *size_and_version(str(path)))


def _find(files, cache=None, kind="json_lines", header_rows=0):
  return find_records(
    files,
    kind=kind,
    header_rows=header_rows,
    key={"digest": "d"},
    cache=cache or IndexCache(None),
  )


def _files(tmp_path):
  contents = [b"{}\n\n{}\n", b"", b"\n", b"\xef\xbb\xbf[]", b"{}"]
  return [_file(tmp_path / str(i), c) for i, c in enumerate(contents)]


def test_bounds_of_files_one_after_another(tmp_path):
  index = _find(_files(tmp_path))
  assert index.bounds.tolist() == [0, 4, 7, 0, 1, 3, 5, 0, 2]
  assert index.first_record.tolist() == [0, 2, 2, 2, 3, 4]
  assert len(index) == 4
  file, start, stop = index.locate(np.array([3, 1, 2, 0]))
  assert file.tolist() == [4, 0, 3, 0]
  assert start.tolist() == [0, 4, 3, 0]
  assert stop.tolist() == [2, 7, 5, 4]


def test_headers_are_no_records(tmp_path):
  files = [
    _file(tmp_path / str(i), data)
    for i, data in enumerate([b"", b"a\n", b"a\n1\n2", b"b\n3\n"])
  ]
  index = _find(files, kind="csv_rows", header_rows=1)
  assert index.first_record.tolist() == [0, 0, 0, 2, 3]
  assert [index.header(i) for i in range(4)] == [None, (0, 2), (0, 2), (0, 2)]
  file, start, stop = index.locate(np.arange(3))
  assert file.tolist() == [2, 2, 3]
  assert start.tolist() == [2, 4, 2]
  assert stop.tolist() == [4, 5, 4]


def test_blocks_change_nothing(tmp_path, monkeypatch):
  files = _files(tmp_path)
  whole = _find(files).bounds.tolist()
  monkeypatch.setattr(record_index, "_BLOCK", 2)
  assert _find(files).bounds.tolist() == whole


def test_the_cache_spares_looking(tmp_path, monkeypatch):
  files = _files(tmp_path)
  first = _find(files, IndexCache(tmp_path / "cache"))
  monkeypatch.setattr(record_index, "_scan", None)
  second = _find(files, IndexCache(tmp_path / "cache"))
  assert second.bounds.tolist() == first.bounds.tolist()
  assert not second.bounds.flags.writeable


def test_one_pass_builds_both_entries(tmp_path, monkeypatch):
  calls, scan = [], record_index._scan
  monkeypatch.setattr(
    record_index, "_scan", lambda *a: calls.append(1) or scan(*a)
  )
  cache = IndexCache(tmp_path / "cache")
  _find(_files(tmp_path), cache)
  assert calls == [1]
  assert [event.kind for event in cache.events] == [
    "record_counts",
    "record_bounds",
  ]


@pytest.mark.parametrize("lost", ["record_counts", "record_bounds"])
@pytest.mark.parametrize("how", ["gone", "cut", "empty"])
def test_an_entry_that_was_cut_short_is_built_again(tmp_path, lost, how):
  files = _files(tmp_path)
  expected = _find(files, IndexCache(tmp_path / "cache")).bounds.tolist()
  (path,) = (tmp_path / "cache").glob(f"{lost}-*")
  if how == "gone":
    path.unlink()
  else:
    os.truncate(path, 0 if how == "empty" else path.stat().st_size - 1)
  cache = IndexCache(tmp_path / "cache")
  assert _find(files, cache).bounds.tolist() == expected
  assert {e.kind: e.built for e in cache.events} == {
    "record_counts": lost == "record_counts",
    "record_bounds": lost == "record_bounds",
  }


def test_a_scan_that_was_interrupted_leaves_nothing(tmp_path, monkeypatch):
  files = _files(tmp_path)

  def killed(*_):
    raise KeyboardInterrupt

  monkeypatch.setattr(record_index, "_file_bounds", killed)
  with pytest.raises(KeyboardInterrupt):
    _find(files, IndexCache(tmp_path / "cache"))
  monkeypatch.undo()
  assert not (tmp_path / "cache").exists()
  assert len(_find(files, IndexCache(tmp_path / "cache"))) == 4


def test_other_kinds_have_other_entries(tmp_path):
  files = [_file(tmp_path / "a", b" \nx\n")]
  cache = IndexCache(tmp_path / "cache")
  assert len(_find(files, cache)) == 1
  assert len(_find(files, cache, kind="text_lines")) == 2


def test_a_file_that_changed_since_it_was_found_is_refused(tmp_path):
  file = _file(tmp_path / "a", b"{}\n")
  (tmp_path / "a").write_bytes(b"{}\n{}\n")
  with pytest.raises(ValueError, match=r"a changed while it was read"):
    _find([file])


def test_packed_data_without_the_name_for_it_is_refused(tmp_path):
  file = _file(tmp_path / "a.jsonl", b"\x1f\x8b\x08\x00")
  with pytest.raises(ValueError, match="compressed with gzip, though its name"):
    _find([file])


def test_eight_bytes_a_record(tmp_path, monkeypatch):
  # No list of Python's: 2e5 records take 1.6 MB, and an eighth for growing.
  monkeypatch.setattr(record_index, "_BLOCK", 1 << 14)
  file = _file(tmp_path / "a", b"{}\n" * 200_000)
  tracemalloc.start()
  index = _find([file])
  _, peak = tracemalloc.get_traced_memory()
  tracemalloc.stop()
  assert index.bounds.nbytes == 8 * 200_001
  assert peak < 1.2 * index.bounds.nbytes + 500_000


def test_a_bar_is_for_terminals(tmp_path, monkeypatch, capsys):
  monkeypatch.setattr(record_index, "_SILENT_SECONDS", 0.0)
  file = _file(tmp_path / "a", b"{}\n" * 10)
  _find([file])
  assert capsys.readouterr().err == ""
  monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
  _find([file])
  assert "Finding records" in capsys.readouterr().err
