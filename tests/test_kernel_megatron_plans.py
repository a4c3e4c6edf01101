"""Plans of Megatron's samples against a slice of a list of all tokens."""

import megatron_twins as slow
import numpy as np
import pytest
import twins
from corpora import write_pair
from hypothesis import given
from hypothesis import strategies as st
from kernel_files import corpora, token_file

from hpgrain import _kernels
from hpgrain.sources.indexed_reader import IndexedReader


def assert_plans_equal(got, expected):
  names = ("row_splits", "source", "sequence", "offset", "length", "boundary")
  for name, a, b in zip(names, got, expected, strict=True):
    assert a.dtype == b.dtype, name
    assert a.tolist() == b.tolist(), name
