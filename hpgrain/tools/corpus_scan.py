"""A corpus' documents in, what is to be known of their tokens out.

  lengths  how many tokens documents have, in powers of two
  EODs     how many, whether each document ends with one, where others are
  ids      those outside the vocabulary

Places are (document, token of it), both from 0. Only the first few are kept.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from hpgrain.sources.document_blocks import DocumentBlock


class Place(NamedTuple):
  """A token: the document it is in, its place there, and its id."""

  document: int
  token: int
  id: float


@dataclasses.dataclass
class Found:
  """Tokens or documents of a kind: how many, and the first of them."""

  count: int = 0
  first: list[Place] = dataclasses.field(default_factory=list)


class CorpusScan:
  """Counts as blocks of documents pass by, in order.

  Attributes:
    documents: so far.
    sequences: so far.
    tokens: so far.
    empty: documents without a token.
    least: tokens of the shortest document.
    most: tokens of the longest.
    histogram: int64[65]; entry 0 counts documents without a token, entry k
      those of 2^(k-1) tokens up to 2^k - 1.
    uncut: documents that are not one sequence of `record_length` tokens; the
      place has its sequences for the token, its tokens for the id.
    eods: tokens that are the EOD.
    ended: documents whose last token is the EOD.
    unended: last tokens of documents that are not.
    inner: EODs that are not a document's last token.
    outside: ids outside the vocabulary.
  """

  def __init__(
    self,
    *,
    eod_id: int | None,
    vocab_size: int | None,
    record_length: int | None = None,
    listed: int = 10,
  ) -> None:
    """Begins to count.

    Args:
      eod_id: the EOD; None counts none.
      vocab_size: ids lie in [0, vocab_size); None takes all.
      record_length: tokens that each document has; None allows any.
      listed: how many places of a kind are kept.
    """
    self._eod_id = eod_id
    self._vocab_size = vocab_size
    self._record_length = record_length
    self._listed = listed
    self.documents = self.sequences = self.tokens = self.empty = 0
    self.least: int | None = None
    self.most = 0
    self.histogram = np.zeros(65, np.int64)
    self.uncut = Found()
    self.eods = self.ended = 0
    self.unended, self.inner, self.outside = Found(), Found(), Found()

  def add(self, block: DocumentBlock, *, read_tokens: bool = True) -> None:
    """Counts the documents that come next.

    Args:
      block: they.
      read_tokens: look at tokens too, and not at lengths alone.
    """
    bounds = block.token_bounds()
    sizes = np.diff(bounds)
    self._add_sizes(block, sizes)
    if not read_tokens:
      return
    filled = np.flatnonzero(sizes)
    lasts = bounds[1:][filled] - 1
    begin = 0
    for piece in block.tokens:
      part = slice(*np.searchsorted(lasts, (begin, begin + len(piece))))
      places = _Places(block.first, bounds, begin, piece)
      self._add_ids(piece, places)
      if self._eod_id is not None:
        self._add_eods(piece, places, lasts[part] - begin)
      begin += len(piece)
    assert begin == bounds[-1], "a block has the tokens its lengths tell"

  def _add_sizes(self, block: DocumentBlock, sizes: np.ndarray) -> None:
    self.documents += len(sizes)
    self.sequences += len(block.lengths)
    self.tokens += int(sizes.sum())
    self.empty += int((sizes == 0).sum())
    if len(sizes):
      least = int(sizes.min())
      self.least = least if self.least is None else min(self.least, least)
      self.most = max(self.most, int(sizes.max()))
    # Exact up to 2^53 tokens a document.
    bins = np.frexp(sizes.astype(np.float64))[1]
    self.histogram += np.bincount(bins, minlength=65)
    if self._record_length is not None:
      wrong = np.flatnonzero(
        (sizes != self._record_length) | (block.counts != 1)
      )
      self.uncut.count += len(wrong)
      for i in wrong[: self._room(self.uncut)]:
        self.uncut.first.append(
          Place(block.first + int(i), int(block.counts[i]), int(sizes[i]))
        )

  def _add_ids(self, piece: np.ndarray, places: "_Places") -> None:
    size = self._vocab_size
    if size is None or not len(piece) or piece.dtype.kind == "f":
      return
    if 0 <= int(piece.min()) and int(piece.max()) < size:
      return
    wrong = np.flatnonzero((piece < 0) | (piece >= size))
    self._keep(self.outside, wrong, places)

  def _add_eods(
    self, piece: np.ndarray, places: "_Places", lasts: np.ndarray
  ) -> None:
    """Counts EODs; `lasts` are the piece's tokens that end a document."""
    hits = piece == self._eod_id
    num_hits = int(np.count_nonzero(hits))
    self.eods += num_hits
    ends = hits[lasts]
    num_ends = int(np.count_nonzero(ends))
    self.ended += num_ends
    if num_ends < len(lasts):
      self._keep(self.unended, lasts[~ends], places)
    if num_hits > num_ends:
      hits[lasts] = False
      self._keep(self.inner, np.flatnonzero(hits), places)

  def _keep(self, found: Found, at: np.ndarray, places: "_Places") -> None:
    found.count += len(at)
    found.first += [places(int(i)) for i in at[: self._room(found)]]

  def _room(self, found: Found) -> int:
    return self._listed - len(found.first)


class _Places:
  """Tells the place of a token of a piece of a block."""

  def __init__(
    self, first: int, bounds: np.ndarray, begin: int, piece: np.ndarray
  ) -> None:
    self._first = first
    self._bounds = bounds
    self._begin = begin
    self._piece = piece

  def __call__(self, index: int) -> Place:
    token = self._begin + index
    # The last document that begins there: those before it are empty.
    document = int(np.searchsorted(self._bounds, token, "right")) - 1
    return Place(
      self._first + document,
      token - int(self._bounds[document]),
      self._piece[index].item(),
    )
