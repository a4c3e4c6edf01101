"""A sample's own random numbers: (seed, source, record, epoch) to a generator.

They are the same on every host, for any number of workers and after any
resume, because nothing else decides them. Promised for ever are the bits: the
key, and Philox's stream under it. What NumPy draws from the bits, as `normal`
does, NumPy may change from version to version.
"""

import hashlib
import json

import numpy as np

from hpgrain.arguments import integer


def sample_key(seed: int, name: str, record: int, epoch: int) -> bytes:
  """The 16-byte key of one sample.

  It is the beginning of BLAKE2b over the JSON list
  `["sample",seed,name,record,epoch]` in UTF-8, without spaces.

  Args:
    seed: `training.seed`.
    name: of the source.
    record: its number in the source.
    epoch: how many times the source was read through before.

  Raises:
    ValueError: for a number that is no integer, or a negative record or epoch.
  """
  parts = [
    "sample",
    integer("seed", seed),
    str(name),
    integer("record", record, minimum=0),
    integer("epoch", epoch, minimum=0),
  ]
  text = json.dumps(parts, ensure_ascii=False, separators=(",", ":"))
  return hashlib.blake2b(text.encode()).digest()[:16]


def sample_generator(
  seed: int, name: str, record: int, epoch: int
) -> np.random.Generator:
  """The generator of one sample; the arguments are `sample_key`'s."""
  key = sample_key(seed, name, record, epoch)
  return np.random.Generator(
    np.random.Philox(key=int.from_bytes(key, "little"))
  )
