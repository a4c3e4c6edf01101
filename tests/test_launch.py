"""The parts of launch/ by themselves: model, digests, files, times."""

import hashlib
import json
import random
import sys
from pathlib import Path
from types import SimpleNamespace

import corpora
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import reference_layouts
from jax.sharding import AxisType, Mesh
from jax.sharding import PartitionSpec as P

import hpgrain
from hpgrain.config import base_config
from hpgrain.context_layout import ContextLayout
from hpgrain.records import IGNORE_INDEX

LAUNCH = Path(__file__).parent.parent / "launch"
sys.path.insert(0, str(LAUNCH))

import digests  # noqa: E402
import jsonl  # noqa: E402
import progress  # noqa: E402
import step_times  # noqa: E402
import steps  # noqa: E402
import transformer  # noqa: E402
import vocabulary  # noqa: E402

SHAPE = transformer.Shape(vocabulary=128, layers=2, width=16, heads=2)
# More layers would pass a token on from window to window.
ONE_LAYER = transformer.Shape(128, layers=1, width=16, heads=2)

logits = jax.jit(transformer.logits, static_argnames="shape")
loss_sums = jax.jit(
  transformer.loss_sums, static_argnames=("shape", "labels_are_shifted")
)


@pytest.fixture(scope="module")
def params():
  return transformer.init(jax.random.key(0), SHAPE)


def batch_of(tokens, segment_ids, position_ids=None):
  """A batch of given rows; labels shifted, nothing after the last."""
  tokens, segment_ids = jnp.array(tokens), jnp.array(segment_ids)
  if position_ids is None:
    position_ids = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
  labels = jnp.pad(tokens[:, 1:], ((0, 0), (0, 1)), constant_values=-100)
  same = jnp.pad(segment_ids[:, 1:], ((0, 0), (0, 1))) == segment_ids
  labels = jnp.where(same & (segment_ids > 0), labels, IGNORE_INDEX)
  return {
    "input_ids": tokens,
    "labels": labels,
    "segment_ids": segment_ids,
    "position_ids": jnp.array(position_ids),
    "loss_mask": (labels >= 0).astype(jnp.float32),
  }


def changed(params, first, second, shape=SHAPE):
  """The positions whose logits differ between two batches of one row."""
  a, b = (logits(params, batch, shape=shape) for batch in (first, second))
  return np.flatnonzero(np.abs(a - b).max(axis=(0, 2)) > 1e-6).tolist()


def test_a_token_reaches_later_positions_of_its_segment_alone(params):
  segments = [[1, 1, 1, 2, 2, 0]]
  before = batch_of([[5, 6, 7, 8, 9, 0]], segments)
  after = batch_of([[5, 60, 7, 8, 9, 0]], segments)
  assert changed(params, before, after) == [1, 2]
  after = batch_of([[5, 6, 7, 80, 9, 0]], segments)
  assert changed(params, before, after) == [3, 4]


def test_a_window_ends_what_a_token_reaches():
  params = transformer.init(jax.random.key(0), ONE_LAYER)
  before, after = (
    hpgrain.model_inputs(batch_of([row], [[1] * 6]), sliding_window=2)
    for row in ([5, 6, 7, 8, 9, 1], [5, 60, 7, 8, 9, 1])
  )
  assert changed(params, before, after, ONE_LAYER) == [1, 2]


def test_a_dense_mask_says_what_a_token_reaches(params):
  before, after = (
    batch_of([row], [[1] * 6])
    # Not that of the segment ids: it is the mask that counts.
    | {"attention_mask": jnp.eye(6, dtype=bool)[None, None]}
    for row in ([5, 6, 7, 8, 9, 1], [5, 60, 7, 8, 9, 1])
  )
  assert changed(params, before, after) == [1]


def test_logits_depend_on_the_distance_between_positions(params):
  tokens, segments = [[5, 6, 7, 8, 9, 1]], [[1] * 6]
  here = batch_of(tokens, segments)
  moved = batch_of(tokens, segments, [[9, 10, 11, 12, 13, 14]])
  spread = batch_of(tokens, segments, [[0, 2, 4, 6, 8, 10]])
  np.testing.assert_allclose(
    logits(params, here, shape=SHAPE),
    logits(params, moved, shape=SHAPE),
    atol=1e-5,
  )
  assert changed(params, here, spread) == [1, 2, 3, 4, 5]


