"""Runs the configs of packed rows as a user would, and resumes them elsewhere.

By number and in turn, a fixed and a dynamic number of examples a row, chats,
token ids, blends, and corpora packed whole: each trains on one mesh, is saved
half way, and goes on from there on another.
"""

import math
import shutil

import pytest
from train_runs import (
  ROOT,
  digest_lines,
  finish,
  losses_of,
  rows_of,
  went_on_from,
)

from hpgrain.tools import embedded_example

_STEPS = 4
_FLAGS = (
  f"--config.training.train_iters={_STEPS}",
  "--config.training.checkpoint_interval=2",
  "--config.training.log_interval=1",
  "--config.training.eval_iters=1",
  "--config.model.layers=1",
  "--config.model.width=16",
  "--config.model.heads=2",
)
_DATA_4_CP_2 = ("--config.mesh.data=4", "--config.mesh.cp=2")
_DATA_2_CP_2_TP_2 = (
  "--config.mesh.data=2",
  "--config.mesh.cp=2",
  "--config.mesh.tp=2",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """The example's data, which each run copies."""
  folder = tmp_path_factory.mktemp("train_online")
  embedded_example.prepare(str(folder / "data"), max_bytes=1_000_000)
  return folder


@pytest.mark.parametrize(
  "config, num_processes",
  [
    ("online_mapping_dynamic", 2),
    ("online_mapping_fixed", 1),
    ("online_iterable_dynamic", 2),
    ("online_iterable_fixed", 1),
    ("online_conversation", 1),
    ("online_pretokenized", 1),
    ("online_blend", 1),
    ("indexed_packed", 1),
  ],
)
def test_a_config_trains_and_goes_on_on_another_mesh(
  folder, config, num_processes
):
  options = {"config": ROOT / "configs" / f"{config}.py"}
  (folder / config).mkdir()
  shutil.copytree(folder / "data", folder / config / "data")
  flags = (*_FLAGS, "--config.prepare=none")
  whole = finish(folder, config, *flags, *_DATA_4_CP_2, **options)
  output = whole.output()
  assert "Traceback" not in output
  assert "ERROR" not in output
  losses = losses_of(whole.workdir)
  assert sorted(losses) == list(range(1, _STEPS + 1))
  assert all(map(math.isfinite, losses.values()))

  # As a run that was killed after its first save.
  resumed = folder / f"{config}_resumed"
  shutil.copytree(whole.workdir, resumed)
  shutil.rmtree(resumed / "checkpoints" / str(_STEPS))
  (resumed / "digests.jsonl").unlink()
  run = finish(
    folder,
    resumed.name,
    *flags,
    *_DATA_2_CP_2_TP_2,
    num_processes=num_processes,
    **options,
  )
  assert went_on_from(run) == 2
  expected = rows_of(digest_lines(whole.workdir))
  first = digest_lines(resumed)[0]["first_row"]
  rows = rows_of(digest_lines(resumed))
  assert rows == {row: d for row, d in expected.items() if row >= first}
  assert len(set(expected.values())) == len(expected)
