"""What a verification found: checks that passed, failed or could not be made.

Every problem names its file, the place in it, and what should be there. Only
the first few are kept, and all are counted.
"""

import contextlib
import dataclasses
from collections.abc import Iterator

import numpy as np

GOOD, BAD, SKIPPED = "ok", "FAILED", "not checked"


@dataclasses.dataclass(frozen=True)
class Check:
  """One thing that was looked at.

  Attributes:
    name: what it was.
    state: "ok", "FAILED" or "not checked".
    why: why it was not checked, or what it found that is no problem.
  """

  name: str
  state: str
  why: str = ""


class Verification:
  """Collects checks and problems.

  Attributes:
    checks: those that were made, or could not be.
    problems: the first of them.
    num_problems: all of them.
  """

  def __init__(self, *, listed: int) -> None:
    """Begins without a check.

    Args:
      listed: how many problems are kept.
    """
    self._listed = listed
    self.checks: list[Check] = []
    self.problems: list[str] = []
    self.num_problems = 0

  @property
  def good(self) -> bool:
    """Whether nothing was found."""
    return not self.num_problems

  def add(self, where: object, what: str) -> None:
    """Notes a problem.

    Args:
      where: file and place.
      what: is wrong there, and what should be there.
    """
    if len(self.problems) < self._listed:
      self.problems.append(f"{where}: {what}")
    self.num_problems += 1

  def add_error(self, path: object, error: Exception) -> None:
    """Notes an error, whose message may begin with the file's path."""
    text = str(error)
    if not text.startswith(str(path)):
      text = f"{path}: {text}"
    if len(self.problems) < self._listed:
      self.problems.append(text)
    self.num_problems += 1

  def more(self, count: int) -> None:
    """Counts problems whose places were not kept."""
    self.num_problems += count

  def first(self, places: np.ndarray) -> list[int]:
    """The places [n] of problems that are kept; the others are counted."""
    told = places[: max(self._listed - len(self.problems), 0)]
    self.more(len(places) - len(told))
    return [int(place) for place in told]

  def skip(self, name: str, why: str) -> None:
    """Notes that a check cannot be made."""
    self.checks.append(Check(name, SKIPPED, why))

  @contextlib.contextmanager
  def check(self, name: str, why: str = "") -> Iterator[None]:
    """Makes a check: it failed if the block notes a problem."""
    before = self.num_problems
    yield
    failed = self.num_problems > before
    self.checks.append(Check(name, BAD if failed else GOOD, why))
