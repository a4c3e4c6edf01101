"""Units in, a few hundred kilobytes of their texts out, to try encoders on."""

import contextlib
from collections.abc import Callable, Iterator, Sequence

from hpgrain.tools.inputs import BadRecord, LongText, Record, Unit

_UNITS = 6
_CHARACTERS = 1 << 14
_RECORDS = 200
# What is read of a unit to find them.
_BYTES = 4 << 20


def sample_texts(
  units: Sequence[Unit],
  read: Callable[[Unit, Callable[[BadRecord], None]], Iterator[Record]],
) -> list[str]:
  """The first texts of a few units spread over the input.

  A unit that cannot be read gives none: whoever prepares it says why. One of
  bad records is left after the first few hundred or some megabytes of them.

  Args:
    units: of the input.
    read: yields the good records of a unit and calls back with the others.
  """
  if not units:
    return []
  step = max(1, (len(units) - 1) // (_UNITS - 1))
  chosen = sorted({*range(0, len(units), step)} | {len(units) - 1})
  texts: list[str] = []
  for place in chosen[:_UNITS] if len(chosen) > _UNITS else chosen:
    with contextlib.suppress(ValueError, OSError):
      texts += _first_texts(units[place], read)
  return texts


class _EnoughError(Exception):
  """So much of a unit was read that its sample is what was found."""


def _first_texts(
  unit: Unit,
  read: Callable[[Unit, Callable[[BadRecord], None]], Iterator[Record]],
) -> list[str]:
  def check(record: Record | BadRecord) -> None:
    # Only lines have units that do not begin with their file.
    first = 0 if record.offset is None else unit.start
    if record.index + 1 >= _RECORDS or (record.offset or 0) - first >= _BYTES:
      raise _EnoughError

  texts: list[str] = []
  characters = 0
  with contextlib.suppress(_EnoughError):
    for record in read(unit, check):
      for text in record.texts:
        # Of a long one, the first piece.
        long = isinstance(text, LongText)
        texts.append((next(text.pieces()) if long else text)[:_CHARACTERS])
        characters += len(text)
      if characters >= _CHARACTERS or len(texts) >= _RECORDS:
        break
      check(record)
  return texts