def test_the_loss_is_the_cross_entropy_of_the_labels(params):
  batch = batch_of([[5, 6, 7, 8, 9, 0]], [[1, 1, 1, 2, 2, 0]])
  assert batch["labels"].tolist() == [[6, 7, -100, 9, -100, -100]]
  total, count = loss_sums(params, batch, shape=SHAPE, labels_are_shifted=True)
  logp = jax.nn.log_softmax(logits(params, batch, shape=SHAPE))[0]
  expected = -(logp[0, 6] + logp[1, 7] + logp[3, 9])
  assert count == 3
  np.testing.assert_allclose(total, expected, rtol=1e-6)


def test_unshifted_labels_give_the_same_loss(params):
  shifted = batch_of([[5, 6, 7, 8, 9, 0]], [[1, 1, 1, 2, 2, 0]])
  labels = jnp.where(
    shifted["segment_ids"] > 0, shifted["input_ids"], IGNORE_INDEX
  )
  unshifted = shifted | {
    "labels": labels,
    "loss_mask": (labels >= 0).astype(jnp.float32),
  }
  np.testing.assert_array_equal(
    loss_sums(params, unshifted, shape=SHAPE, labels_are_shifted=False),
    loss_sums(params, shifted, shape=SHAPE, labels_are_shifted=True),
  )


def test_a_row_of_padding_changes_nothing(params):
  row, padding = [5, 6, 7, 8, 9, 1], [0] * 6
  (one, count_one), (two, count_two) = (
    loss_sums(params, batch, shape=SHAPE, labels_are_shifted=True)
    for batch in (
      batch_of([row], [[1] * 6]),
      batch_of([row, padding], [[1] * 6, padding]),
    )
  )
  assert count_one == count_two == 5
  np.testing.assert_allclose(one, two, rtol=1e-6)


def test_shapes_that_cannot_be_are_refused():
  with pytest.raises(ValueError, match=r"multiple of 2 \* model.heads"):
    transformer.Shape(128, layers=1, width=12, heads=4)
  with pytest.raises(ValueError, match=r"model.layers must be at least 1"):
    transformer.Shape(128, layers=0, width=16, heads=2)


def test_specs_have_the_structure_of_the_parameters(params):
  mesh = _mesh((4, 2), ("data", "tp"))
  specs = steps.param_specs(SHAPE, mesh)
  is_spec = {"is_leaf": lambda x: isinstance(x, P)}
  assert jax.tree.structure(specs, **is_spec) == jax.tree.structure(params)
  assert specs["embedding"] == P("tp", None)
  without = steps.param_specs(SHAPE, _mesh((8,), ("data",)))
  assert without["embedding"] == P(None, None)
  with pytest.raises(ValueError, match="2 heads over 4 devices"):
    steps.param_specs(SHAPE, _mesh((2, 4), ("data", "tp")))


def _mesh(sizes, names):
  devices = np.array(jax.devices()).reshape(sizes)
  return Mesh(devices, names, axis_types=(AxisType.Auto,) * len(names))


FIELDS = {
  "segment_ids": np.array([[1, 1, 2, 0], [1, 1, 1, 1], [0, 0, 0, 0]], np.int32),
  "input_ids": np.array([[5, 6, 7, 0], [1, 2, 3, 4], [0, 0, 0, 0]], np.int32),
}


def test_a_digest_is_of_names_row_numbers_and_real_positions():
  line = digests.digest_batch(FIELDS, step=3, first_row=16)
  pieces = []
  for name, rows in (
    ("input_ids", ([5, 6, 7], [1, 2, 3, 4])),
    ("segment_ids", ([1, 1, 2], [1, 1, 1, 1])),
  ):
    pieces.append(
      [
        f"{name} <i4 {16 + i} {len(row)}\n".encode()
        + np.array(row, "<i4").tobytes()
        for i, row in enumerate(rows)
      ]
    )
  (ids_0, ids_1), (seg_0, seg_1) = pieces
  assert line == {
    "step": 3,
    "first_row": 16,
    "rows": 2,
    "digest": hashlib.sha256(ids_0 + ids_1 + seg_0 + seg_1).hexdigest(),
    "row_digests": [
      hashlib.sha256(ids_0 + seg_0).hexdigest(),
      hashlib.sha256(ids_1 + seg_1).hexdigest(),
    ],
  }


