"""Longest rows in, the number of positions that a batch of them has out.

  length_buckets   64 128 256        packer="pad", budget 256
  rows             [40] [100] [7]
  positions        128               static shapes, one for each bucket

Which bucket a batch takes is known from the plans of its rows, so every
process knows it. It pads rows, and decides nothing of what stands in them.
"""

import dataclasses
from collections.abc import Sequence

from hpgrain.arguments import integer
from hpgrain.packing import PackingOptions


@dataclasses.dataclass(frozen=True)
class LengthBuckets:
  """The numbers of positions that a batch may have.

  Attributes:
    positions: ascending; the first that holds a batch's rows is taken.
    depends_on_rows: whether rows must be planned to know which.
  """

  positions: tuple[int, ...]
  depends_on_rows: bool

  def choose(self, need: int) -> int | None:
    """Returns the smallest that holds `need` positions; None: none does."""
    for bucket in self.positions:
      if bucket >= need:
        return bucket
    return None


def length_buckets(
  asked: Sequence[int], options: PackingOptions
) -> LengthBuckets:
  """Returns the buckets of rows that are packed as `options` say.

  Rows that are filled up to a budget have its positions. Rows of a number of
  examples have as many as the longest needs. An example with a row of its own
  takes a bucket above the budget.

  Args:
    asked: dataloader.length_buckets, in any order; empty for the budget alone.
    options: how rows are packed.

  Raises:
    ValueError: one is no length of a row, none holds every row, or there are
      some that no row would use.
  """
  for bucket in asked:
    integer("An entry of length_buckets", bucket, minimum=1)
    if bucket % options.segment_multiple:
      raise ValueError(
        "Each of length_buckets must be a multiple of segment_multiple ="
        f" {options.segment_multiple}, got {bucket}."
      )
  budget = options.budget
  buckets = tuple(sorted({int(bucket) for bucket in asked}))
  own_row = options.overlong == "own_row" and options.packer != "concat"
  if own_row and not buckets:
    raise ValueError(
      'overlong="own_row" gives an example that is longer than a row one of'
      " its own, which takes the smallest of length_buckets that holds it, and"
      f" there are none. Give one above the budget of {budget}."
    )
  counted = options.packer in ("pad", "fixed")
  if buckets and (counted or own_row) and buckets[-1] < budget:
    raise ValueError(
      f"The largest of length_buckets must hold any row, {budget} tokens, got"
      f" {list(asked)}."
    )
  if counted:
    return LengthBuckets(buckets or (budget,), own_row or len(buckets) > 1)
  if own_row:
    above = [bucket for bucket in buckets if bucket > budget]
    return LengthBuckets((budget, *above), True)
  if buckets not in ((), (budget,)):
    raise ValueError(
      f"length_buckets {list(asked)} have no meaning with"
      f" packer={options.packer!r} and overlong={options.overlong!r}: every"
      f" row is padded to the budget of {budget}. Leave them out, or take"
      ' packer="pad" or dataloader.type="fixed".'
    )
  return LengthBuckets((budget,), False)
