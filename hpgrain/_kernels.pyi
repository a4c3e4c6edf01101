"""Index arithmetic, token gathering and batch fields in C++.

Arrays are C-contiguous; inputs of another safe-to-cast dtype are converted.
Wrong values raise ValueError, places that do not exist IndexError, a file
that cannot be read OSError. Every function releases the GIL.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

_Int32: TypeAlias = npt.NDArray[np.int32]
_Int64: TypeAlias = npt.NDArray[np.int64]

# The arrays of `records.RowPlans`, in order.
_Plan: TypeAlias = tuple[
  _Int64, _Int32, _Int64, _Int64, _Int32, npt.NDArray[np.bool_]
]

def permute(index: _Int64, size: int, key: bytes) -> _Int64:
  """Places of `index` under the keyed permutation of [0, size).

  Args:
    index: int64[n], each in [0, size).
    size: from 1 to 2**62.
    key: 16 bytes.
  """

class BlendTree:
  """Which source stands at each position of a blend; no arrays of positions."""

  def __init__(
    self,
    children: _Int32,
    weights: npt.NDArray[np.uint64],
    num_sources: int,
  ) -> None:
    """Takes the tree's nodes, node 0 being the root.

    Args:
      children: int32[nodes, 2], left and right; c >= 0 is a node, c < 0 the
        source ~c.
      weights: uint64[nodes, 2], positive, each node's sum below 2**63.
      num_sources: one more than there are nodes.
    """

  @property
  def num_sources(self) -> int: ...
  def locate(self, positions: _Int64) -> tuple[_Int32, _Int64]:
    """Returns (source, k): whose row stands there, and which of its rows."""

  def counts(self, position: int) -> _Int64:
    """Returns the rows of each source among the first `position`."""

class TokenFile:
  """One open .idx/.bin pair; keeps alive the arrays it was given."""

  def __init__(
    self,
    lengths: _Int32,
    pointers: _Int64,
    document_indices: _Int64,
    dtype_code: int,
    tokens: npt.NDArray[np.uint8] | tuple[int, int] | tuple[int, int, object],
  ) -> None:
    """Takes views of the mapped files, at any address.

    Args:
      lengths: int32[n], tokens a sequence.
      pointers: int64[n], bytes into the .bin.
      document_indices: int64[d], where documents begin among sequences.
      dtype_code: of the format, 1 to 8.
      tokens: the mapped .bin, or (fd, num_bytes[, owner]) to read with pread;
        the owner is kept alive, so that the descriptor stays open.
    """

  @property
  def num_sequences(self) -> int: ...
  @property
  def num_tokens_bytes(self) -> int: ...

class StableRows:
  """Row number -> pieces, in the stable order of one source."""

  def __init__(
    self,
    first_sequence: int,
    last_sequence: int,
    seq_length: int,
    extra: int,
    rows_per_epoch: int,
    num_tokens: int,
    shuffle: bool,
    keep_last: bool,
    starts: _Int64 | None = None,
  ) -> None:
    """Takes the split's sequences [first, last) and its numbers.

    Args:
      first_sequence: of the split.
      last_sequence: one past the split's last.
      seq_length: S; rows begin so many tokens apart.
      extra: x; rows hold S + x tokens.
      rows_per_epoch: M.
      num_tokens: T, of the split.
      shuffle: whether an epoch's rows are permuted.
      keep_last: whether the last row may be short; then no epoch is offset.
      starts: int64[last - first + 1], where each sequence begins among the
        split's tokens, T at the end; for a file whose sequences do not lie
        back to back.
    """

  def plan(
    self,
    file: TokenFile,
    rows: _Int64,
    source: int,
    keys: Sequence[tuple[int, bytes]] = ...,
  ) -> _Plan | None:
    """Returns the arrays of `records.RowPlans` for rows int64[n].

    Args:
      file: the open pair.
      rows: row numbers, from 0 on.
      source: the number to write into the plan.
      keys: (epoch, 16 bytes) of epochs among the rows; the last used are kept
        for later calls.

    Returns:
      None if the key of an epoch is neither given nor kept.
    """

def shuffle(
  array: np.ndarray, key: npt.NDArray[np.uint32], position: int
) -> int:
  """Shuffles in place as numpy.random.RandomState.shuffle does, bit for bit.

  Args:
    array: one dimension, C-contiguous, writable, items of 1, 2, 4 or 8 bytes
      that are no Python objects; written in place.
    key: uint32[624], of `RandomState.get_state()`; written back.
    position: of the same, from 0 to 624.

  Returns:
    The position that goes with the key now.
  """

def sample_index(
  lengths: _Int32 | _Int64,
  document_index: _Int32 | _Int64,
  seq_length: int,
  extra: int,
  num_samples: int,
) -> _Int32 | _Int64:
  """Where each of Megatron's samples begins, and where the last one ends.

  Args:
    lengths: [documents], tokens of each, at any address.
    document_index: [n], documents in reading order, at any address.
    seq_length: S; samples begin so many tokens apart.
    extra: x, 0 or 1; samples hold S + x tokens.
    num_samples: M; the last one may be short if it has more than x tokens.

  Returns:
    [M + 1, 2], (place in document_index, offset); int64 if n or a length does
    not fit int32, else int32.
  """

def plan_samples(
  file: TokenFile,
  rows: _Int64,
  source: int,
  document_index: _Int32 | _Int64,
  sample_index: _Int32 | _Int64,
  shuffle_index: npt.NDArray[np.uint32] | _Int64 | None,
  seq_length: int,
  extra: int,
) -> _Plan:
  """Returns the arrays of `records.RowPlans` for rows of Megatron's order.

  The three index arrays are read where they lie, so they may be mapped files.

  Args:
    file: the open pair.
    rows: int64[n], each in [0, M).
    source: the number to write into the plan.
    document_index: [k], sequences in reading order.
    sample_index: [M + 1, 2], of `sample_index`.
    shuffle_index: [M], the sample of each row; None: row i is sample i.
    seq_length: S.
    extra: x, 0 or 1.
  """

def blend_index(
  weights: npt.NDArray[np.float64], size: int
) -> tuple[npt.NDArray[np.int16] | _Int32, _Int64]:
  """Writes out Megatron's blend: argmax of w * max(t, 1) - c at position t.

  In float64, each operation rounded; ties go to the lowest source. c counts
  the source's earlier positions.

  Args:
    weights: float64[n], finite and above 0; used as they are, not normalised.
    size: positions.

  Returns:
    (source int16[size], sample int64[size]): which source stands at a
    position and which of its rows, c. The sources are int32 where there are
    more than 32,767.

  Raises:
    ValueError: for no weights, one that is not finite or not above 0 (naming
      its source), a negative size, or an HPGRAIN_ISA that `isa` refuses.
    MemoryError: where the arrays do not fit.
  """

def exhaustive_blend_index(
  sizes: _Int64,
) -> tuple[npt.NDArray[np.int16] | _Int32, _Int64]:
  """Does the same with w = size / sum of sizes until every row stood once.

  A source with no rows left, or none from the start, is passed over.

  Args:
    sizes: int64[n], rows of each source, none negative, 2**62 at most
      together.

  Returns:
    As `blend_index`, for sum(sizes) positions.

  Raises:
    ValueError: for no sizes, a negative one, or too many rows, naming the
      source.
    MemoryError: where the arrays do not fit.
  """

def isa() -> str:
  """Returns the instruction set of the kernels that have several.

  It is the widest that the processor has of "scalar", "avx2" and "avx512",
  or the one that the environment variable HPGRAIN_ISA named when it was first
  needed. All give the same results.

  Raises:
    ValueError: where HPGRAIN_ISA names anything else, saying what there is.
  """

def merge_plans(n: int, parts: Sequence[tuple[_Int64, _Plan]]) -> _Plan:
  """Merges (rows, plan) parts: row i of a plan becomes row rows[i] of n.

  The parts must hold each of the n rows once.
  """

def find_segments(
  row_splits: _Int64, length: _Int32, boundary: npt.NDArray[np.bool_]
) -> tuple[_Int64, _Int64, _Int64]:
  """Returns the arrays of `records.Segments` for a plan's rows."""

