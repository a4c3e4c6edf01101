r"""What turns records into examples: the shape every transform has.

  records   {"text": ..}   {"text": ".."}   {"text": ""}
  examples  [e0] [e1]      [e2]                            one after the other

A transform sees records and nothing else: not their numbers, no epoch, no
mesh. So its examples can be measured once, kept, and made again anywhere.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from hpgrain.examples import Examples
from hpgrain.transforms.counters import Counters

# What a source gives for one record, and where record i of a batch stands, as
# messages name it.
Record = Mapping[str, Any]
Place = Callable[[int], str]


class Transform(Protocol):
  """Turns records into examples.

  Construction reads no tokenizer and tokenizes nothing. A transform may be
  called from several threads, and pickled: the copy opens what it needs anew
  and counts from zero.
  """

  counters: Counters

  @property
  def identity(self) -> dict[str, Any]:
    """Everything that decides the examples, as JSON.

    It may load a tokenizer, for its digest, but tokenizes nothing.
    """
    ...

  @property
  def one_to_one(self) -> bool:
    """Whether no record ever gives more than one example."""
    ...

  def __call__(self, records: Sequence[Record], place: Place) -> Examples:
    """Turns a batch of records into their examples, in order.

    Args:
      records: the batch. How records are batched changes no example.
      place: names record i of the batch, as "{path}, record 12".

    Raises:
      ValueError: a record is not what the transform expects. It names the
        record's place and never quotes it.
    """
    ...


def refuse_several(examples: Examples, place: Place) -> None:
  """Checks that each record gave one example, or none where it was dropped.

  Args:
    examples: of a batch.
    place: names record i of the batch.

  Raises:
    ValueError: at the first record that gave several.
  """
  counts = np.diff(examples.record_splits)
  several = np.flatnonzero(counts > 1)
  if len(several):
    first = int(several[0])
    raise ValueError(
      f"{place(first)} gives {counts[first]} examples, but"
      " dataloader.type='fixed' takes exactly one of each record. Set"
      " dataloader.type='dynamic', which packs any number of them, or raise"
      " data_transform.max_seq_len."
    )
