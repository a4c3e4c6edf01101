"""How far a preparation has come, on stderr, for a person or a log file."""

import sys
import time

from tqdm import tqdm


class Progress:
  """A bar on a terminal, else a line every `log_interval` documents."""

  def __init__(
    self, total_bytes: int, log_interval: int, *, done_bytes: int = 0
  ) -> None:
    """Begins to count.

    Args:
      total_bytes: of the input.
      log_interval: documents between lines; 0 says nothing at all.
      done_bytes: what an earlier run has done of it.
    """
    self._interval = log_interval
    self._total = total_bytes
    self._before = self._bytes = done_bytes
    self._documents = 0
    self._tokens = 0
    self._start = time.monotonic()
    self._bar = None
    if log_interval and sys.stderr.isatty():
      self._bar = tqdm(
        total=total_bytes, initial=done_bytes, unit="B", unit_scale=True
      )

  def __enter__(self) -> "Progress":
    return self

  def __exit__(self, *exception: object) -> None:
    if self._bar is not None:
      self._bar.close()

  def update(self, documents: int, tokens: int, num_bytes: int) -> None:
    """Tells of documents, tokens and bytes of the input that are done since."""
    before, self._documents = self._documents, self._documents + documents
    self._tokens += tokens
    self._bytes += num_bytes
    if self._bar is not None:
      self._bar.set_postfix(
        documents=self._documents, tokens=self._tokens, refresh=False
      )
      self._bar.update(num_bytes)
    elif (
      self._interval
      and before // self._interval < self._documents // self._interval
    ):
      self._say()

  def _say(self) -> None:
    seconds = max(time.monotonic() - self._start, 1e-9)
    rate = (self._bytes - self._before) / seconds
    left = (self._total - self._bytes) / rate if rate else 0
    print(
      f"{self._documents:,} documents, {self._tokens:,} tokens,"
      f" {self._bytes / max(self._total, 1):.0%} of the input,"
      f" {rate / 1e6:.1f} MB/s, {left:,.0f} s left",
      file=sys.stderr,
      flush=True,
    )
