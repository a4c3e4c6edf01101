"""ArrayRecord files of JSON objects in turn; they begin at any record."""

from collections.abc import Sequence

from hpgrain.sources.by_index.array_records import checked, open_reader
from hpgrain.sources.by_index.json_objects import parse_object, parse_objects
from hpgrain.sources.in_turn.file_reader import check_unchanged, no_such_place
from hpgrain.sources.in_turn.source import Block
from hpgrain.sources.records import Record
from hpgrain.tools.readers.bad_text import BadTextError
from hpgrain.tools.readers.records import BadRecordError, InputFile

# Read at once: so many records, of about so many bytes if those before tell.
_RECORDS, _BYTES = 4096, 4 << 20
_GROWTH = 4


class ArrayRecordFileReader:
  """The records of one file; see `FileReader`."""

  def __init__(
    self, file: InputFile, start: int, skip: int, record: int
  ) -> None:
    """Opens the file.

    Args:
      file: as it was found, a local one.
      start: records before the place.
      skip: 0.
      record: as `start`.

    Raises:
      FileNotFoundError: it is gone.
      ValueError: it was written again, is broken, on an object store or
        shorter; or the package array-record is missing.
    """
    check_unchanged(file)
    self._file = file
    self._reader = open_reader(file.path)
    self._length = checked(file.path, self._reader.num_records)
    if start > self._length or skip or record != start:
      raise no_such_place(file, start, skip)
    self._next = start
    # As many as may be large: it is seen how large they are.
    self._most = 1

  def read(self, n: int) -> Block:
    """As `FileReader.read`."""
    first = self._next
    size = min(n, self._length - first, self._most)
    if not size:
      check_unchanged(self._file)
      # Some faults are only told here: a broken file has 0 records until then.
      checked(self._file.path, self._reader.close)
      return Block(0, lambda numbers: [], str)
    pieces = checked(self._file.path, self._reader.read, first, first + size)
    self._next += size
    fitting = _BYTES * size // (sum(map(len, pieces)) or 1)
    self._most = max(min(fitting, _GROWTH * size, _RECORDS), 1)
    path = self._file.path

    def place(i: int) -> str:
      return f"{path}, record {first + i + 1}"

    def take(numbers: Sequence[int]) -> list[Record]:
      records = parse_objects([pieces[i] for i in numbers])
      if records is not None:
        return records
      records = []
      for i in numbers:
        try:
          records.append(parse_object(pieces[i]))
        except BadTextError as error:
          # From None: what is behind it may hold the text.
          raise BadRecordError(f"{place(i)} {error}") from None
      return records

    return Block(size, take, place)

  def where(self) -> tuple[int, int]:
    """(records read, 0)."""
    return self._next, 0

  def close(self) -> None:
    """Lets go of the file."""
    self._reader = None
