import json
import os
import threading

import pytest

from hpgrain import object_store
from hpgrain.object_store import as_path, put_bytes, read_bytes
from hpgrain.tools import storage
from hpgrain.tools.scratch import check_space, scratch_folder
from hpgrain.tools.work_folder import Shard, WorkFolder, opened

REQUEST = {"keys": ["a"], "inputs": [{"n": 1}]}


@pytest.fixture(params=["disk", "store"])
def folder(request, tmp_path):
  """A folder that is not there yet, on a disk and on a store."""
  if request.param == "disk":
    return tmp_path / "d"
  return as_path(f"{request.getfixturevalue('bucket')}/d")


def write(path, text):
  path.parent.mkdir(exist_ok=True)
  path.write_text(text)
  return path


def test_a_disk_and_a_store_are_used_alike(folder, tmp_path):
  assert storage.list_files(folder) == {}
  assert storage.read_json(folder / "x") is None
  storage.make_folder(folder)
  storage.put_once(write(tmp_path / "t/1", "one"), folder / "x")
  storage.put_once(write(tmp_path / "t/2", "one"), folder / "x")
  assert storage.exists(folder / "x")
  storage.publish(write(tmp_path / "t/3", "three"), folder / "x")
  assert storage.list_files(folder) == {"x": 5}
  assert list((tmp_path / "t").iterdir()) == []
  storage.write_json(folder / "j", {"é": 1})
  assert storage.create_json(folder / "j", {"é": 2}) == {"é": 1}
  assert storage.read_json(folder / "j") == {"é": 1}
  assert storage.create_json(folder / "k", [3]) == [3]
  with pytest.raises(ValueError, match="x is not JSON"):
    storage.read_json(folder / "x")
  (tmp_path / "s").mkdir()
  names = [folder / name for name in "xjk"]
  local = storage.fetch(names, tmp_path / "s")
  assert [path.name for path in local] == ["x", "j", "k"]
  assert local[0].read_text() == "three"
  assert storage.identity(folder / "x") != storage.identity(folder / "j")
  storage.remove([*names, folder / "none"])
  storage.remove_folder(folder)
  assert not storage.exists(folder / "x")
  assert storage.list_files(folder) == {}


def test_the_same_object_has_one_identity(bucket):
  put_bytes(b"", f"{bucket}/x")
  other = bucket.replace("s3://", "s3a://")
  assert storage.identity(f"{bucket}/x") == storage.identity(f"{other}/x")


def test_a_folder_is_filled(folder):
  with storage.filled_folder(folder) as local:
    local.mkdir(exist_ok=True)
    (local / "a").write_text("1")
  assert storage.list_files(folder) == {"a": 1}


def test_one_of_many_requests_is_agreed_on(bucket):
  path, found = as_path(f"{bucket}/r"), []
  start = threading.Barrier(6)

  def create(number):
    start.wait()
    found.append(storage.create_json(path, number))

  threads = [threading.Thread(target=create, args=(i,)) for i in range(6)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert set(found) == {json.loads(read_bytes(str(path)))}


def opened_there(path, scratch, request=REQUEST, **options):
  options = {"shard": Shard(), "restart": False} | options
  return opened(path, request, scratch=scratch, **options)


def test_runs_of_one_request_share_a_folder_on_a_store(bucket, tmp_path):
  path = as_path(f"{bucket}/x.parts")
  with (
    opened_there(path, tmp_path) as one,
    opened_there(path, tmp_path, shard=Shard(1, 2)) as two,
  ):
    assert one.unit_path(7) == two.unit_path(7)
    storage.put_once(write(one.temporary_path(7), "a"), one.unit_path(7))
    assert two.finished() == {7}
    with pytest.raises(ValueError, match=r"keys\[0\] is 'a' there and 'b'"):
      with opened_there(path, tmp_path, {**REQUEST, "keys": ["b"]}):
        pass


def test_units_of_another_request_are_never_taken(bucket, tmp_path):
  """Even where what would refuse it has gone."""
  path = as_path(f"{bucket}/x.parts")
  with opened_there(path, tmp_path) as folder:
    put_bytes(b"", str(folder.unit_path(0)))
    storage.remove([path / "request.json"])
    with opened_there(path, tmp_path, {"keys": []}) as other:
      assert other.finished() == set()
      assert other.unit_path(0) != folder.unit_path(0)
  with opened_there(path, tmp_path, restart=True) as folder:
    assert folder.finished() == set()
  folder.remove()
  assert storage.list_files(path) == {}


def test_two_outputs_of_the_same_units_are_told_apart(bucket, tmp_path):
  path = as_path(f"{bucket}/x.parts")
  done = {"layout": {"partitions": 1}, "published": False}
  other = {"layout": {"partitions": 2}, "published": False}
  with opened_there(path, tmp_path) as folder:
    folder.mark_done(done)
    folder.mark_done(done)
    with pytest.raises(
      FileExistsError, match=r"partitions is 1 there and 2 here.*has died"
    ):
      folder.mark_done(other)
    folder.mark_done(other, overwrite=True)
    assert folder.done() == other
    folder.mark_done({**other, "published": True})
    assert folder.done()["published"]


def test_a_damaged_unit_is_named_by_its_url(bucket, tmp_path):
  with opened_there(as_path(f"{bucket}/x.parts"), tmp_path) as folder:
    put_bytes(b"half", str(folder.unit_path(0)))
    with pytest.raises(ValueError, match=rf"^{bucket}/.* is not the whole fil"):
      folder.fetch_units(1)
    with pytest.raises(FileNotFoundError, match=f"object: '{bucket}"):
      folder.fetch_units(2)
  with pytest.raises(ValueError, match="needs a local scratch folder"):
    WorkFolder(as_path(f"{bucket}/x"), Shard(), request=REQUEST)


def test_scratch_is_removed_and_so_is_what_a_killed_run_left(tmp_path):
  with scratch_folder(tmp_path / "s") as one, scratch_folder(tmp_path / "s"):
    assert one.parent == tmp_path / "s"
    assert len(list((tmp_path / "s").iterdir())) == 2
  assert list((tmp_path / "s").iterdir()) == []
  pid = os.fork()
  if not pid:
    with scratch_folder(tmp_path / "s") as left:
      (left / "large").write_text("x")
      os._exit(0)
  os.waitpid(pid, 0)
  assert [p.name for p in (tmp_path / "s").glob("*/*")] != []
  # Another's unfinished work, whatever it is called.
  write(tmp_path / "s/hpgrain-scratch-work.parts/lock", "")
  with scratch_folder(tmp_path / "s") as here:
    assert {path.name for path in (tmp_path / "s").iterdir()} == {
      here.name,
      "hpgrain-scratch-work.parts",
    }


def test_too_small_a_disk_is_refused_beforehand(tmp_path):
  check_space(tmp_path, 1)
  with pytest.raises(OSError, match=r"10,000,.* are needed in .*--scratch-dir"):
    check_space(tmp_path, 10**19)


def test_nothing_local_asks_a_store(tmp_path, monkeypatch):
  """A preparation on disks needs none of the stores' packages."""

  def refuse(url):
    raise AssertionError(url)

  monkeypatch.setattr(object_store, "filesystem", refuse)
  storage.write_json(tmp_path / "x", 1)
  storage.publish(write(tmp_path / "t", "1"), tmp_path / "y")
  storage.remove([tmp_path / "x"])
  assert storage.list_files(tmp_path) == {"y": 1}
