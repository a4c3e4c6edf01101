"""The training loop: batches in, steps, evaluations and checkpoints out.

  next(batches) -> [digest] -> step -> log -> [checkpoint] -> [evaluation]

The iterator is never ahead of the steps here (the loader's threads are, and
its state knows nothing of them), so model and data are saved at one point.
"""

import dataclasses
import itertools
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import digests
import jax
import machines
import progress
import saves
import step_times
import steps
import transformer
import vocabulary
from etils import epath
from jax.sharding import Mesh
from ml_collections import ConfigDict
from progress import say

import hpgrain


def train(
  config: ConfigDict,
  *,
  mesh: Mesh,
  workdir: Path,
  log_digests: bool,
  times: step_times.StepTimes | None,
) -> None:
  """Trains from the last checkpoint of `workdir` to the end of the run.

  Returns early, with a checkpoint, after SIGTERM in any of the processes.

  Args:
    config: checked, with every path written out.
    mesh: over the devices of all processes.
    workdir: of the run.
    log_digests: whether to write digests.jsonl.
    times: where to note every step's times, or None.

  Raises:
    FloatingPointError: if the loss is not finite.
    ValueError: if the config fits neither the mesh, the data nor the
      checkpoint.
  """
  stop_signal = machines.StopSignal()
  loaders = hpgrain.build(config, mesh)
  if config.training.eval_interval and loaders.valid is None:
    raise ValueError(
      f"training.eval_interval is {config.training.eval_interval}, but valid"
      " has no data. Give it some (dataset.valid_data_path, or a second number"
      " in dataset.data_config.split), or set training.eval_interval=0."
    )
  shape = model_shape(config, loaders.train.vocab_size)
  run = steps.make_steps(
    shape,
    optimizer=steps.make_optimizer(config.optimizer),
    mesh=mesh,
    seed=config.training.seed,
    loader=loaders.train,
    method=config.model.attention,
  )
  checkpoints = saves.Saves(
    epath.Path(workdir / "checkpoints"),
    shape=dataclasses.asdict(shape)
    | {"window": loaders.train.attention.keys_seen},
  )
  batches = iter(loaders.train)
  try:
    first = checkpoints.latest()
    if first:
      checkpoints.restore_data(first, batches)
    if first >= config.training.train_iters:
      say(
        f"nothing left to do: {checkpoints.path(first)} is saved, and"
        f" training.train_iters is {config.training.train_iters}. Raise it to"
        " go on (order='megatron' ends with the rows it was asked for at the"
        " first start), or start another run in another --workdir."
      )
      return
    if first:
      say(f"going on from {checkpoints.path(first)}, row {batches.rows}")
      state = checkpoints.restore_model(first, run.abstract)
    else:
      state = run.init()
    # Now: a restored state may say which rows there are.
    _say_shares(batches, config.training)
    _Loop(
      config.training,
      run=run,
      loaders=loaders,
      batches=batches,
      checkpoints=checkpoints,
      stop_signal=stop_signal,
      workdir=workdir,
      log_digests=log_digests,
      times=times,
    ).run(state, first)
  finally:
    batches.close()
  checkpoints.close()


def _say_shares(batches: Any, training: ConfigDict) -> None:
  """Says what the run reads of each source of a blend."""
  spec = batches.spec
  if not hasattr(spec.samples, "rows_per_source") or hasattr(
    spec.samples, "place"
  ):
    # Records that are packed: counting them would pack the whole run.
    return
  rows = training.train_iters * training.global_batch_size
  if spec.end is not None:
    rows = min(rows, spec.end)
  counts = spec.samples.rows_per_source(rows)
  if len(counts) < 2 or not rows:
    return
  epochs = batches.epochs(rows)
  names = [source.name for source in spec.samples.sources]
  shares = ", ".join(
    f"{name} {count / rows:.1%} ({epochs.get(name, 0):.3f} epochs)"
    for name, count in zip(names, counts)
  )
  say(f"of {rows} rows: {shares}")


def _too_little_data(batches: Any) -> str:
  """Says why a run has no first step."""
  spec = batches.spec
  rows = "no" if spec.end is None else max(spec.end - spec.first_row, 0)
  return (
    f"The data ends before the first step: there are {rows} rows, and a batch"
    f" has {spec.layout.shape[0]}. Lower training.global_batch_size, raise"
    " dataloader.epochs or leave it unset, or set dataloader.end_of_data='pad'"
    " to fill the last batch with padding."
  )


def _say_tokens(counters: Mapping[str, Any]) -> None:
  """Says what became of the tokens of packed rows."""
  for name, sums in counters.get("sources", {}).items():
    dropped = ", ".join(
      f"{count:,} {reason}" for reason, count in sums["tokens_dropped"].items()
    )
    say(
      f"tokens of {name}: {sums['tokens_read']:,} read, {sums['tokens']:,}"
      " kept"
      + (f", dropped: {dropped}" if dropped else "")
      # Of streams more is read than is in rows yet.
      + (
        f", {sums['tokens_in_rows']:,} in rows"
        if "tokens_in_rows" in sums
        else ""
      )
    )
  if counters:
    say(f"padding up to the token budget: {counters['padded']:,} positions")


