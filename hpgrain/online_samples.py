"""Records that are tokenized while training in, rows packed of them out.

  lengths    measured once, so that rows are planned
  plan       row -> pieces of examples, no token made
  read       the examples of a batch's rows, tokenized once for all windows

Any process makes any row, and the position in them is a row number.
"""

import dataclasses
import operator
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import grain
import numpy as np

from hpgrain.example_order import Lengths
from hpgrain.examples import Examples
from hpgrain.fields import FieldOptions
from hpgrain.packed_fields import PackedPlans, clip, make_packed_fields
from hpgrain.packed_rows import Pass, RowPlanner
from hpgrain.packing import PackingOptions
from hpgrain.records import DATASET_ID, IGNORE_INDEX, LABELS, TOKENS


class Member(Lengths, Protocol):
  """A source whose examples have known lengths and can be read."""

  @property
  def identity(self) -> Mapping[str, Any]:
    """What the examples are, as JSON."""
    ...

  def read(self, examples: np.ndarray) -> Examples:
    """Returns examples int64[n], one a record, in that order.

    Raises:
      ValueError: one cannot be read, or has another length than it had.
    """
    ...


class OnlineSamples(grain.MapDataset):
  """Rows packed of the examples of one or several sources."""

  def __init__(
    self,
    members: Sequence[Member],
    *,
    options: PackingOptions,
    seed: int,
    weights: Sequence[float] | None = None,
    shuffle: bool = True,
    epochs: int | None = None,
    vocab_size: int | None = None,
    length_buckets: Sequence[int] = (),
  ):
    """Holds what decides the rows; nothing is measured before one is asked for.

    Args:
      members: the sources.
      options: how rows are packed; `budget` is the positions of a row.
      seed: decides the order.
      weights: by which records of several sources take turns; None takes each
        once an epoch.
      shuffle: whether records are permuted, each epoch anew.
      epochs: after which the rows end; None = never.
      vocab_size: ids at or above it are an error when rows are read.
      length_buckets: positions that a batch may have; see `row_positions`.

    Raises:
      ValueError: for an illegal argument, no source, two of one name, or one
        without a record.
    """
    super().__init__()
    self.planner = RowPlanner(
      members,
      options=options,
      seed=seed,
      weights=weights,
      shuffle=shuffle,
      epochs=epochs,
      length_buckets=length_buckets,
    )
    self.sources = tuple(members)
    self.seq_length = options.budget
    self.vocab_size = vocab_size

  def __len__(self) -> int:
    """Rows of all epochs, which packs them once; sys.maxsize without end."""
    return self.planner.num_rows_or_endless

  def __getitem__(self, index: Any) -> Any:
    """Returns {tokens, labels}, int32[n] each, of row `index`, not padded.

    Of several sources also dataset_id, int32[n]: which one each token is of.
    """
    if isinstance(index, slice):
      return self.slice(index)
    return self.open_rows([operator.index(index)]).row(0)

  @property
  def unique_identifiers(self) -> dict[str, Any]:
    """Everything that decides the rows; paths and times do not."""
    return {
      "kind": "online",
      "sources": [source.identity for source in self.sources],
      **self.planner.identity,
    }

  @property
  def members(self) -> tuple[Pass, ...]:
    """What one time through each source is, for `rows_per_source`."""
    return self.planner.passes

  @property
  def rows_per_epoch(self) -> int:
    """Rows of one epoch by itself, which packs all of it."""
    return self.planner.rows_per_epoch()

  def num_rows(self, epochs: int) -> int:
    """Returns how many rows `epochs` epochs have, which packs them once.

    Raises:
      ValueError: these rows end after another number of epochs, or never.
    """
    return self.planner.num_rows(epochs)

  def has_row(self) -> bool:
    """Whether there is a row at all, packing as little as it takes."""
    return self.planner.windows.has_row()

  def rows_per_source(self, num_rows: int) -> np.ndarray:
    """Returns int64[sources]: records of each in the first `num_rows` rows."""
    return self.planner.windows.records_before(num_rows)

  def row_positions(self, rows: np.ndarray | Sequence[int]) -> int:
    """Returns how many positions a batch of rows int64[n] needs.

    See `RowPlanner.row_positions`.
    """
    return self.planner.row_positions(rows)

  def plan(self, index: int) -> PackedPlans:
    """Plans one row."""
    return self.plan_rows([operator.index(index)])

  def plan_rows(self, rows: np.ndarray | Sequence[int]) -> PackedPlans:
    """Plans many rows, tokenizing nothing; see `RowPlanner.plan_rows`."""
    return self.planner.plan_rows(rows)

  def open_rows(self, rows: np.ndarray | Sequence[int]) -> "OnlineRows":
    """Plans rows, to make windows of their fields."""
    return OnlineRows(
      self.sources, self.plan_rows(rows), vocab_size=self.vocab_size
    )

  def place(self, row: int) -> tuple[int, int]:
    """Returns (window, first_row), which `seek` takes."""
    return self.planner.windows.place(row)

  def seek(self, window: int, first_row: int) -> None:
    """Lets rows from a window on be found without those before it."""
    self.planner.windows.seek(window, first_row)


