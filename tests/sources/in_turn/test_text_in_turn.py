"""Text files in turn: what is read of them, and what is said of broken ones."""

import gzip
import json
import logging

import fsspec
import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from in_turn_checks import check_changes, check_in_turn, check_takes, read_all

from hpgrain import log
from hpgrain.sources.in_turn import text_pieces
from hpgrain.sources.in_turn.formats import open_in_turn
from hpgrain.sources.in_turn.window_shuffle import Epochs


def lines(count):
  """JSON Lines of 12 bytes each."""
  return "".join(f'{{"n": {i:04}}}\n'.replace(" 0", " 1") for i in range(count))


def written(folder, name, text):
  path = folder / name
  data = text if isinstance(text, bytes) else text.encode()
  path.write_bytes(data)
  return path


class CountedFile:
  """A file that notes which of its bytes are read."""

  def __init__(self, file, ranges):
    self._file, self._ranges = file, ranges

  def read(self, size=-1):
    begin = self._file.tell()
    data = self._file.read(size)
    self._ranges.append((begin, begin + len(data)))
    return data

  def __getattr__(self, name):
    return getattr(self._file, name)


@pytest.fixture
def ranges(monkeypatch):
  """The bytes [begin, end) that are read of files, in order."""
  found = []
  opened = text_pieces.open_stored
  monkeypatch.setattr(
    text_pieces,
    "open_stored",
    lambda *args, **options: CountedFile(opened(*args, **options), found),
  )
  return found


def test_a_seek_reads_nothing_before_its_window(tmp_path, ranges):
  written(tmp_path, "a.jsonl", lines(1000))
  written(tmp_path, "b.jsonl", lines(1000))
  source = open_in_turn(tmp_path)
  options = {"seed": 0, "shuffle_buffer_size": 64, "epochs": None}
  epochs = Epochs(source, **options)
  epochs.read(2000 + 1500)
  position = epochs.position()
  expected = epochs.read(100)
  ranges.clear()
  again = Epochs(source, **options)
  again.seek(position)
  assert again.read(100) == expected
  # Record 1500 lies in the window that begins at 1472, 472 of the second
  # file; the byte before tells that a record begins there.
  assert position == [1, 1500, 1, 472 * 12, 0, 472]
  assert ranges[0][0] == 472 * 12 - 1
  assert min(begin for begin, _ in ranges) == ranges[0][0]
  assert sum(end - begin for begin, end in ranges) == 528 * 12 + 1


def test_only_the_header_is_read_again(tmp_path, ranges, monkeypatch):
  monkeypatch.setattr(text_pieces, "_BLOCK", 100)
  rows = "".join(f"{i:04},b\n" for i in range(5000))
  written(tmp_path, "a.csv", f"n,t\n{rows}")
  source = open_in_turn(tmp_path)
  reader = source.open()
  reader.read(4000)
  cursor = reader.cursor()
  assert cursor == [0, 4 + 4000 * 7, 0, 4000]
  ranges.clear()
  assert source.open(cursor).read(1).records() == [{"n": "4000", "t": "b"}]
  before = [found for found in ranges if found[0] < cursor[1] - 1]
  # Its first block is small, and no other is read.
  assert max(end for _, end in before) < 4200


def test_few_records_need_few_bytes(tmp_path, ranges):
  written(tmp_path, "a.txt", "x" * 99 + "\n" + "y" * (10 << 20))
  reader = open_in_turn(tmp_path).open()
  reader.read(1)
  assert max(end for _, end in ranges) < 2 << 20


@given(wanted=st.lists(st.booleans(), min_size=1, max_size=20))
def test_what_is_not_wanted_is_not_decoded(tmp_path_factory, wanted):
  folder = tmp_path_factory.mktemp("lines")
  # Lines that nobody wants are broken, and nobody is told.
  text = "".join('{"n": 1}\n' if keep else '{"n\n' for keep in wanted)
  source = open_in_turn(written(folder, "a.jsonl", text), name="it")
  epochs = Epochs(source, seed=0, shuffle_buffer_size=None, epochs=1)
  found = epochs.read(len(wanted), wanted=np.array(wanted))
  assert found == [{"n": 1} if keep else None for keep in wanted]