def gather(
  row_splits: _Int64,
  source: _Int32,
  sequence: _Int64,
  offset: _Int64,
  length: _Int32,
  sources: _Int32,
  files: Sequence[TokenFile],
  begin: int,
  end: int,
  pad_id: int,
  vocab_size: int,
  out: _Int32,
) -> tuple[int, int, int]:
  """Writes positions [begin, end) of each row into out, int32[n, end - begin].

  Args:
    row_splits: with the next four, the plan.
    source: see `records.RowPlans`.
    sequence: see `records.RowPlans`.
    offset: see `records.RowPlans`.
    length: see `records.RowPlans`.
    sources: int32[u], ascending, the numbers used in `source`.
    files: of the sources.
    begin: first position.
    end: one past the last position.
    pad_id: what stands past a row's end.
    vocab_size: ids must lie below it; 0 allows any that an int32 holds.
    out: written in place.

  Returns:
    (-1, -1, 0), or (piece, position in its row, id) of the first id outside
    the vocabulary; `out` is then incomplete.
  """

def gathered_bytes() -> int:
  """Returns the token bytes that `gather` has read in this process."""

def reset_gathered_bytes() -> None:
  """Sets `gathered_bytes` to 0."""

def find_id(
  row_splits: _Int64,
  source: _Int32,
  sequence: _Int64,
  offset: _Int64,
  length: _Int32,
  sources: _Int32,
  files: Sequence[TokenFile],
  id: int,
) -> tuple[_Int64, _Int64]:
  """Returns (row_splits int64[n + 1], positions int64[k]) of an id in rows."""

