r"""One long text in, its ids out as of the whole, some megabytes at a time.

  text      ... the last of it.\nNow the next ...
  places                          ^
  taken     if ids(left + right) begins with ids(left), where left and right
            are the 2,048 characters on either side
  ids       of left and what follows up to the next place, less ids(left)

Encoders look at a text's neighbourhood, not at all of it, so what holds for
some thousand characters holds for the text. A text is cut only where the kind
of character changes, and where the runs of one kind on both sides, and the
words, end within what is looked at: a run's ids may depend on where it begins,
however far away that is. What is left of a place is encoded again with what
is right of it, so that an encoder which marks the beginning of a text marks
none in its middle.
"""

import re
from collections.abc import Callable, Iterable, Iterator

import numpy as np

# Bytes of a text up to which it is encoded whole.
LONG = 1 << 21
# Characters of a piece, and the most of one that cannot be cut sooner.
_PIECE = 1 << 20
_MOST = 1 << 22
_AROUND = 2048
_TRIES = 50
_SPACE_OR_SIGN = re.compile(r"[\W_]")

# A text's ids [tokens].
EncodeOne = Callable[[str], np.ndarray]


class NoCutError(ValueError):
  """A text has no place for many characters where it may be cut."""


def encoded_pieces(
  chunks: Iterable[str],
  encode: EncodeOne,
  *,
  at_words: bool = False,
) -> Iterator[np.ndarray]:
  """Yields the ids of a text, in order, in arrays [n] of some megabytes.

  Args:
    chunks: the text, cut anywhere between two characters.
    encode: a text to its ids.
    at_words: cut nowhere but before a space, for a tokenizer that does not
      divide a text before it joins its characters.

  Raises:
    NoCutError: it cannot be cut, so that it would have to be encoded whole.
  """
  before, held = "", ""
  tried = 0
  for chunk in chunks:
    held += chunk
    while len(held) >= max(_PIECE + _AROUND, tried):
      # Of a chunk that is longer, the beginning is enough.
      seen = held[: max(_PIECE + _AROUND, tried)]
      end = len(seen) - _AROUND
      places = range(end, max(end - _PIECE // 2, _AROUND), -1)
      cut = find_cut(seen, places, _AROUND, encode, at_words=at_words)
      if cut is None:
        if len(seen) > _MOST:
          raise _no_cut(len(seen))
        # What follows may have a place.
        tried = len(seen) + _PIECE
        continue
      yield ids_after(before, held[:cut], encode)
      before, held, tried = held[cut - _AROUND : cut], held[cut:], 0
  yield ids_after(before, held, encode)


def _no_cut(size: int) -> NoCutError:
  return NoCutError(
    f"has a text without a place to cut it for {size} characters, which does"
    " not fit in memory as a whole: one word, one run of the same kind of"
    " character, or a tokenizer that looks at all of a text at once. Divide"
    " the record."
  )


def ids_after(before: str, piece: str, encode: EncodeOne) -> np.ndarray:
  """The ids of a piece that follows `before` in the text.

  Raises:
    NoCutError: there was no good place to cut at between them.
  """
  ids = encode(before + piece)
  if not before:
    return ids
  skipped = encode(before)
  if not np.array_equal(ids[: len(skipped)], skipped):
    raise _no_cut(len(piece))
  return ids[len(skipped) :]


def find_cut(
  text: str,
  places: range,
  around: int,
  encode: EncodeOne,
  *,
  at_words: bool,
) -> int | None:
  """The first good place to cut a text at; None where few tries give none.

  Args:
    text: the text.
    places: to try, in order; `around` or more from its ends.
    around: characters to look at on either side.
    encode: a text to its ids.
    at_words: as of `encoded_pieces`.
  """
  half = around // 2
  tries = 0
  for cut in places:
    kind = _kind(text[cut])
    if kind == _kind(text[cut - 1]) or (at_words and kind != "space"):
      continue
    left, right = text[cut - around : cut], text[cut : cut + around]
    if _ends_within(right[:half]) and _ends_within(left[: half - 1 : -1]):
      ids, start = encode(left + right), encode(left)
      if np.array_equal(ids[: len(start)], start):
        return cut
    tries += 1
    if tries == _TRIES:
      break
  return None


def _ends_within(text: str) -> bool:
  """Whether the run, and the word, that begin a text end in it."""
  # Scripts without spaces have signs between their clauses.
  if _SPACE_OR_SIGN.search(text) is None:
    return False
  first = _kind(text[0])
  return any(_kind(character) != first for character in text)


def _kind(character: str) -> str:
  if character.isspace():
    # Line ends go with what is before them, other space with what is after.
    return "line end" if character in "\r\n" else "space"
  if character.isalpha():
    return "letter"
  return "digit" if character.isdigit() else "sign"
