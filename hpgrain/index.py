"""The index functions as one public module: splits, orders, blends."""

from hpgrain.blend import StableBlend
from hpgrain.megatron import sample_index, shuffle
from hpgrain.megatron_blend import blend_index, exhaustive_blend_index
from hpgrain.order import permutation_key, permute
from hpgrain.splits import split_bounds

__all__ = [
  "StableBlend",
  "blend_index",
  "exhaustive_blend_index",
  "permutation_key",
  "permute",
  "sample_index",
  "shuffle",
  "split_bounds",
]
