"""The index functions as one public module: splits, permutations, blends."""

from hpgrain.blend import StableBlend
from hpgrain.order import permutation_key, permute
from hpgrain.splits import split_bounds

__all__ = ["StableBlend", "permutation_key", "permute", "split_bounds"]