def test_records_are_taken_in_any_order(tmp_path):
  rows = [{"n": i} for i in range(9)]
  text = "".join(json.dumps(row) + "\n" for row in rows)
  block = open_in_turn(written(tmp_path, "a.jsonl", text)).open().read(9)
  check_takes(block, rows)
  written(tmp_path, "b.jsonl", text)
  block = open_in_turn(tmp_path).open().read(18)
  check_takes(block, rows + rows)
  assert block.place(12) == f"{tmp_path}/b.jsonl, record 4, byte 27"


def test_files_of_many_names(tmp_path):
  for name in ("a.jsonl", "b.jsonl", "c.jsonl"):
    written(tmp_path, name, f'{{"n": "{name}"}}\n')

  def names(data_path):
    reader = open_in_turn(data_path).open()
    return "".join(row["n"][0] for row, _ in read_all(reader))

  assert names(tmp_path) == "abc"
  assert names(f"{tmp_path}/[bc].jsonl") == "bc"
  assert names(f"{tmp_path}/c.jsonl,{tmp_path}/a.jsonl") == "ca"
  assert names([tmp_path / "b.jsonl", str(tmp_path / "a.jsonl")]) == "ba"
  source = open_in_turn(tmp_path / "a.jsonl")
  assert source.name == "a"
  assert open_in_turn(tmp_path, name="mine").name == "mine"
  with pytest.raises(FileNotFoundError, match=r"input .*none does not exist"):
    open_in_turn(tmp_path / "none")
  with pytest.raises(ValueError, match="format must be one of json, text, csv"):
    open_in_turn(tmp_path, format="yaml")
  with pytest.raises(ValueError, match=r"has the name '\\n', which cannot be"):
    open_in_turn(tmp_path, name="\n")
  written(tmp_path, "d.txt", "text")
  with pytest.raises(ValueError, match=r"A source has files of one format; .*"):
    open_in_turn(tmp_path)
  assert len(open_in_turn(tmp_path, format="text").open().read(9)) == 1


def test_a_copy_is_the_same_and_other_text_is_not(tmp_path):
  file = written(tmp_path, "a.jsonl", lines(3))
  first = open_in_turn(file)
  assert first.identity["num_bytes"] == 36
  copy = written(tmp_path, "b.jsonl", lines(3))
  assert open_in_turn(copy).identity == first.identity
  copy.write_text(lines(3).replace("2", "3"))
  assert open_in_turn(copy).identity != first.identity


def test_changed_and_missing_files(tmp_path):
  path = written(tmp_path, "a.jsonl", lines(5))
  check_changes(lambda: open_in_turn(path), path)


def test_packed_files_are_unpacked_again_which_is_said(
  tmp_path, caplog, monkeypatch
):
  monkeypatch.setattr(log, "_said", set())
  data = lines(9).encode()
  paths = [
    written(tmp_path, "a.jsonl.gz", gzip.compress(data)),
    written(tmp_path, "b.jsonl.zst", zstandard.compress(data)),
  ]
  source = open_in_turn(tmp_path)
  assert not source.seekable
  with caplog.at_level(logging.WARNING, "hpgrain"):
    source.open([1, 0, 0, 0]).read(1)
    assert caplog.messages == []
    for number in (0, 1, 1):
      source.open([number, 48, 0, 4]).read(1)
  assert caplog.messages == [
    f"{path} is compressed and cannot be entered in its middle: the 48 bytes of"
    " text before the place are unpacked again."
    for path in paths
  ]


def test_records_before_a_place_are_not_looked_at(tmp_path, monkeypatch):
  data = b"no JSON\n" + lines(3).encode()
  path = written(tmp_path, "a.jsonl.gz", gzip.compress(data))
  reader = open_in_turn(path).open([0, 8, 0, 1])
  assert read_all(reader)[0][1] == f"{path}, record 2, byte 8"