def scanned_bytes() -> int:
  """Returns the token bytes that `find_id` has read in this process."""

def make_fields(
  tokens: _Int32,
  begin: int,
  end: int,
  seq_length: int,
  row_splits: _Int64,
  starts: _Int64,
  lengths: _Int64,
  labels_are_shifted: bool,
  mask_boundary_labels: bool,
  eod_id: int,
  reset_position_ids: bool,
  reset_attention_mask: bool,
  input_ids: _Int32,
  labels: _Int32,
  position_ids: _Int32,
  segment_ids: _Int32,
  loss_mask: npt.NDArray[np.float32],
) -> None:
  """Fills the first n rows of the five fields, each [>= n, end - begin].

  Args:
    tokens: int32[n, w], positions from `begin` on; w is end - begin, or one
      more where the row goes on and labels are shifted.
    begin: first position.
    end: one past the last position.
    seq_length: positions of a whole row.
    row_splits: with the next two, `records.Segments` of the n rows.
    starts: see `records.Segments`.
    lengths: see `records.Segments`.
    labels_are_shifted: whether labels[t] is token t + 1, else token t.
    mask_boundary_labels: whether the last label of a segment is ignored.
    eod_id: positions whose input is this id take no part in the loss; -1 for
      none.
    reset_position_ids: whether positions count from 0 in each segment.
    reset_attention_mask: whether each document is a segment of its own.
    input_ids: int32, written in place, as the rest.
    labels: int32.
    position_ids: int32.
    segment_ids: int32.
    loss_mask: float32.
  """

def first_fit(
  lengths: _Int32,
  budget: int,
  max_items: int,
  min_buffered: int,
  arrived: int,
  final: bool,
) -> tuple[_Int64, _Int64, int]:
  """Returns (row_splits, items, arrived) of `pack.first_fit`."""

def oldest_best_fit(
  lengths: _Int32,
  budget: int,
  max_items: int,
  window: int,
  arrived: int,
  final: bool,
) -> tuple[_Int64, _Int64, int]:
  """Returns (row_splits, items, arrived) of `pack.best_fit`."""

def best_fit_decreasing(
  lengths: _Int32, budget: int, max_items: int
) -> tuple[_Int64, _Int64, int]:
  """Returns (row_splits, items, arrived) of `pack.best_fit_decreasing`."""

