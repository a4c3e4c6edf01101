"""How far a preparation has come, on stderr, for a person or a log file."""

import sys
import time

from tqdm import tqdm


class Progress:
  """A bar on a terminal, else a line every `log_interval` documents."""

  def __init__(self, total_bytes: int, log_interval: int) -> None:
    self._interval = log_interval
    self._total = total_bytes
    self._documents = 0
    self._start = time.monotonic()
    self._bar = None
    if log_interval and sys.stderr.isatty():
      self._bar = tqdm(total=total_bytes, unit="B", unit_scale=True)

  def __enter__(self) -> "Progress":
    return self

  def __exit__(self, *exception: object) -> None:
    if self._bar is not None:
      self._bar.close()

  def update(self, documents: int, tokens: int, read_bytes: int) -> None:
    """Tells of `documents` more, `tokens` and `read_bytes` in all."""
    before, self._documents = self._documents, self._documents + documents
    if self._bar is not None:
      self._bar.set_postfix(documents=self._documents, tokens=tokens)
      self._bar.update(read_bytes - self._bar.n)
    elif (
      self._interval
      and before // self._interval < self._documents // self._interval
    ):
      seconds = max(time.monotonic() - self._start, 1e-9)
      print(
        f"{self._documents:,} documents, {tokens:,} tokens,"
        f" {read_bytes / max(self._total, 1):.0%} of the input,"
        f" {read_bytes / seconds / 1e6:.1f} MB/s",
        file=sys.stderr,
        flush=True,
      )
