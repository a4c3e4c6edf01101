"""Which shards of a work folder have not done their units."""

from collections import Counter
from collections.abc import Sequence

from hpgrain.tools.work_folder import WorkFolder


def describe_missing(
  missing: Sequence[int],
  total: int,
  *,
  folder: WorkFolder,
  num_shards: int,
) -> str:
  """Says what is missing for a merge, and what to do.

  Args:
    missing: numbers of the units that are not finished.
    total: all units.
    folder: of their files.
    num_shards: as the flags give it; 1 takes what runs left in the folder, if
      they all had the same.
  """
  what = f"{len(missing)} of {total} units are not finished in {folder.path}"
  counts = folder.shard_counts() if num_shards == 1 else {num_shards}
  if len(counts) != 1:
    return (
      f"{what}, the first of them unit {missing[0]}. Let all shards end, then"
      " merge. Unit i is of shard i modulo --num-shards: give that flag to see"
      " which shards these are of."
    )
  (count,) = counts
  per_shard = Counter(number % count for number in missing)
  listed = ", ".join(
    f"shard {shard} ({number} missing)"
    for shard, number in sorted(per_shard.items())
  )
  return (
    f"{what}: of {count} shards, {listed}. Let these end, or run them again,"
    " then merge; a shard does only what is missing."
  )
