"""Sources of known lengths in, plans of rows packed of their examples out.

  members   examples with lengths      a blend of sources takes turns
  windows   packed one by one          rows are counted from the first one on
  plans     pieces of any rows         and how many positions a batch needs

What rows of tokenized corpora and of records have in common: the planning.
How pieces are read is theirs.
"""

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from hpgrain.arguments import integer, row_numbers
from hpgrain.example_order import Lengths
from hpgrain.length_buckets import length_buckets as length_buckets_of
from hpgrain.mixes import plain_mix
from hpgrain.packed_fields import PackedPlans, starts
from hpgrain.packed_windows import PackedWindows, WindowRows
from hpgrain.packing import PackingOptions, reordered
from hpgrain.packing_counters import PackingCounters


@dataclasses.dataclass(frozen=True)
class Pass:
  """What one time through a source is, for reports.

  Attributes:
    rows_per_pass: its records, as `rows_per_source` counts them.
  """

  rows_per_pass: float


class RowPlanner:
  """Plans the rows of a run; reads no token.

  Attributes:
    members: the sources.
    options: how rows are packed.
    epochs: after which the rows end; None = never.
    buckets: positions that a batch may have.
    windows: the rows, window by window.
    counters: what became of the tokens.
  """

  def __init__(
    self,
    members: Sequence[Lengths],
    *,
    options: PackingOptions,
    seed: int,
    weights: Sequence[float] | None,
    shuffle: bool,
    epochs: int | None,
    length_buckets: Sequence[int],
  ):
    """Holds what decides the rows; nothing is packed before one is asked for.

    Args:
      members: the sources.
      options: how rows are packed.
      seed: decides the order.
      weights: by which records of several sources take turns; None takes each
        once an epoch.
      shuffle: whether records are permuted, each epoch anew.
      epochs: after which the rows end; None = never.
      length_buckets: see `row_positions`.

    Raises:
      ValueError: for an illegal argument, no source, two of one name, or one
        without a record.
    """
    if not members:
      raise ValueError("Packed rows need at least one source, got none.")
    _check_names([member.name for member in members])
    if weights is not None and len(weights) != len(members):
      raise ValueError(
        f"A blend needs one weight a source, got {len(weights)} weights for"
        f" {len(members)} sources."
      )
    self.members = tuple(members)
    self.options = options
    self.epochs = epochs
    self._seed, self._shuffle = integer("seed", seed), bool(shuffle)
    self.buckets = length_buckets_of(length_buckets, options)
    self._mix = plain_mix(weights, "no")
    self.windows = self._windows(epochs)
    self.counters = PackingCounters(self.windows)

  def _windows(self, epochs: int | None) -> PackedWindows:
    return PackedWindows(
      self.members,
      self._mix,
      self.options,
      seed=self._seed,
      shuffle=self._shuffle,
      epochs=epochs,
    )

  @property
  def identity(self) -> dict[str, Any]:
    """What decides the rows besides the sources.

    How rows are padded is no part of it.
    """
    options = self.options
    packing = {
      "packer": options.packer,
      "plan_window": options.plan_window,
      "overlong": options.overlong,
      "segment_multiple": options.segment_multiple,
      "max_segments": options.max_items,
      "epochs": self.epochs,
    }
    # Only where they are used: others may then be changed.
    if options.packer == "first_fit":
      packing["min_buffered_samples"] = options.min_buffered
    if options.packer == "fixed":
      packing["examples_per_row"] = options.examples_per_row
    return {
      "order": "stable",
      "shuffle": self._shuffle,
      "seed": self._seed,
      "seq_length": options.budget,
      "packing": packing,
      **self._mix.identity,
    }

  @property
  def passes(self) -> tuple[Pass, ...]:
    """What one time through each source is."""
    return tuple(Pass(float(m.num_records)) for m in self.members)

  @property
  def num_rows_or_endless(self) -> int:
    """Rows of all epochs, which packs them once; sys.maxsize if they go on."""
    num_rows = self.windows.num_rows
    return sys.maxsize if num_rows is None else num_rows

  def num_rows(self, epochs: int) -> int:
    """Returns how many rows `epochs` epochs have, which packs all of them.

    Raises:
      ValueError: these rows end after another number of epochs, or never.
    """
    if self.epochs != epochs:
      end = "never end" if self.epochs is None else (
        f"end after {self.epochs} epochs"
      )  # fmt: skip
      raise ValueError(
        f"These rows {end}, not after {epochs}: the last window of an order"
        " ends with it, so say `epochs` where they are made."
      )
    return self.num_rows_or_endless

  def rows_per_epoch(self) -> int:
    """Returns the rows of one epoch alone, which packs all of it."""
    if self.epochs == 1:
      return self.num_rows_or_endless
    num_rows = self._windows(1).num_rows
    assert num_rows is not None, "an order of epochs ends"
    return num_rows

  def plan_rows(self, rows: np.ndarray | Sequence[int]) -> PackedPlans:
    """Plans many rows.

    Args:
      rows: int64[n], in any order.

    Raises:
      IndexError: there is no such row.
      ValueError: an example is longer than a row, if that is an error, or no
        record makes a row.
    """
    numbers = row_numbers(rows).reshape(-1)
    windows = np.array([self.windows.find(r) for r in numbers.tolist()])
    # Runs of rows that one window holds.
    cuts = np.flatnonzero(windows[1:] != windows[:-1]) + 1
    found = [
      _taken(self.windows, int(windows[run[0]]), numbers[run])
      for run in np.split(np.arange(len(numbers)), cuts)
      if len(run)
    ]
    return _joined(found, multiple=self.options.segment_multiple)

  def row_positions(self, rows: np.ndarray | Sequence[int]) -> int:
    """Returns how many positions a batch of these rows needs.

    The first of `buckets.positions` that holds them all.

    Args:
      rows: int64[n], without those that are padding.

    Raises:
      ValueError: a row is longer than any bucket, naming its example.
    """
    if not self.buckets.depends_on_rows:
      return self.buckets.positions[0]
    plans = self.plan_rows(rows)
    ends = plans.start + plans.length
    need = int(ends.max(initial=0))
    chosen = self.buckets.choose(need)
    if chosen is not None:
      return chosen
    piece = int(np.argmax(ends))
    member = self.members[plans.source[piece]]
    raise ValueError(
      f"Source {member.name!r}, {member.place(int(plans.example[piece]))}: a"
      f" row of its own needs {need} positions, and the largest of"
      f" dataloader.length_buckets is {self.buckets.positions[-1]}. Add one"
      ' that holds it, or set dataloader.overlong to "split", "truncate" or'
      ' "drop".'
    )


