"""Paths of tokenized corpora in; rows packed of whole documents out.

data_path + split        each source is cut into three
train_data_path, ...     each split has sources of its own, read whole
"""

from collections.abc import Sequence
from typing import Any

from hpgrain.indexed_dataset import Share, open_shares
from hpgrain.packed_samples import PackedSamples
from hpgrain.packing import PackingOptions
from hpgrain.sources.indexed import IndexedReader
from hpgrain.splits import SPLIT_NAMES
from hpgrain.token_ids import TokenIds


def build_packed_splits(
  *,
  packing: PackingOptions,
  epochs: int | None,
  labels_are_shifted: bool,
  length_buckets: Sequence[int] = (),
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
    **arguments: of `indexed_dataset.build_splits`.

  Returns:
    Rows of train, valid and test, None where a split has no weight or path.

  Raises:
    ValueError: an argument, a path or a pair is not right.
  """
  options, shares, ids = open_shares(**arguments)

  def rows(name: str, share: Share) -> PackedSamples:
    train = name == "train"
    weights = [spec.weight for spec in share.specs]
    blended = train and len(weights) > 1 and None not in weights
    return PackedSamples(
      [IndexedReader(s.path, mmap=options.mmap) for s in share.specs],
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
