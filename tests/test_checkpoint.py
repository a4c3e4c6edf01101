import contextlib
import itertools
import json
import logging
import random
import subprocess
import sys
import threading
from pathlib import Path

import grain
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import orbax.checkpoint.experimental.v1 as ocp1
import pytest
from corpora import random_documents, write_pair

from hpgrain import GPTSamples, checkpoint, shard
from hpgrain.batches import BatchSpec
from hpgrain.checkpoint import CheckpointRestore, CheckpointSave
from hpgrain.fields import FieldOptions
from hpgrain.loader import Loader


@pytest.fixture
def prefix(tmp_path):
  rng = random.Random(0)
  return write_pair(tmp_path / "a", random_documents(rng, num_documents=30))


@pytest.fixture
def batches(prefix):
  """Makes iterators that are closed after the test."""
  with contextlib.ExitStack() as stack:
    yield lambda **options: stack.enter_context(
      contextlib.closing(iter(_loader(prefix, **options)))
    )


def _loader(prefix, *, seed=1, sizes=(4, 2), num_rows=8, options=None):
  mesh = shard.make_mesh(("data", "cp"), dict(zip(("data", "cp"), sizes)))
  layout = shard.batch_layout(
    shard.batch_sharding(mesh), num_rows=num_rows, num_positions=8
  )
  spec = BatchSpec(
    samples=GPTSamples(prefix, seq_length=8, seed=seed),
    layout=layout,
    options=options or FieldOptions(),
  )
  return Loader(spec)


def _take(iterator, count):
  return [
    {name: np.asarray(values) for name, values in batch.items()}
    for batch in itertools.islice(iterator, count)
  ]


def _assert_rows(found, expected):
  """Compares rows, however many stand in each batch."""
  for name in expected[0]:
    rows = [
      np.concatenate([b[name] for b in some]) for some in (found, expected)
    ]
    np.testing.assert_array_equal(*rows)


def _model():
  return {"w": jnp.arange(4.0), "step": jnp.zeros((), jnp.int32)}


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_manager_saves_model_and_data_together(
  tmp_path, batches, asynchronous
):
  options = ocp.CheckpointManagerOptions(
    enable_async_checkpointing=asynchronous
  )
  running = batches()
  after = {}
  with ocp.CheckpointManager(tmp_path / "run", options=options) as manager:
    for step in (1, 2, 3):
      next(running)
      manager.save(
        step,
        args=ocp.args.Composite(
          model=ocp.args.StandardSave(_model()),
          data=CheckpointSave(running),
          meta=ocp.args.JsonSave({"step": step}),
        ),
      )
      # Going on at once changes nothing of what is being saved.
      after[step] = step * 8
    rest = _take(running, 3)
  with ocp.CheckpointManager(tmp_path / "run") as manager:
    resumed = batches(sizes=(2, 4), num_rows=4)
    restored = manager.restore(
      3,
      args=ocp.args.Composite(
        model=ocp.args.StandardRestore(_model()),
        data=CheckpointRestore(resumed),
      ),
    )
    assert restored.data is resumed
    assert resumed.rows == 24
    _assert_rows(_take(resumed, 6), rest)
    for step, rows in after.items():
      fresh = batches()
      manager.restore(
        step, args=ocp.args.Composite(data=CheckpointRestore(fresh))
      )
      assert fresh.rows == rows
    # The model alone needs none of ours.
    alone = manager.restore(
      2,
      args=ocp.args.Composite(model=ocp.args.StandardRestore(_model())),
    )
    assert alone.model["w"].tolist() == [0, 1, 2, 3]


def test_the_state_is_taken_when_save_is_called(tmp_path, batches, monkeypatch):
  # Writing waits until two more batches were handed out.
  went_on = threading.Event()
  write = checkpoint._write

  def late(directory, texts):
    assert went_on.wait(20)
    write(directory, texts)

  monkeypatch.setattr(checkpoint, "_write", late)
  running = batches()
  next(running)
  with ocp.CheckpointManager(tmp_path / "run") as manager:
    manager.save(1, args=ocp.args.Composite(data=CheckpointSave(running)))
    rest = _take(running, 2)
    went_on.set()
    manager.wait_until_finished()
    resumed = batches()
    manager.restore(1, args=ocp.args.Composite(data=CheckpointRestore(resumed)))
  assert resumed.rows == 8
  _assert_rows(_take(resumed, 2), rest)


