"""What every source in turn must do; each test calls these."""

import json
import os
import pickle

import pytest


def read_all(reader, sizes=(3,)):
  """[(record, place)] to the end, read in these sizes over and over."""
  found, turn = [], 0
  while True:
    block = reader.read(sizes[turn % len(sizes)])
    found += [
      (record, block.place(i)) for i, record in enumerate(block.records())
    ]
    if len(block) < sizes[turn % len(sizes)]:
      assert len(reader.read(1)) == 0
      return found
    turn += 1


def all_cursors(source, count):
  """The cursor after each number of records, read one by one."""
  reader = source.open()
  cursors = [reader.cursor()]
  for _ in range(count):
    assert len(reader.read(1)) == 1
    cursors.append(reader.cursor())
  reader.close()
  return cursors


def check_in_turn(source, expected, sizes=(1, 2, 5)):
  """The pass is `expected`, [(record, place)], from any place, in any sizes."""
  assert read_all(source.open(), (len(expected) + 9,)) == expected
  assert read_all(source.open(), sizes) == expected
  cursors = all_cursors(source, len(expected))
  shapes = {tuple(type(part) for part in cursor) for cursor in cursors}
  assert len(shapes) == 1
  again = pickle.loads(pickle.dumps(source))
  assert (again.name, again.identity) == (source.name, source.identity)
  for count, cursor in enumerate(cursors):
    assert json.loads(json.dumps(cursor)) == cursor
    # As it is told after one read of so many.
    reader = source.open()
    block = reader.read(count)
    assert len(block) == count
    assert reader.cursor() == cursor
    reader.close()
    reader = again.open(cursor)
    assert reader.cursor() == cursor
    assert read_all(reader, sizes) == expected[count:]
    reader.close()
    reader.close()
  # Looking for more than there is moves no cursor.
  reader = source.open(cursors[-1])
  assert len(reader.read(9)) == 0
  assert reader.cursor() == cursors[-1]
  reader.close()


def check_takes(block, expected):
  """Records come in any order, and one may come twice."""
  numbers = [*reversed(range(len(block))), 0, 0]
  assert block.take(numbers) == [expected[i] for i in numbers]
  assert block.take([]) == []


def check_changes(open_again, path):
  """A file that is written again, or is gone, is refused."""
  source = open_again()
  reader = source.open()
  reader.read(1)
  status = path.stat()
  os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
  with pytest.raises(ValueError, match="was written again since"):
    read_all(reader)
  with pytest.raises(ValueError, match="was written again since"):
    source.open().read(1)
  again = open_again()
  assert again.identity == source.identity
  path.unlink()
  with pytest.raises(FileNotFoundError, match=f"{path.name} is gone"):
    again.open().read(1)