def _check_names(names: Sequence[str]) -> None:
  seen: dict[str, int] = {}
  for i, name in enumerate(names):
    if seen.setdefault(name, i) != i:
      raise ValueError(
        f"Sources {seen[name]} and {i} are both named {name!r}, so their"
        " records would share an order. Give each its own name."
      )


def _taken(
  windows: PackedWindows, window: int, rows: np.ndarray
) -> tuple[WindowRows, np.ndarray, np.ndarray]:
  """Returns a window, and (row_splits, places) of these of its rows."""
  held = windows.window(window)
  splits, places = reordered(held.row_splits, rows - windows.first_row(window))
  return held, splits, places


def _joined(
  found: Sequence[tuple[WindowRows, np.ndarray, np.ndarray]], *, multiple: int
) -> PackedPlans:
  """One plan of rows that windows hold."""
  counts = [np.diff(splits) for _, splits, _ in found]
  row_splits = np.cumsum(
    np.concatenate([np.zeros(1, np.int64), *counts]), dtype=np.int64
  )

  def join(name: str, dtype: type) -> np.ndarray:
    return np.concatenate(
      [
        np.zeros(0, dtype),
        *(getattr(window, name)[places] for window, _, places in found),
      ]
    )

  length = join("length", np.int32)
  return PackedPlans(
    row_splits=row_splits,
    source=join("source", np.int32),
    example=join("example", np.int64),
    offset=join("offset", np.int64),
    length=length,
    start=starts(row_splits, length, multiple=multiple),
  )
