"""What streams read, left out and put into rows, as sums by source.

  tokens_read = tokens + sum(tokens_dropped)         what was dealt
  rows * budget = tokens_in_rows + padded            what rows were made of

A source's records are those of the streams that a process holds: add up the
counters of all processes.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from hpgrain.examples import Examples
from hpgrain.stream_pieces import LENGTH, SOURCE
from hpgrain.transforms.counters import LeftOut

# Why tokens beyond the room of a row are left out, by `overlong`.
_OVERLONG = {"truncate": "truncated", "drop": "overlong"}


class StreamCounters:
  """Sums since the streams were opened or restored."""

  def __init__(self, names: Sequence[str], *, budget: int, overlong: str):
    """All are zero.

    Args:
      names: of the sources.
      budget: tokens a row holds.
      overlong: the policy, which is the reason for what it leaves out.
    """
    self._names, self._budget = tuple(names), budget
    self._overlong = overlong
    self._sums = {
      name: np.zeros(len(names), np.int64)
      for name in ("records", "examples", "tokens", "tokens_in_rows")
    }
    self._dropped: list[Counter[str]] = [Counter() for _ in names]
    self._lost: list[Counter[str]] = [Counter() for _ in names]
    self._rows = 0

  def add(
    self,
    source: np.ndarray,
    examples: Examples,
    left_out: LeftOut,
    pieces: np.ndarray,
  ) -> None:
    """Adds what records gave.

    Args:
      source: int64[n], of each record.
      examples: of the records.
      left_out: by source, what their transform left out.
      pieces: what became of the examples.
    """
    counts = np.diff(examples.record_splits)
    made = np.diff(examples.example_splits[examples.record_splits])
    self._sums["records"] += self._by_source(source)
    self._sums["examples"] += self._by_source(source, counts)
    of_examples = self._by_source(source, made)
    kept = self._by_source(pieces[SOURCE], pieces[LENGTH])
    self._sums["tokens"] += kept
    for i, reasons in left_out.dropped.items():
      self._dropped[i].update(reasons)
    for i, reasons in left_out.tokens_dropped.items():
      self._lost[i].update(reasons)
    lost = of_examples - kept
    reason = _OVERLONG.get(self._overlong, self._overlong)
    for i in np.flatnonzero(lost).tolist():
      self._lost[i][reason] += int(lost[i])
    if self._overlong == "drop" and lost.any():
      gone = self._by_source(source, counts) - self._by_source(pieces[SOURCE])
      for i in np.flatnonzero(gone).tolist():
        self._dropped[i][reason] += int(gone[i])

  def _by_source(
    self, source: np.ndarray, values: np.ndarray | None = None
  ) -> np.ndarray:
    """int64[sources], the sums of values; without, how many there are."""
    sums = np.bincount(source, values, len(self._names))
    # Sums of integers below 2^53 are exact in float64.
    return sums.astype(np.int64)

  def add_rows(self, rows: int, pieces: np.ndarray) -> None:
    """Adds rows and the pieces that are in them."""
    self._rows += rows
    self._sums["tokens_in_rows"] += self._by_source(
      pieces[SOURCE], pieces[LENGTH]
    )

  def as_dict(self) -> dict[str, Any]:
    """The counters as JSON.

    Returns:
      `rows`; `tokens_in_rows` and `padded`, their positions; and by name of
      its source `sources`: `records` and `examples`, `tokens_read` and
      `tokens`, positions before and after anything was left out,
      `tokens_in_rows`, and by reason `dropped`, in examples, and
      `tokens_dropped`.
    """
    in_rows = int(self._sums["tokens_in_rows"].sum())
    return {
      "rows": self._rows,
      "tokens_in_rows": in_rows,
      "padded": self._rows * self._budget - in_rows,
      "sources": {n: self._source(i) for i, n in enumerate(self._names)},
    }

  def _source(self, i: int) -> dict[str, Any]:
    sums = {name: int(values[i]) for name, values in self._sums.items()}
    lost = {reason: n for reason, n in sorted(self._lost[i].items()) if n}
    return {
      "records": sums["records"],
      "examples": sums["examples"],
      "tokens_read": sums["tokens"] + sum(lost.values()),
      "tokens": sums["tokens"],
      "tokens_in_rows": sums["tokens_in_rows"],
      "dropped": {r: n for r, n in sorted(self._dropped[i].items()) if n},
      "tokens_dropped": lost,
    }
