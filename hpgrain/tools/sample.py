"""Units in, a few hundred kilobytes of their texts out, to try encoders on."""

import contextlib
from collections.abc import Callable, Iterator, Sequence

from hpgrain.tools.inputs import LongText, Record, Unit

_UNITS = 6
_CHARACTERS = 1 << 14
_RECORDS = 200


def sample_texts(
  units: Sequence[Unit], read: Callable[[Unit], Iterator[Record]]
) -> list[str]:
  """The first texts of a few units spread over the input.

  A unit that cannot be read gives none: whoever prepares it says why.

  Args:
    units: of the input.
    read: yields the good records of a unit.
  """
  if not units:
    return []
  step = max(1, (len(units) - 1) // (_UNITS - 1))
  chosen = sorted({*range(0, len(units), step)} | {len(units) - 1})
  texts: list[str] = []
  for place in chosen[:_UNITS] if len(chosen) > _UNITS else chosen:
    with contextlib.suppress(ValueError, OSError):
      texts += _first_texts(read(units[place]))
  return texts


def _first_texts(records: Iterator[Record]) -> list[str]:
  texts: list[str] = []
  characters = 0
  for record in records:
    for text in record.texts:
      # Of a long one, the first piece.
      long = isinstance(text, LongText)
      texts.append((next(text.pieces()) if long else text)[:_CHARACTERS])
      characters += len(text)
    if characters >= _CHARACTERS or len(texts) >= _RECORDS:
      break
  return texts
