"""Damaged pairs raise an error or give the tokens that their bytes say."""

import struct

import fuzz_indexed
import numpy as np
import pytest

from hpgrain.sources import index_checks


def test_two_thousand_damaged_pairs_never_give_wrong_tokens(tmp_path):
  outcomes = fuzz_indexed.fuzz(2000, seed=0, folder=tmp_path)

  assert sum(outcomes.values()) == 2000
  # All three happen often: the damages are neither too coarse nor too fine.
  assert min(outcomes[name] for name in ("refused", "partly", "read")) > 100


def test_the_fuzzer_finds_a_reader_that_does_not_look_at_its_neighbours(
  tmp_path, monkeypatch
):
  def locate(index, layout, sequence, **unused):
    length = layout.lengths(index)[sequence]
    return int(layout.pointers(index)[sequence]), int(length)

  monkeypatch.setattr(index_checks, "locate_sequence", locate)
  with pytest.raises(AssertionError, match=r"damaged sequence . was read"):
    fuzz_indexed.fuzz(2000, seed=0, folder=tmp_path)


def test_the_fuzzer_finds_a_check_that_refuses_sound_pairs(
  tmp_path, monkeypatch
):
  def check(document_indices, num_sequences, prefix):
    if (np.diff(document_indices) == 0).any():
      raise ValueError("an empty document")

  monkeypatch.setattr(index_checks, "check_documents", check)
  with pytest.raises(AssertionError, match="a sound pair was not verified"):
    fuzz_indexed.fuzz(2000, seed=0, folder=tmp_path)


def test_the_independent_parser_reads_a_pair_written_out_by_hand():
  index = (
    b"MMIDIDX\0\0"
    + struct.pack("<QBQQ", 1, 8, 2, 2)
    + struct.pack("<2i", 2, 1)
    + struct.pack("<2q", 0, 4)
    + struct.pack("<2q", 0, 2)
  )
  parsed = fuzz_indexed.parse(index, struct.pack("<3H", 5, 6, 7))

  assert parsed is not None and parsed.sound() and parsed.modes is None
  assert parsed.sequence(0) == struct.pack("<2H", 5, 6)
  assert parsed.sequence(1) == struct.pack("<H", 7)
  assert fuzz_indexed.parse(index + b"\0", b"") is None
