"""What a run tells of itself: log lines, metrics.jsonl, a NaN that ends it.

A step's numbers are read one step late, when the next has been handed to the
devices, so that looking at them does not make the devices wait.
"""

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jsonl


def say(message: str) -> None:
  """Prints a line, in process 0 alone."""
  if jax.process_index() == 0:
    print(message, flush=True)


class Progress:
  """Follows the steps of one run.

  Rates leave out the first step, which compiles, and what `paused` spends.
  """

  def __init__(self, path: Path, *, batches: Any, interval: int) -> None:
    """Opens the metrics file.

    Args:
      path: of the JSON lines that repeat the log's numbers in full.
      batches: its iterator; tells the rows used and the time waited.
      interval: steps between log lines.
    """
    self.step = 0
    self.loss = math.nan
    self.stop = False
    self._lines = jsonl.JsonLines(path)
    self._batches = batches
    self._interval = interval
    self._pending: tuple[int, int, Mapping[str, jax.Array], str] | None = None
    self._first = True
    # Whether the last finished step was logged, and what to log of it.
    self._logged = True
    self._last = (0, "")
    self._begin_interval()

  def add(
    self, step: int, metrics: Mapping[str, jax.Array], *, digest: str = ""
  ) -> None:
    """Takes note of a step that has been started, finishes the one before.

    Raises:
      FloatingPointError: if that one's loss is not finite.
    """
    self.finish()
    self._pending = (step, int(self._batches.rows), metrics, digest)

  def finish(self) -> None:
    """Waits for the last step that was added, and logs it if it is due.

    Afterwards `step`, `loss` and `stop` (whether any process was told to) are
    that step's, the same in every process.

    Raises:
      FloatingPointError: if its loss is not finite.
    """
    if self._pending is None:
      return
    (step, rows, metrics, digest), self._pending = self._pending, None
    values = jax.device_get(dict(metrics))
    self.step, self.loss = step, float(values["loss"])
    self.stop = bool(values["stop"])
    self._tokens += int(values["tokens"])
    if not math.isfinite(self.loss):
      raise FloatingPointError(
        f"The loss of step {step} is {self.loss} (rows up to {rows})."
        " Lower optimizer.learning_rate, lengthen optimizer.warmup or set"
        " optimizer.clip; the last checkpoint is from before this step."
      )
    self._logged = step % self._interval == 0
    if self._logged:
      self._log(rows, digest)
    self._last = (rows, digest)
    if self._first or step % self._interval == 0:
      self._begin_interval()
    self._first = False

  def finish_run(self) -> None:
    """Finishes the last step, and logs it whatever the interval."""
    self.finish()
    if not self._logged:
      self._log(*self._last)
      self._logged = True

  def evaluated(self, loss: float, tokens: int) -> None:
    """Logs an evaluation after the last finished step."""
    say(f"step {self.step}  valid loss {loss:.4f} over {tokens} tokens")
    self._lines.append(
      {"step": self.step, "valid_loss": loss, "valid_tokens": tokens}
    )

  @contextmanager
  def paused(self) -> Iterator[None]:
    """Leaves what happens inside out of the rates."""
    begin = time.perf_counter()
    yield
    self._begin += time.perf_counter() - begin

  def close(self) -> None:
    """Closes the metrics file."""
    self._lines.close()

  def _begin_interval(self) -> None:
    self._begin = time.perf_counter()
    self._stats = self._batches.stats()
    self._tokens = 0

  def _log(self, rows: int, digest: str) -> None:
    seconds = max(time.perf_counter() - self._begin, 1e-9)
    stats = self._batches.stats()
    waited, exchanged = (
      stats[name] - self._stats[name]
      for name in ("wait_seconds", "exchange_seconds")
    )
    line = {
      "step": self.step,
      "loss": self.loss,
      "rows": rows,
      "tokens_per_second": self._tokens / seconds,
      "wait_share": waited / seconds,
      "exchange_share": exchanged / seconds,
      "epochs": dict(self._batches.epochs(rows)),
    }
    self._lines.append(line)
    epochs = ", ".join(f"{k} {v:.3f}" for k, v in line["epochs"].items())
    say(
      f"step {self.step}  loss {self.loss:.4f}"
      f"  {line['tokens_per_second']:,.0f} tokens/s"
      f"  waiting {line['wait_share']:.1%}"
      + (f"  exchanging {line['exchange_share']:.1%}" if exchanged else "")
      + (f"  epochs: {epochs}" if epochs else "")
      + (f"  digest {digest[:16]}" if digest else "")
    )
