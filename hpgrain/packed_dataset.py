"""Paths of tokenized corpora in; rows packed of whole documents out.

data_path + split        each source is cut into three
train_data_path, ...     each split has sources of its own, read whole

A split that has nothing to make a row of is an error where it is needed; else
there are no rows of it, which is said.
"""

import logging
from collections.abc import Collection, Sequence
from typing import Any

from hpgrain.corpus import Corpus, choose_split
from hpgrain.dataset_options import DatasetOptions
from hpgrain.document_lengths import DocumentLengths
from hpgrain.example_order import has_tokens
from hpgrain.indexed_dataset import Share, open_shares
from hpgrain.packed_samples import PackedSamples
from hpgrain.packing import PackingOptions
from hpgrain.sources.indexed import IndexedReader
from hpgrain.splits import SPLIT_NAMES
from hpgrain.token_ids import TokenIds

_log = logging.getLogger(__name__)


def build_packed_splits(
  *,
  packing: PackingOptions,
  epochs: int | None,
  labels_are_shifted: bool,
  length_buckets: Sequence[int] = (),
  needed: Collection[str] = ("train",),
  **arguments: Any,
) -> tuple[list[PackedSamples | None], TokenIds]:
  """Builds the rows of each split, and says what is known of token ids.

  Valid and test are read in file order, each document once, whatever the
  weights of a blend are.

  Args:
    packing: how documents fill rows.
    epochs: after which train ends; None = never.
    labels_are_shifted: whether the label of a position is the token after it.
    length_buckets: positions that a batch may have.
    needed: names of the splits that must have a row.
    **arguments: of `indexed_dataset.build_splits`.

  Returns:
    Rows of train, valid and test, None where a split has no weight, path or
    row.

  Raises:
    ValueError: an argument, a path or a pair is not right, or a split that is
      needed has no row.
  """
  options, shares, ids = open_shares(**arguments)

  def rows(name: str, share: Share) -> PackedSamples | None:
    train = name == "train"
    readers = [IndexedReader(s.path, mmap=options.mmap) for s in share.specs]
    if not _has_row(readers, share, ahead=int(labels_are_shifted)):
      said = _no_row(name, sum(map(len, readers)), options)
      if name in needed:
        raise ValueError(said)
      _log.warning("%s There is no loader for it.", said)
      return None
    weights = [spec.weight for spec in share.specs]
    blended = train and len(weights) > 1 and None not in weights
    return PackedSamples(
      readers,
      options=packing,
      seed=options.seed,
      weights=weights if blended else None,
      split=share.split,
      split_index=share.split_index,
      shuffle=train,
      epochs=epochs if train else 1,
      labels_are_shifted=labels_are_shifted,
      names=[spec.name for spec in share.specs],
      vocab_size=ids.vocab_size,
      length_buckets=length_buckets,
    )

  return [
    None if share is None else rows(name, share)
    for name, share in zip(SPLIT_NAMES, shares)
  ], ids


def _has_row(
  readers: Sequence[IndexedReader], share: Share, *, ahead: int
) -> bool:
  """Whether any document of a split has a position to fill."""
  for reader, spec in zip(readers, share.specs):
    first, last = choose_split(reader, share.split, share.split_index)
    corpus = Corpus(reader, spec.name)
    documents = DocumentLengths(corpus, first=first, last=last, ahead=ahead)
    if first < last and has_tokens(documents, None):
      return True
  return False


def _no_row(name: str, count: int, options: DatasetOptions) -> str:
  """Says that a split has no row; its sources have `count` sequences."""
  if options.data_path is None:
    return (
      f"dataset.{name}_data_path has no document that makes a row ({count}"
      " sequences). Give it data, or leave it unset."
    )
  return (
    f"dataset.data_config.split={options.split!r} leaves {name} no document"
    f" that makes a row, of {count} sequences. Give it a larger share, or 0."
  )
