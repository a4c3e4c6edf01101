"""Token rows and their segments in, the fields of a batch out.

  tokens      a b c d e | f g      a-e one document, f g the next
  input_ids   a b c d e   f
  labels      b c d e -   g        - is IGNORE_INDEX: f does not follow e
  segment_ids 1 1 1 1 1   2
  position    0 1 2 3 4   5        or 0 1 2 3 4 0 with reset_position_ids
  source_ids  2 2 2 2 2   2        where asked for: the row is of source 2

Every field is made for a window of positions by itself, so a process that
holds part of a row makes that part alone.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from hpgrain import _kernels
from hpgrain.records import (
  BATCH_DTYPES,
  IGNORE_INDEX,
  INPUT_IDS,
  LABELS,
  LOSS_MASK,
  NO_SOURCE,
  PAD_ID,
  POSITION_IDS,
  SEGMENT_IDS,
  SOURCE_IDS,
  Segments,
)

# All fields have items of this size; devices want them at such addresses.
_ITEM_BYTES = 4
_LINE_BYTES = 64
_LINE_ITEMS = _LINE_BYTES // _ITEM_BYTES


@dataclasses.dataclass(frozen=True)
class FieldOptions:
  """How the fields of a batch are made; the same for every row of a run.

  Attributes:
    labels_are_shifted: whether labels[t] is the target at position t; if
      not, labels equal input_ids and the model shifts.
    mask_boundary_labels: whether a document's last token, whose label would
      be the next document's first token, takes no part in the loss.
    eod_mask_loss: whether positions whose input is `eod_id` take no part.
    eod_id: the end-of-document id; needed by eod_mask_loss.
    reset_position_ids: whether positions count from 0 in each document.
    reset_attention_mask: whether each document is a segment of its own; if
      not, a row is one segment.
    source_ids: whether a batch says which source each token is of. No row
      depends on it.
  """

  labels_are_shifted: bool = True
  mask_boundary_labels: bool = True
  eod_mask_loss: bool = False
  eod_id: int | None = None
  reset_position_ids: bool = False
  reset_attention_mask: bool = True
  source_ids: bool = False

  def __post_init__(self) -> None:
    if self.eod_mask_loss and self.eod_id is None:
      raise ValueError(
        "eod_mask_loss needs the end-of-document id, and none is known: set"
        " model_assets.tokenizer, dataset.data_config.eod_id, or prepare the"
        " corpus with a tool that writes a manifest."
      )

  @property
  def dtypes(self) -> dict[str, Any]:
    """The fields of a batch, and their dtypes, 4 bytes an item."""
    asked = {SOURCE_IDS: np.int32} if self.source_ids else {}
    return {**BATCH_DTYPES, **asked}


def make_fields(
  tokens: np.ndarray,
  segments: Segments,
  *,
  window: tuple[int, int],
  seq_length: int,
  num_rows: int,
  options: FieldOptions,
  row_sources: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
  """Makes positions [begin, end) of every field, in fresh arrays.

  Args:
    tokens: int32[n, w], positions [begin, end) and, unless the row ends
      there, one token more.
    segments: of the same n rows.
    window: [begin, end).
    seq_length: positions a whole row has.
    num_rows: rows to make, at least n; those from n on are padding.
    options: how.
    row_sources: int32[n], the source of each row, if they are asked for;
      None: all are of source 0.

  Returns:
    The fields of `options.dtypes`, each [num_rows, end - begin].
  """
  begin, end = window
  fields = empty_fields(num_rows, end - begin, options.dtypes)
  _kernels.make_fields(
    tokens,
    begin,
    end,
    seq_length,
    segments.row_splits,
    segments.starts,
    segments.lengths,
    options.labels_are_shifted,
    options.mask_boundary_labels,
    options.eod_id if options.eod_mask_loss else -1,
    options.reset_position_ids,
    options.reset_attention_mask,
    *kernel_fields(fields),
  )
  if options.source_ids:
    made = fields[SOURCE_IDS][: len(segments)]
    made[...] = 0 if row_sources is None else row_sources[:, None]
    made[fields[SEGMENT_IDS][: len(segments)] == 0] = NO_SOURCE
  fill_padding(fields, window, len(segments))
  return fields


def make_padding(
  window: tuple[int, int], num_rows: int, options: FieldOptions
) -> dict[str, np.ndarray]:
  """Makes positions [begin, end) of rows that are padding throughout."""
  begin, end = window
  fields = empty_fields(num_rows, end - begin, options.dtypes)
  fill_padding(fields, window, 0)
  return fields


def empty_fields(
  num_rows: int,
  num_positions: int,
  dtypes: Mapping[str, Any],
) -> dict[str, np.ndarray]:
  """Makes fields in one block of memory that nobody else has.

  Each begins on a multiple of 64 bytes: a CPU device then takes the memory
  as it is, where another alignment would cost a copy.

  Args:
    num_rows: of each.
    num_positions: of each.
    dtypes: of the fields by name, 4 bytes an item.
  """
  size = num_rows * num_positions
  step = -(-size // _LINE_ITEMS) * _LINE_ITEMS
  block = np.empty(len(dtypes) * step + _LINE_ITEMS, np.int32)
  first = -block.ctypes.data % _LINE_BYTES // _ITEM_BYTES
  return {
    name: block[first + i * step :][:size]
    .view(dtype)
    .reshape(num_rows, num_positions)
    for i, (name, dtype) in enumerate(dtypes.items())
  }


def kernel_fields(fields: Mapping[str, np.ndarray]) -> list[np.ndarray]:
  """Returns the fields that a kernel makes, in the order it takes them."""
  return [fields[name] for name in BATCH_DTYPES]


def fill_padding(
  fields: dict[str, np.ndarray], window: tuple[int, int], first: int
) -> None:
  """Makes the rows from `first` on padding: no segment, loss or source."""
  if first == len(fields[INPUT_IDS]):
    return
  fields[INPUT_IDS][first:] = PAD_ID
  fields[LABELS][first:] = IGNORE_INDEX
  fields[POSITION_IDS][first:] = np.arange(*window, dtype=np.int32)
  fields[SEGMENT_IDS][first:] = 0
  fields[LOSS_MASK][first:] = 0.0
  if SOURCE_IDS in fields:
    fields[SOURCE_IDS][first:] = NO_SOURCE
