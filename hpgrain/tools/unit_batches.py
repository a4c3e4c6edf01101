"""A unit in, batches of its good records out.

JSON Lines     batches, cut where they are too large
other formats  records, their texts joined to batches
a long record  by itself
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from hpgrain.tools import long_texts
from hpgrain.tools.chat import renderer
from hpgrain.tools.inputs import (
  BadRecord,
  BadTextError,
  Batch,
  ConversationKey,
  LongText,
  Record,
  Unit,
  read_batches,
  read_unit,
)
from hpgrain.tools.request import Chat
from hpgrain.tools.texts import Texts

# A batch is large enough that calling the encoder costs nothing, and small
# enough that Python's lists of its ids stay below a hundred megabytes.
BATCH_CHARACTERS = 1 << 20
BATCH_RECORDS = 2048


def good_records(
  unit: Unit,
  keys: Sequence[str],
  *,
  chat: Chat | None,
  on_bad: Callable[[BadRecord], None],
  scratch: Path | None = None,
) -> Iterator[Record]:
  """Yields a unit's good records, their conversations rendered.

  Args:
    unit: what to read.
    keys: of the texts.
    chat: what makes texts of conversations; None where there are texts.
    on_bad: called with each record that cannot be used.
    scratch: a folder for records that do not fit in memory.
  """
  if chat is None:
    yield from read_unit(unit, keys, on_bad, long_texts=True, scratch=scratch)
    return
  render = renderer(chat.pickled, chat.template)
  keys = [ConversationKey(key) for key in keys]
  for record in read_unit(unit, keys, on_bad, long_texts=True, scratch=scratch):
    try:
      texts = tuple([render(text) for text in record.texts])
    except BadTextError as error:
      on_bad(BadRecord(unit.file.path, record.index, record.offset, str(error)))
    else:
      yield record._replace(texts=texts)


def batches(
  unit: Unit,
  keys: Sequence[str],
  *,
  chat: Chat | None,
  on_bad: Callable[[BadRecord], None],
  scratch: Path | None = None,
) -> Iterator[Batch | Record]:
  """Yields a unit's good records in order, by number and size.

  The arguments are those of `good_records`. One with a text of more than
  `long_texts.LONG` bytes comes as a batch of its own, or as a record if it
  holds a `LongText`.
  """
  if chat is None and unit.kind == "json_lines":
    for item in read_batches(unit, keys, on_bad, scratch=scratch):
      if isinstance(item, Record):
        yield item
      else:
        yield from _cut(item)
    return
  waiting: list[Record] = []
  characters = 0
  for record in good_records(
    unit, keys, chat=chat, on_bad=on_bad, scratch=scratch
  ):
    long = LongText in map(type, record.texts)
    if not long:
      waiting.append(record)
      characters += sum(map(len, record.texts))
    if waiting and (
      long or characters >= BATCH_CHARACTERS or len(waiting) == BATCH_RECORDS
    ):
      yield from _cut(_joined(waiting))
      waiting, characters = [], 0
    if long:
      yield record
  if waiting:
    yield from _cut(_joined(waiting))


def num_records(item: Batch | Record) -> int:
  """Records of what `batches` yields."""
  return 1 if isinstance(item, Record) else len(item.indices)


def bytes_done(unit: Unit, item: Batch | Record, done: int) -> int:
  """About how many of a unit's bytes are read at its last record.

  Args:
    unit: that it is of.
    item: what `batches` yielded.
    done: how many were read before.
  """
  offset = item.offset if isinstance(item, Record) else None
  if isinstance(item, Batch) and item.offsets is not None:
    offset = int(item.offsets[-1])
  if offset is None or unit.file.compression:
    return done
  if unit.kind not in ("json_lines", "text", "json_array", "csv"):
    return done
  return max(done, min(offset - unit.start, unit.num_bytes))


def _joined(records: Sequence[Record]) -> Batch:
  count = len(records)
  offsets = None
  if records[0].offset is not None:
    offsets = np.fromiter((r.offset for r in records), np.int64, count)
  return Batch(
    tuple([Texts.of(texts) for texts in zip(*[r.texts for r in records])]),
    np.fromiter((r.index for r in records), np.int64, count),
    offsets,
  )


def _cut(batch: Batch) -> Iterator[Batch]:
  """Cuts a batch by number and size, and around each long record."""
  sizes = np.sum([column.sizes() for column in batch.columns], axis=0)
  longest = np.max([column.sizes() for column in batch.columns], axis=0)
  ends, count = np.cumsum(sizes), len(sizes)
  is_long = longest > long_texts.LONG
  alone = np.flatnonzero(is_long)
  first = 0
  while first < count:
    limit = ends[first] - sizes[first] + BATCH_CHARACTERS
    last = min(
      int(np.searchsorted(ends, limit)) + 1, first + BATCH_RECORDS, count
    )
    if is_long[first]:
      last = first + 1
    elif len(alone):
      next_long = np.searchsorted(alone, first)
      if next_long < len(alone):
        last = min(last, int(alone[next_long]))
    yield part_of(batch, first, last)
    first = last


def part_of(batch: Batch, first: int, last: int) -> Batch:
  """Records [first, last) of a batch."""
  if last - first == len(batch.indices):
    return batch
  return Batch(
    tuple([column.slice(first, last) for column in batch.columns]),
    batch.indices[first:last],
    None if batch.offsets is None else batch.offsets[first:last],
  )
