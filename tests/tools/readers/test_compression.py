"""Packed files: several members, broken data, and names that mislead."""

import gzip
import json

import pytest
from reading import placed, texts, write

from hpgrain.tools.inputs import BadRecordError, find_inputs, units


def line(text):
  return json.dumps({"text": text}).encode() + b"\n"


def pack(data, form):
  if form == "gz":
    return gzip.compress(data)
  return pytest.importorskip("zstandard").compress(data)


@pytest.fixture(params=["gz", "zst"])
def form(request, any_gzip):
  return request.param


def test_members_are_one_stream(tmp_path, form):
  data = line("a") + line("b")
  packed = b"".join(pack(part, form) for part in (data[:5], b"", data[5:]))
  path = write(tmp_path / f"x.jsonl.{form}", packed)
  assert placed(path)[0] == [("a", 0, 0), ("b", 1, 14)]
  (unit,) = units(find_inputs(path), unit_bytes=3)
  assert (unit.start, unit.stop, unit.first_record) == (0, len(packed), 0)


def test_much_more_than_a_block_is_read(tmp_path, form):
  expected = [f"{i}" * (i % 50) for i in range(60_000)]
  path = write(
    tmp_path / f"x.jsonl.{form}", pack(b"".join(map(line, expected)), form)
  )
  assert texts(path) == expected


def test_empty_text_and_empty_file(tmp_path, form):
  assert texts(write(tmp_path / f"a.jsonl.{form}", pack(b"", form))) == []
  assert texts(write(tmp_path / f"b.jsonl.{form}", b"")) == []


def test_bad_record_has_its_place_in_the_unpacked_file(tmp_path, form):
  data = line("a") + b"\n" + b"{}\n"
  path = write(tmp_path / f"x.jsonl.{form}", pack(data, form))
  with pytest.raises(BadRecordError) as caught:
    texts(path)
  assert str(caught.value).startswith(
    f"{path}: record 2 (line 3, at byte offset 15 of the unpacked file) has no"
  )


@pytest.mark.parametrize("cut", [5, 12, 60, -1])
def test_data_that_is_cut_off_is_refused(tmp_path, form, cut):
  data = b"".join(line(str(i * 7919)) for i in range(100))
  path = write(tmp_path / f"x.jsonl.{form}", pack(data, form)[:cut])
  with pytest.raises(ValueError, match=f"{path} cannot be unpacked beyond"):
    placed(path)


def test_data_that_is_broken_is_refused(tmp_path, form):
  data = b"".join(line(str(i * 7919)) for i in range(100))
  packed = bytearray(pack(data, form))
  middle = len(packed) // 2
  packed[middle : middle + 40] = bytes(40)
  path = write(tmp_path / f"x.jsonl.{form}", bytes(packed))
  with pytest.raises(ValueError, match=r"cannot be unpacked beyond|not JSON"):
    texts(path)


def test_text_after_the_last_member_is_refused(tmp_path, form):
  path = write(tmp_path / f"x.jsonl.{form}", pack(line("a"), form) + b"more")
  with pytest.raises(ValueError, match="cannot be unpacked beyond"):
    placed(path)


def test_name_must_tell_the_compression(tmp_path, form):
  path = write(tmp_path / "x.jsonl", pack(line("a"), form))
  with pytest.raises(ValueError, match=rf"Let its name end in \.{form}"):
    units(find_inputs(path))
  if form == "gz":
    path = write(tmp_path / "x.jsonl.gz", line("a"))
    with pytest.raises(ValueError, match="is not compressed with gzip"):
      units(find_inputs(path))


def test_skippable_frames_are_skipped(tmp_path):
  skipped = b"\x50\x2a\x4d\x18\x04\x00\x00\x00junk"
  path = write(tmp_path / "x.jsonl.zst", skipped + pack(line("a"), "zst"))
  assert texts(path) == ["a"]
