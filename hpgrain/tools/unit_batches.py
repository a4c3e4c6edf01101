"""A unit in, batches of its good records out."""

from collections.abc import Callable, Iterator, Sequence

from hpgrain.tools import long_texts
from hpgrain.tools.chat import renderer
from hpgrain.tools.inputs import (
  BadRecord,
  BadTextError,
  ConversationKey,
  Record,
  Unit,
  read_unit,
)
from hpgrain.tools.request import Chat

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
) -> Iterator[Record]:
  """Yields a unit's good records, their conversations rendered.

  Args:
    unit: what to read.
    keys: of the texts.
    chat: what makes texts of conversations; None where there are texts.
    on_bad: called with each record that cannot be used.
  """
  if chat is None:
    yield from read_unit(unit, keys, on_bad)
    return
  render = renderer(chat.pickled, chat.template)
  keys = [ConversationKey(key) for key in keys]
  for record in read_unit(unit, keys, on_bad):
    try:
      texts = tuple([render(text) for text in record.texts])
    except BadTextError as error:
      on_bad(BadRecord(unit.file.path, record.index, record.offset, str(error)))
    else:
      yield record._replace(texts=texts)


def batches(records: Iterator[Record]) -> Iterator[list[Record]]:
  """Groups records in order, by number and by characters; a long one alone."""
  batch: list[Record] = []
  characters = 0
  for record in records:
    size = sum(map(len, record.texts))
    if batch and size > long_texts.LONG:
      yield batch
      batch, characters = [], 0
    batch.append(record)
    characters += size
    if characters >= BATCH_CHARACTERS or len(batch) == BATCH_RECORDS:
      yield batch
      batch, characters = [], 0
  if batch:
    yield batch


def bytes_done(unit: Unit, record: Record, done: int) -> int:
  """About how many of a unit's bytes are read at a record, `done` before."""
  plain = record.offset is not None and not unit.file.compression
  if not plain or unit.kind not in ("json_lines", "text", "json_array", "csv"):
    return done
  return max(done, min(record.offset - unit.start, unit.num_bytes))
