r"""One long text in, pieces out that are encoded as the whole would be.

  text      ... the last of it.\nNow the next ...
  places                          ^
  taken     if ids(left + right) = ids(left) + ids(right)
            for the 2,048 characters on either side

Encoders look at a text's neighbourhood, not at all of it, so what holds for
some thousand characters holds for the text. A text is cut only where the kind
of character changes, never within a run of spaces, letters or signs: such a
run's ids may depend on where it begins, however far away that is.
"""

from collections.abc import Callable, Iterator

import numpy as np

# A text up to this is encoded whole.
LONG = 1 << 23
_PIECE = 1 << 20
_AROUND = 2048
_TRIES = 200


def pieces(
  text: str, encode: Callable[[list[str]], tuple[np.ndarray, np.ndarray]]
) -> Iterator[str]:
  """Yields the text in pieces of about a million characters.

  Where an encoder allows no cut, as one that marks the beginning of a text
  does, what is left comes in one piece.

  Args:
    text: any text.
    encode: texts to ids [tokens], joined, and their lengths int64[texts].
  """
  start = 0
  while len(text) - start > _PIECE:
    cut = _cut(text, start + _PIECE, encode)
    if cut is None:
      break
    yield text[start:cut]
    start = cut
  yield text[start:]


def _cut(
  text: str,
  end: int,
  encode: Callable[[list[str]], tuple[np.ndarray, np.ndarray]],
) -> int | None:
  """The last good place to cut at, somewhat before `end`."""
  tries = 0
  for cut in range(end, end - _PIECE // 2, -1):
    if _kind(text[cut - 1]) == _kind(text[cut]):
      continue
    left, right = text[cut - _AROUND : cut], text[cut : cut + _AROUND]
    ids, lengths = encode([left + right, left, right])
    if np.array_equal(ids[: lengths[0]], ids[lengths[0] :]):
      return cut
    tries += 1
    if tries == _TRIES:
      break
  return None


def _kind(character: str) -> str:
  if character.isspace():
    # Line ends go with what is before them, other space with what is after.
    return "line end" if character in "\r\n" else "space"
  if character.isalpha():
    return "letter"
  return "digit" if character.isdigit() else "sign"
