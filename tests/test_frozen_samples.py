"""For how many rows Megatron's order was made, in the state and out of it."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
import train_runs
from promise import Leg, Recipe, SourceRecipe, make_config, write_sources

import hpgrain
from hpgrain import shard

RECIPE = Recipe(
  kind="gpt",
  sources=(SourceRecipe(seed=3, rows=11, slack=3),),
  order="megatron",
  seq_length=8,
)
BLEND = dataclasses.replace(
  RECIPE,
  sources=(
    SourceRecipe(seed=3, rows=11, weight=0.7),
    SourceRecipe(seed=4, rows=20, weight=0.3),
  ),
)
# 6 batches of 4 rows: 24 rows, three epochs of eleven.
LEG = Leg(
  axes=(("data", 4), ("cp", 2)), batch_size=4, num_batches=0, train_iters=6
)


def build(folder, recipe=RECIPE, **leg):
  """The train loader of a leg; the corpora are written anew, and the same."""
  made = dataclasses.replace(LEG, **leg)
  prefixes = write_sources(recipe, folder)
  config = make_config(recipe, made, prefixes, first_row=recipe.first_row)
  mesh = shard.make_mesh(tuple(made.sizes), made.sizes)
  return hpgrain.build(config, mesh).train


def input_ids(batches):
  """All rows of some batches, one after another."""
  return np.concatenate([np.asarray(batch["input_ids"]) for batch in batches])


def interrupted(loader, num_batches):
  """Returns (rows before, state, rows after) of a run that could go on."""
  iterator = iter(loader)
  before = [next(iterator) for _ in range(num_batches)]
  state = json.loads(json.dumps(iterator.get_state()))
  after = list(iterator)
  iterator.close()
  return input_ids(before), state, input_ids(after)


def go_on(loader, state):
  iterator = iter(loader)
  iterator.set_state(state)
  rows = input_ids(list(iterator))
  again = iterator.get_state()
  iterator.close()
  return rows, again


def test_the_state_says_for_how_many_rows(tmp_path):
  iterator = iter(build(tmp_path))
  state = iterator.get_state()
  iterator.close()
  assert state["num_samples"] == 24
  assert tuple(state) == ("version", "fingerprint", "rows", "num_samples")
  assert len(json.dumps(state)) < 256


def test_other_orders_say_no_number(tmp_path):
  for order in ("stable", "documents"):
    recipe = dataclasses.replace(RECIPE, order=order)
    iterator = iter(build(tmp_path, recipe))
    assert tuple(iterator.get_state()) == ("version", "fingerprint", "rows")
    iterator.close()


@pytest.mark.parametrize("recipe", [RECIPE, BLEND], ids=["one", "blend"])
@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("lazy", [False, True])
def test_a_shorter_run_goes_on_in_the_first_start_s_order(
  tmp_path, recipe, prefetch, lazy
):
  _, state, rest = interrupted(build(tmp_path, recipe), 2)
  shorter = build(
    tmp_path, recipe, train_iters=3, batch_size=4, prefetch=prefetch, lazy=lazy
  )
  rows, again = go_on(shorter, state)
  np.testing.assert_array_equal(rows, rest)
  assert again["num_samples"] == 24
  assert again["fingerprint"] == state["fingerprint"]
  # Begun for so few rows, it would have read others, and fewer.
  _, _, own = interrupted(shorter, 2)
  assert own.shape != rest.shape or (own != rest).any()


def test_another_batch_size_and_mesh_go_on_too(tmp_path):
  _, state, rest = interrupted(build(tmp_path), 2)
  other = build(
    tmp_path,
    batch_size=1,
    train_iters=24,
    axes=(("data", 1), ("cp", 8)),
  )
  rows, _ = go_on(other, state)
  np.testing.assert_array_equal(rows[: len(rest)], rest)


def test_the_adopted_order_ends_where_it_did(tmp_path):
  # Sampler `single` ends with what was asked for, `cyclic` with so many epochs
  # of the whole index.
  for sampler, epochs in (("single", None), ("cyclic", 2)):
    recipe = dataclasses.replace(
      RECIPE, sampler_type=sampler, epochs=epochs, end_of_data="pad"
    )
    before, state, rest = interrupted(build(tmp_path, recipe), 1)
    rows, again = go_on(build(tmp_path, recipe, train_iters=1), state)
    np.testing.assert_array_equal(rows, rest)
    loader = build(tmp_path, recipe)
    asked, whole = loader.samples.num_samples, len(loader.samples)
    assert asked < whole
    assert again["rows"] == (epochs * whole if epochs else asked)
    assert len(before) + len(rest) >= again["rows"]


def test_a_longer_run_is_refused_and_stays_where_it_was(tmp_path):
  _, state, _ = interrupted(build(tmp_path), 2)
  longer = iter(build(tmp_path, train_iters=7))
  first = input_ids([next(longer)])
  with pytest.raises(
    ValueError,
    match=r"^This run was started for 24 rows, and 28 are asked for now\."
    r".*train_iters.*train_samples=24 to end with those rows.*"
    r'order="stable" knows no end\.$',
  ):
    longer.set_state(state)
  assert longer.get_state()["rows"] == 4
  assert longer.get_state()["num_samples"] == 28
  second = input_ids([next(longer)])
  longer.close()
  own = iter(build(tmp_path, train_iters=7))
  np.testing.assert_array_equal(
    np.concatenate([first, second]), input_ids([next(own), next(own)])
  )
  own.close()


@pytest.mark.parametrize("saved", [-1, "24", 24.0, True])
def test_a_number_that_is_none_is_refused(tmp_path, saved):
  iterator = iter(build(tmp_path))
  state = {**iterator.get_state(), "num_samples": saved}
  with pytest.raises(ValueError, match=r"A loader state's num_samples"):
    iterator.set_state(state)
  iterator.close()


def test_given_train_samples_are_the_fingerprint_s(tmp_path):
  given = dataclasses.replace(RECIPE, train_samples=40)
  iterator = iter(build(tmp_path, given))
  state = iterator.get_state()
  parts = iterator.parts
  iterator.close()
  assert state["num_samples"] == 40
  for samples in (39, 41):
    other = dataclasses.replace(RECIPE, train_samples=samples)
    iterator = iter(build(tmp_path, other))
    with pytest.raises(
      ValueError,
      match=r"These parts differ:\n  order \(the order of rows\)\n"
      r"    num_samples \(training\.train_samples\): saved 40, now"
      rf" {samples}\nRestore with",
    ):
      iterator.restore(state, parts)
    iterator.close()


def test_a_number_that_was_found_may_be_given_later(tmp_path):
  _, state, rest = interrupted(build(tmp_path), 2)
  given = dataclasses.replace(RECIPE, train_samples=24)
  rows, _ = go_on(build(tmp_path, given, train_iters=1), state)
  np.testing.assert_array_equal(rows, rest)
  # And left out again, by a run that does not ask for more.
  rows, _ = go_on(build(tmp_path, train_iters=5), state)
  np.testing.assert_array_equal(rows, rest)


def test_the_cyclic_sampler_permutes_the_adopted_order(tmp_path):
  recipe = dataclasses.replace(RECIPE, sampler_type="cyclic", epochs=1)
  _, state, rest = interrupted(build(tmp_path, recipe), 2)
  rows, _ = go_on(build(tmp_path, recipe, train_iters=1), state)
  np.testing.assert_array_equal(rows, rest)


def test_the_trainer_goes_on_in_the_order_it_began(tmp_path):
  folder = train_runs.make_folder(tmp_path)
  flags = (
    "--config.dataset.data_config.order=megatron",
    "--config.training.checkpoint_interval=2",
  )
  run = train_runs.finish(
    folder, "run", *flags, "--config.training.train_iters=6"
  )
  # As if it had been killed after step 5.
  shutil.rmtree(run.workdir / "checkpoints" / "6")
  longer = train_runs.start(
    folder, "run", *flags, "--config.training.train_iters=7"
  )
  assert longer.wait() == [1]
  assert "started for 48 rows, and 56 are asked for" in longer.output()
  shorter = train_runs.finish(
    folder, "run", *flags, "--config.training.train_iters=5"
  )
  assert train_runs.went_on_from(shorter) == 4
  lines = train_runs.digest_lines(run.workdir)
  assert [line["step"] for line in lines][-3:] == [5, 6, 5]
  # Of rows that were read twice, both digests are compared.
  assert len(train_runs.rows_of(lines)) == 48


def test_a_larger_batch_goes_on_to_the_last_row_asked_for(tmp_path):
  recipe = dataclasses.replace(RECIPE, train_samples=24, end_of_data="pad")
  _, state, rest = interrupted(build(tmp_path, recipe), 2)
  # Seven steps of 8 rows would be more than 24, had all been so large.
  larger = build(tmp_path, recipe, batch_size=8, train_iters=7)
  rows, ended = go_on(larger, state)
  np.testing.assert_array_equal(rows[: len(rest)], rest)
  assert ended["rows"] == 24


def test_a_run_is_told_where_its_rows_end(tmp_path, caplog):
  recipe = dataclasses.replace(RECIPE, train_samples=24)
  with caplog.at_level("WARNING", logger="hpgrain"):
    loader = build(tmp_path, recipe, train_iters=7)
  assert loader.num_steps == 6
  (said,) = [r.getMessage() for r in caplog.records if "data ends" in r.msg]
  assert said.startswith("train: train_iters x global_batch_size asks for rows")
  assert "up to 28" in said
  assert "has 24 (training.train_samples=24)" in said
