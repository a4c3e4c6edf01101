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

from hpgrain.stream_pieces import LENGTH, SOURCE
from hpgrain.transforms.counters import Counters

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
    self._reason = _OVERLONG.get(overlong, overlong)
    self._sums: list[Counter[str]] = [Counter() for _ in names]
    self._dropped: list[Counter[str]] = [Counter() for _ in names]
    self._lost: list[Counter[str]] = [Counter() for _ in names]
    self._in_rows = np.zeros(len(names), np.int64)
    self._rows = 0

  def add(self, source: int, recorded: Counters, pieces: np.ndarray) -> None:
    """Adds what a source's records gave.

    Args:
      source: its number.
      recorded: what the transform counted of them.
      pieces: what became of their examples.
    """
    made = recorded.as_dict()
    tokens = int(pieces[LENGTH].sum())
    sums = self._sums[source]
    for name in ("records", "examples", "tokens_read"):
      sums[name] += made[name]
    sums["tokens"] += tokens
    self._dropped[source].update(made["dropped"])
    self._lost[source].update(made["tokens_dropped"])
    lost = made["tokens"] - tokens
    if lost:
      self._lost[source][self._reason] += lost

  def add_rows(self, rows: int, pieces: np.ndarray) -> None:
    """Adds rows and the pieces that are in them."""
    self._rows += rows
    np.add.at(self._in_rows, pieces[SOURCE], pieces[LENGTH])

  def as_dict(self) -> dict[str, Any]:
    """The counters as JSON.

    Returns:
      `rows`; `tokens_in_rows` and `padded`, their positions; and by name of
      its source `sources`: `records` and `examples`, `tokens_read` and
      `tokens`, positions before and after anything was left out,
      `tokens_in_rows`, and by reason `dropped`, in examples, and
      `tokens_dropped`.
    """
    in_rows = int(self._in_rows.sum())
    return {
      "rows": self._rows,
      "tokens_in_rows": in_rows,
      "padded": self._rows * self._budget - in_rows,
      "sources": {
        name: {
          **{
            key: self._sums[i][key]
            for key in ("records", "examples", "tokens_read", "tokens")
          },
          "tokens_in_rows": int(self._in_rows[i]),
          "dropped": dict(sorted(self._dropped[i].items())),
          "tokens_dropped": dict(sorted(self._lost[i].items())),
        }
        for i, name in enumerate(self._names)
      },
    }
