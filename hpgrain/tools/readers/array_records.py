"""ArrayRecord files whose records are JSON objects, in runs of records."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hpgrain.tools.readers.bad_text import BadTextError
from hpgrain.tools.readers.files import is_remote, reading
from hpgrain.tools.readers.json_texts import text_parser
from hpgrain.tools.readers.records import (
  InputFile,
  Record,
  Report,
  Unit,
)

# Read at once: at most this many records, of about as many bytes if those
# before them tell.
_RECORDS, _BYTES = 64, 4 << 20


def array_record_units(file: InputFile, unit_bytes: int) -> list[Unit]:
  """Runs of as many records as have about `unit_bytes` on average."""
  with reading(file), _reader(file) as reader:
    num_records = _checked(file, reader.num_records)
  if not num_records:
    return []
  num_units = max(min(file.size // unit_bytes, num_records), 1)
  bounds = [num_records * i // num_units for i in range(num_units + 1)]
  shares = [file.size * i // num_units for i in range(num_units + 1)]
  return [
    Unit(
      file=file,
      kind=file.format,
      start=bounds[i],
      stop=bounds[i + 1],
      first_record=bounds[i],
      num_bytes=shares[i + 1] - shares[i],
    )
    for i in range(num_units)
  ]


def read_array_records(
  unit: Unit, keys: Sequence[str], report: Report
) -> Iterator[Record]:
  """Yields the texts under `keys` of each record, a JSON object in UTF-8."""
  parse = text_parser(keys)
  with reading(unit.file), _reader(unit.file) as reader:
    start, count = unit.start, 1
    while start < unit.stop:
      stop = min(start + count, unit.stop)
      records = _checked(unit.file, reader.read, start, stop)
      for index, data in enumerate(records, start - unit.start):
        try:
          texts = parse(data)
        except BadTextError as error:
          report(index, None, str(error))
        else:
          yield Record(texts, index, None)
      fitting = _BYTES * len(records) // (sum(map(len, records)) or 1)
      count = max(min(fitting, 4 * count, _RECORDS), 1)
      start = stop


@contextlib.contextmanager
def _reader(file: InputFile) -> Iterator[Any]:
  if is_remote(file.path):
    raise ValueError(
      f"{file.path} is on an object store, where ArrayRecord files are not"
      " read. Copy it to a disk first."
    )
  try:
    from array_record.python import array_record_module
  except ImportError:
    raise ValueError(
      f"{file.path} is read with the package array-record, which is not"
      " installed. Install it (pip install array-record), or convert the file"
      " to JSON Lines."
    ) from None
  reader = _checked(file, array_record_module.ArrayRecordReader, file.path)
  try:
    yield reader
  except BaseException:
    with contextlib.suppress(RuntimeError):
      reader.close()
    raise
  # Some faults are only told here: a broken file has 0 records until then.
  _checked(file, reader.close)


def _checked(
  file: InputFile, call: Callable[..., Any], *arguments: object
) -> Any:
  """A call of the library, which raises RuntimeError for broken files."""
  try:
    return call(*arguments)
  except (RuntimeError, ValueError) as error:
    raise ValueError(
      f"{file.path} cannot be read as ArrayRecord ({error}). It is broken, was"
      " not written to its end, or is of another format than its name says."
    ) from None