def test_row_digests_do_not_depend_on_the_batch_size():
  whole = digests.digest_batch(FIELDS, step=1, first_row=0)
  second = digests.digest_batch(
    {name: field[1:2] for name, field in FIELDS.items()}, step=2, first_row=1
  )
  assert second["row_digests"] == whole["row_digests"][1:]


def test_padding_takes_no_part_in_a_digest():
  other = {name: field.copy() for name, field in FIELDS.items()}
  other["input_ids"][0, 3] = 99
  wider = {
    name: np.pad(field, ((0, 1), (0, 2))) for name, field in FIELDS.items()
  }
  expected = digests.digest_batch(FIELDS, step=1, first_row=0)
  assert digests.digest_batch(other, step=1, first_row=0) == expected
  assert digests.digest_batch(wider, step=1, first_row=0) == expected


@pytest.mark.parametrize(
  "layout",
  [
    ContextLayout("zigzag", 2),
    ContextLayout("striped", 4),
    ContextLayout("document_zigzag", 2, 4),
  ],
  ids=lambda layout: layout.name,
)
def test_a_digest_is_of_the_row_s_order_whatever_the_layout(layout, tmp_path):
  rows = {
    "segment_ids": np.array([[1, 1, 1, 0, 2, 2, 2, 2], [0] * 8], np.int32),
    "input_ids": np.arange(16, dtype=np.int32).reshape(2, 8),
  }
  slots = reference_layouts.in_slots(
    rows, layout.name, layout.num_ranks, multiple=4
  )
  again = digests.in_row_order(slots, layout)
  for name, field in rows.items():
    np.testing.assert_array_equal(again[name], field)
    assert not np.array_equal(slots[name], field)
  mesh = _mesh((2, 4), ("data", "cp"))
  placed = jax.device_put(slots, jax.NamedSharding(mesh, P("data", "cp")))
  log = digests.DigestLog(tmp_path / "digests.jsonl")
  digest = log.append(placed, step=1, first_row=0, layout=layout)
  log.close()
  expected = digests.digest_batch(rows, step=1, first_row=0)
  assert digest == expected["digest"]
  assert json.loads((tmp_path / "digests.jsonl").read_text()) == expected
  # The slots' own order is another.
  assert digests.digest_batch(slots, step=1, first_row=0) != expected


@pytest.mark.parametrize(
  "change", [("input_ids", 0, 1, 60), ("segment_ids", 0, 2, 1)]
)
def test_any_real_position_changes_a_digest(change):
  name, row, position, value = change
  other = {key: field.copy() for key, field in FIELDS.items()}
  other[name][row, position] = value
  before, after = (
    digests.digest_batch(fields, step=1, first_row=0)
    for fields in (FIELDS, other)
  )
  assert before["digest"] != after["digest"]
  assert before["row_digests"][0] != after["row_digests"][0]
  assert before["row_digests"][1] == after["row_digests"][1]


def test_sharded_batches_digest_like_whole_ones(tmp_path):
  sharding = jax.sharding.NamedSharding(_mesh((2, 4), ("data", "cp")), P())
  rows = {name: field[:2] for name, field in FIELDS.items()}
  sharding = sharding.update(spec=P("data", "cp"))
  log = digests.DigestLog(tmp_path / "digests.jsonl")
  digest = log.append(jax.device_put(rows, sharding), step=1, first_row=0)
  log.close()
  expected = digests.digest_batch(rows, step=1, first_row=0)
  assert digest == expected["digest"]
  assert json.loads((tmp_path / "digests.jsonl").read_text()) == expected


@pytest.mark.parametrize("torn", ['{"step": 3, "fi', "x" * 3_000_000])
def test_a_line_that_a_kill_tore_is_cut_off(tmp_path, torn):
  path = tmp_path / "lines.jsonl"
  path.write_text('{"step": 1}\n{"step": 2}\n' + torn)
  lines = jsonl.JsonLines(path)
  lines.append({"step": 3})
  lines.close()
  assert path.read_text() == '{"step": 1}\n{"step": 2}\n{"step": 3}\n'


