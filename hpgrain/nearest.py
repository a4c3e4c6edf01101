"""Finds the legal name that a misspelt one was meant to be."""

import difflib
from collections.abc import Iterable


def nearest(name: object, names: Iterable[object]) -> str | None:
  """Returns the one of `names` that looks most like `name`, if any does.

  Case and the difference between `-` and `_` are overlooked.
  """
  by_plain = {_plain(legal): str(legal) for legal in names}
  found = difflib.get_close_matches(_plain(name), by_plain, n=1, cutoff=0.6)
  return by_plain[found[0]] if found else None


def did_you_mean(name: object, names: Iterable[object]) -> str:
  """Returns " Did you mean 'x'?", or nothing where no name is near."""
  found = nearest(name, names)
  return f" Did you mean {found!r}?" if found else ""


def _plain(name: object) -> str:
  return str(name).lower().replace("-", "_")