def test_a_part_and_the_full_fingerprint_are_written(tmp_path, batches):
  running = batches()
  next(running)
  with ocp.CheckpointManager(tmp_path / "run") as manager:
    manager.save(7, args=ocp.args.Composite(data=CheckpointSave(running)))
  folder = tmp_path / "run" / "7" / "data"
  part = json.loads((folder / "part_0_of_1.json").read_text())
  assert part == {
    "format": 1,
    "process": 0,
    "num_processes": 1,
    "state": running.get_state(),
  }
  manifest = json.loads((folder / "data_manifest.json").read_text())
  assert manifest == json.loads(json.dumps(running.parts))
  assert manifest["seed"] == {"seed": 1}
  assert (
    checkpoint.LoaderCheckpointHandler.typestr()
    == "hpgrain.checkpoint.LoaderCheckpointHandler"
  )


def _save(folder, iterator):
  with ocp.Checkpointer(checkpoint.LoaderCheckpointHandler()) as saver:
    saver.save(folder, args=CheckpointSave(iterator))
  return Path(folder)


def _restore(folder, iterator):
  with ocp.Checkpointer(checkpoint.LoaderCheckpointHandler()) as saver:
    return saver.restore(folder, args=CheckpointRestore(iterator))


def test_the_handler_serves_alone(tmp_path, batches):
  running = batches()
  next(running)
  folder = _save(tmp_path / "alone", running)
  rest = _take(running, 2)
  resumed = batches()
  assert _restore(folder, resumed) is resumed
  _assert_rows(_take(resumed, 2), rest)


def _split(folder, count):
  """Rewrites a save of one process as one of `count`."""
  part = json.loads((folder / "part_0_of_1.json").read_text())
  (folder / "part_0_of_1.json").unlink()
  for process in range(count):
    text = json.dumps(part | {"process": process, "num_processes": count})
    (folder / f"part_{process}_of_{count}.json").write_text(text)
  return folder


def test_parts_of_several_processes_are_merged(tmp_path, batches):
  running = batches()
  next(running)
  folder = _split(_save(tmp_path / "s", running), 3)
  resumed = batches()
  _restore(folder, resumed)
  assert resumed.get_state() == running.get_state()


def test_missing_parts_are_named(tmp_path, batches):
  folder = _split(_save(tmp_path / "s", batches()), 4)
  (folder / "part_1_of_4.json").unlink()
  (folder / "part_3_of_4.json").unlink()
  with pytest.raises(
    ValueError,
    match=r"lacks part_1_of_4\.json, part_3_of_4\.json of 4 parts; the save did"
    r" not complete",
  ):
    _restore(folder, batches())


def test_a_save_without_parts_says_how_to_save(tmp_path, batches):
  folder = _save(tmp_path / "s", batches())
  (folder / "part_0_of_1.json").unlink()
  with pytest.raises(ValueError, match=r"holds no part.*CheckpointSave"):
    _restore(folder, batches())


@pytest.mark.parametrize("text", ["", '{"format": 1, "proc', "[]", "{}", "7"])
def test_a_torn_part_is_named(tmp_path, batches, text):
  folder = _split(_save(tmp_path / "s", batches()), 2)
  (folder / "part_1_of_2.json").write_text(text)
  with pytest.raises(
    ValueError, match=r"part_1_of_2\.json is not a part of a loader state"
  ):
    _restore(folder, batches())


def test_parts_of_different_saves_are_refused(tmp_path, batches):
  folder = _split(_save(tmp_path / "s", batches()), 2)
  other = json.loads((folder / "part_1_of_2.json").read_text())
  other["state"]["rows"] = 16
  (folder / "part_1_of_2.json").write_text(json.dumps(other))
  with pytest.raises(
    ValueError,
    match=r"part_0_of_2\.json and part_1_of_2\.json hold different states, rows"
    r" 0 and 16",
  ):
    _restore(folder, batches())
  (folder / "part_0_of_1.json").write_text(
    json.dumps(other | {"process": 0, "num_processes": 1})
  )
  with pytest.raises(ValueError, match=r"saves by \[1, 2\] processes"):
    _restore(folder, batches())


def test_other_rows_are_told_by_part_and_value(tmp_path, batches):
  folder = _save(tmp_path / "s", batches())
  other = batches(seed=5, options=FieldOptions(reset_attention_mask=False))
  with pytest.raises(ValueError, match="makes other rows") as error:
    _restore(folder, other)
  text = str(error.value)
  assert "seed (training.seed)\n    seed: saved 1, now 5" in text
  assert "reset_attention_mask: saved true, now false" in text
  assert "data (" not in text and "split (" not in text
  assert other.rows == 0
  # Without the list beside it the parts are named all the same.
  (folder / "data_manifest.json").unlink()
  with pytest.raises(ValueError, match=r"seed \(training\.seed\)\n"):
    _restore(folder, other)