def test_a_file_of_nothing_but_a_torn_line_is_emptied(tmp_path):
  path = tmp_path / "lines.jsonl"
  path.write_text('{"step"')
  jsonl.JsonLines(path).close()
  assert path.read_text() == ""


def _digest_file(path, *lines):
  path.write_text(
    "".join(
      json.dumps({"step": step, "first_row": row, "row_digests": rows}) + "\n"
      for step, row, rows in lines
    )
  )
  return str(path)


def test_two_digest_files_are_compared_by_row(tmp_path, capsys):
  a = _digest_file(
    tmp_path / "a", (1, 0, ["r0", "r1"]), (2, 2, ["r2", "r3"]), (2, 2, ["r2"])
  )
  b = _digest_file(tmp_path / "b", (1, 0, ["r0", "r1", "r2"]))
  assert digests.main(["digests.py", a, b]) == 0
  assert "A: 4 rows, 1 of them repeated" in capsys.readouterr().out
  c = _digest_file(tmp_path / "c", (1, 0, ["r0", "other"]))
  assert digests.main(["digests.py", a, c]) == 1
  assert "first rows that differ: [1]" in capsys.readouterr().out
  d = _digest_file(tmp_path / "d", (1, 10, ["r10"]))
  assert digests.main(["digests.py", a, d]) == 1
  assert digests.main(["digests.py", a]) == 2


def test_a_row_repeated_with_other_content_is_an_error(tmp_path):
  a = _digest_file(tmp_path / "a", (1, 0, ["r0"]), (1, 0, ["other"]))
  with pytest.raises(ValueError, match=r"Row 0 .* trained on twice"):
    digests.read_rows([a])


def test_step_times_are_written_with_a_picture(tmp_path):
  times = step_times.StepTimes(tmp_path / "profile")
  times.add(1, {"plan": 0.1, "read": 0.2, "place": 0.3, "wait": 9.0, "step": 8})
  times.add(2, {"plan": 0.1, "read": 0.2, "place": 0.3, "wait": 0.0, "step": 1})
  path = times.write(0)
  content = json.loads(path.read_text())
  assert content["step"] == [1, 2]
  assert content["seconds"]["wait"] == [9.0, 0.0]
  assert content["median_seconds"]["step"] == 1.0
  # No rows were exchanged.
  stages = ["plan", "read", "place", "wait", "step"]
  assert list(content["seconds"]) == list(content["median_seconds"]) == stages
  picture = (tmp_path / "profile" / "step_times.png").read_bytes()
  assert picture.startswith(b"\x89PNG")


def test_step_times_have_the_exchange_where_there_is_one(tmp_path):
  times = step_times.StepTimes(tmp_path)
  for step, exchange in ((1, 0.0), (2, 0.5)):
    times.add(step, {"wait": 0.1, "exchange": exchange, "step": 1.0})
  content = json.loads(times.write(1).read_text())
  assert content["seconds"]["exchange"] == [0.0, 0.5]
  assert content["median_seconds"]["exchange"] == 0.5


class _Batches:
  """Tells of so many seconds waited, and exchanged."""

  rows = 8

  def __init__(self, *seconds):
    self._seconds = iter(seconds)

  def stats(self):
    return dict(zip(("wait_seconds", "exchange_seconds"), next(self._seconds)))

  def epochs(self, rows):
    return {"a": rows / 16}


@pytest.mark.parametrize(
  "seconds, shares, words",
  [
    # From the first step's end to the second's: 1 s of 4, and 2 s of 4.
    (((0, 0), (9, 9), (10, 11)), (0.25, 0.5), "waiting 25.0%  exchanging 50.0"),
    (((0, 0), (9, 0), (10, 0)), (0.25, 0.0), "waiting 25.0%  epochs: a 0.500"),
  ],
)
def test_the_log_tells_waiting_and_exchanging_apart(
  tmp_path, monkeypatch, capsys, *, seconds, shares, words
):
  clock = iter([0.0, 0.0, 4.0])
  clock_alone = SimpleNamespace(perf_counter=lambda: next(clock))
  monkeypatch.setattr(progress, "time", clock_alone)
  made = progress.Progress(
    tmp_path / "m.jsonl", batches=_Batches(*seconds), interval=100
  )
  for step in (1, 2):
    made.add(step, {"loss": 1.0, "stop": False, "tokens": 8})
  made.finish_run()
  made.close()
  (line,) = map(json.loads, (tmp_path / "m.jsonl").read_text().splitlines())
  assert (line["wait_share"], line["exchange_share"]) == shares
  assert line["tokens_per_second"] == 2.0
  assert words in capsys.readouterr().out


