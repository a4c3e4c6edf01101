"""What the readers take and give: input files, units of them, records.

The input is one sequence of records: files in order, and the records of each
in its own order. A unit is a run of consecutive records of one file, decided
from the input alone, so that every machine and every number of workers cuts
the same units.
"""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hpgrain.tools.texts import Texts

if TYPE_CHECKING:
  from hpgrain.tools.readers.long_text import LongText


@dataclasses.dataclass(frozen=True)
class InputFile:
  """A file to read.

  Attributes:
    path: as it was found, a local path or the URL of an object.
    format: "json" (lines or one array), "text", "csv", "parquet", "arrow" or
      "array_record".
    compression: "" (none), "gzip" or "zstd".
    size: in bytes, as stored.
    version: the time of the last change in nanoseconds, or an object's entity
      tag: another version is another content.
  """

  path: str
  format: str
  compression: str
  size: int
  version: str


@dataclasses.dataclass(frozen=True)
class Unit:
  """A run of consecutive records of one file.

  Attributes:
    file: where they lie.
    kind: "json_lines", "json_array", "text", "csv", "parquet", "arrow" or
      "array_record": the reader's name.
    start, stop: what the unit covers, by kind. Lines: bytes, and a line
      belongs to the unit in which it begins. Parquet: row groups. Arrow:
      record batches. ArrayRecord: records. Whatever can be read in one go
      alone (CSV, a JSON array, all that is compressed): bytes, as stored.
    first_record: number of records of the file before the unit; None where
      only reading them tells.
    num_bytes: stored bytes the unit stands for, which over a file's units add
      up to its size. Good for showing progress.
  """

  file: InputFile
  kind: str
  start: int
  stop: int
  first_record: int | None
  num_bytes: int


class ConversationKey(str):
  """A key whose value is a list of messages, which is given as its JSON.

  In JSON files; a column of another format holds texts.
  """

  __slots__ = ()


class Record(NamedTuple):
  """A record's texts.

  Attributes:
    texts: one for each key asked for, in that order; a LongText in place of
      a string only where those are asked for.
    index: the record's place in its unit, from 0; records that were skipped
      have theirs too.
    offset: the byte of the (unpacked) file it begins at; None in formats that
      do not keep records in one piece (Parquet, Arrow, ArrayRecord).
  """

  texts: "tuple[str | LongText, ...]"
  index: int
  offset: int | None


class Batch(NamedTuple):
  """Consecutive good records.

  Attributes:
    columns: their texts under each key asked for, in that order.
    indices: int64[records], as `Record.index`.
    offsets: int64[records], as `Record.offset`; None where that is.
  """

  columns: tuple[Texts, ...]
  indices: np.ndarray
  offsets: np.ndarray | None


@dataclasses.dataclass(frozen=True)
class BadRecord:
  """A record that cannot be used, as a callback is told of it.

  Attributes:
    file: the path of its file.
    index: its place in its unit, from 0. The number in the file is known once
      the units before it are read: their records are to be added.
    offset: as `Record.offset`.
    reason: what is wrong with it, which never quotes it. Completes "record 7
      ...".
  """

  file: str
  index: int
  offset: int | None
  reason: str


class BadRecordError(ValueError):
  """Names a record that cannot be used by its place and says what is wrong."""


# Called with a record's index in its unit, its offset and what is wrong with
# it; returns if the record is to be skipped.
Report = Callable[[int, int | None, str], None]