def model_shape(
  config: ConfigDict, vocab_size: int | None
) -> transformer.Shape:
  """Returns the sizes of the model that `config` describes."""
  return transformer.Shape(
    vocabulary=vocabulary.model_vocabulary(vocab_size),
    layers=config.model.layers,
    width=config.model.width,
    heads=config.model.heads,
  )


def evaluate(
  params: Any, loader: Any, *, run: steps.Steps, limit: int
) -> tuple[float, int]:
  """Returns the mean loss of the first `limit` batches, and its tokens.

  The iterator is made anew: an evaluation sees the same rows each time, and
  leaves nothing for a checkpoint.

  Raises:
    ValueError: if there is nothing in them to predict.
  """
  batches = iter(loader)
  try:
    sums = [
      run.evaluate(params, batch) for batch in itertools.islice(batches, limit)
    ]
  finally:
    batches.close()
  sums = jax.device_get(sums)
  tokens = int(sum(count for _, count in sums))
  if not tokens:
    raise ValueError(
      f"{len(sums)} batches of valid hold no token that takes part in a loss."
      " Give valid more data, or set training.eval_iters=0."
    )
  return math.fsum(loss for loss, _ in sums) / tokens, tokens


class _Loop:
  """The steps of one start of a run."""

  def __init__(
    self,
    training: ConfigDict,
    *,
    run: steps.Steps,
    loaders: Any,
    batches: Any,
    checkpoints: saves.Saves,
    stop_signal: machines.StopSignal,
    workdir: Path,
    log_digests: bool,
    times: step_times.StepTimes | None,
  ) -> None:
    self._training = training
    self._run = run
    self._valid = loaders.valid if training.eval_iters else None
    self._batches = batches
    self._checkpoints = checkpoints
    self._stop_signal = stop_signal
    self._times = times
    self._progress = progress.Progress(
      workdir / "metrics.jsonl",
      batches=batches,
      interval=training.log_interval,
    )
    self._digests = None
    if log_digests:
      self._digests = digests.DigestLog(workdir / "digests.jsonl")

  def run(self, state: steps.State, first: int) -> None:
    """Steps to the end of the run, of the data, or until told to stop."""
    try:
      self._run_steps(state, first)
    except FloatingPointError:
      # All processes are here, so all can wait for what is being written.
      self._checkpoints.close()
      raise
    finally:
      self._progress.close()
      if self._digests is not None:
        self._digests.close()
      if self._times is not None and self._times.num_steps:
        say(f"step times in {self._times.write(jax.process_index()).parent}")

  def _run_steps(self, state: steps.State, first: int) -> None:
    training, log = self._training, self._progress
    step = saved = first
    while step < training.train_iters and not log.stop:
      first_row = int(self._batches.rows)
      batch = next(self._batches, None)
      if batch is None:
        say(f"the data ended after step {step}, row {first_row}")
        break
      step += 1
      state = self._step(state, batch, step=step, first_row=first_row)
      if _is_due(step, training.checkpoint_interval):
        saved = self._save(step, state)
      if _is_due(step, training.eval_interval) and step < training.train_iters:
        self._evaluate(state)
    if not step:
      raise ValueError(_too_little_data(self._batches))
    if step == first:
      say("nothing left to do: the data has no batch after the last checkpoint")
      return
    log.finish_run()
    if saved != step:
      saved = self._save(step, state)
    if log.stop and step < training.train_iters:
      say(
        f"SIGTERM: saved {self._checkpoints.path(step)}; the same command goes"
        " on from there"
      )
      return
    if self._valid is not None:
      self._evaluate(state)
    _say_tokens(self._batches.counters())
    say(
      f"done: step {step}, row {self._batches.rows}, loss {log.loss:.4f},"
      f" {self._checkpoints.path(saved)}"
    )

  def _step(
    self, state: steps.State, batch: steps.Batch, *, step: int, first_row: int
  ) -> steps.State:
    digest = ""
    if self._digests is not None:
      digest = self._digests.append(
        batch,
        step=step,
        first_row=first_row,
        layout=self._batches.spec.layout.context,
      )
    began = time.perf_counter()
    flags = self._run.stop_flags(self._stop_signal.received)
    state, metrics = self._run.train(state, batch, flags)
    self._progress.add(step, metrics, digest=digest)
    if self._times is not None:
      self._progress.finish()
      seconds = time.perf_counter() - began
      self._times.add(step, dict(self._batches.last_times, step=seconds))
    return state

  def _save(self, step: int, state: steps.State) -> int:
    # First, so that no state is saved whose loss was not looked at.
    self._progress.finish()
    with self._progress.paused():
      self._checkpoints.save(step, state=state, batches=self._batches)
    return step

  def _evaluate(self, state: steps.State) -> None:
    self._progress.finish()
    with self._progress.paused():
      loss, tokens = evaluate(
        state["params"],
        self._valid,
        run=self._run,
        limit=self._training.eval_iters,
      )
    self._progress.evaluated(loss, tokens)


def _is_due(step: int, interval: int) -> bool:
  return interval > 0 and step % interval == 0
