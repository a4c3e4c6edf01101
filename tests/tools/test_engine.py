import dataclasses
import os
import signal

import pytest
from preparation_twin import json_lines

from hpgrain.tools import engine
from hpgrain.tools.encoders import choose_backend
from hpgrain.tools.engine import num_processes, run_units
from hpgrain.tools.inputs import (
  BadRecordError,
  InputFile,
  Unit,
  find_inputs,
  units,
)
from hpgrain.tools.request import UnitRequest
from hpgrain.tools.work_folder import Shard, WorkFolder

TEXTS = ["a", "", "bc", "d", "e f", "g"]


@pytest.fixture
def request_(bpe):
  return UnitRequest(
    keys=("text",),
    encoder=choose_backend(bpe, sample=[], backend="huggingface", add_eod=1),
    sentences=None,
    chat=None,
    refuse_special_tokens=False,
    skip_bad_records=False,
    max_bad_records=0,
  )


@pytest.fixture
def folder(tmp_path):
  path = tmp_path / "work"
  path.mkdir()
  return WorkFolder(path, Shard())


@pytest.fixture
def todo(tmp_path):
  source = tmp_path / "in.jsonl"
  source.write_text(json_lines(TEXTS))
  return list(enumerate(units(find_inputs(source), unit_bytes=30)))


@pytest.fixture
def processes(monkeypatch):
  """Two workers, however little there is to do; those that were started."""
  monkeypatch.setattr(engine, "SMALL_INPUT_BYTES", 0)
  started = []
  popen = engine.subprocess.Popen

  def start(*arguments, **options):
    started.append(popen(*arguments, **options))
    return started[-1]

  monkeypatch.setattr(engine.subprocess, "Popen", start)
  return started


def run(todo, request, folder, **options):
  reports, summaries = [], {}
  run_units(
    todo,
    request,
    **{
      "folder": folder,
      "workers": 2,
      "report": lambda *done: reports.append(done),
      "finished": summaries.__setitem__,
      "open_encoder": request.encoder.open,
    }
    | options,
  )
  return [sum(column) for column in zip(*reports)], summaries


def names(folder):
  return sorted(path.name for path in folder.path.iterdir())


def make_unit(num_bytes):
  file = InputFile("x", "json", None, num_bytes, "")
  return Unit(file, "json_lines", 0, num_bytes, 0, num_bytes)


@pytest.mark.parametrize(
  ("sizes", "workers", "cores", "expected"),
  [
    ([], 8, 4, 1),
    ([32 << 20], 8, 4, 1),
    ([32 << 20, 1], 8, 4, 2),
    ([16 << 20] * 9, 8, 4, 4),
    ([16 << 20] * 9, 3, 4, 3),
    ([16 << 20] * 9, 1, 4, 1),
    # One reads or writes while the other computes.
    ([16 << 20] * 9, 8, 1, 2),
  ],
)
def test_no_more_processes_than_work_and_cores(
  monkeypatch, sizes, workers, cores, expected
):
  monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)))
  todo = list(enumerate(map(make_unit, sizes)))
  assert num_processes(todo, workers) == expected


def test_processes_tell_what_one_tells(todo, request_, folder, processes):
  assert len(todo) == 3
  told = run(todo, request_, folder)
  assert len(processes) == 2
  files = {name: (folder.path / name).read_bytes() for name in names(folder)}
  assert list(files) == [f"{number:08d}.unit" for number, _ in todo]
  for path in folder.path.iterdir():
    path.unlink()
  assert run(todo, request_, folder, workers=1) == told
  assert len(processes) == 2
  assert told[0][0] == sum(s["records"] for s in told[1].values()) == len(TEXTS)
  for name, data in files.items():
    assert (folder.path / name).read_bytes() == data


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_is_the_same_from_a_worker(
  tmp_path, request_, folder, processes, workers
):
  source = tmp_path / "bad.jsonl"
  source.write_text(json_lines(["a", "b", 3, "c"]))
  todo = list(enumerate(units(find_inputs(source), unit_bytes=20)))
  with pytest.raises(
    BadRecordError,
    match=rf"^{source}: record 3 \(line 3, at byte offset 28\) holds a number",
  ):
    run(todo, request_, folder, workers=workers)
  assert [process.poll() for process in processes] == (
    [-signal.SIGKILL] * 2 if workers == 2 else []
  )
  assert not [name for name in names(folder) if name.endswith(".tmp")]


def test_a_missing_input_is_the_same_from_a_worker(
  todo, request_, folder, processes, tmp_path
):
  (tmp_path / "in.jsonl").unlink()
  with pytest.raises(FileNotFoundError, match=r"in\.jsonl"):
    run(todo, request_, folder)


def test_whoever_is_told_may_stop_it(todo, request_, folder, processes):
  def refuse(number, summary):
    raise ValueError("enough")

  with pytest.raises(ValueError, match=r"^enough$"):
    run(todo, request_, folder, finished=refuse)
  assert [process.poll() for process in processes] == [-signal.SIGKILL] * 2


@pytest.mark.parametrize(
  ("code", "how"),
  [
    ("import sys; sys.exit(3)", r"ended with exit code 3\.$"),
    (
      "import os; os.kill(os.getpid(), 9)",
      r"was killed by SIGKILL\. The kernel does that when memory runs out",
    ),
    ("import os; os.kill(os.getpid(), 11)", r"was killed by SIGSEGV\.$"),
  ],
)
def test_a_worker_that_dies_ends_the_run(
  todo, request_, folder, processes, monkeypatch, *, code, how
):
  monkeypatch.setattr(engine, "_CODE", f"path = {{path!r}}; {code}")
  with pytest.raises(ChildProcessError, match=rf"^Worker process \d+.* {how}"):
    run(todo, request_, folder)
  assert None not in [process.poll() for process in processes]


def test_a_unit_that_kills_its_worker_is_named(
  todo, request_, folder, processes
):
  # What opens the encoder is sent to the worker, and run there.
  encoder = dataclasses.replace(
    request_.encoder, tokenizer_json=None, pickled=_DEADLY
  )
  request = dataclasses.replace(request_, encoder=encoder)
  with pytest.raises(
    ChildProcessError, match=r"at work on .*in\.jsonl, json_lines from \d+ on"
  ):
    run(todo, request, folder)
  assert names(folder) == []


_DEADLY = b"cos\nkill\n(cos\ngetpid\n(tRI9\ntR."
