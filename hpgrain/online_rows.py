"""Planned rows in, their examples made once, and windows of fields out.

  plan      row 0: a5[0:3] b2[0:4]     row 1: a5[3:6]
  read      a5 once, b2 once           whatever the windows; sources of equal
                                       transforms by one call
  fields    any window of any field

A record is tokenized whole, so rows are read as a whole: a process that holds
a part of the positions makes all tokens, once, and copies its part.
"""

import dataclasses
import itertools
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from hpgrain.example_order import Lengths
from hpgrain.examples import Examples
from hpgrain.fields import FieldOptions
from hpgrain.measured import MeasuredRecords
from hpgrain.measured_together import read_together
from hpgrain.packed_fields import PackedPlans, clip, make_packed_fields
from hpgrain.records import DATASET_ID, IGNORE_INDEX, LABELS, TOKENS


class Member(Lengths, Protocol):
  """A source whose examples have known lengths and can be read."""

  @property
  def identity(self) -> Mapping[str, Any]:
    """What the examples are, as JSON."""
    ...

  def measure(self) -> None:
    """Finds the lengths, unless they are known."""
    ...

  def read(self, examples: np.ndarray) -> Examples:
    """Returns examples int64[n], one a record, in that order.

    Raises:
      ValueError: one cannot be read, or has another length than it had.
    """
    ...


@dataclasses.dataclass(frozen=True)
class _Tokens:
  """Tokens of examples: int32[t], int32[t] and float32[t] or None."""

  ids: np.ndarray
  labels: np.ndarray
  weights: np.ndarray | None


class OnlineRows:
  """Planned rows; their examples are made once, when a field is asked for.

  Attributes:
    plans: their pieces.
  """

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
    self._members, self.plans = members, plans
    self._vocab_size = vocab_size
    self._lock = threading.Lock()
    self._made: tuple[np.ndarray, _Tokens] | None = None

  def fields(
    self, window: tuple[int, int], *, num_rows: int, options: FieldOptions
  ) -> dict[str, np.ndarray]:
    """Returns positions [a, b) of every field; see `token_rows.OpenRows`."""
    plans = self.plans
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
    plans = self.plans
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
    plans = self.plans
    # An example that is cut may have several pieces here.
    order = np.lexsort((plans.example, plans.source))
    source, example = plans.source[order], plans.example[order]
    is_new = np.ones(len(order), bool)
    is_new[1:] = (source[1:] != source[:-1]) | (example[1:] != example[:-1])
    source, example = source[is_new], example[is_new]
    parts: list[Examples] = []
    begin = np.zeros(len(example), np.int64)
    num_tokens = 0
    for group in self._groups(source):
      chosen = np.concatenate([np.arange(a, b) for _, a, b in group])
      part = self._read([(i, example[a:b]) for i, a, b in group])
      self._check_ids(source[chosen], example[chosen], part)
      begin[chosen] = num_tokens + part.example_splits[:-1]
      num_tokens += len(part.input_ids)
      parts.append(part)
    begins = np.zeros(len(plans.length), np.int64)
    begins[order] = begin[np.cumsum(is_new) - 1] + plans.offset[order]
    return begins, _joined(parts)

  def _groups(self, source: np.ndarray) -> list[list[tuple[int, int, int]]]:
    """Finds which sources are read together.

    Args:
      source: int32[n], of each example, ascending.

    Returns:
      Of each group its sources, as (source, begin, end) of their examples.
    """
    cuts = [0, *(np.flatnonzero(np.diff(source)) + 1).tolist(), len(source)]
    groups: dict[Any, list[tuple[int, int, int]]] = {}
    for begin, end in itertools.pairwise(cuts):
      if begin < end:
        i = int(source[begin])
        member = self._members[i]
        shared = None
        if isinstance(member, MeasuredRecords):
          shared = member.shared_transform
        # By itself, unless it says what it has in common with others.
        key = i if shared is None else shared
        groups.setdefault(key, []).append((i, begin, end))
    return list(groups.values())

  def _read(self, asked: Sequence[tuple[int, np.ndarray]]) -> Examples:
    """Returns the examples of a group's sources, one after the other."""
    members = [self._members[i] for i, _ in asked]
    measured = [m for m in members if isinstance(m, MeasuredRecords)]
    if len(asked) == 1:
      return members[0].read(asked[0][1])
    return read_together(measured, [numbers for _, numbers in asked])

  def _check_ids(
    self, sources: np.ndarray, numbers: np.ndarray, part: Examples
  ) -> None:
    """Raises ValueError at the first id that lies outside the vocabulary.

    Args:
      sources: int32[n], of each example.
      numbers: int64[n], which of its source's it is.
      part: the examples.
    """
    vocab_size = self._vocab_size or 1 << 31
    for ids, lowest, what in (
      (part.input_ids, 0, "token id"),
      (part.labels, IGNORE_INDEX, "label"),
    ):
      if not len(ids) or (ids.min() >= lowest and ids.max() < vocab_size):
        continue
      at = int(np.flatnonzero((ids < lowest) | (ids >= vocab_size))[0])
      example = int(np.searchsorted(part.example_splits, at, "right")) - 1
      member = self._members[sources[example]]
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