def test_a_profile_without_matplotlib_is_refused_at_once(tmp_path, monkeypatch):
  monkeypatch.setitem(sys.modules, "matplotlib", None)
  monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
  with pytest.raises(
    ModuleNotFoundError, match=r'extra "plots".*"\.\[plots\]"'
  ):
    step_times.StepTimes(tmp_path)


def test_the_vocabulary_is_rounded_up_to_128():
  assert vocabulary.model_vocabulary(129) == 256
  assert vocabulary.model_vocabulary(128) == 128


def test_an_unknown_vocabulary_names_the_keys_to_set():
  with pytest.raises(ValueError, match=r"Set dataset.data_config.vocab_size"):
    vocabulary.model_vocabulary(None)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
  """Short documents, so that every row has several segments."""
  prefix = tmp_path_factory.mktemp("pair") / "documents"
  documents = corpora.random_documents(
    random.Random(0), num_documents=40, max_length=10, vocab_size=128
  )
  corpora.write_pair(prefix, documents)
  return str(prefix)


def _loader(pair, **get_batch):
  config = base_config()
  config.dataset.data_path = pair
  config.dataset.data_config.update(
    seq_length=16, vocab_size=128, split="1,0,0"
  )
  config.mesh.update(data=4, cp=2)
  config.get_batch.update(get_batch)
  return hpgrain.build(config, _mesh((4, 2, 1), ("data", "cp", "tp"))).train


def _steps(loader):
  return steps.make_steps(
    SHAPE,
    optimizer=optax.sgd(0.1),
    mesh=_mesh((4, 2, 1), ("data", "cp", "tp")),
    seed=0,
    loader=loader,
  )


def _strong(params):
  """Parameters with which what is attended to matters more than rounding."""
  return jax.tree.map(lambda x: 5 * x, params)


def _first_losses(pair, *, trained=False, **get_batch):
  """The summed loss of the first batch; `trained` asks the train step, too."""
  loader = _loader(pair, **get_batch)
  assert loader.vocab_size == 128
  batches = iter(loader)
  batch = next(batches)
  batches.close()
  run = _steps(loader)
  state = run.init()
  state["params"] = _strong(state["params"])
  total, count = run.evaluate(state["params"], batch)
  assert count > 0
  if trained:
    _, metrics = run.train(state, batch, run.stop_flags(False))
    np.testing.assert_allclose(total / count, metrics["loss"], rtol=1e-5)
  return float(total), batch


def test_the_loaders_masks_are_those_the_model_attends_with(pair, params):
  plain, batch = _first_losses(pair)
  dense, _ = _first_losses(pair, attention_mode="dense")
  assert dense == pytest.approx(plain, rel=1e-5)
  window, _ = _first_losses(pair, trained=True, sliding_window=3)
  assert window != pytest.approx(plain, rel=1e-3)
  both, _ = _first_losses(pair, sliding_window=3, attention_mode="dense")
  assert both == pytest.approx(window, rel=1e-5)
  reference, _ = _first_losses(pair, sliding_window=2, window_keys="reference")
  assert reference == pytest.approx(window, rel=1e-5)
  inputs = hpgrain.model_inputs(batch, sliding_window=3)
  expected, _ = loss_sums(
    _strong(params),
    inputs | hpgrain.loss_inputs(batch),
    shape=SHAPE,
    labels_are_shifted=True,
  )
  assert window == pytest.approx(float(expected), rel=1e-5)


def test_no_file_of_launch_is_named_like_a_standard_module():
  names = {path.stem for path in LAUNCH.glob("*.py")}
  assert names & sys.stdlib_module_names == set()


def test_the_digests_of_a_run_that_wrote_none_are_not_compared(
  tmp_path, capsys
):
  missing = str(tmp_path / "digests.jsonl")
  assert digests.main(["digests.py", missing, missing]) == 2
  assert "a run writes one with --log_batch_digest" in capsys.readouterr().out
