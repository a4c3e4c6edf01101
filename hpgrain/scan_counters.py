"""Counters of the parts of a scan in, those of the whole out, as JSON."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from hpgrain.examples import Examples
from hpgrain.transforms.counters import Counters

_SUMS = ("records", "examples", "tokens")
_REASONS = ("dropped", "tokens_dropped")


def scan_counters(made: Examples, recorded: Counters) -> dict[str, Any]:
  """Returns what `Counters.as_dict` says of some records.

  What was made is counted here, as a transform of the user's own may count
  nothing; what was left out only the transform can say.

  Args:
    made: of the records.
    recorded: what their transform counted meanwhile.
  """
  said = recorded.as_dict()
  return {
    "records": made.num_records,
    "examples": len(made),
    "tokens": len(made.input_ids),
    **{name: said[name] for name in _REASONS},
  }


def merge_counters(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
  """Returns the sums of parts, as `Counters.as_dict` has them.

  Args:
    parts: as `scan_counters` or this returns them.
  """
  sums: Counter[str] = Counter()
  reasons: dict[str, Counter[str]] = {name: Counter() for name in _REASONS}
  for part in parts:
    sums.update({name: part[name] for name in _SUMS})
    for name in _REASONS:
      reasons[name].update(part[name])
  lost = sum(reasons["tokens_dropped"].values())
  return {
    "records": sums["records"],
    "examples": sums["examples"],
    "tokens_read": sums["tokens"] + lost,
    "tokens": sums["tokens"],
    **{name: dict(sorted(reasons[name].items())) for name in _REASONS},
  }
