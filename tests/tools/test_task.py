import pickle
import subprocess
import sys

import pytest
from preparation_twin import json_lines

from hpgrain.tools.encoder_spec import EncoderSpec
from hpgrain.tools.encoders import choose_backend
from hpgrain.tools.inputs import BadRecordError, find_inputs, units
from hpgrain.tools.request import UnitRequest
from hpgrain.tools.task import Task, do_task, portable_error
from hpgrain.tools.unit_file import UnitReader
from hpgrain.tools.work_folder import Shard, WorkFolder


def make_request(tokenizer):
  return UnitRequest(
    keys=("text",),
    encoder=choose_backend(
      tokenizer, sample=[], backend="huggingface", add_eod=1
    ),
    sentences=None,
    chat=None,
    refuse_special_tokens=False,
    skip_bad_records=False,
    max_bad_records=0,
  )


def make_task(folder, texts, number=7):
  source = folder / "in.jsonl"
  source.write_text(json_lines(texts))
  (unit,) = units(find_inputs(source))
  work = folder / "work"
  work.mkdir()
  return Task(number, unit, WorkFolder(work, Shard()))


def names(task):
  return sorted(path.name for path in task.folder.path.iterdir())


def test_a_task_that_is_done_twice_gives_the_same_file(tmp_path, bpe):
  task, request = make_task(tmp_path, ["a", "", "bc"]), make_request(bpe)
  reports = []
  first = do_task(task, request, report=lambda *done: reports.append(done))
  data = task.folder.unit_path(7).read_bytes()
  assert first["records"] == 3
  assert [sum(column) for column in zip(*reports)] == [
    3,
    5,
    task.unit.num_bytes,
  ]
  assert do_task(task, request) == first
  assert task.folder.unit_path(7).read_bytes() == data
  assert names(task) == ["00000007.unit"]


# Both have begun, and written, before either gives its file the name.
_TWIN = """
import pathlib, pickle, sys, time
from hpgrain.tools import storage
from hpgrain.tools.task import do_task
here, there = map(pathlib.Path, sys.argv[2:])
put_once = storage.put_once
def put(temporary, path):
  here.write_text(str(temporary))
  while not there.exists():
    time.sleep(0.01)
  put_once(temporary, path)
storage.put_once = put
with open(sys.argv[1], "rb") as file:
  do_task(*pickle.load(file))
"""


def test_two_processes_that_do_a_task_at_once_do_no_harm(tmp_path, bpe):
  task, request = make_task(tmp_path, ["a", "bc"]), make_request(bpe)
  (tmp_path / "told").write_bytes(pickle.dumps((task, request)))
  marks = [tmp_path / "one", tmp_path / "two"]
  twins = [
    subprocess.Popen([sys.executable, "-c", _TWIN, tmp_path / "told", *order])
    for order in (marks, marks[::-1])
  ]
  assert [twin.wait(60) for twin in twins] == [0, 0]
  assert marks[0].read_text() != marks[1].read_text()
  assert names(task) == ["00000007.unit"]
  data = task.folder.unit_path(7).read_bytes()
  do_task(task, request)
  assert task.folder.unit_path(7).read_bytes() == data


def test_a_process_opens_the_encoder_of_a_request_once(
  tmp_path, bpe, monkeypatch
):
  opened = []
  open_ = EncoderSpec.open
  monkeypatch.setattr(
    EncoderSpec,
    "open",
    lambda spec, **options: opened.append(spec) or open_(spec, **options),
  )
  task, request = make_task(tmp_path, ["a"]), make_request(bpe)
  for _ in range(2):
    do_task(task, request)
  assert len(opened) == 1
  do_task(task, make_request(bpe))
  assert len(opened) == 2


def test_the_files_of_two_containers_with_one_process_number_differ(
  tmp_path, monkeypatch
):
  found = set()
  for _ in range(2):
    code = (
      "import os, pathlib; os.getpid = lambda: 7\n"
      "from hpgrain.tools.work_folder import Shard, WorkFolder\n"
      "print(WorkFolder(pathlib.Path('w'), Shard()).temporary_path(1))"
    )
    done = subprocess.run(
      [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("w/00000001.0-of-1.7-")
    found.add(done.stdout)
  assert len(found) == 2


def test_a_unit_that_failed_leaves_nothing(tmp_path, bpe):
  task = make_task(tmp_path, ["a", 3])
  with pytest.raises(BadRecordError, match=r"record 2 .* holds a number"):
    do_task(task, make_request(bpe))
  assert names(task) == []
  with pytest.raises(FileNotFoundError):
    UnitReader(task.folder.unit_path(7))


def test_errors_are_sent_as_what_they_are():
  # As a pickle of the cause might not be read elsewhere.
  for error in (ValueError("a"), BadRecordError("b")):
    sent = pickle.loads(pickle.dumps(portable_error(error)))
    assert (type(sent), str(sent)) == (type(error), str(error))
  sent = portable_error(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "secret"))
  assert type(sent) is ValueError
  sent = portable_error(FileNotFoundError(2, "No such file", "/x"))
  assert (type(sent), sent.filename) == (FileNotFoundError, "/x")
  assert str(portable_error(OSError("no number"))).endswith("no number")
  sent = portable_error(KeyError("k"))
  assert type(sent) is RuntimeError and "KeyError: 'k'" in str(sent)
