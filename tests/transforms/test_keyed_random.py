import numpy as np
import pytest

from hpgrain.transforms.keyed_random import sample_generator, sample_key


def test_the_key_and_the_bits_are_these_for_ever():
  assert (
    sample_key(1234, "wiki", 17, 2).hex() == "48c599d29e9b95b96d703e7eaac04edb"
  )
  generator = sample_generator(1234, "wiki", 17, 2)
  assert generator.bit_generator.random_raw(3).tolist() == [
    6481983675101898714,
    8339043463704608600,
    10875823761229318905,
  ]


def test_each_sample_has_its_own():
  keys = {
    sample_key(seed, name, record, epoch)
    for seed in (0, 1)
    for name in ("a", "ä")
    for record in (0, 1, 10**12)
    for epoch in (0, 1)
  }
  assert len(keys) == 24
  # A Python integer and NumPy's are one number.
  assert sample_key(0, "a", np.int64(1), 0) == sample_key(0, "a", 1, 0)


def test_numbers_are_checked():
  with pytest.raises(ValueError, match="record must be at least 0, got -1"):
    sample_key(0, "a", -1, 0)
  with pytest.raises(ValueError, match=r"epoch must be an integer, got 0\.5"):
    sample_key(0, "a", 0, 0.5)
