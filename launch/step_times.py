"""Times of each stage of each step: a JSON file, and one picture of it.

  plan, read, place   on the loader's threads, while earlier steps run
  wait                the trainer stands still until the batch is there
  exchange            it sends rows on their way, where processes share them
                      (dataloader.replica_read="split"); on CPU devices this
                      includes waiting for the step before
  step                the optimizer step, from its start to its result

The loader keeps ahead as long as plan + read + place stay under a step; then
`wait` is next to nothing, and that is what the picture is for.
"""

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

STAGES = ("plan", "read", "place", "exchange", "wait", "step")

# On the trainer's thread.
_OWN = ("exchange", "wait", "step")


class StepTimes:
  """Collects seconds by stage and step, and writes them to a folder."""

  def __init__(self, folder: str | Path) -> None:
    """Checks at once that the picture can be drawn at the end.

    Raises:
      ModuleNotFoundError: if matplotlib is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
      raise ModuleNotFoundError(
        "--profile draws a picture with matplotlib, which is not installed."
        ' Install the extra "plots": pip install ".[plots]" in the clone.'
      )
    self._folder = Path(folder)
    self._folder.mkdir(parents=True, exist_ok=True)
    self._steps: list[int] = []
    self._seconds: dict[str, list[float]] = {stage: [] for stage in STAGES}

  @property
  def num_steps(self) -> int:
    """Steps that were added."""
    return len(self._steps)

  def add(self, step: int, seconds: Mapping[str, float]) -> None:
    """Adds one step; a stage that is not in `seconds` took none."""
    self._steps.append(step)
    for stage in STAGES:
      self._seconds[stage].append(float(seconds.get(stage, 0.0)))

  def write(self, process: int) -> Path:
    """Writes this process's JSON, and in process 0 the picture beside it.

    The JSON holds `step` (a list), `seconds` (stage -> list, in step order)
    and `median_seconds` (stage -> number, the first step left out, since it
    compiles). `exchange` is there only where rows were exchanged.

    Returns:
      The path of the JSON file.
    """
    path = self._folder / f"step_times_{process}.json"
    seconds = {
      stage: times
      for stage, times in self._seconds.items()
      if stage != "exchange" or any(times)
    }
    medians = {
      stage: float(np.median(times[1:] or times or [0.0]))
      for stage, times in seconds.items()
    }
    content = {
      "step": self._steps,
      "seconds": seconds,
      "median_seconds": medians,
    }
    path.write_text(json.dumps(content, indent=1) + "\n")
    if process == 0:
      self._draw(seconds, self._folder / "step_times.png")
    return path

  def _draw(self, seconds: Mapping[str, list[float]], path: Path) -> None:
    """Draws milliseconds by step, a line a stage, on a log scale."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # Not pyplot: that would look for a display and keep global state.
    figure = Figure(figsize=(9, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for stage in seconds:
      # A log scale has no zero: 1 us stands for "nothing to speak of".
      times = np.maximum(np.asarray(seconds[stage]) * 1e3, 1e-3)
      own = stage in _OWN
      axes.plot(
        self._steps, times, label=stage, linewidth=1.8 if own else 1.0,
        linestyle="-" if own else "--",
      )  # fmt: skip
    axes.set_yscale("log")
    axes.set_xlabel("step")
    axes.set_ylabel("milliseconds")
    axes.set_title("solid: the trainer's thread, dashed: the loader's threads")
    axes.legend()
    figure.savefig(path, dpi=120)
