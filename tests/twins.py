"""The kernels once more, slow and obvious: Python ints and lists.

Written from the rules, not from the C++; `test_kernels.py` compares the two.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

DTYPES = {
  1: np.uint8,
  2: np.int8,
  3: np.int16,
  4: np.int32,
  5: np.int64,
  8: np.uint16,
}

_WORD = 1 << 64
_PHI = 0x9E3779B97F4A7C15


def mix64(z):
  z ^= z >> 30
  z = z * 0xBF58476D1CE4E5B9 % _WORD
  z ^= z >> 27
  z = z * 0x94D049BB133111EB % _WORD
  return z ^ (z >> 31)


def words(key: bytes) -> tuple[int, int]:
  return (
    int.from_bytes(key[:8], "little"),
    int.from_bytes(key[8:], "little"),
  )


def permute(index: int, size: int, key: bytes) -> int:
  if size == 1:
    return 0
  k0, k1 = words(key)
  half = max(4, -(-(size - 1).bit_length() // 2))
  mask = (1 << half) - 1
  value = index
  while True:
    left, right = value >> half, value & mask
    for r in range(8):
      round_key = mix64(mix64((k0 + (r + 1) * _PHI) % _WORD) ^ k1)
      left, right = right, left ^ (mix64(right ^ round_key) & mask)
    value = (left << half) | right
    if value < size:
      return value


def epoch_offset(key: bytes, slack: int) -> int:
  k0, k1 = words(key)
  return mix64(k0 ^ mix64(k1)) % (slack + 1)


def rows_left(n: int, left: int, total: int) -> int:
  """How many of the first n rows at a node go left: n*left/total, rounded."""
  return (2 * n * left + total) // (2 * total)


def blend_locate(children, weights, position: int) -> tuple[int, int]:
  at, n = (0 if len(children) else -1), position
  while at >= 0:
    left, right = (int(w) for w in weights[at])
    here = rows_left(n, left, left + right)
    if rows_left(n + 1, left, left + right) > here:
      at, n = int(children[at][0]), here
    else:
      at, n = int(children[at][1]), n - here
  return -at - 1, n


@dataclasses.dataclass
class Corpus:
  """Sequences in stored order and where documents begin among them."""

  sequences: list[list[int]]
  document_indices: list[int]
  dtype_code: int

  @property
  def itemsize(self) -> int:
    return np.dtype(DTYPES[self.dtype_code]).itemsize

  @property
  def lengths(self) -> np.ndarray:
    return np.array([len(s) for s in self.sequences], np.int32)

  @property
  def pointers(self) -> np.ndarray:
    ends = np.cumsum(self.lengths, dtype=np.int64) * self.itemsize
    return ends - self.lengths * np.int64(self.itemsize)

  @property
  def tokens(self) -> np.ndarray:
    flat = [token for sequence in self.sequences for token in sequence]
    return np.array(flat, DTYPES[self.dtype_code])

  def documents(self) -> list[int]:
    """The document of each sequence; a document may have none."""
    out = []
    for s in range(len(self.sequences)):
      begun = [d for d, first in enumerate(self.document_indices) if first <= s]
      out.append(begun[-1] if begun else -1)
    return out


Piece = tuple[int, int, int, bool]  # sequence, offset, length, boundary


def stable_row(
  corpus: Corpus,
  row: int,
  *,
  first: int,
  last: int,
  seq_length: int,
  extra: int,
  shuffle: bool,
  keep_last: bool,
  keys: dict[int, bytes],
) -> list[Piece]:
  """Row `row` of the sequences [first, last): a list of all their tokens,
  sliced."""
  documents = corpus.documents()
  places = [
    (s, t) for s in range(first, last) for t in range(len(corpus.sequences[s]))
  ]
  total = len(places)
  rows = (total - extra) // seq_length
  if keep_last:
    rows = -(-(total - extra) // seq_length)
  epoch, place = divmod(row, rows)
  if shuffle:
    place = permute(place, rows, keys[epoch])
  begin = place * seq_length
  if epoch and not keep_last:
    slack = total - extra - rows * seq_length
    begin += epoch_offset(keys[epoch], slack)
  pieces: list[list] = []
  for sequence, offset in places[begin : begin + seq_length + extra]:
    if pieces and pieces[-1][0] == sequence:
      pieces[-1][2] += 1
    else:
      new = not pieces or documents[pieces[-1][0]] != documents[sequence]
      pieces.append([sequence, offset, 1, new])
  return [tuple(piece) for piece in pieces]


def to_plan(rows: Sequence[Sequence[tuple]], source: int | None = 0) -> tuple:
  """The arrays of RowPlans; pieces carry their source first if it is None."""
  if source is not None:
    rows = [[(source, *piece) for piece in row] for row in rows]
  pieces = [piece for row in rows for piece in row]
  splits = np.cumsum([0] + [len(row) for row in rows], dtype=np.int64)
  columns = list(zip(*pieces, strict=True)) if pieces else [()] * 5
  dtypes = (np.int32, np.int64, np.int64, np.int32, np.bool_)
  return (
    splits,
    *(np.array(c, d) for c, d in zip(columns, dtypes, strict=True)),
  )


def row_tokens(row: Sequence[tuple], corpora: dict[int, Corpus]) -> list[int]:
  """All tokens of a row of (source, sequence, offset, length, boundary)."""
  out = []
  for source, sequence, offset, length, _ in row:
    out += corpora[source].sequences[sequence][offset : offset + length]
  return out


def fields(
  text: Sequence[int],
  starts: Sequence[int],
  *,
  window: tuple[int, int],
  seq_length: int,
  shifted: bool,
  mask_boundary: bool,
  eod_id: int,
  reset_position: bool,
  reset_attention: bool,
) -> dict[str, list]:
  """The five fields of one row, position by position."""
  out = {
    name: []
    for name in (
      "input_ids",
      "labels",
      "position_ids",
      "segment_ids",
      "loss_mask",
    )
  }
  real = min(len(text), seq_length)
  for t in range(*window):
    input_id = text[t] if t < real else 0
    if t >= real:
      label = -100
    elif not shifted:
      label = input_id
    elif t + 1 >= len(text) or (mask_boundary and t + 1 in starts):
      label = -100
    else:
      label = text[t + 1]
    before = [s for s in starts if s <= t]
    position = t
    if reset_position:
      position = t - (before[-1] if t < real else real)
    segment = 0
    if t < real:
      segment = len(before) if reset_attention else 1
    out["input_ids"].append(input_id)
    out["labels"].append(label)
    out["position_ids"].append(position)
    out["segment_ids"].append(segment)
    out["loss_mask"].append(float(label >= 0 and input_id != eod_id))
  return out
