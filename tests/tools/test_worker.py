import contextlib
import dataclasses
import os
import subprocess
import time

import pytest
from preparation_twin import json_lines

from hpgrain.tools import engine, worker
from hpgrain.tools.encoders import choose_backend
from hpgrain.tools.inputs import BadRecordError, find_inputs, units
from hpgrain.tools.request import UnitRequest
from hpgrain.tools.task import Task
from hpgrain.tools.work_folder import Shard, WorkFolder


@pytest.fixture
def process(bpe):
  """A worker that has its request."""
  request = UnitRequest(
    keys=("text",),
    encoder=choose_backend(bpe, sample=[], backend="huggingface", add_eod=1),
    sentences=None,
    chat=None,
    refuse_special_tokens=False,
    skip_bad_records=False,
    max_bad_records=0,
  )
  started = engine._Worker()
  started.send(request)
  yield started
  started.end()


def make_task(folder, number, texts):
  source = folder / f"{number}.jsonl"
  source.write_text(json_lines(texts))
  work = folder / "work"
  work.mkdir(exist_ok=True)
  (unit,) = units(find_inputs(source))
  return Task(number, unit, WorkFolder(work, Shard()))


def answers(process):
  """What it says of a task, up to the last."""
  while True:
    message = process.receive()
    yield message
    if not isinstance(message, worker.Progress):
      return


def test_tasks_are_answered_in_turn_and_a_bad_one_is_no_end(process, tmp_path):
  tasks = [
    make_task(tmp_path, 0, ["a", "", "bc"]),
    make_task(tmp_path, 1, ["a", 3]),
    make_task(tmp_path, 2, ["d"]),
  ]
  process.give(iter(tasks[:1]))
  for task in tasks[1:]:
    process.send(task)
  *progress, last = answers(process)
  assert [sum(column) for column in zip(*progress)] == [
    3,
    5,
    tasks[0].unit.num_bytes,
  ]
  assert isinstance(last, worker.Finished)
  assert (last.number, last.summary["records"]) == (0, 3)
  *_, last = answers(process)
  assert isinstance(last, worker.Failed) and last.number == 1
  assert type(last.error) is BadRecordError
  assert "record 2 (line 2, at byte offset 14)" in str(last.error)
  *_, last = answers(process)
  assert (last.number, last.summary["records"]) == (2, 1)
  assert tasks[0].folder.finished() == {0, 2}


def test_it_ends_with_the_process_that_began_it(process, tmp_path):
  pid = process._process.pid
  process.send(make_task(tmp_path, 0, ["a"]))
  list(answers(process))
  process.connection.close()
  assert process._process.wait(30) == 0
  with pytest.raises(ProcessLookupError):
    os.kill(pid, 0)


def test_it_ends_in_the_middle_of_a_unit(process, tmp_path):
  # A pipe that nobody writes to is read for ever.
  task = make_task(tmp_path, 0, ["a"])
  os.mkfifo(tmp_path / "pipe")
  file = dataclasses.replace(task.unit.file, path=str(tmp_path / "pipe"))
  unit = dataclasses.replace(task.unit, file=file)
  process.send(task._replace(unit=unit))
  time.sleep(0.5)
  process.connection.close()
  assert process._process.wait(30) == 0


def test_what_it_imports_is_what_we_import(tmp_path, monkeypatch):
  (tmp_path / "only_here.py").write_text("print('found')")
  monkeypatch.syspath_prepend(tmp_path)
  monkeypatch.setattr(
    engine,
    "_CODE",
    "import sys; sys.path[:] = {path!r}; import only_here; sys.exit(5)",
  )
  output = tmp_path / "output"
  with output.open("w") as file:
    popen = subprocess.Popen
    monkeypatch.setattr(
      engine.subprocess,
      "Popen",
      lambda *arguments, **options: popen(*arguments, stdout=file, **options),
    )
    started = engine._Worker()
    with contextlib.suppress(subprocess.TimeoutExpired):
      assert started._process.wait(30) == 5
  assert output.read_text() == "found\n"
  started.end()
