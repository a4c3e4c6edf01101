"""How the sources of a blend take turns; `BlendSamples` has one of these.

  StableMix     by weights, or every row of every source once an epoch
  SimpleMix     `inter` (in turn) or `intra` (one after the other)
  MegatronMix   as Megatron draws them (`megatron_blend`)

A mix knows no source: it is asked for the pattern of sources of given sizes.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from hpgrain import blend


class Pattern(Protocol):
  """Which source fills each row of a blend."""

  num_sources: int

  def locate(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (source int32[n], k int64[n]) of blend rows int64[n]."""
    ...

  def counts(self, position: int) -> np.ndarray:
    """Returns int64[sources]: each source's rows among the first ones."""
    ...


class Mix(Protocol):
  """How sources take turns."""

  weights: Any

  @property
  def identity(self) -> dict[str, Any]:
    """What decides the blend besides its sources."""
    ...

  def member_samples(self, num_sources: int) -> list[int | None]:
    """Returns how many rows to ask of each source; None if it has no end."""
    ...

  def fit(self, members: Sequence[Any]) -> tuple[Any, ...]:
    """Returns the members, sized for what the blend draws of them."""
    ...

  def pattern(self, sizes: Sequence[int]) -> Pattern:
    """Returns the pattern of sources with so many rows an epoch."""
    ...

  def end(self, sizes: Sequence[int], epochs: int) -> tuple[int, int | None]:
    """Returns (rows, source): rows of `epochs` epochs, and who ends them."""
    ...


def plain_mix(
  weights: Sequence[float] | None, simple_blend: str
) -> "StableMix | SimpleMix":
  """Returns the mix that `simple_blend` names.

  Raises:
    ValueError: for an unknown name, an illegal weight, or weights with
      "inter" or "intra".
  """
  if simple_blend not in ("no", "inter", "intra"):
    raise ValueError(
      f'simple_blend must be "no", "inter" or "intra", got {simple_blend!r}.'
    )
  if simple_blend == "no":
    return StableMix(weights)
  if weights is not None:
    raise ValueError(
      f"simple_blend={simple_blend!r} takes every row of every source and"
      f" knows no weights, got weights {list(weights)}. Leave them out, or"
      ' set simple_blend="no".'
    )
  return SimpleMix(simple_blend)


class StableMix:
  """By weights; without, every row of every source once an epoch."""

  def __init__(self, weights: Sequence[float] | None):
    self._weighted = None if weights is None else blend.StableBlend(weights)
    # As the blend takes them, so that 7:3 and .7:.3 are alike.
    self.weights = None if self._weighted is None else self._weighted.weights

  @property
  def identity(self) -> dict[str, Any]:
    """What decides the blend besides its sources."""
    return {"weights": self.weights, "simple_blend": "no"}

  def member_samples(self, num_sources: int) -> list[int | None]:
    """Returns None for each source: none of them is asked for a number."""
    return [None] * num_sources

  def fit(self, members: Sequence[Any]) -> tuple[Any, ...]:
    """Returns the members as they are: they have rows without end."""
    return tuple(members)

  def pattern(self, sizes: Sequence[int]) -> Pattern:
    """Returns the weights' tree, or the sizes' tree over and over."""
    if self._weighted is not None:
      return self._weighted
    return blend.Repeated(blend.StableBlend.from_counts(sizes), sizes)

  def end(self, sizes: Sequence[int], epochs: int) -> tuple[int, int | None]:
    """Returns (rows, source): how many there are, and who ends the blend.

    With weights a blend ends before the first row that would begin one epoch
    more of its source; without, all sources end together (None).
    """
    if self._weighted is None:
      return sum(sizes) * epochs, None
    ends = [
      (self._weighted.position(i, size * epochs), i)
      for i, size in enumerate(sizes)
    ]
    return min(ends)


class SimpleMix:
  """`inter`: a row from each source in turn; `intra`: source after source."""

  weights = None

  def __init__(self, kind: str):
    self._kind = kind

  @property
  def identity(self) -> dict[str, Any]:
    """What decides the blend besides its sources."""
    return {"weights": None, "simple_blend": self._kind}

  def member_samples(self, num_sources: int) -> list[int | None]:
    """Returns None for each source: none of them is asked for a number."""
    return [None] * num_sources

  def fit(self, members: Sequence[Any]) -> tuple[Any, ...]:
    """Returns the members as they are."""
    return tuple(members)

  def pattern(self, sizes: Sequence[int]) -> Pattern:
    """Returns the epoch's pattern over and over."""
    if self._kind == "inter":
      return blend.Repeated(blend.RoundRobin(sizes), sizes)
    return blend.Repeated(blend.InOrder(sizes), sizes)

  def end(self, sizes: Sequence[int], epochs: int) -> tuple[int, int | None]:
    """Returns (rows, None): all sources end together."""
    return sum(sizes) * epochs, None
