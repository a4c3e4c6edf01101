"""hpgrain/index_cache_file.py: the bytes of a file, and which files count."""

import os
import shutil

import numpy as np
import pytest
from index_cache_worker import ARRAY, DOCUMENTS, entry, get, names, warned

from hpgrain import index_cache_file
from hpgrain.index_cache import IndexCache


def never():
  raise AssertionError("built again")


@pytest.fixture
def folder(tmp_path):
  return tmp_path / "cache"


def test_the_file_is_as_described(folder):
  IndexCache(folder).get(
    "a",
    key={"seed": 1, "name": "é"},
    arrays={"x": (np.dtype("u2"), (3,)), "y": (np.dtype("i8"), (1, 1))},
    build=lambda: {"x": np.array([1, 2, 258], "u2"), "y": np.array([[-1]])},
  )
  text = (
    rb'{"arrays":{"x":{"dtype":"<u2","offset":0,"shape":[3]},'
    rb'"y":{"dtype":"<i8","offset":64,"shape":[1,1]}},"data_bytes":72,'
    rb'"key":{"name":"\u00e9","seed":1},"kind":"a"}'
  )
  assert len(text) == 161
  assert names(folder) == ["a-efffe64debb070e15c4ade6feb3bd9cb.hpgrain"]
  assert (folder / names(folder)[0]).read_bytes() == (
    b"HPGRAIN\0\1\0\0\0"
    + b"\xa1\0\0\0"
    + text
    + bytes(15)
    + b"\1\0\2\0\2\1"
    + bytes(58)
    + b"\xff" * 8
  )


def test_the_mask_of_the_user_decides_who_may_read(folder):
  before = os.umask(0o027)
  try:
    get(folder)
  finally:
    os.umask(before)
  assert (folder / DOCUMENTS).stat().st_mode & 0o777 == 0o640
  assert folder.stat().st_mode & 0o777 == 0o750


def test_nothing_is_made_before_there_is_something_to_write(tmp_path):
  folder = tmp_path / "a" / "b"
  IndexCache(folder)
  assert names(tmp_path) == []
  get(folder)
  assert names(folder) == [DOCUMENTS]


def test_opening_costs_the_same_for_any_size(folder):
  huge = index_cache_file.describe(
    "huge", key={}, arrays={"x": (np.dtype(np.int64), (10**10,))}
  )
  folder.mkdir()
  with (folder / huge.name).open("wb") as file:
    file.write(huge.head)
    file.truncate(huge.file_bytes)
  cache = IndexCache(folder)
  found = cache.get(
    "huge",
    key={},
    arrays={"x": (np.dtype(np.int64), (10**10,))},
    build=never,
  )
  assert found["x"][-1] == 0
  assert cache.events[0].seconds < 0.1


@pytest.mark.parametrize(
  "kind, key",
  [
    ("b", {"seed": 1, "split": [1, 2]}),
    ("a", {"seed": 2, "split": [1, 2]}),
    ("a", {"seed": "1", "split": [1, 2]}),
    ("a", {"seed": 1.0, "split": [1, 2]}),
    ("a", {"seed": True, "split": [1, 2]}),
    ("a", {"seed": 1, "split": [2, 1]}),
    ("a", {"seed": 1, "split": [[1], 2]}),
    ("a", {"seed": 1}),
    ("a", {"seed": 1, "split": [1, 2], "more": None}),
  ],
)
def test_another_key_is_another_entry(folder, kind, key):
  def ask(kind, key, value):
    return IndexCache(folder).get(
      kind,
      key=key,
      arrays={"x": (np.dtype(np.int64), (1,))},
      build=lambda: {"x": np.array([value])},
    )

  assert ask("a", {"seed": 1, "split": [1, 2]}, 1)["x"] == [1]
  assert ask(kind, key, 2)["x"] == [2]
  # The order of keys and the kind of sequence are not part of a key.
  assert ask("a", {"split": (1, 2), "seed": 1}, 3)["x"] == [1]


def test_a_file_of_another_version_is_not_looked_at(folder, monkeypatch):
  get(folder)
  monkeypatch.setattr(index_cache_file, "_VERSION", 2)
  assert get(folder).built
  assert len(names(folder)) == 2


def damage(path, how):
  data = path.read_bytes()
  other = path.parent / "other"
  if how == "directory":
    path.unlink()
    path.mkdir()
  elif how == "pipe":
    path.unlink()
    os.mkfifo(path)
  elif how == "foreign":
    get(other, kind="samples")
    path.write_bytes((other / entry("samples").name).read_bytes())
    shutil.rmtree(other)
  elif how == "another dtype":
    get(other, array=ARRAY.astype(np.uint64))
    path.write_bytes((other / DOCUMENTS).read_bytes())
    shutil.rmtree(other)
  else:
    path.write_bytes(
      {
        "empty": b"",
        "short by a byte": data[:-1],
        "nothing but the head": data[: len(entry().head)],
        "half a head": data[:100],
        "long by a byte": data + b"\0",
        "another magic": b"x" + data[1:],
        "zeros": bytes(len(data)),
      }[how]
    )


DAMAGE = [
  ("empty", "it has 0 bytes instead of 80192"),
  ("short by a byte", "it has 80191 bytes"),
  ("nothing but the head", "it has 192 bytes"),
  ("half a head", "it has 100 bytes"),
  ("long by a byte", "it has 80193 bytes"),
  ("another magic", "it begins otherwise than it should"),
  ("zeros", "it begins otherwise than it should"),
  ("foreign", "it begins otherwise than it should"),
  ("another dtype", "it begins otherwise than it should"),
  ("pipe", "it is not a regular file"),
]


@pytest.mark.parametrize("how, reason", DAMAGE)
def test_a_damaged_file_is_said_once_and_replaced(folder, caplog, how, reason):
  get(folder)
  damage(folder / DOCUMENTS, how)
  event = get(folder)
  assert event.built
  assert event.path == folder / DOCUMENTS
  (said,) = warned(caplog)
  assert said.startswith(
    f"{folder / DOCUMENTS} is damaged or foreign ({reason}"
  )
  assert not get(folder).built
  assert names(folder) == [DOCUMENTS]
  assert len(warned(caplog)) == 1


def test_a_folder_under_the_name_is_left_alone(folder, caplog):
  get(folder)
  damage(folder / DOCUMENTS, "directory")
  assert get(folder).path is None
  assert [said.split(" ")[-1] for said in warned(caplog)] == [
    "possible.",
    "silently.",
  ]
  assert names(folder) == [DOCUMENTS]


def test_a_link_to_nowhere_is_replaced(folder, caplog):
  folder.mkdir()
  (folder / DOCUMENTS).symlink_to("nowhere")
  assert get(folder).path == folder / DOCUMENTS
  assert not get(folder).built
  assert not warned(caplog)


def test_no_byte_of_the_head_may_differ(folder):
  get(folder)
  path = folder / DOCUMENTS
  data = path.read_bytes()
  for place in range(len(entry().head)):
    changed = bytearray(data)
    changed[place] ^= 1
    path.write_bytes(changed)
    with pytest.raises(ValueError, match="begins otherwise"):
      index_cache_file.read(path, entry())