@pytest.mark.parametrize(
  "text, reason",
  [
    ("", "JSONDecodeError"),
    ('{"seed": {"se', "JSONDecodeError"),
    ("[]", "AttributeError"),
    ('{"seed": 3}', "it holds something else"),
  ],
)
def test_a_torn_manifest_is_named_and_stops_no_restore(
  tmp_path, batches, caplog, text, reason
):
  running = batches()
  next(running)
  folder = _save(tmp_path / "s", running)
  (folder / "data_manifest.json").write_text(text)
  resumed = batches()
  with caplog.at_level(logging.WARNING, logger="hpgrain"):
    _restore(folder, resumed)
  assert resumed.get_state() == running.get_state()
  (said,) = [r.getMessage() for r in caplog.records if r.name.startswith("hpg")]
  assert said.startswith(f"{folder / 'data_manifest.json'} is not a list of")
  assert reason in said
  # Other rows are refused as ever.
  with pytest.raises(ValueError, match=r"seed \(training\.seed\)\n"):
    _restore(folder, batches(seed=5))


def test_the_messages_names_can_be_had():
  code = "import hpgrain; hpgrain.checkpoint.CheckpointSave"
  subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_only_a_loaders_iterator_is_taken(tmp_path, batches):
  with pytest.raises(ValueError, match=r"iter\(loader\), got dict"):
    _save(tmp_path / "s", {"rows": 3})
  with pytest.raises(ValueError, match="got NoneType"):
    _save(tmp_path / "t", None)
  folder = _save(tmp_path / "u", batches())
  for item in (None, {"rows": 3}):
    with pytest.raises(ValueError, match="needs the iterator to restore"):
      _restore(folder, item)


def test_grains_own_save_and_restore_take_the_iterator(tmp_path, batches):
  running = batches()
  next(running)
  with ocp.CheckpointManager(tmp_path / "run") as manager:
    manager.save(
      1,
      args=ocp.args.Composite(data=grain.checkpoint.CheckpointSave(running)),
    )
    rest = _take(running, 2)
    resumed = batches()
    manager.restore(
      1,
      args=ocp.args.Composite(data=grain.checkpoint.CheckpointRestore(resumed)),
    )
  _assert_rows(_take(resumed, 2), rest)
  with ocp.CheckpointManager(tmp_path / "run") as manager:
    with pytest.raises(ValueError, match="makes other rows"):
      manager.restore(
        1,
        args=ocp.args.Composite(
          data=grain.checkpoint.CheckpointRestore(batches(seed=2))
        ),
      )


def test_the_v1_api_saves_and_loads_the_iterator_itself(tmp_path, batches):
  running = batches()
  next(running)
  with ocp1.training.Checkpointer(tmp_path / "run") as manager:
    manager.save_checkpointables(1, {"model": _model(), "data": running})
    next(running)
    saving = manager.save_checkpointables_async(
      2, {"model": _model(), "data": running}
    )
    rest = _take(running, 2)
    saving.result()
    for step in (1, 2):
      resumed = batches(sizes=(8, 1))
      loaded = manager.load_checkpointables(
        step, {"model": _model(), "data": resumed}
      )
      assert loaded["model"]["w"].tolist() == [0, 1, 2, 3]
      assert resumed.rows == 8 * step
    _assert_rows(_take(resumed, 2), rest)
    with pytest.raises(Exception, match="Failed to load") as error:
      manager.load_checkpointables(1, {"data": batches(seed=3)})
    assert "seed: saved 1, now 3" in str(error.value.__cause__)


def test_the_v1_api_reads_what_a_manager_saved(tmp_path, batches):
  running = batches()
  next(running)
  with ocp.CheckpointManager(tmp_path / "run") as manager:
    manager.save(
      1,
      args=ocp.args.Composite(
        model=ocp.args.StandardSave(_model()), data=CheckpointSave(running)
      ),
    )
  resumed = batches()
  with ocp1.training.Checkpointer(tmp_path / "run") as manager:
    manager.load_checkpointables(1, {"data": resumed})
  assert resumed.get_state() == running.get_state()


def test_a_manager_reads_what_the_v1_api_saved(tmp_path, batches):
  running = batches()
  next(running)
  with ocp1.training.Checkpointer(tmp_path / "run") as manager:
    manager.save_checkpointables(1, {"data": running})
  resumed = batches()
  with ocp.CheckpointManager(tmp_path / "run") as manager:
    manager.restore(1, args=ocp.args.Composite(data=CheckpointRestore(resumed)))
  assert resumed.get_state() == running.get_state()
