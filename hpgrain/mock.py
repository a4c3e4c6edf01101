"""Made-up rows for dry runs: every token a hash of (seed, split, row, place).

No file is read, any window of any row costs the same, and two runs agree.
"""

import operator
from collections.abc import Sequence
from typing import Any

import grain
import numpy as np

from hpgrain import gather
from hpgrain.arguments import integer, row_numbers
from hpgrain.order import permutation_key
from hpgrain.records import RowPlans, Segments
from hpgrain.splits import SPLIT_NAMES
from hpgrain.token_rows import TokenRows

# Mock rows never repeat, so an epoch is as long as anyone could want.
_ROWS_PER_EPOCH = 1 << 40

_PHI = np.uint64(0x9E3779B97F4A7C15)


def _mix64(z: np.ndarray) -> np.ndarray:
  """SplitMix64's finaliser (Steele, Lea, Flood 2014) on uint64, wrapping."""
  z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
  z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
  return z ^ (z >> np.uint64(31))


class MockSamples(grain.MapDataset):
  """Deterministic rows from (seed, split, row), one document each."""

  def __init__(
    self,
    *,
    seq_length: int,
    seed: int,
    vocab_size: int,
    split_index: int = 0,
    add_extra_token: bool = True,
  ):
    """Holds the numbers that make the rows.

    Raises:
      ValueError: for a seq_length, vocab_size or split_index out of range.
    """
    super().__init__()
    seq_length = integer("seq_length", seq_length, minimum=1)
    seed = integer("seed", seed)
    vocab_size = integer("vocab_size", vocab_size, minimum=1, maximum=1 << 31)
    if not 0 <= split_index < len(SPLIT_NAMES):
      raise ValueError(f"split_index is 0, 1 or 2, got {split_index!r}.")
    self.name = f"mock/{SPLIT_NAMES[split_index]}"
    self.sources = (self,)
    self.seq_length = seq_length
    self.extra = int(add_extra_token)
    self.vocab_size = vocab_size
    self.rows_per_epoch = _ROWS_PER_EPOCH
    self._seed = seed
    key = permutation_key(seed, self.name, 0)
    self._key = np.frombuffer(key, "<u8").astype(np.uint64)

  def __len__(self) -> int:
    """Rows of one epoch: more than any run reads."""
    return self.rows_per_epoch

  def __getitem__(self, index: Any) -> Any:
    """Returns {tokens, labels}, int32[seq_length] each, of row `index`."""
    if isinstance(index, slice):
      return self.slice(index)
    plan = self.plan(index)
    return gather.row_fields(self.read(plan)[0], plan, self.extra)

  @property
  def unique_identifiers(self) -> dict[str, Any]:
    """Everything that decides the rows."""
    return {
      "kind": "mock",
      "sources": [{"name": self.name, "content": str(self.vocab_size)}],
      "order": "mock",
      "shuffle": False,
      "seed": self._seed,
      "seq_length": self.seq_length,
      "add_extra_token": bool(self.extra),
    }

  def rows_per_source(self, num_rows: int) -> np.ndarray:
    """Returns int64[1]: all of the first `num_rows` rows are this source's."""
    return np.array([num_rows], np.int64)

  def num_rows(self, epochs: int) -> int:
    """Returns how many rows `epochs` epochs have."""
    return self.rows_per_epoch * epochs

  @property
  def rows_per_pass(self) -> float:
    """Rows that read everything once: an epoch's."""
    return float(self.rows_per_epoch)

  def build_index(self, epochs: int = 1) -> None:
    """Does nothing: these rows need no index."""
    del epochs

  def open_rows(self, rows: np.ndarray | Sequence[int]) -> TokenRows:
    """Plans rows, to read windows of their fields."""
    return TokenRows(self, rows)

  def plan(self, index: int) -> RowPlans:
    """Plans one row."""
    return self.plan_rows([operator.index(index)])

  def plan_rows(
    self, rows: np.ndarray | Sequence[int], *, source: int = 0
  ) -> RowPlans:
    """Plans many rows: one piece each, the row's number as its sequence."""
    rows = row_numbers(rows)
    num = len(rows)
    return RowPlans(
      row_splits=np.arange(num + 1, dtype=np.int64),
      source=np.full(num, source, np.int32),
      sequence=rows.copy(),
      offset=np.zeros(num, np.int64),
      length=np.full(num, self.seq_length + self.extra, np.int32),
      boundary=np.ones(num, bool),
    )

  def read(
    self,
    plans: RowPlans,
    window: tuple[int, int] | None = None,
  ) -> np.ndarray:
    """Makes positions [a, b) of planned rows, and one token more for labels.

    Returns:
      int32[n, b - a + 1], each id below vocab_size.
    """
    begin, end = gather.window_columns(window, self.seq_length, self.extra)
    one = np.uint64(1)
    rows = plans.sequence.astype(np.uint64)[:, None]
    places = np.arange(begin, end, dtype=np.uint64)[None, :]
    row_hash = _mix64(self._key[0] + (rows + one) * _PHI)
    hashed = _mix64(row_hash + self._key[1] + (places + one) * _PHI)
    return (hashed % np.uint64(self.vocab_size)).astype(np.int32)

  def segments(self, plans: RowPlans) -> Segments:
    """Returns one segment for each row."""
    return gather.segments(plans)
