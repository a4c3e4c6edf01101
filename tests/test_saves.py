"""launch/saves.py: checkpoints that are not whole say what to do."""

import re
import shutil
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from etils import epath

import hpgrain
from hpgrain.config import base_config

LAUNCH = Path(__file__).parent.parent / "launch"
sys.path.insert(0, str(LAUNCH))

import saves  # noqa: E402

SHAPE = {"layers": 1, "window": None}


@pytest.fixture(scope="module")
def batches():
  config = base_config()
  config.dataset.data_config.update(mock_data=True, vocab_size=9, seq_length=4)
  config.training.global_batch_size = 8
  mesh = jax.make_mesh((8,), ("data",))
  batches = iter(hpgrain.build(config, mesh).train)
  yield batches
  batches.close()


@pytest.fixture(scope="module")
def saved(tmp_path_factory, batches):
  """Two checkpoints, after a batch each."""
  folder = tmp_path_factory.mktemp("saved") / "checkpoints"
  checkpoints = saves.Saves(epath.Path(folder), shape=SHAPE)
  for step in (1, 2):
    next(batches)
    checkpoints.save(step, state={"w": jnp.ones(4)}, batches=batches)
  checkpoints.close()
  return folder


@pytest.fixture
def folder(tmp_path, saved):
  """A copy to be damaged."""
  return Path(shutil.copytree(saved, tmp_path / "checkpoints"))


def restore(folder, batches, shape=SHAPE):
  """Restores the newest step, as a start does; returns the rows."""
  checkpoints = saves.Saves(epath.Path(folder), shape=shape)
  try:
    checkpoints.restore_data(checkpoints.latest(), batches)
  finally:
    checkpoints.close()
  return batches.rows


def test_the_newest_step_is_restored(folder, batches):
  next(batches)
  assert restore(folder, batches) == 16


def test_a_torn_part_names_the_folder_to_remove(folder, batches):
  torn = folder / "2" / "data" / "part_0_of_1.json"
  torn.write_text(torn.read_text()[:-20])
  words = re.escape(f"Remove the folder {folder}/2 to go on from step 1.")
  with pytest.raises(ValueError, match=words):
    restore(folder, batches)
  # And that is all there is to do.
  shutil.rmtree(folder / "2")
  assert restore(folder, batches) == 8


def test_a_torn_only_checkpoint_leaves_nothing_to_go_on_from(folder, batches):
  shutil.rmtree(folder / "1")
  (folder / "2" / "data" / "part_0_of_1.json").write_text("{")
  with pytest.raises(ValueError, match=r"checkpoints/2 to begin anew\."):
    restore(folder, batches)


def test_a_torn_note_names_the_folder_to_remove(folder, batches):
  (folder / "2" / "meta" / "metadata").write_text("{")
  with pytest.raises(ValueError, match=r"Remove the folder .*/2 to go on from"):
    restore(folder, batches)


def test_a_checkpoint_of_another_program_says_what_it_lacks(folder, batches):
  shutil.rmtree(folder / "2" / "data")
  words = re.escape(f"{folder}/2 has no data: it is not a checkpoint of this")
  with pytest.raises(ValueError, match=words):
    restore(folder, batches)
  shutil.rmtree(folder / "2" / "meta")
  with pytest.raises(
    ValueError, match=r"has no data and no meta: .* --workdir"
  ):
    restore(folder, batches)


def test_another_model_is_refused(folder, batches):
  with pytest.raises(
    ValueError, match=r"window is 3, but .*/2 was saved with None\. Set it back"
  ):
    restore(folder, batches, {"layers": 1, "window": 3})
