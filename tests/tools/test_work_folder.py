import pytest

from hpgrain.tools.durable import read_json, write_json
from hpgrain.tools.work_folder import Shard, WorkFolder, opened

REQUEST = {"keys": ["a"], "tokenizer": {"digest": "1"}, "inputs": [{"n": 1}]}


def open_(path, request=REQUEST, *, shard=None, restart=False):
  return opened(path, request, shard=shard or Shard(), restart=restart)


def names(path):
  return sorted(entry.name for entry in path.iterdir())


def test_finished_units_are_found_again_and_half_ones_removed(tmp_path):
  path = tmp_path / "x.parts"
  with open_(path) as folder:
    folder.unit_path(3).write_text("")
    folder.temporary_path(4).write_text("")
  with open_(path) as folder:
    assert folder.finished() == {3}
    assert names(path) == ["00000003.unit", "lock", "request.json"]
    folder.remove()
  assert names(tmp_path) == []


def test_one_run_at_a_time(tmp_path):
  with open_(tmp_path / "x"):
    with pytest.raises(
      BlockingIOError, match="is being written by another run"
    ):
      with open_(tmp_path / "x"):
        pass


def test_shards_share_a_folder_and_each_is_one_run(tmp_path):
  path = tmp_path / "x"
  first, second = Shard(0, 2), Shard(1, 2)
  with open_(path, shard=first) as one:
    one.temporary_path(0).write_text("")
    with open_(path, shard=second):
      # A shard removes nothing of another's.
      assert one.temporary_path(0).exists()
      for shard in (first, Shard()):
        with pytest.raises(BlockingIOError, match="by another run"):
          with open_(path, shard=shard):
            pass
  with open_(path, shard=first):
    assert not one.temporary_path(0).exists()
  with open_(path) as folder:
    folder.remove()


@pytest.mark.parametrize(
  ("other", "what"),
  [
    ({"keys": ["b"]}, r"keys\[0\] is 'a' there and 'b' here"),
    ({"keys": ["a", "b"]}, "keys has 1 entries there and 2 here"),
    ({"tokenizer": {"digest": "2"}}, "tokenizer.digest is '1' there and '2'"),
    ({"inputs": [{"n": 2}]}, r"inputs\[0\].n is 1 there and 2 here"),
    ({"new": 5}, "new is None there and 5 here"),
  ],
)
def test_another_request_is_refused_with_what_differs(tmp_path, other, what):
  with open_(tmp_path / "x") as folder:
    folder.unit_path(0).write_text("")
  with pytest.raises(ValueError, match=f"of another request: {what}"):
    with open_(tmp_path / "x", REQUEST | other):
      pass
  with pytest.raises(ValueError, match="so remove the folder yourself"):
    with open_(
      tmp_path / "x", REQUEST | other, shard=Shard(0, 2), restart=True
    ):
      pass
  with open_(tmp_path / "x", REQUEST | other, restart=True) as folder:
    assert folder.finished() == set()
    assert read_json(tmp_path / "x" / "request.json") == REQUEST | other


def test_a_folder_without_a_finished_unit_is_not_kept(tmp_path):
  with open_(tmp_path / "x") as folder:
    folder.remove_if_useless()
  assert names(tmp_path) == []
  with open_(tmp_path / "x") as folder:
    folder.unit_path(0).write_text("")
    folder.remove_if_useless()
    assert folder.finished() == {0}


def test_done_is_kept_until_the_last(tmp_path):
  folder = WorkFolder(tmp_path, Shard())
  assert folder.done() is None
  folder.mark_done({"published": True})
  assert folder.done() == {"published": True}


def test_json_that_something_else_wrote_is_refused(tmp_path):
  (tmp_path / "a").write_text("{")
  with pytest.raises(ValueError, match="so something else wrote it"):
    read_json(tmp_path / "a")
  write_json(tmp_path / "a", {"é": 1})
  assert read_json(tmp_path / "a") == {"é": 1}
  assert names(tmp_path) == ["a"]
