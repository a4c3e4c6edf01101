"""A text with doubtful characters in, its ids out: mostly by a fast encoder.

  text     .............d...........................d.d.................
  pieces   [   fast   ][ sure ][      fast        ][   sure  ][  fast  ]

The sure encoder is a hundred times slower, so it gets no more than what is
around a doubtful character. Both give the same ids wherever both are right,
and a text is cut where `long_texts` cuts one.
"""

import itertools
from collections.abc import Callable, Iterator

import numpy as np

from hpgrain.tools.long_texts import EncodeOne, NoCutError, find_cut, ids_after

# Characters that are looked at on either side of a cut.
_AROUND = 256


def encode_apart(
  text: str,
  doubtful: np.ndarray,
  *,
  fast: EncodeOne,
  sure: EncodeOne,
  is_safe: Callable[[str], bool],
  at_words: bool,
) -> np.ndarray:
  """The ids of a text.

  Args:
    text: the text.
    doubtful: int64[characters], ascending, their places in it.
    fast: encodes what is safe.
    sure: encodes anything.
    is_safe: whether a piece may go to `fast` all the same.
    at_words: see `long_texts.encoded_pieces`.
  """
  bounds = [0]
  for first, last in _groups(doubtful):
    begin = _cut(text, first, fast, step=-1, at_words=at_words)
    end = _cut(text, last + 1, fast, step=1, at_words=at_words)
    if begin is None or end is None:
      return sure(text)
    bounds += [begin, end]
  bounds.append(len(text))
  parts = []
  try:
    for i, (begin, end) in enumerate(itertools.pairwise(bounds)):
      if begin == end:
        continue
      piece = text[begin:end]
      encode = fast if i % 2 == 0 or is_safe(piece) else sure
      before = text[max(begin - _AROUND, 0) : begin]
      parts.append(ids_after(before, piece, encode))
  except NoCutError:
    return sure(text)
  return np.concatenate(parts)


def _groups(places: np.ndarray) -> Iterator[tuple[int, int]]:
  """First and last place of those that are too near each other to part."""
  if len(places):
    # Room for both cuts, for what is looked at, and for a piece.
    gaps = np.flatnonzero(np.diff(places) > 10 * _AROUND)
    firsts = places[np.concatenate(([0], gaps + 1))]
    lasts = places[np.concatenate((gaps, [len(places) - 1]))]
    yield from zip(firsts.tolist(), lasts.tolist())


def _cut(
  text: str, place: int, encode: EncodeOne, *, step: int, at_words: bool
) -> int | None:
  """Where to cut before or after a place; an end of the text if that is near.

  So far from it that what is looked at does not reach it.
  """
  begin = place + step * _AROUND
  end = begin + step * 3 * _AROUND
  if not _AROUND < begin < len(text) - _AROUND:
    return 0 if step < 0 else len(text)
  end = min(max(end, _AROUND), len(text) - _AROUND)
  return find_cut(
    text, range(begin, end, step), _AROUND, encode, at_words=at_words
  )
