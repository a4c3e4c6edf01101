"""A file of JSON lines that outlives kills: one line, one write, no torn end.

Only process 0 writes; the other processes' calls do nothing.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

# Bytes looked at, at a time, for the end of the last whole line.
_BLOCK = 1 << 20


class JsonLines:
  """Appends JSON objects to a file, a line each."""

  def __init__(self, path: Path) -> None:
    """Opens `path` to append to, and cuts off a line a kill left unfinished."""
    self._file = None
    if jax.process_index() == 0:
      # Unbuffered: what was appended is in the file when the call returns.
      self._file = path.open("ab", buffering=0)
      _cut_torn_line(path)

  def append(self, line: Mapping[str, Any]) -> None:
    """Writes one line."""
    if self._file is not None:
      self._file.write(json.dumps(line).encode() + b"\n")

  def close(self) -> None:
    """Closes the file; a second call does nothing."""
    if self._file is not None:
      self._file.close()


def _cut_torn_line(path: Path) -> None:
  """Truncates a file to its last line end.

  What was cut is the line of a step no checkpoint has seen: the line is
  written before the step ends, the checkpoint after.
  """
  with path.open("r+b") as file:
    end = file.seek(0, os.SEEK_END)
    start, tail = end, b""
    while start and b"\n" not in tail:
      start = file.seek(max(0, start - _BLOCK))
      tail = file.read(end - start)
    file.truncate(start + tail.rfind(b"\n") + 1)
