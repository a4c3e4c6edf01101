"""How much a transform read, made and left out, and why.

  tokens_read = tokens + sum(tokens_dropped)      in positions of examples

All are sums over records, so neither batches, threads nor their order change
them. They belong to one process's object; add up those of several.

What is left out is said of each record, so that one call may take records of
several sources, and each source still has sums of its own:

  records       a0 a1 b0 a2       groups  0 0 1 0
  dropped       0  1  1  0        of a: 1    of b: 1
"""

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from hpgrain.examples import Examples

# How many of each record of a batch, int64 or bool[records]; or of all.
Numbers = int | np.ndarray


class Counters:
  """Sums that several threads may add to."""

  def __init__(self) -> None:
    """All are zero."""
    self._lock = threading.Lock()
    self._sums: Counter[str] = Counter()
    self._dropped: Counter[str] = Counter()
    self._tokens_dropped: Counter[str] = Counter()
    self._recording = threading.local()

  @contextlib.contextmanager
  def recorded(self) -> Iterator["Counters"]:
    """Gives counters of what this thread adds meanwhile, and only of that."""
    outer = getattr(self._recording, "counters", ())
    inner = Counters()
    self._recording.counters = (*outer, inner)
    try:
      yield inner
    finally:
      self._recording.counters = outer

  @contextlib.contextmanager
  def left_out(self, groups: np.ndarray) -> Iterator["LeftOut"]:
    """Gives what this thread's batch leaves out meanwhile, by group of records.

    Args:
      groups: int64[records], the group of each record of the batch.
    """
    outer = getattr(self._recording, "left_out", ())
    inner = LeftOut(groups)
    self._recording.left_out = (*outer, inner)
    try:
      yield inner
    finally:
      self._recording.left_out = outer

  @contextlib.contextmanager
  def among(self, records: np.ndarray) -> Iterator[None]:
    """Says that this thread adds, meanwhile, some of its batch's records.

    Args:
      records: int64[n], their numbers in the batch.
    """
    recorders = getattr(self._recording, "left_out", ())
    outer = [recorder.groups for recorder in recorders]
    for recorder in recorders:
      recorder.groups = recorder.groups[records]
    try:
      yield
    finally:
      for recorder, groups in zip(recorders, outer):
        recorder.groups = groups

  def add(
    self,
    examples: Examples,
    *,
    dropped: Mapping[str, Numbers],
    tokens_dropped: Mapping[str, Numbers],
  ) -> None:
    """Adds a batch.

    Args:
      examples: what became of it.
      dropped: by reason, examples left out of each record; one that gives
        none counts as one.
      tokens_dropped: by reason, positions left out.
    """
    with self._lock:
      self._sums["records"] += examples.num_records
      self._sums["examples"] += len(examples)
      self._sums["tokens"] += len(examples.input_ids)
      self._dropped.update(_sums(dropped))
      self._tokens_dropped.update(_sums(tokens_dropped))
    for recorder in getattr(self._recording, "counters", ()):
      recorder.add(examples, dropped=dropped, tokens_dropped=tokens_dropped)
    for recorder in getattr(self._recording, "left_out", ()):
      recorder.add(dropped=dropped, tokens_dropped=tokens_dropped)

  def as_dict(self) -> dict[str, Any]:
    """The counters as JSON.

    Returns:
      `records` and `examples`; `tokens_read` and `tokens`, positions before
      and after anything was left out; and by reason `dropped`, in examples,
      and `tokens_dropped`. Reasons that never occurred are absent.
    """
    with self._lock:
      dropped = {k: n for k, n in sorted(self._dropped.items()) if n}
      lost = {k: n for k, n in sorted(self._tokens_dropped.items()) if n}
      sums = {name: self._sums[name] for name in ("records", "examples")}
      tokens = self._sums["tokens"]
    return {
      **sums,
      "tokens_read": tokens + sum(lost.values()),
      "tokens": tokens,
      "dropped": dropped,
      "tokens_dropped": lost,
    }

  def __reduce__(self) -> tuple[type["Counters"], tuple[()]]:
    """A copy in another process begins at zero, and has its own lock."""
    return Counters, ()


class LeftOut:
  """What a batch leaves out, by group of its records.

  Attributes:
    groups: int64[records], the group of each record that is added next.
    dropped: of each group that lost any, by reason, examples.
    tokens_dropped: likewise, positions.
  """

  def __init__(self, groups: np.ndarray):
    """Has nothing; the groups are `Counters.left_out`'s."""
    self.groups = groups
    self.dropped: dict[int, Counter[str]] = {}
    self.tokens_dropped: dict[int, Counter[str]] = {}

  def add(
    self,
    *,
    dropped: Mapping[str, Numbers],
    tokens_dropped: Mapping[str, Numbers],
  ) -> None:
    """Adds what is said of the records that have `groups`.

    Raises:
      ValueError: it is said of all of them together, and they are of several
        groups.
    """
    for sums, numbers in (
      (self.dropped, dropped),
      (self.tokens_dropped, tokens_dropped),
    ):
      for reason, value in numbers.items():
        if np.any(value):
          for group, count in self._by_group(reason, value).items():
            sums.setdefault(group, Counter())[reason] += count

  def _by_group(self, reason: str, value: Numbers) -> dict[int, int]:
    if isinstance(value, np.ndarray):
      counts = np.bincount(self.groups, value)
      return {i: int(counts[i]) for i in np.flatnonzero(counts).tolist()}
    groups = np.unique(self.groups)
    if len(groups) != 1:
      raise ValueError(
        f"A transform says that it left out {value} ({reason}) of records of"
        " several sources, and not of which: give one number a record."
      )
    return {int(groups[0]): int(value)}


def _sums(numbers: Mapping[str, Numbers]) -> dict[str, int]:
  return {reason: int(np.sum(value)) for reason, value in numbers.items()}
