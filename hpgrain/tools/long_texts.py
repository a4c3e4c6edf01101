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

from collections.abc import Callable, Iterable, Iterator

import numpy as np

# Bytes of a text up to which it is encoded whole.
LONG = 1 << 21
# Characters of a piece, and the most of one that cannot be cut sooner.
_PIECE = 1 << 20
_MOST = 1 << 22
_AROUND = 2048
_TRIES = 50

# A text's ids [tokens].
EncodeOne = Callable[[str], np.ndarray]


class NoCutError(ValueError):
  """A text has no place for many characters where it may be cut."""


def encoded_pieces(
  chunks: Iterable[str],
  encode: EncodeOne,
  *,
  at_words: bool = False,
  piece: int | None = None,
) -> Iterator[np.ndarray]:
  """Yields the ids of a text, in order, in arrays [n] of some megabytes.

  Args:
    chunks: the text, cut anywhere between two characters.
    encode: a text to its ids.
    at_words: cut nowhere but before a space, for a tokenizer that does not
      divide a text before it joins its characters.
    piece: characters of a piece; None for a million or so.

  Raises:
    NoCutError: it cannot be cut, so that it would have to be encoded whole.
  """
  size = _PIECE if piece is None else piece
  before, held = "", ""
  tried = 0
  for chunk in chunks:
    held += chunk
    while len(held) >= max(size + _AROUND, tried):
      # Of a chunk that is longer, the beginning is enough.
      seen = held[: max(size + _AROUND, tried)]
      cut = _cut(seen, size, encode, at_words=at_words)
      if cut is None:
        if len(seen) > _MOST:
          raise _no_cut(len(seen))
        # What follows may have a place.
        tried = len(seen) + size
        continue
      yield _after(before, held[:cut], encode)
      before, held, tried = held[cut - _AROUND : cut], held[cut:], 0
  yield _after(before, held, encode)


def _no_cut(size: int) -> NoCutError:
  return NoCutError(
    f"has a text without a place to cut it for {size} characters, which does"
    " not fit in memory as a whole: one word, one run of the same kind of"
    " character, or a tokenizer that looks at all of a text at once. Divide"
    " the record."
  )


def _after(before: str, piece: str, encode: EncodeOne) -> np.ndarray:
  """The ids of a piece that follows `before` in the text."""
  ids = encode(before + piece)
  if not before:
    return ids
  skipped = encode(before)
  if not np.array_equal(ids[: len(skipped)], skipped):
    raise _no_cut(len(piece))
  return ids[len(skipped) :]


def _cut(
  text: str, size: int, encode: EncodeOne, *, at_words: bool
) -> int | None:
  """The last good place to cut at that has enough on both sides."""
  end = len(text) - _AROUND
  tries = 0
  for cut in range(end, max(end - size // 2, _AROUND), -1):
    kind = _kind(text[cut])
    if kind == _kind(text[cut - 1]) or (at_words and kind != "space"):
      continue
    left, right = text[cut - _AROUND : cut], text[cut : cut + _AROUND]
    if _ends_within(right) and _ends_within(left[::-1]):
      ids, start = encode(left + right), encode(left)
      if np.array_equal(ids[: len(start)], start):
        return cut
    tries += 1
    if tries == _TRIES:
      break
  return None


def _ends_within(text: str) -> bool:
  """Whether a run, and a word, end in the first half of what is seen."""
  seen = text[: _AROUND // 2]
  kinds = {_kind(character) for character in seen}
  # Scripts without spaces have signs between their clauses.
  return len(kinds) > 1 and not kinds.isdisjoint(("space", "line end", "sign"))


def _kind(character: str) -> str:
  if character.isspace():
    # Line ends go with what is before them, other space with what is after.
    return "line end" if character in "\r\n" else "space"
  if character.isalpha():
    return "letter"
  return "digit" if character.isdigit() else "sign"
