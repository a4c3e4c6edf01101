"""Units in, a few hundred kilobytes of their texts out, to try encoders on."""

import contextlib
from collections.abc import Sequence

from hpgrain.tools.inputs import Unit, read_unit

_UNITS = 5
_CHARACTERS = 1 << 16
_RECORDS = 200


def sample_texts(units: Sequence[Unit], keys: Sequence[str]) -> list[str]:
  """The first texts of a few units spread over the input.

  A unit that cannot be read gives none: whoever prepares it says why.
  """
  if not units:
    return []
  step = max(1, (len(units) - 1) // (_UNITS - 1))
  chosen = sorted({*range(0, len(units), step)} | {len(units) - 1})
  texts: list[str] = []
  for place in chosen[:_UNITS] if len(chosen) > _UNITS else chosen:
    with contextlib.suppress(ValueError, OSError):
      texts += _first_texts(units[place], keys)
  return texts


def _first_texts(unit: Unit, keys: Sequence[str]) -> list[str]:
  texts: list[str] = []
  characters = 0
  with contextlib.closing(
    read_unit(unit, keys, on_bad=lambda bad: None)
  ) as records:
    for record in records:
      texts += [text[:_CHARACTERS] for text in record.texts]
      characters += sum(map(len, record.texts))
      if characters >= _CHARACTERS or len(texts) >= _RECORDS:
        break
  return texts
