"""Runs launch/train.py as a user would: whole, killed, resumed, refused.

A run is told apart from another by what it writes: digests.jsonl has a line
for each batch the devices were given, metrics.jsonl a line for each step.
"""

import json
import random
import re
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from train_runs import (
  ROWS,
  STEPS,
  digest_lines,
  finish,
  losses_of,
  make_folder,
  read_lines,
  rows_of,
  start,
  went_on_from,
)

DATA_4_CP_2 = ()
DATA_2_CP_2_TP_2 = ("--config.mesh.data=2", "--config.mesh.tp=2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  return make_folder(tmp_path_factory.mktemp("train"))


@pytest.fixture(scope="module")
def whole(folder):
  """A run that nothing interrupted."""
  return finish(folder, "whole").workdir


def check_rows(workdir: Path, whole: Path, *, starts: Sequence[int]) -> None:
  """Compares a killed run's rows with those of one that was not killed.

  Args:
    workdir: of the killed run.
    whole: of the other.
    starts: the step of the checkpoint that each start went on from.
  """
  lines = digest_lines(workdir)
  expected = rows_of(digest_lines(whole))
  assert sorted(expected) == list(range(ROWS * STEPS))
  assert len(set(expected.values())) == ROWS * STEPS
  assert rows_of(lines) == expected
  # After each start: the step after the checkpoint, and then one after
  # another, so no row is missing and none comes twice.
  steps = [line["step"] for line in lines]
  begins = [0, *(i for i, step in enumerate(steps)
                 if i and step != steps[i - 1] + 1)]  # fmt: skip
  assert len(begins) <= len(starts)
  assert {steps[i] - 1 for i in begins} <= set(starts)
  last = steps[begins[-1] :]
  assert last[-1] == STEPS
  final = [line["first_row"] for line in lines[begins[-1] :]]
  assert final == [(step - 1) * ROWS for step in last]


def kill_at_random(
  folder: Path,
  name: str,
  ways: Sequence[tuple[int, Sequence[str]]],
  *,
  kills: int,
  rng: random.Random,
) -> tuple[list[int], int]:
  """Starts and kills a run again and again, then lets it finish.

  Args:
    folder: with the config.
    name: of the workdir.
    ways: process count and flags of each start in turn.
    kills: how many.
    rng: decides when.

  Returns:
    The checkpoint each start went on from, and how many kills came in the
    middle of a save.
  """
  starts, torn = [], 0
  workdir = folder / name
  checkpoints = workdir / "checkpoints"
  for i in range(kills):
    num_processes, flags = ways[i % len(ways)]
    run = start(folder, name, *flags, num_processes=num_processes)
    before = len(digest_lines(workdir))
    # Not so far that the last kills would find the run finished.
    steps = rng.randint(0, 2 * STEPS // (kills + 2))
    if i % 3 == 1:
      alive = run.wait_until(
        lambda before=before: (
          any(checkpoints.glob("*.orbax-checkpoint-tmp"))
          and len(digest_lines(workdir)) > before
        )
      )
    else:
      alive = run.wait_until(
        lambda before=before, steps=steps: (
          len(digest_lines(workdir)) >= before + steps
        )
      )
      time.sleep(rng.uniform(0, 0.1))
    assert alive, run.output()
    run.kill()
    torn += any(checkpoints.glob("*.orbax-checkpoint-tmp"))
    starts.append(went_on_from(run))
  num_processes, flags = ways[kills % len(ways)]
  run = finish(folder, name, *flags, num_processes=num_processes)
  return [*starts, went_on_from(run)], torn


def test_a_run_killed_on_one_mesh_repeats_rows_and_losses_bitwise(
  folder, whole
):
  starts, torn = kill_at_random(
    folder, "killed", [(1, DATA_4_CP_2)], kills=8, rng=random.Random(1)
  )
  check_rows(folder / "killed", whole, starts=starts)
  assert losses_of(folder / "killed") == losses_of(whole)
  assert torn >= 2 and len(set(starts)) >= 3


def test_a_run_killed_and_moved_between_meshes_gets_the_same_rows(
  folder, whole
):
  ways = [(1, DATA_4_CP_2), (1, DATA_2_CP_2_TP_2), (2, DATA_4_CP_2)]
  starts, torn = kill_at_random(
    folder, "moved", ways, kills=12, rng=random.Random(2)
  )
  check_rows(folder / "moved", whole, starts=starts)
  expected = losses_of(whole)
  losses = losses_of(folder / "moved")
  assert losses.keys() == expected.keys()
  assert losses == pytest.approx(expected, rel=1e-4)
  assert torn >= 2 and len(set(starts)) >= 3


def test_sigterm_saves_and_the_next_start_goes_on(folder, whole):
  run = start(folder, "stopped")
  run.wait_until(lambda: len(digest_lines(run.workdir)) >= 4)
  run.processes[0].send_signal(signal.SIGTERM)
  assert run.wait() == [0], run.output()
  last = digest_lines(run.workdir)[-1]["step"]
  assert 4 <= last < STEPS
  assert f"SIGTERM: saved {run.workdir}/checkpoints/{last};" in run.output()
  more = finish(folder, "stopped", f"--config.training.train_iters={last + 2}")
  assert went_on_from(more) == last
  steps = [line["step"] for line in digest_lines(run.workdir)]
  assert steps == list(range(1, last + 3))
  expected = losses_of(whole)
  assert losses_of(run.workdir) == {step: expected[step] for step in steps}


def test_sigterm_in_one_of_two_processes_stops_both_at_one_step(folder):
  run = start(folder, "stopped_2", num_processes=2)
  run.wait_until(lambda: len(digest_lines(run.workdir)) >= 2)
  run.processes[1].send_signal(signal.SIGTERM)
  assert run.wait() == [0, 0], run.output() + run.output(1)
  last = digest_lines(run.workdir)[-1]["step"]
  assert last < STEPS
  assert f"SIGTERM: saved {run.workdir}/checkpoints/{last};" in run.output()
  data = run.workdir / "checkpoints" / str(last) / "data"
  states = [
    json.loads((data / f"part_{process}_of_2.json").read_text())["state"]
    for process in range(2)
  ]
  assert states[0] == states[1]
  assert states[0]["rows"] == last * ROWS


def test_a_second_run_does_not_get_the_folder_of_one_that_trains(folder):
  forever = "--config.training.train_iters=100000"
  first = start(folder, "taken", forever, num_processes=2)
  first.wait_until(lambda: len(digest_lines(first.workdir)) >= 1)
  same = f"--workdir={first.workdir}"
  second = start(folder, "second", same, forever, num_processes=2)
  codes = second.wait()
  # Only process 0 looks; the others leave with it.
  assert codes[0] == 1 and codes[1] != 0, second.output()
  words = f"BlockingIOError: .*{first.workdir} is in use by another run"
  assert re.search(words, second.output()), second.output()
  first.processes[0].send_signal(signal.SIGTERM)
  assert first.wait() == [0, 0], first.output()
  steps = [line["step"] for line in digest_lines(first.workdir)]
  assert steps == list(range(1, len(steps) + 1))


@pytest.mark.parametrize(
  "workdir, words",
  [
    ("", "ValueError: --workdir is a folder for this run's files, got ''"),
    ("/proc/none", "ValueError: --workdir=/proc/none cannot be made"),
    ("/proc", "ValueError: --workdir=/proc cannot be written to"),
  ],
)
def test_a_folder_that_cannot_be_used_is_refused(folder, workdir, words):
  run = start(folder, "unused", f"--workdir={workdir}")
  assert run.wait() == [1]
  assert words in run.output()


def test_a_finished_run_has_nothing_left_to_do(folder, whole):
  before = {path: path.stat().st_mtime_ns for path in whole.rglob("*.jsonl")}
  run = finish(folder, "whole")
  assert "nothing left to do" in run.output()
  assert (
    f"checkpoints/{STEPS} is saved, and training.train_iters is {STEPS}"
    in run.output()
  )
  assert before == {
    path: path.stat().st_mtime_ns for path in whole.rglob("*.jsonl")
  }


def test_a_run_ends_with_its_data_and_keeps_two_checkpoints(folder):
  flags = ("--config.dataloader.epochs=1", "--config.training.train_iters=999")
  run = finish(folder, "one_epoch", *flags)
  (end,) = re.findall(r"the data ended after step (\d+), row", run.output())
  assert len(digest_lines(run.workdir)) == int(end) < 999
  kept = sorted(
    int(path.name) for path in (run.workdir / "checkpoints").iterdir()
  )
  assert len(kept) == 2 and kept[-1] == int(end)
  again = finish(folder, "one_epoch", *flags)
  assert "the data has no batch after the last checkpoint" in again.output()


@pytest.mark.parametrize(
  "flag, words",
  [
    ("--config.training.seed=1", "seed: saved 0, now 1"),
    ("--config.dataset.data_config.split=70,30,0", "split: saved"),
    (
      "--config.get_batch.mask_boundary_labels=False",
      "mask_boundary_labels: saved true, now false",
    ),
    ("--config.model.width=32", "width is 32, .* was saved with 16"),
  ],
)
def test_another_config_does_not_go_on(folder, whole, flag, words):
  lines = len(digest_lines(whole))
  run = start(folder, "whole", flag, "--config.training.train_iters=999")
  assert run.wait() == [1], run.output()
  assert re.search(f"ValueError: .*{words}", run.output(), re.DOTALL)
  assert len(digest_lines(whole)) == lines


def test_evaluation_reads_the_same_rows_and_leaves_the_run_alone(folder, whole):
  flags = (
    "--config.training.eval_iters=2",
    "--config.training.eval_interval=4",
    "--config.training.train_iters=10",
  )
  run = finish(folder, "evaluated", *flags)
  metrics = read_lines(run.workdir / "metrics.jsonl")
  valid = [line for line in metrics if "valid_loss" in line]
  assert [line["step"] for line in valid] == [4, 8, 10]
  # Sums over the same rows each time, at most 2 batches of 8 rows of 16.
  assert len({line["valid_tokens"] for line in valid}) == 1
  assert 0 < valid[0]["valid_tokens"] <= 2 * ROWS * 16
  assert all(3 < line["valid_loss"] < 6 for line in valid)
  assert "step 10  valid loss" in run.output()
  expected = losses_of(whole)
  losses = losses_of(run.workdir)
  assert losses == {step: expected[step] for step in range(1, 11)}
  rows = rows_of(digest_lines(run.workdir))
  assert rows.items() <= rows_of(digest_lines(whole)).items()


def test_evaluation_without_valid_data_is_refused(folder):
  run = start(
    folder,
    "no_valid",
    "--config.dataset.data_config.split=1,0,0",
    "--config.training.eval_interval=4",
  )
  assert run.wait() == [1]
  assert "eval_interval is 4, but valid has no data" in run.output()


def test_a_profile_has_every_stage_of_every_step(folder):
  profile = folder / "profile"
  finish(
    folder,
    "profiled",
    f"--profile={profile}",
    "--config.training.train_iters=5",
  )
  times = json.loads((profile / "step_times_0.json").read_text())
  assert times["step"] == [1, 2, 3, 4, 5]
  assert list(times["seconds"]) == ["plan", "read", "place", "wait", "step"]
  assert all(
    len(seconds) == 5 and min(seconds) > 0
    for seconds in times["seconds"].values()
  )
  assert (profile / "step_times.png").stat().st_size > 1000


@pytest.mark.parametrize("num_processes", [1, 2])
def test_a_loss_that_is_not_finite_is_an_error(folder, num_processes):
  name = f"diverged_{num_processes}"
  flags = (
    "--config.optimizer.learning_rate=1e38",
    "--config.optimizer.warmup=0",
  )
  run = start(folder, name, *flags, num_processes=num_processes)
  assert run.wait() == [1] * num_processes, run.output()
  assert "FloatingPointError: The loss of step 2 is" in run.output()
  assert "Lower optimizer.learning_rate" in run.output()
  # No step of that kind was saved.
  assert not any((run.workdir / "checkpoints").glob("[0-9]*"))
