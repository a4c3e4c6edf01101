"""Samples that are built when they are first looked at, and once."""

import functools
from collections.abc import Callable
from typing import Any

import grain


class LazySamples(grain.MapDataset):
  """Stands for samples; opens them at the first length, row or identity.

  An error of the build, a missing file or a record of the wrong length, is
  raised then, and again at the next attempt.
  """

  def __init__(self, build: Callable[[], grain.MapDataset], name: str):
    """Holds the way to the samples.

    Args:
      build: returns them.
      name: of the source, known before it is opened.
    """
    super().__init__()
    self._build = build
    self.name = name

  @functools.cached_property
  def _samples(self) -> Any:
    return self._build()

  def __len__(self) -> int:
    """Rows of one epoch."""
    return len(self._samples)

  def __getitem__(self, index: Any) -> Any:
    """Returns row `index`."""
    if isinstance(index, slice):
      return self.slice(index)
    return self._samples[index]

  def __getattr__(self, name: str) -> Any:
    """Whatever else is asked of samples, the built ones answer."""
    # Private names are looked for before __init__ has run, as in copying.
    if name.startswith("_"):
      raise AttributeError(name)
    return getattr(self._samples, name)
