r"""Sources read in turn in, V streams of packed rows out.

  record g of the blend -> stream g % V -> tokenized, packed -> its rows
  row g of the run      =  row g // V of stream g % V

What a stream's rows are hangs on the data, the options and the seed. Whichever
process holds it makes the same, so any number of them may share the streams,
and share them otherwise after a save.
"""

import copy
from collections.abc import Sequence
from typing import Any

from hpgrain import pack
from hpgrain.arguments import integer
from hpgrain.blended_records import BlendedRecords, make_blend
from hpgrain.packing import PackingOptions
from hpgrain.sources.in_turn.source import InTurn
from hpgrain.sources.in_turn.window_shuffle import Epochs
from hpgrain.stream_reader import StreamReader
from hpgrain.transforms.record_hooks import RecordChange
from hpgrain.transforms.transform import Transform

HANDOVER_BYTES = 256 << 20


class StreamRows:
  """The rows of one split of data that is read in turn.

  Attributes:
    sources: as given.
    options: how rows are packed.
    seq_length: positions of a row.
    num_streams: V.
    vocab_size: every id lies below it; None where it is not known.
  """

  def __init__(
    self,
    sources: Sequence[InTurn],
    transforms: Sequence[Transform],
    *,
    options: PackingOptions,
    weights: Sequence[float] | None,
    seed: int,
    shuffle_buffer_size: int | None,
    epochs: int | None,
    num_streams: int = 64,
    pack_window: int = 64,
    handover_bytes: int = HANDOVER_BYTES,
    spill_folder: str | None = None,
    vocab_size: int | None = None,
    change: RecordChange | None = None,
  ):
    """Holds what decides the rows; opens nothing.

    Args:
      sources: one or more, of names that differ.
      transforms: of each source.
      options: how rows are packed; `plan_window` has no meaning here.
      weights: by which records of several sources take turns; needed for
        them, as how many records they have is not known.
      seed: of the shuffle.
      shuffle_buffer_size: records of a source that are shuffled at a time;
        None: none.
      epochs: of each source, after which the rows end; None = never. A blend
        ends before the first record that would begin one too many.
      num_streams: V. It decides the rows.
      pack_window: pieces that "best_fit" chooses among.
      handover_bytes: tokens that may wait in memory for streams that lag;
        what is more waits in a file.
      spill_folder: of that file, which has no name; None takes the system's
        for such.
      vocab_size: an id at or above it is an error.
      change: what is done by chance to each record first, anew every epoch.

    Raises:
      ValueError: for an illegal argument, no source, two of one name, several
        without weights, or a policy that needs rows of several lengths.
    """
    if not sources:
      raise ValueError("Row streams need at least one source, got none.")
    if len(transforms) != len(sources):
      raise ValueError(
        f"Every source needs a transform, got {len(transforms)} for"
        f" {len(sources)} sources."
      )
    names = [source.name for source in sources]
    for i, name in enumerate(names):
      if names.index(name) != i:
        raise ValueError(
          f"Sources {names.index(name)} and {i} are both named {name!r}, so"
          " they would share an order. Give each its own name."
        )
    if options.overlong == "own_row":
      raise ValueError(
        'overlong="own_row" needs rows of several lengths, and which one a'
        ' batch has is known beforehand only with lengths="table": set'
        " dataset.data_config.lengths so, or take another of"
        f" {', '.join(p for p in pack.OVERLONG if p != 'own_row')}."
      )
    self._blend = make_blend(len(sources), weights)
    self.sources = tuple(sources)
    self.options = options
    self.seq_length = options.budget
    self.vocab_size = vocab_size
    self.num_streams = integer("num_streams", num_streams, minimum=1)
    self._transforms = tuple(transforms)
    self._weights = None if weights is None else tuple(weights)
    self._seed = integer("seed", seed)
    self._shuffle_buffer_size = shuffle_buffer_size
    if shuffle_buffer_size is not None:
      integer("shuffle_buffer_size", shuffle_buffer_size, minimum=1)
    self._epochs = epochs
    if epochs is not None:
      integer("epochs", epochs, minimum=1)
    self._pack_window = integer("pack_window", pack_window, minimum=1)
    self._handover_bytes = integer("handover_bytes", handover_bytes, minimum=0)
    self._spill_folder = spill_folder
    self._change = change

  def with_num_streams(self, num_streams: int) -> "StreamRows":
    """Returns the rows of the same data in another number of streams."""
    other = copy.copy(self)
    other.num_streams = integer("num_streams", num_streams, minimum=1)
    return other

  @property
  def unique_identifiers(self) -> dict[str, Any]:
    """What decides the rows, but for `num_streams`; no paths, no times.

    A state has the number of streams by itself, and whoever restores it takes
    that one.
    """
    options = self.options
    packing: dict[str, Any] = {
      "packer": options.packer,
      "overlong": options.overlong,
      "segment_multiple": options.segment_multiple,
      "max_segments": options.max_items,
      "epochs": self._epochs,
    }
    # Only where they are used: others may then be changed.
    if options.packer == "best_fit":
      packing["pack_window"] = self._pack_window
    if options.packer == "first_fit":
      packing["min_buffered_samples"] = options.min_buffered
    if options.packer == "fixed":
      packing["examples_per_row"] = options.examples_per_row
    change = self._change
    return {
      **({} if change is None else {"change": change.name}),
      "kind": "row streams",
      "order": "streams",
      "shuffle": self._shuffle_buffer_size is not None,
      "shuffle_buffer_size": self._shuffle_buffer_size,
      "seed": self._seed,
      "seq_length": options.budget,
      "packing": packing,
      "weights": None if self._blend is None else self._blend.weights,
      "sources": [source.identity for source in self.sources],
      "names": [source.name for source in self.sources],
      "transforms": [transform.identity for transform in self._transforms],
    }

  def open(self, streams: Sequence[int]) -> StreamReader:
    """Returns a reader of streams, before the first row of each.

    Raises:
      ValueError: a number is no stream, or occurs twice.
    """
    held = [
      integer("A stream", v, minimum=0, maximum=self.num_streams - 1)
      for v in streams
    ]
    if len(set(held)) != len(held):
      raise ValueError(f"A stream is held once, got {list(streams)}.")
    names = [source.name for source in self.sources]
    blended = BlendedRecords(
      [
        Epochs(
          source,
          seed=self._seed,
          shuffle_buffer_size=self._shuffle_buffer_size,
          epochs=self._epochs,
          change=None
          if self._change is None
          else self._change.of(seed=self._seed, source=source.name),
        )
        for source in self.sources
      ],
      names=names,
      weights=self._weights,
    )
    return StreamReader(
      blended,
      self._transforms,
      streams=sorted(held),
      num_streams=self.num_streams,
      names=names,
      options=self.options,
      pack_window=self._pack_window,
      shuffled=self._shuffle_buffer_size is not None
      or self._change is not None,
      endless=self._epochs is None,
      vocab_size=self.vocab_size,
      handover_bytes=self._handover_bytes,
      spill_folder=self._spill_folder,
    )
