import json

import numpy as np
import pytest

from hpgrain.tools.inputs import find_inputs, units
from hpgrain.tools.runners import watch as watch_module
from hpgrain.tools.runners.job import Job
from hpgrain.tools.runners.watch import Watch
from hpgrain.tools.unit_file import UnitWriter
from hpgrain.tools.work_folder import Shard, WorkFolder


class Fixture:
  """Three units, the watch of them, and what it told."""

  def __init__(self, folder):
    source = folder / "in.jsonl"
    source.write_text("x" * 10 + "\n" + "y" * 14)
    self.units = list(enumerate(units(find_inputs(source), unit_bytes=10)))
    (folder / "work").mkdir()
    self.folder = WorkFolder(folder / "work", Shard())
    self.job = Job(self.folder, "x.job", "")
    self.reports, self.finished = [], []
    self.watch = Watch(
      self.units,
      folder=self.folder,
      report=lambda *done: self.reports.append(done),
      finished=lambda *unit: self.finished.append(unit),
    )

  def finish(self, number, *, records=1, tokens=3):
    writer = UnitWriter(
      self.folder.temporary_path(number), dtype=np.dtype("u2"), num_keys=1
    )
    writer.add_tokens(0, np.zeros(tokens, np.uint16))
    writer.end_records(0, np.array([tokens] + [0] * (records - 1)))
    writer.finish({"records": records, "number": number})
    self.folder.temporary_path(number).replace(self.folder.unit_path(number))

  def note(self, number, kind, **note):
    note = {"kind": kind, "message": "m", "host": "h"} | note
    path = self.folder.path / f"{number:08d}.error"
    path.write_text(json.dumps(note))


@pytest.fixture
def case(tmp_path, monkeypatch):
  monkeypatch.setattr(watch_module, "VISIBLE_SECONDS", 0.0)
  return Fixture(tmp_path)


def test_each_unit_is_told_of_once_in_their_order(case):
  assert [unit.num_bytes for _, unit in case.units] == [10, 10, 5]
  case.watch.look()
  assert case.reports == []
  case.finish(2)
  case.finish(0, records=2, tokens=5)
  case.watch.look()
  case.watch.look()
  assert case.reports == [(2, 5, 10), (1, 3, 5)]
  assert case.finished == [
    (0, {"records": 2, "number": 0}),
    (2, {"records": 1, "number": 2}),
  ]
  assert list(case.watch.left) == [1]
  case.finish(1)
  case.watch.conclude(case.job, failure=None)
  assert case.watch.left == {}


def test_a_folder_that_takes_long_to_list_is_listed_less_often(
  case, monkeypatch
):
  times = iter([0.0, 3.0])
  monkeypatch.setattr(watch_module.time, "monotonic", lambda: next(times))
  case.watch.look()
  assert case.watch.pause == 30.0


def test_a_failure_after_all_is_done_is_none(case):
  for number in range(3):
    case.finish(number)
  case.watch.conclude(case.job, failure=lambda: 1 / 0)


def test_what_failed_is_told(case):
  case.finish(1)
  with pytest.raises(ChildProcessError, match=r"^It died. 2 units are not d"):
    case.watch.conclude(case.job, failure=lambda: "It died.")


def test_the_record_comes_before_what_followed_from_it(case):
  case.note(0, "OSError", errno=5, filename=None)
  case.note(1, "BadRecordError", message="in.jsonl: record 3 is no object")
  # It was done again since.
  case.note(2, "ValueError", message="old")
  case.finish(2)
  with pytest.raises(ValueError, match=r"^in.jsonl: record 3 is no object$"):
    case.watch.conclude(case.job, failure=lambda: "It died.")


def test_trouble_that_lasted_is_told_with_the_machine(case):
  case.note(0, "OSError", errno=28, message="No space left", filename="/x")
  with pytest.raises(OSError, match=r"No space left \(on h\): '/x'"):
    case.watch.conclude(case.job, failure=lambda: "It died.")


def test_files_that_nobody_sees_are_told(case):
  case.finish(0)
  with pytest.raises(
    ChildProcessError,
    match=r"2 units have no file in .*work, the first of them unit 1\. Is it",
  ):
    case.watch.conclude(case.job, failure=None)


def test_files_may_be_seen_later(case, monkeypatch):
  monkeypatch.setattr(watch_module, "VISIBLE_SECONDS", 60.0)
  monkeypatch.setattr(
    watch_module.time,
    "sleep",
    lambda seconds: [case.finish(number) for number in case.watch.left],
  )
  case.watch.conclude(case.job, failure=None)
  assert len(case.finished) == 3


def test_a_file_that_is_not_whole_is_refused(case):
  case.finish(1)
  path = case.folder.unit_path(1)
  path.write_bytes(path.read_bytes()[:-3])
  with pytest.raises(ValueError, match=r"00000001\.unit is not the whole file"):
    case.watch.look()
  path.write_bytes(b"HPG")
  with pytest.raises(ValueError, match=r"00000001\.unit is not the whole file"):
    case.watch.look()