@dataclasses.dataclass(frozen=True)
class _Tokens:
  """Tokens of examples: int32[t], int32[t] and float32[t] or None."""

  ids: np.ndarray
  labels: np.ndarray
  weights: np.ndarray | None


class OnlineRows:
  """Planned rows; their examples are made once, when a field is asked for."""

  def __init__(
    self,
    members: Sequence[Member],
    plans: PackedPlans,
    *,
    vocab_size: int | None,
  ):
    """Holds the plan.

    Args:
      members: what `plans.source` counts.
      plans: n rows.
      vocab_size: ids at or above it are an error; None allows any.
    """
    self._members, self._plans = members, plans
    self._vocab_size = vocab_size
    self._lock = threading.Lock()
    self._made: tuple[np.ndarray, _Tokens] | None = None

  def fields(
    self, window: tuple[int, int], *, num_rows: int, options: FieldOptions
  ) -> dict[str, np.ndarray]:
    """Returns positions [a, b) of every field; see `token_rows.OpenRows`."""
    plans = self._plans
    begins, tokens = self._tokens()
    pieces, skipped, _ = clip(plans, window)
    begin = np.zeros(len(plans.length), np.int64)
    begin[pieces] = begins[pieces] + skipped
    return make_packed_fields(
      plans,
      id_begin=begin,
      label_begin=begin,
      ids=tokens.ids,
      labels=tokens.labels,
      weights=tokens.weights,
      window=window,
      num_rows=num_rows,
      options=options,
    )

  def row(self, index: int) -> dict[str, np.ndarray]:
    """Returns a row without padding; see `OnlineSamples.__getitem__`."""
    plans = self._plans
    begins, tokens = self._tokens()
    part = slice(*plans.row_splits[index : index + 2])
    length = plans.length[part].astype(np.int64)
    # The tokens of piece after piece.
    ends = np.cumsum(length)
    places = np.arange(length.sum()) + np.repeat(
      begins[part] - ends + length, length
    )
    row = {
      TOKENS: tokens.ids[places],
      LABELS: tokens.labels[places],
    }
    if len(self._members) > 1:
      row[DATASET_ID] = np.repeat(plans.source[part], length)
    return row

  def _tokens(self) -> tuple[np.ndarray, _Tokens]:
    """Returns where each piece begins in the examples' tokens, and those."""
    with self._lock:
      if self._made is None:
        self._made = self._make()
      return self._made

  def _make(self) -> tuple[np.ndarray, _Tokens]:
    plans = self._plans
    begins = np.zeros(len(plans.length), np.int64)
    parts: list[Examples] = []
    num_tokens = 0
    for i in np.unique(plans.source).tolist():
      chosen = np.flatnonzero(plans.source == i)
      # An example that is cut may have several pieces here.
      numbers, which = np.unique(plans.example[chosen], return_inverse=True)
      part = self._members[i].read(numbers)
      self._check_ids(i, numbers, part)
      begins[chosen] = (
        num_tokens + part.example_splits[which] + plans.offset[chosen]
      )
      num_tokens += len(part.input_ids)
      parts.append(part)
    return begins, _joined(parts)

  def _check_ids(
    self, source: int, numbers: np.ndarray, part: Examples
  ) -> None:
    """Raises ValueError at the first id that lies outside the vocabulary."""
    vocab_size = self._vocab_size or 1 << 31
    for ids, lowest, what in (
      (part.input_ids, 0, "token id"),
      (part.labels, IGNORE_INDEX, "label"),
    ):
      if not len(ids) or (ids.min() >= lowest and ids.max() < vocab_size):
        continue
      at = int(np.flatnonzero((ids < lowest) | (ids >= vocab_size))[0])
      example = int(np.searchsorted(part.example_splits, at, "right")) - 1
      member = self._members[source]
      raise ValueError(
        f"Source {member.name!r}, {member.place(int(numbers[example]))},"
        f" offset {at - part.example_splits[example]}: {what} {ids[at]} lies"
        f" outside the vocabulary [0, {vocab_size}). The data were made with"
        " another tokenizer, or `vocab_size` is wrong."
      )


def _joined(parts: Sequence[Examples]) -> _Tokens:
  """The tokens of all parts, one after the other."""
  none = np.zeros(0, np.int32)
  weights = None
  if any(part.weights is not None for part in parts):
    weights = np.concatenate([_weights(part) for part in parts])
  return _Tokens(
    ids=np.concatenate([none, *(part.input_ids for part in parts)]),
    labels=np.concatenate([none, *(part.labels for part in parts)]),
    weights=weights,
  )


def _weights(part: Examples) -> np.ndarray:
  if part.weights is not None:
    return part.weights
  return (part.labels != IGNORE_INDEX).astype(np.float32)
