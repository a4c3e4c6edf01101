"""How far a preparation has come, on stderr, for a person or a log file.

A terminal shows one bar a phase, which is drawn anew a few times a second:

  tokenizing  45% |####     | 85MB/s, 00:40 left, 1,234 documents, 5,678 tokens

A file gets lines, of which one says what the bar does.
"""

import os
import sys
import time
from typing import Any

from tqdm import tqdm

# A log that is read afterwards needs no more than this.
SECONDS_BETWEEN_LINES = 1.0

_BAR = "{desc} {percentage:3.0f}% |{bar}| {rate_fmt}, {remaining} left{postfix}"


class Progress:
  """A bar on a terminal, else a line every `log_interval` documents."""

  def __init__(
    self,
    total_bytes: int,
    log_interval: int,
    *,
    done_bytes: int = 0,
    what: str = "tokenizing",
  ) -> None:
    """Begins to count.

    Args:
      total_bytes: of all there is to do.
      log_interval: documents between lines, which are a second apart all the
        same; 0 says nothing at all, on a terminal neither.
      done_bytes: what an earlier run has done of it.
      what: the phase, in a word or two.
    """
    self._what = what
    self._interval = log_interval
    self._total = total_bytes
    self._before = self._bytes = done_bytes
    self._documents = self._said_documents = 0
    self._tokens = 0
    self._start = time.monotonic()
    self._said = -SECONDS_BETWEEN_LINES
    self._bar = None
    if log_interval and sys.stderr.isatty():
      self._bar = tqdm(
        total=total_bytes,
        initial=done_bytes,
        desc=what,
        unit="B",
        unit_scale=True,
        **_columns(),
        bar_format=_BAR,
      )

  def __enter__(self) -> "Progress":
    return self

  def __exit__(self, *exception: object) -> None:
    if self._bar is not None:
      self._bar.close()

  def update(self, documents: int, tokens: int, num_bytes: int) -> None:
    """Tells of documents, tokens and bytes that are done since."""
    self._documents += documents
    self._tokens += tokens
    self._bytes += num_bytes
    if self._bar is not None:
      self._bar.set_postfix_str(self._counts(), refresh=False)
      self._bar.update(num_bytes)
    elif self._interval:
      # Multiples of the interval, as they are passed.
      passed = self._documents // self._interval
      now = time.monotonic()
      if (
        passed > self._said_documents // self._interval
        and now - self._said >= SECONDS_BETWEEN_LINES
      ):
        self._say(now)

  def _counts(self) -> str:
    counts = f"{self._documents:,} documents"
    # Where none are made yet, there is nothing to say of them.
    return f"{counts}, {self._tokens:,} tokens" if self._tokens else counts

  def _say(self, now: float) -> None:
    self._said, self._said_documents = now, self._documents
    seconds = max(now - self._start, 1e-9)
    rate = (self._bytes - self._before) / seconds
    left = max(self._total - self._bytes, 0) / rate if rate else 0
    print(
      f"{self._what}: {self._counts()},"
      f" {self._bytes / max(self._total, 1):.0%},"
      f" {rate / 1e6:.1f} MB/s, {left:,.0f} s left",
      file=sys.stderr,
      flush=True,
    )


def _columns() -> dict[str, Any]:
  """tqdm's arguments that follow the terminal's size, if it tells one."""
  try:
    known = os.get_terminal_size(sys.stderr.fileno()).columns > 0
  except OSError:
    known = False
  return {"dynamic_ncols": True} if known else {"ncols": 100, "nrows": 24}
