"""Functions of the user's own over records: which to keep, and what of chance.

  records -> change(record, generator) -> keep(record)? -> transform -> examples

A function cannot be hashed, so it comes with a name that stands for it in
whatever identifies the examples: give another name when it does otherwise.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hpgrain.examples import Examples
from hpgrain.transforms.counters import Counters
from hpgrain.transforms.keyed_random import sample_generator
from hpgrain.transforms.transform import Place, Record, Transform

Change = Callable[[Record, np.random.Generator], Record]


class FilteredTransform:
  """A transform over those records that a function keeps.

  The others give no example, and are counted as "filtered". They keep their
  number in the source, so a filter moves no other record.
  """

  def __init__(
    self, transform: Transform, keep: Callable[[Record], bool], *, name: str
  ) -> None:
    """Holds the function.

    Args:
      transform: makes examples of what is kept.
      keep: whether a record is kept. It depends on the record alone, and may
        be called by several threads; where the transform is pickled, so is
        the function.
      name: stands for the function in `identity`.

    Raises:
      ValueError: the function cannot be called, or the name is empty.
    """
    if not callable(keep) or not isinstance(name, str) or not name:
      raise ValueError(
        "A filter is a function of a record, and a name that changes when it"
        f" decides otherwise; got {type(keep).__name__} and {name!r}."
      )
    self._transform = transform
    self._keep = keep
    self._name = name

  @property
  def counters(self) -> Counters:
    """Those of the transform; what was filtered out is among them."""
    return self._transform.counters

  @property
  def identity(self) -> dict[str, Any]:
    """The transform's, and the filter's name."""
    return {"filter": self._name, "of": self._transform.identity}

  @property
  def one_to_one(self) -> bool:
    """As the transform."""
    return self._transform.one_to_one

  def __call__(self, records: Sequence[Record], place: Place) -> Examples:
    """See `transform.Transform`.

    Raises:
      ValueError: the function gave no bool for a record.
    """
    kept = [self._kept(record, i, place) for i, record in enumerate(records)]
    which = np.flatnonzero(kept)
    with self.counters.among(which):
      made = self._transform(
        [records[i] for i in which], lambda i: place(int(which[i]))
      )
    counts = np.zeros(len(records), np.int64)
    counts[which] = np.diff(made.record_splits)
    splits = np.concatenate([[0], np.cumsum(counts)])
    out = np.flatnonzero(np.logical_not(kept))
    none = np.zeros(0, np.int32)
    nothing = Examples(
      np.zeros(len(out) + 1, np.int64), np.zeros(1, np.int64), none, none
    )
    with self.counters.among(out):
      self.counters.add(
        nothing,
        dropped={"filtered": np.ones(len(out), np.int64)},
        tokens_dropped={},
      )
    return Examples(
      splits, made.example_splits, made.input_ids, made.labels, made.weights
    )

  def _kept(self, record: Record, index: int, place: Place) -> bool:
    kept = self._keep(record)
    if not isinstance(kept, (bool, np.bool_)):
      raise ValueError(
        f"{place(index)}: the filter {self._name!r} must give True or False,"
        f" got {type(kept).__name__}."
      )
    return bool(kept)


@dataclasses.dataclass(frozen=True)
class RecordChange:
  """A function of a record and of chance; see `StreamRows`.

  A record's random numbers hang on the seed, its source, its number in it and
  the epoch: who reads it, or when, changes nothing. Lengths then depend on
  the epoch, so it goes with `lengths="stream"`.

  Attributes:
    change: gets a record and its generator, and returns the new record; it
      leaves the one it got as it is.
    name: stands for the function in `identity`.
  """

  change: Change
  name: str

  def __post_init__(self) -> None:
    """Checks the two.

    Raises:
      ValueError: the function cannot be called, or the name is empty.
    """
    if not callable(self.change) or not self.name:
      raise ValueError(
        "A change is a function of a record and a generator, and a name that"
        " changes when it does otherwise; got"
        f" {type(self.change).__name__} and {self.name!r}."
      )

  def of(
    self, *, seed: int, source: str
  ) -> Callable[[list[Record], list[int], int], list[Record]]:
    """Returns what changes a source's records, by number, in an epoch."""
    return functools.partial(
      _changed, change=self.change, seed=seed, source=source
    )


def _changed(
  records: list[Record],
  numbers: list[int],
  epoch: int,
  *,
  change: Change,
  seed: int,
  source: str,
) -> list[Record]:
  return [
    change(record, sample_generator(seed, source, number, epoch))
    for record, number in zip(records, numbers, strict=True)
  ]
