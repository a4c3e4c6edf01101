"""Windows of packed rows in, what became of every token in them out.

  tokens_read = tokens + sum(tokens_dropped)      of each source
  padded      = rows * budget - tokens            of all of them

What a source's transform left out is not among them: see its own counters.
"""

from typing import Any

import numpy as np

from hpgrain.packed_windows import PackedWindows


class PackingCounters:
  """Counts the rows of one order from its first one on."""

  def __init__(self, windows: PackedWindows):
    """Counts nothing yet."""
    self._windows = windows
    # Windows counted whole, and what they hold.
    self._counted = (0, _Sums.zero(len(windows.sources)))

  def as_dict(self, num_rows: int) -> dict[str, Any]:
    """Returns what the first `num_rows` rows hold, as JSON.

    What packing leaves out is counted with the last row of its window. All
    windows up to there are packed, unless they were counted before.

    Returns:
      `rows`; `padded`, positions of rows of a budget that hold no token, a
      longer row having none; and by the name of each source in `sources` its
      `records`, `tokens_read`, `tokens`, and `tokens_dropped` by reason.
    """
    windows = self._windows
    window, pieces = windows.locate(num_rows)
    counted, sums = self._counted
    if counted > window:
      counted, sums = 0, _Sums.zero(len(windows.sources))
    for index in range(counted, window):
      sums = sums + _Sums.of(windows, index, None)
    self._counted = (window, sums)
    if pieces:
      sums = sums + _Sums.of(windows, window, pieces)
    records = windows.records_before(num_rows)
    sources = {}
    for i, source in enumerate(windows.sources):
      read, kept = int(sums.read[i]), int(sums.kept[i])
      sources[source.name] = {
        "records": int(records[i]),
        "tokens_read": read,
        "tokens": kept,
        "tokens_dropped": {"overlong": read - kept} if read > kept else {},
      }
    positions = num_rows * windows.options.budget + sums.beyond
    return {
      "rows": num_rows,
      "padded": positions - int(sums.kept.sum()),
      "sources": sources,
    }


class _Sums:
  """Tokens read and kept by source, and those of rows beyond the budget."""

  def __init__(self, read: np.ndarray, kept: np.ndarray, beyond: int):
    self.read, self.kept, self.beyond = read, kept, beyond

  def __add__(self, other: "_Sums") -> "_Sums":
    return _Sums(
      self.read + other.read,
      self.kept + other.kept,
      self.beyond + other.beyond,
    )

  @staticmethod
  def zero(num_sources: int) -> "_Sums":
    none = np.zeros(num_sources, np.int64)
    return _Sums(none, none, 0)

  @staticmethod
  def of(windows: PackedWindows, index: int, pieces: int | None) -> "_Sums":
    """Of a window, or of its first pieces alone."""
    rows = windows.window(index)
    length = rows.length[:pieces].astype(np.int64)
    kept = np.bincount(
      rows.source[:pieces], weights=length, minlength=len(windows.sources)
    ).astype(np.int64)
    # Only an example with a row of its own is longer than one.
    beyond = np.maximum(length - windows.options.budget, 0).sum()
    read = rows.tokens if pieces is None else kept
    return _Sums(read, kept, int(beyond))
