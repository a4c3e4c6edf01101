"""How much a transform read, made and left out, and why.

  tokens_read = tokens + sum(tokens_dropped)      in positions of examples

All are sums over records, so neither batches, threads nor their order change
them. They belong to one process's object; add up those of several.
"""

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from hpgrain.examples import Examples


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

  def add(
    self,
    examples: Examples,
    *,
    dropped: Mapping[str, int],
    tokens_dropped: Mapping[str, int],
  ) -> None:
    """Adds a batch.

    Args:
      examples: what became of it.
      dropped: by reason, examples left out; a record that gives none counts
        as one.
      tokens_dropped: by reason, positions left out.
    """
    with self._lock:
      self._sums["records"] += examples.num_records
      self._sums["examples"] += len(examples)
      self._sums["tokens"] += len(examples.input_ids)
      self._dropped.update(dropped)
      self._tokens_dropped.update(tokens_dropped)
    for recorder in getattr(self._recording, "counters", ()):
      recorder.add(examples, dropped=dropped, tokens_dropped=tokens_dropped)

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
