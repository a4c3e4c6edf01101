r"""Row numbers in, rows of the streams that this process holds out.

  records ... -> dealt to streams -> each packs its own -> rows by number
                 until the one that is asked for can make a row

Streams go at speeds of their own, so what the others get meanwhile waits in
`hand_over`. Row g is the (g // V)-th of stream g % V.
"""

import bisect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hpgrain.arguments import row_numbers
from hpgrain.blended_records import BlendedRecords
from hpgrain.hand_over import HandOver
from hpgrain.packing import PackingOptions
from hpgrain.record_batches import SharedTransforms
from hpgrain.stream_barren import BarrenCheck
from hpgrain.stream_block_sizes import BlockSizes
from hpgrain.stream_counters import StreamCounters
from hpgrain.stream_dealer import Dealt, StreamDealer
from hpgrain.stream_packer import Position, StreamPacker
from hpgrain.stream_pieces import BLOCK, no_pieces
from hpgrain.stream_state import first_position, make_state, merge
from hpgrain.stream_token_rows import StreamTokenRows
from hpgrain.transforms.transform import Transform


class StreamReader:
  """Rows of some streams. For one thread at a time.

  After an error it is of no use but to be closed.
  """

  def __init__(
    self,
    blended: BlendedRecords,
    transforms: Sequence[Transform],
    *,
    streams: Sequence[int],
    num_streams: int,
    names: Sequence[str],
    options: PackingOptions,
    pack_window: int,
    shuffled: bool,
    endless: bool,
    vocab_size: int | None,
    handover_bytes: int,
    spill_folder: str | None,
  ):
    """Stands before each stream's first row; reads nothing.

    Args:
      blended: the records.
      transforms: of each source.
      streams: those that are held.
      num_streams: of all.
      names: of the sources.
      options: how rows are packed.
      pack_window: pieces that "best_fit" chooses among.
      shuffled: whether an epoch's records come in another order than the
        last one's.
      endless: whether epochs go on for ever.
      vocab_size: ids lie below it; None where it is not known.
      handover_bytes: what waits in memory before it goes to a file.
      spill_folder: where such files are made.
    """
    self._blended, self._transforms = blended, SharedTransforms(transforms)
    self._streams, self._num_streams = tuple(streams), num_streams
    self._names, self._options = tuple(names), options
    self._pack_window, self._vocab_size = pack_window, vocab_size
    self._shuffled, self._endless = shuffled, endless
    self._handover = (handover_bytes, spill_folder)
    self._stand({v: first_position(v) for v in self._streams})

  def _stand(self, positions: dict[int, Position]) -> None:
    """Begins anew, with every stream at a position."""
    options = self._options
    memory_bytes, folder = self._handover
    self._held = HandOver(memory_bytes=memory_bytes, folder=folder)
    self._counters = StreamCounters(
      self._names, budget=options.budget, overlong=options.overlong
    )
    self._dealer = StreamDealer(
      self._blended,
      self._transforms,
      names=self._names,
      num_streams=self._num_streams,
      firsts={v: position.at for v, position in positions.items()},
      options=options,
      vocab_size=self._vocab_size,
      counters=self._counters,
    )
    self._packers = {
      v: StreamPacker(
        options,
        position=position,
        num_streams=self._num_streams,
        pack_window=self._pack_window,
      )
      for v, position in positions.items()
    }
    self._barren = BarrenCheck(
      num_streams=self._num_streams,
      num_held=len(self._streams),
      shuffled=self._shuffled,
    )
    self._sizes = BlockSizes(
      positions.values(),
      next_record=self._blended.next_record,
      num_streams=self._num_streams,
      num_sources=len(self._names),
    )
    # Where the sources were before each block that a stream may need again.
    self._places: list[tuple[int, list[Any]]] = []

  def rows(self, numbers: np.ndarray | Sequence[int]) -> StreamTokenRows:
    """Makes rows by their global numbers, in the order asked.

    Of each stream they ascend from call to call; rows between are made and
    dropped. A row after its stream's end is padding.

    Args:
      numbers: int64[n].

    Raises:
      IndexError: a row was given before.
      KeyError: its stream is not held.
      OSError: a spill file cannot be written or read.
      ValueError: the data is not sound; see `StreamDealer.deal`.
    """
    found = [self._row(int(g)) for g in row_numbers(numbers).reshape(-1)]
    pieces = np.concatenate([no_pieces(), *found], axis=1)
    self._counters.add_rows(sum(row.shape[1] > 0 for row in found), pieces)
    return StreamTokenRows(
      pieces,
      self._held.take(pieces),
      counts=[row.shape[1] for row in found],
      multiple=self._options.segment_multiple,
    )

  def rows_left(
    self, streams: Sequence[int], *, first_row: int = 0
  ) -> np.ndarray:
    """Returns bool[n], whether each stream has a row from a number on.

    It reads on as far as it must to know. Rows before are made and dropped:
    another process may have been asked for them.

    Args:
      streams: those in question.
      first_row: the global number.

    Raises:
      As `rows`.
    """
    left = []
    for v in streams:
      packer = self._packer(v)
      # The first of its rows that is not before.
      turn = -(-(first_row - v) // self._num_streams)
      while packer.num_rows < turn and self._can_give(v, packer):
        self._drop(packer)
      while not packer.waits and self._deal(v):
        pass
      left.append(packer.waits)
    return np.array(left, bool)

  def state(self) -> dict[str, Any]:
    """Returns where the streams stand after their last rows; JSON.

    The keys and types are the same always, and no token is in it.
    """
    positions = {v: p.position() for v, p in self._packers.items()}
    oldest = min((p.at for p in positions.values()), default=0)
    number, places = self._place_before(oldest)
    return make_state(
      self._num_streams, positions, sources_at=number, sources=places
    )

  def restore(self, states: Sequence[Mapping[str, Any]]) -> None:
    """Goes on after a save.

    Args:
      states: of all processes of the save; what they held then may be others'
        now.

    Raises:
      ValueError: one is no state of these streams, or one is missing.
    """
    positions, number, places = merge(states, self._streams, self._num_streams)
    self._held.close()
    self._blended.seek(number, places)
    self._stand(positions)

  def counters(self) -> dict[str, Any]:
    """Sums since it was opened or restored; see `StreamCounters.as_dict`."""
    return self._counters.as_dict()

  @property
  def waiting_bytes(self) -> int:
    """Bytes of tokens that wait in memory for their streams now."""
    return self._held.memory_bytes

  @property
  def spilled_bytes(self) -> int:
    """Bytes that were written to spill files since then."""
    return self._held.spilled_bytes

  def close(self) -> None:
    """Lets go of files; may be called twice."""
    self._held.close()
    self._blended.close()

  def _packer(self, stream: int) -> StreamPacker:
    packer = self._packers.get(int(stream))
    if packer is None:
      raise KeyError(
        f"Stream {stream} is not among the {len(self._packers)} that are held."
      )
    return packer

  def _row(self, number: int) -> np.ndarray:
    """Returns the pieces of a row; none where it is padding."""
    turn, stream = divmod(number, self._num_streams)
    packer = self._packer(stream)
    if turn < packer.num_rows:
      raise IndexError(
        f"Row {number} is row {turn} of stream {stream}, which has given"
        f" {packer.num_rows} already; rows ascend, unless a state is restored."
      )
    while packer.num_rows < turn and self._can_give(stream, packer):
      self._drop(packer)
    if not self._can_give(stream, packer):
      return no_pieces()
    return packer.give()

  def _can_give(self, stream: int, packer: StreamPacker) -> bool:
    """Whether a stream has a next row, reading until it has."""
    while not packer.has_row():
      if not self._deal(stream):
        break
    return packer.has_row()

  def _drop(self, packer: StreamPacker) -> None:
    """Makes a row that nobody asks for here."""
    pieces = packer.give()
    self._counters.add_rows(1, pieces)
    self._held.drop(pieces)

  def _deal(self, stream: int) -> bool:
    """Reads a block more, for a stream; False where there is none."""
    if self._blended.ended:
      return False
    self._keep_place()
    everything = False
    if self._endless:
      everything = self._barren.looks_everywhere(stream, self._blended.epochs())
    dealt = self._dealer.deal(self._sizes.take(), everything=everything)
    if dealt is not None:
      self._sizes.saw(sum(len(tokens.ids) for tokens in dealt.tokens))
      self._hand_over(dealt)
      self._barren.saw(dealt.parts, dealt.found)
    if self._blended.ended:
      for packer in self._packers.values():
        packer.end()
    return True

  def _hand_over(self, dealt: Dealt) -> None:
    """Gives streams their pieces, and holds the tokens until they take them."""
    needed = np.zeros(len(dealt.tokens), np.int64)
    for v, pieces in dealt.parts.items():
      np.add.at(needed, pieces[BLOCK], self._packers[v].add(pieces))
    numbers = np.array(
      [
        self._held.put(tokens, waiting)
        for tokens, waiting in zip(dealt.tokens, needed.tolist())
      ],
      np.int64,
    )
    for pieces in dealt.parts.values():
      pieces[BLOCK] = numbers[pieces[BLOCK]]

  def _keep_place(self) -> None:
    """Notes where the sources are, and forgets places that none needs."""
    oldest = min((p.position().at for p in self._packers.values()), default=0)
    first = bisect.bisect_right(self._places, oldest, key=lambda p: p[0]) - 1
    del self._places[: max(first, 0)]
    self._places.append(self._blended.position())

  def _place_before(self, oldest: int) -> tuple[int, list[Any]]:
    """Returns the last known place of the sources before a record."""
    if not self._blended.ended:
      number, places = self._blended.position()
      if number <= oldest or not self._places:
        return number, places
    last = bisect.bisect_right(self._places, oldest, key=lambda p: p[0]) - 1
    return self._places[max(last, 0)]
