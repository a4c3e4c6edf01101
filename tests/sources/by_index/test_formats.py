"""`open_records`: what it opens, what it refuses, and how it is pickled."""

import pickle
import threading

import fsspec
import numpy as np
import pytest
from table_checks import check_changes, check_reading

from hpgrain.index_cache import IndexCache
from hpgrain.sources.by_index.formats import open_records

_TEXTS = {
  "json": ("jsonl", b'{"text": "%d"}\n'),
  "text": ("txt", b"%d\n"),
  "csv": ("csv", b"%d\n"),
}


def _write(folder, form, files=2, lines=9):
  suffix, line = _TEXTS[form]
  for number in range(files):
    rows = [line % (number * lines + i) for i in range(lines)]
    head = b"text\n" if form == "csv" else b""
    (folder / f"{number}.{suffix}").write_bytes(head + b"".join(rows))


@pytest.mark.parametrize("form", _TEXTS)
def test_texts_by_number_by_pickles_and_threads(tmp_path, form):
  _write(tmp_path, form)
  records = open_records(tmp_path, name="it")
  check_reading(records, [{"text": str(i)} for i in range(18)])
  assert records.identity["num_records"] == 18
  first = next(tmp_path.iterdir())
  check_changes(lambda: open_records(first), first)


def test_another_process_takes_the_index_from_the_cache(tmp_path):
  _write(tmp_path, "json")
  records = open_records(tmp_path, cache=IndexCache(tmp_path / "cache"))
  again = pickle.loads(pickle.dumps(records))
  assert [event.built for event in again._cache.events] == [False, False]


def test_many_open_one_source_at_once(tmp_path):
  _write(tmp_path, "json", lines=500)
  found = []

  def work():
    records = open_records(tmp_path, cache=IndexCache(tmp_path / "cache"))
    found.append(records.read(np.arange(0, 1000, 7)))

  threads = [threading.Thread(target=work) for _ in range(4)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert len(found) == 4
  assert all(one == found[0] for one in found)
  assert found[0][1] == {"text": "7"}


def test_a_copy_elsewhere_is_the_same_data(tmp_path):
  for name in ("a", "b"):
    (tmp_path / name).mkdir()
    _write(tmp_path / name, "json")
  a, b = open_records(tmp_path / "a"), open_records(tmp_path / "b")
  assert a.identity == b.identity
  assert (a.name, b.name) == ("a", "b")


def test_files_in_another_order_are_other_data(tmp_path):
  _write(tmp_path, "json")
  a, b = tmp_path / "0.jsonl", tmp_path / "1.jsonl"
  assert open_records([a, b]).identity != open_records([b, a]).identity


def test_names(tmp_path):
  _write(tmp_path, "json")
  assert open_records(tmp_path / "0.jsonl").name == "0"
  assert open_records(tmp_path, name="mine").name == "mine"
  for name in ("", "a\nb"):
    with pytest.raises(ValueError, match="which cannot be printed"):
      open_records(tmp_path, name=name)


def test_a_format_that_is_given(tmp_path):
  (tmp_path / "part").write_bytes(b'{"a": 1}\n')
  assert open_records(tmp_path / "part", format="jsonl").read([0]) == [{"a": 1}]
  assert open_records(tmp_path / "part", format="text").read([0]) == [
    {"text": '{"a": 1}'}
  ]
  with pytest.raises(ValueError, match="format must be one of json, text"):
    open_records(tmp_path / "part", format="xml")


def test_compressed_text_is_refused(tmp_path):
  (tmp_path / "a.jsonl.gz").write_bytes(b"\x1f\x8b")
  with pytest.raises(ValueError, match=r"a\.jsonl\.gz is compressed with gzip"):
    open_records(tmp_path)


@pytest.mark.parametrize("form", _TEXTS)
def test_objects_of_a_store(form):
  suffix, line = _TEXTS[form]
  head = b"text\n" if form == "csv" else b""
  system = fsspec.filesystem("memory")
  for number in range(2):
    system.pipe_file(f"hpgrain-open/{number}.{suffix}", head + line % number)
  try:
    records = open_records("memory://hpgrain-open")
    assert records.read([1, 0]) == [{"text": "1"}, {"text": "0"}]
    assert records.place(1).startswith(f"memory://hpgrain-open/1.{suffix}, rec")
  finally:
    system.rm("hpgrain-open", recursive=True)