@pytest.mark.parametrize(
  "name, text, cursor, message",
  [
    ("a.jsonl", lines(9), [0, 13, 0, 1], r"no record that begins at the curs"),
    ("a.jsonl", lines(9), [0, 200, 0, 9], r"no record that begins at the curs"),
    ("a.csv", "a\nbb\ncc\n", [0, 4, 0, 1], r"no record that begins at the cu"),
    ("a.jsonl", lines(9), [1, 0, 0, 0], "it has 1 files; the cursor"),
    ("a.jsonl", lines(9), [0, 12], "it has cursors of 4 whole numbers"),
    ("a.jsonl", lines(9), [0, -12, 0, 1], "it has cursors of 4 whole numbers"),
    ("a.jsonl", lines(9), ["0", 12, 0, 1], "it has cursors of 4 whole numbers"),
  ],
)
def test_cursors_of_other_data(tmp_path, name, text, cursor, message):
  source = open_in_turn(written(tmp_path, name, text), name="it")
  with pytest.raises(ValueError, match=message):
    source.open(cursor).read(1)


@pytest.mark.parametrize(
  "name, text, message",
  [
    (
      "a.jsonl",
      '{"a": 1}\n["secret"]\n',
      r"a\.jsonl, record 2, byte 9 is an array, not an object",
    ),
    (
      "a.jsonl",
      '{"a": 1}\n{"a": "secr',
      r"record 2, byte 9 is not JSON: .* Its line has no end, so the file may",
    ),
    (
      "a.txt",
      b"one\nsecret \xff\n",
      r"record 2, byte 4 is not UTF-8: byte 0xf",
    ),
    ("a.csv", "a,b\n1,2\nsecret\n", r"record 2, byte 8 has 1 fields where the"),
    ("a.csv", "secret,secret\n1,2\n", r"a\.csv: the header has one name for"),
    (
      "a.json",
      '[{"a": 1}, "secret"]',
      r"record 2, byte 11 is a string, not an",
    ),
    ("a.json", '[{"a": 1},]', r"record 2, byte 10 is missing: nothing stands"),
    (
      "a.json",
      '[{"a": 1}, {"a": "secr',
      r"a\.json ends at byte 22 inside its JSON array, after 1 whole elements",
    ),
    (
      "a.json",
      '[{"a": 1}] secret',
      r"goes on after its JSON array, at byte of",
    ),
    (
      "a.jsonl.gz",
      gzip.compress(lines(9).encode(), mtime=0)[:-9],
      r"a\.jsonl\.gz cannot be unpacked beyond",
    ),
    ("a.jsonl.gz", lines(9), r"is not compressed with gzip, though its name"),
    (
      "a.jsonl",
      gzip.compress(lines(9).encode(), mtime=0),
      r"is compressed with gzip, though its name does not say so",
    ),
  ],
)
@pytest.mark.parametrize("size", [1, 99])
def test_what_is_broken_is_named(tmp_path, name, text, message, size):
  path = written(tmp_path, name, text)
  with pytest.raises(ValueError, match=message) as error:
    read_all(open_in_turn(path).open(), (size,))
  assert "secr" not in str(error.value)


def test_a_place_after_a_comma_wants_an_element(tmp_path):
  # As without the cursor: the array would otherwise seem to end there.
  source = open_in_turn(written(tmp_path, "a.json", '[{"a": 1},]'))
  reader = source.open()
  reader.read(1)
  with pytest.raises(ValueError, match=r"record 2, byte 10 is missing"):
    source.open(reader.cursor()).read(1).records()


def test_a_packed_array_is_an_array(tmp_path):
  data = gzip.compress(b'\n[{"a": 1},\n{"a": 2}]\n')
  path = written(tmp_path, "a.json.gz", data)
  check_in_turn(
    open_in_turn(path),
    [
      ({"a": 1}, f"{path}, record 1, byte 2"),
      ({"a": 2}, f"{path}, record 2, byte 12"),
    ],
  )


def test_objects_of_a_store():
  system = fsspec.filesystem("memory")
  url = "memory://hpgrain-in-turn"
  try:
    system.pipe_file("hpgrain-in-turn/a.jsonl", lines(3).encode())
    system.pipe_file(
      "hpgrain-in-turn/b.jsonl.gz", gzip.compress(lines(2).encode())
    )
    check_in_turn(
      open_in_turn(url),
      [
        (
          {"n": 1000 + i % 3},
          f"{url}/{'a.jsonl' if i < 3 else 'b.jsonl.gz'}, record {i % 3 + 1},"
          f" byte {i % 3 * 12}",
        )
        for i in range(5)
      ],
    )
  finally:
    system.rm("hpgrain-in-turn", recursive=True)
