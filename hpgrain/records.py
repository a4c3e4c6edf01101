"""The names, dtypes and shapes of what passes between the stages.

Documents become row plans, plans become token rows, rows become batches:

  RowPlans    which pieces of which sequences fill each row, in CSR form
  Segments    where the documents of each row begin, and how long it is
  batch       a flat dict of the fields below, one optimizer step

Nothing in this module reads a file or knows a mesh.
"""

import dataclasses

import numpy as np

# The label of a position that takes no part in the loss.
IGNORE_INDEX = -100

# The id at a padded position. Never IGNORE_INDEX: it indexes embeddings.
PAD_ID = 0

# Fields of a row, for looking at one (`samples[i]`).
TOKENS = "tokens"
DATASET_ID = "dataset_id"

# The source of a position that holds no token. Source 0 is one.
NO_SOURCE = -1

# Fields of a batch: int32[rows, positions], but for the mask in float32.
INPUT_IDS = "input_ids"
LABELS = "labels"
POSITION_IDS = "position_ids"
SEGMENT_IDS = "segment_ids"
LOSS_MASK = "loss_mask"
BATCH_DTYPES = {
  INPUT_IDS: np.int32,
  LABELS: np.int32,
  POSITION_IDS: np.int32,
  SEGMENT_IDS: np.int32,
  LOSS_MASK: np.float32,
}

# A field that a batch has where it is asked for: which source each token is
# of, its place in the configuration's list; NO_SOURCE at padding.
SOURCE_IDS = "source_ids"

# The arrays of `RowPlans` in the order of its attributes, as kernels give them.
PlanTuple = tuple[np.ndarray, ...]


@dataclasses.dataclass(frozen=True)
class RowPlans:
  """Which pieces fill each of n rows, in order; no token has been read.

  Row r is the concatenation of the pieces `row_splits[r]:row_splits[r + 1]`.

  Attributes:
    row_splits: int64[n + 1], where each row's pieces begin.
    source: int32[m], the number of the source a piece is read from.
    sequence: int64[m], the sequence in that source's `.idx`.
    offset: int64[m], the first token taken from the sequence.
    length: int32[m], how many tokens are taken; at least one.
    boundary: bool[m], whether the piece begins another document than the
      piece before it in the row. A row's first piece always does.
  """

  row_splits: np.ndarray
  source: np.ndarray
  sequence: np.ndarray
  offset: np.ndarray
  length: np.ndarray
  boundary: np.ndarray

  def __len__(self) -> int:
    return len(self.row_splits) - 1


@dataclasses.dataclass(frozen=True)
class Segments:
  """Where the segments (documents) of each of n rows begin.

  Attributes:
    row_splits: int64[n + 1], where each row's starts begin.
    starts: int64[k], positions in the row, ascending; the first is 0. A start
      may equal the row's sequence length: then only the extra token, which is
      the last position's label, belongs to that segment.
    lengths: int64[n], tokens the row holds, the extra one included; the
      positions from there on are padding.
  """

  row_splits: np.ndarray
  starts: np.ndarray
  lengths: np.ndarray

  def __len__(self) -> int:
    return len(self.row_splits) - 1

  def boundaries(self, row: int, seq_length: int) -> np.ndarray:
    """Returns int64[k + 1]: where row `row`'s segments begin, and its end.

    The row [1, 9, 2, 3, 9, 4, 5, 6] of documents that end with 9 has the
    boundaries 0, 2, 5, 8.
    """
    starts = self.starts[self.row_splits[row] : self.row_splits[row + 1]]
    end = min(int(self.lengths[row]), seq_length)
    return np.append(starts[starts < end], end)