def make_packed_fields(
  row_splits: _Int64,
  start: _Int64,
  length: _Int32,
  id_begin: _Int64,
  label_begin: _Int64,
  ids: _Int32,
  labels: _Int32,
  weights: npt.NDArray[np.float32],
  begin: int,
  end: int,
  eod_id: int,
  reset_position_ids: bool,
  reset_attention_mask: bool,
  input_ids: _Int32,
  out_labels: _Int32,
  position_ids: _Int32,
  segment_ids: _Int32,
  loss_mask: npt.NDArray[np.float32],
) -> None:
  """Fills the first n rows of the five fields, each [>= n, end - begin].

  Args:
    row_splits: int64[n + 1], where each row's pieces begin.
    start: int64[m], a piece's first position in its row.
    length: int32[m], its positions.
    id_begin: int64[m], where in `ids` its first one in the window is.
    label_begin: int64[m], where in `labels`.
    ids: int32.
    labels: int32.
    weights: float32, of the labels in the loss; empty for 1 each.
    begin: first position.
    end: one past the last position.
    eod_id: positions whose input is this id take no part in the loss; -1 for
      none.
    reset_position_ids: whether positions count from 0 in each piece.
    reset_attention_mask: whether each piece is a segment of its own.
    input_ids: int32, written in place, as the rest.
    out_labels: int32.
    position_ids: int32.
    segment_ids: int32.
    loss_mask: float32.
  """

class RecordStarts:
  """Where the records of a text file begin; follows one file.

  Attributes:
    offset: bytes of the file up to the last one fed.
    closed: whether the array of a "json_array" has ended.
    rest: where something else than white space follows it; -1 for nowhere.
  """

  offset: int
  closed: bool
  rest: int

  def __init__(self, kind: str, offset: int) -> None:
    """Begins to follow a file.

    Args:
      kind: "json_lines" (of more than white space), "text_lines" (of more
        than a carriage return), "csv_rows" (the header among them) or
        "json_array" (its elements, and the place after its end).
      offset: the place in the file of the first byte that will be fed.
    """

  def feed(self, block: npt.NDArray[np.uint8]) -> _Int64:
    """Returns the starts that the next bytes show.

    Args:
      block: uint8[n].
    """

def json_texts(
  block: bytes | bytearray | memoryview, keys: Sequence[str]
) -> tuple[
  _Int64,
  _Int64,
  npt.NDArray[np.bool_],
  list[tuple[npt.NDArray[np.uint8], _Int64]],
]:
  r"""Reads the texts under some keys of lines of JSON objects.

  What is found is what json.loads gives: the last value of a key counts. Where
  a line is not found, nothing is said but that a parser that tells what is
  wrong is to judge it; that includes some lines that are right (NaN, deep
  nesting, keys written with escapes).

  Args:
    block: lines, each ended by a line feed or by the end of the block; those
      of white space are no records.
    keys: 1 to 64 different ones.

  Returns:
    (starts int64[records], stops int64[records], found bool[records], for
    each key (data uint8[bytes], splits int64[records + 1])): where a record's
    line begins and ends in the block, and its text, which is
    data[splits[i]:splits[i + 1]] in UTF-8, empty where it is not found.

  Raises:
    ValueError: for no keys, more than 64, or the same one twice.
  """

def text_flags(
  data: npt.NDArray[np.uint8],
  splits: _Int64,
  table: npt.NDArray[np.uint8],
) -> npt.NDArray[np.uint8]:
  """Joins the flags of each text's characters beyond ASCII by or.

  Args:
    data: uint8[bytes], texts in UTF-8, one after the other.
    splits: int64[texts + 1], where they begin and end.
    table: uint8[0x110000], flags of each code point.

  Returns:
    uint8[texts].

  Raises:
    ValueError: a text is not UTF-8, splits do not divide the data, or the
      table has another size.
  """

def store_ids(
  ids: npt.NDArray[np.uint32],
  splits: _Int64,
  special: npt.NDArray[np.uint32],
  vocab_size: int,
  eod_id: int,
  item_size: int,
) -> tuple[npt.NDArray[np.uint16] | _Int32, _Int64, npt.NDArray[np.bool_]]:
  """Makes ids what is stored, in one pass: checked, narrowed, with EODs.

  Args:
    ids: uint32[tokens].
    splits: int64[texts + 1], where the texts' ids begin and end; others are
      left out.
    special: uint32, ascending: the special tokens' ids.
    vocab_size: one more than the largest id allowed.
    eod_id: put behind each text that has an id; -1 for none.
    item_size: 2 for uint16, 4 for int32.

  Returns:
    (stored, lengths int64[texts], bool[texts]): the ids, how many each text
    has with its EOD, and whether one of its own ids is special.

  Raises:
    ValueError: an id is outside the vocabulary, or the arguments contradict
      one another.
  """
