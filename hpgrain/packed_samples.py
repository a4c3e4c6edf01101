"""Documents of tokenized corpora in, rows packed of whole documents out.

  document   a b c d |           n tokens are n - 1 positions: a b c, and their
                                 labels b c d
  row        a b c | u v w x | . .

No document is cut, unless it is longer than a row, and every label is the
document's own: nothing is lost where documents meet. The lengths stand in the
`.idx`, so rows are planned without a token being read.
"""

import operator
from collections.abc import Sequence
from typing import Any

import grain
import numpy as np

from hpgrain import gather
from hpgrain.corpus import Corpus, choose_split
from hpgrain.document_lengths import DocumentLengths
from hpgrain.fields import FieldOptions
from hpgrain.packed_fields import PackedPlans
from hpgrain.packed_rows import Pass, RowPlanner
from hpgrain.packed_token_rows import PackedTokenRows
from hpgrain.packing import PackingOptions
from hpgrain.records import INPUT_IDS, LABELS, TOKENS, RowPlans
from hpgrain.sources.indexed import IndexedReader
from hpgrain.splits import parse_split


class PackedSamples(grain.MapDataset):
  """Rows packed of the documents of one or several corpora."""

  def __init__(
    self,
    prefixes: Sequence[str | IndexedReader],
    *,
    options: PackingOptions,
    seed: int,
    weights: Sequence[float] | None = None,
    split: str = "1,0,0",
    split_index: int = 0,
    shuffle: bool = True,
    epochs: int | None = None,
    labels_are_shifted: bool = True,
    names: Sequence[str] | None = None,
    vocab_size: int | None = None,
    length_buckets: Sequence[int] = (),
  ):
    """Opens the corpora; nothing is packed before a row is asked for.

    Args:
      prefixes: of the `.idx`/`.bin` pairs, or readers of them.
      options: how rows are packed; `budget` is the positions of a row.
      seed: decides the order.
      weights: by which records of several corpora take turns; None takes each
        once an epoch.
      split: weights of train, valid and test over each one's sequences.
      split_index: 0, 1 or 2, which of them to read.
      shuffle: whether records are permuted, each epoch anew.
      epochs: after which the rows end; None = never.
      labels_are_shifted: whether the label of a position is the token after
        it; if not, it is the position's own.
      names: key the orders; default the prefixes' basenames.
      vocab_size: ids at or above it are an error when rows are read.
      length_buckets: positions that a batch may have; see `row_positions`.

    Raises:
      ValueError: for an illegal argument, a pair that is not sound, two
        sources of one name, or a source without a sequence in the split.
    """
    super().__init__()
    readers = [
      p if isinstance(p, IndexedReader) else IndexedReader(p) for p in prefixes
    ]
    self.sources = tuple(
      Corpus(reader, None if names is None else names[i])
      for i, reader in enumerate(readers)
    )
    self.seq_length = options.budget
    self.vocab_size = vocab_size
    self._split, self._split_index = split, split_index
    self._ahead = int(labels_are_shifted)
    self._members = tuple(
      DocumentLengths(
        corpus,
        first=first,
        last=last,
        ahead=self._ahead,
      )
      for corpus in self.sources
      for first, last in [choose_split(corpus.reader, split, split_index)]
    )
    self.planner = RowPlanner(
      self._members,
      options=options,
      seed=seed,
      weights=weights,
      shuffle=shuffle,
      epochs=epochs,
      length_buckets=length_buckets,
    )

  def __len__(self) -> int:
    """Rows of all epochs, which packs them once; sys.maxsize without end."""
    return self.planner.num_rows_or_endless

  def __getitem__(self, index: Any) -> Any:
    """Returns {tokens, labels}, int32[n] each, of row `index`, not padded."""
    if isinstance(index, slice):
      return self.slice(index)
    plans = self.plan(index)
    num_positions = int((plans.start + plans.length).max())
    fields = PackedTokenRows(self, plans).fields(
      (0, num_positions), num_rows=1, options=FieldOptions()
    )
    return {TOKENS: fields[INPUT_IDS][0], LABELS: fields[LABELS][0]}

  @property
  def unique_identifiers(self) -> dict[str, Any]:
    """Everything that decides the rows; paths and times do not."""
    return {
      "kind": "packed documents",
      "split": parse_split(self._split),
      "split_index": self._split_index,
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

  @property
  def length_buckets(self) -> tuple[int, ...]:
    """Positions that a batch may have, ascending; `row_positions` is one."""
    return self.planner.buckets.positions

  def counters(self, num_rows: int) -> dict[str, Any]:
    """Returns what the first rows hold; see `PackingCounters.as_dict`."""
    return self.planner.counters.as_dict(num_rows)

  def row_positions(self, rows: np.ndarray | Sequence[int]) -> int:
    """Returns how many positions a batch of rows int64[n] needs.

    See `RowPlanner.row_positions`.
    """
    return self.planner.row_positions(rows)

  def plan(self, index: int) -> PackedPlans:
    """Plans one row."""
    return self.plan_rows([operator.index(index)])

  def plan_rows(self, rows: np.ndarray | Sequence[int]) -> PackedPlans:
    """Plans many rows, reading no token; see `RowPlanner.plan_rows`."""
    return self.planner.plan_rows(rows)

  def open_rows(self, rows: np.ndarray | Sequence[int]) -> "PackedTokenRows":
    """Plans rows, to read windows of their fields."""
    return PackedTokenRows(self, self.plan_rows(rows))

  def reaches(self, row: int) -> bool:
    """Whether there is a row, packing no further than to know."""
    return self.planner.windows.reaches(row)

  def place(self, row: int) -> tuple[int, int]:
    """Returns (window, first_row), which `seek` takes."""
    return self.planner.windows.place(row)

  def seek(self, window: int, first_row: int) -> None:
    """Lets rows from a window on be found without those before it."""
    self.planner.windows.seek(window, first_row)

  def read_parts(
    self,
    plans: PackedPlans,
    pieces: np.ndarray,
    *,
    skipped: np.ndarray,
    count: np.ndarray,
  ) -> np.ndarray:
    """Reads parts of pieces, one after the other, with one token more each.

    The token more, where labels are shifted, is the last position's label.

    Args:
      plans: of the pieces.
      pieces: int64[k], which of them.
      skipped: int64[k], positions of each before the part.
      count: int32[k], positions of the part.

    Returns:
      int32[sum(count + ahead)].

    Raises:
      ValueError: an id is outside the vocabulary.
    """  # fmt: skip
    # Parts of one source by one, then all in the order of their pieces.
    found = []
    for i in np.unique(plans.source[pieces]).tolist():
      chosen = np.flatnonzero(plans.source[pieces] == i)
      run, sequence, offset, length = self._members[i].parts(
        plans.example[pieces[chosen]],
        offset=plans.offset[pieces[chosen]] + skipped[chosen],
        count=count[chosen].astype(np.int64) + self._ahead,
      )
      source = np.full(len(run), i, np.int32)
      found.append((chosen[run], source, sequence, offset, length))
    run, *columns = [np.concatenate(column) for column in zip(*found)]
    order = np.argsort(run, kind="stable")
    source, sequence, offset, length = [column[order] for column in columns]
    parts = RowPlans(
      row_splits=np.array([0, len(order)], np.int64),
      source=source,
      sequence=sequence,
      offset=offset,
      length=length,
      boundary=np.ones(len(order), bool),
    )
    return gather.read_rows(
      parts,
      sources=self.sources,
      columns=(0, int(length.sum(dtype=np.int64))),
      vocab_size=self.vocab_size,
    )[0]

  @property
  def ahead(self) -> int:
    """Tokens of a document that are labels alone, 0 or 1."""
    return self._ahead
