import dataclasses
import errno
import os
import pickle

import pytest
from preparation_twin import json_lines

from hpgrain.tools import storage
from hpgrain.tools.encoders import choose_backend
from hpgrain.tools.inputs import BadRecordError, find_inputs, units
from hpgrain.tools.request import UnitRequest
from hpgrain.tools.runners import job as job_module
from hpgrain.tools.runners.job import do_unit, save_job, unit_numbers
from hpgrain.tools.work_folder import Shard, WorkFolder

TEXTS = ("a", "", "bc", "d")


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


@pytest.fixture
def source(tmp_path):
  path = tmp_path / "in.jsonl"
  path.write_text(json_lines(TEXTS))
  return path


@pytest.fixture
def folder(tmp_path):
  path = tmp_path / "work"
  path.mkdir()
  return WorkFolder(path, Shard())


def numbered(source):
  """Units of two records, numbered from 5."""
  found = units(find_inputs(source), unit_bytes=24)
  assert len(found) > 1
  return list(enumerate(found, 5))


def saved(source, folder, bpe):
  return save_job(numbered(source), make_request(bpe), folder=folder)


def names(folder, suffix=""):
  return sorted(
    path.name for path in folder.path.iterdir() if path.name.endswith(suffix)
  )


def test_what_travels_is_small_and_does_its_units(source, folder, bpe):
  job = saved(source, folder, bpe)
  assert len(pickle.dumps(job)) < 1000
  job = pickle.loads(pickle.dumps(job))
  numbers = unit_numbers(job)
  assert numbers == [number for number, _ in numbered(source)]
  for number in numbers:
    do_unit(job, number)
  assert folder.finished() == set(numbers)
  assert job.errors(numbers) == []
  job.end()
  assert names(folder) == [f"{number:08d}.unit" for number in numbers]


def test_a_unit_that_is_there_is_not_done_again(source, folder, bpe):
  job = saved(source, folder, bpe)
  folder.unit_path(5).write_text("there")
  do_unit(job, 5)
  assert folder.unit_path(5).read_text() == "there"


def test_a_job_that_has_ended_does_nothing_more(source, folder, bpe):
  job = saved(source, folder, bpe)
  assert job.going_on()
  job.end()
  job.end()
  assert not job.going_on()
  assert unit_numbers(job) == []
  do_unit(job, 5)
  assert names(folder) == []


def test_paths_mean_the_same_in_another_folder(
  source, folder, bpe, monkeypatch, tmp_path
):
  monkeypatch.chdir(source.parent)
  relative = WorkFolder(storage.as_path("work"), Shard())
  job = save_job(
    list(enumerate(units(find_inputs("in.jsonl")))),
    make_request(bpe),
    folder=relative,
  )
  (tmp_path / "else").mkdir()
  monkeypatch.chdir(tmp_path / "else")
  do_unit(job, 0)
  assert folder.finished() == {0}


def test_a_bad_record_ends_the_job_and_is_told_as_it_is(source, folder, bpe):
  source.write_text(json_lines([*TEXTS, "last"]).replace('"last"', "3"))
  job = saved(source, folder, bpe)
  numbers = unit_numbers(job)
  do_unit(job, numbers[-1])
  assert not job.going_on()
  do_unit(job, numbers[0])
  assert folder.finished() == set()
  (error,) = job.errors(numbers)
  assert type(error) is BadRecordError
  assert f"{source}: record 5 (line 5, at byte offset" in str(error)
  assert "holds a number" in str(error)
  assert job.errors(numbers[:-1]) == []


def test_what_an_earlier_job_left_is_removed(source, folder, bpe):
  (folder.path / "00000005.error").write_text("{}")
  # Of a unit that another shard does.
  (folder.path / "00000099.error").write_text("{}")
  first = saved(source, folder, bpe)
  second = saved(source, folder, bpe)
  assert first != second
  assert not first.going_on() and second.going_on()
  assert names(folder) == ["00000099.error", second.name]
  do_unit(first, 5)
  assert folder.finished() == set()


def test_trouble_with_files_is_raised_for_the_engine_to_try_again(
  source, folder, bpe, monkeypatch
):
  job = saved(source, folder, bpe)

  def fail(*arguments, **options):
    raise OSError(errno.EIO, "Input/output error", "/x")

  with monkeypatch.context() as context:
    context.setattr(job_module, "do_task", fail)
    with pytest.raises(OSError, match="Input/output error: '/x'"):
      do_unit(job, 5)
  assert job.going_on()
  (error,) = job.errors([5])
  assert (error.errno, error.filename) == (errno.EIO, "/x")
  assert str(error).startswith("[Errno 5] Input/output error (on ")
  do_unit(job, 5)
  assert folder.finished() == {5}


def test_a_fault_of_ours_says_where_it_is(source, folder, bpe, monkeypatch):
  job = saved(source, folder, bpe)
  monkeypatch.setattr(job_module, "do_task", lambda *arguments: {}["missing"])
  with pytest.raises(KeyError, match="missing"):
    do_unit(job, 5)
  (error,) = job.errors([5])
  assert type(error) is RuntimeError and "KeyError: 'missing'" in str(error)


def test_a_full_disk_that_takes_no_note_is_raised(
  source, folder, bpe, monkeypatch
):
  job = saved(source, folder, bpe)

  def full(*arguments, **options):
    raise OSError(errno.ENOSPC, "No space left on device")

  monkeypatch.setattr(job_module, "do_task", full)
  monkeypatch.setattr(storage, "write_json", full)
  with pytest.raises(OSError, match="No space left"):
    do_unit(job, 5)
  assert job.errors([5]) == []


def told(job, number=5):
  do_unit(job, number)
  (error,) = job.errors([number])
  assert type(error) is ValueError and not job.going_on()
  return str(error)


def test_a_job_that_another_wrote_is_refused(source, folder, bpe):
  job = saved(source, folder, bpe)
  storage.write_json(folder.path / job.name, {"pickled": "other"})
  assert "is not what was written there. Is the work folder on" in told(job)


def test_another_version_of_the_tool_is_refused(
  source, folder, bpe, monkeypatch
):
  job = saved(source, folder, bpe)
  monkeypatch.setattr(job_module, "tool_name", lambda: "hpgrain 99")
  assert "has hpgrain 99, and the job is from hpgrain " in told(job)


def test_another_version_of_what_encodes_is_refused(
  source, folder, bpe, monkeypatch
):
  request = make_request(bpe)
  encoder = dataclasses.replace(request.encoder, version="0.0.1")
  job = save_job(
    numbered(source),
    dataclasses.replace(request, encoder=encoder),
    folder=folder,
  )
  assert "and the job asks for 0.0.1: ids may differ." in told(job)


def test_the_encoder_keeps_to_one_core_unless_told_otherwise(
  source, folder, bpe, monkeypatch
):
  monkeypatch.delenv("RAYON_NUM_THREADS", raising=False)
  monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
  do_unit(saved(source, folder, bpe), 5)
  assert os.environ["RAYON_NUM_THREADS"] == "1"
  assert os.environ["TOKENIZERS_PARALLELISM"] == "true"
