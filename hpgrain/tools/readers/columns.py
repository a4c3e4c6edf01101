"""Parquet and Arrow: the texts of some columns, batch by batch.

Units are runs of row groups or record batches of about the size that is asked
for; a larger one is a unit of its own.

Memory holds some megabytes of texts, or one row, whatever a file unpacks to.
What pyarrow reads in one piece it holds as well: a page of a Parquet file, a
compressed batch of an Arrow file.
"""

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from hpgrain.tools.readers.files import is_remote, open_stored, reading
from hpgrain.tools.readers.json_texts import not_utf8
from hpgrain.tools.readers.records import InputFile, Record, Report, Unit

# At once: rows, and about how many bytes of them unless it is one.
_ROWS, _BYTES = 256, 4 << 20
_PEEK_BYTES = 1 << 20


def parquet_units(file: InputFile, unit_bytes: int) -> list[Unit]:
  """Runs of row groups whose unpacked columns have about `unit_bytes`."""
  with reading(file), _parquet(file) as parquet:
    metadata = parquet.metadata
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    sizes = [(group.num_rows, group.total_byte_size) for group in groups]
  return _grouped(file, sizes, unit_bytes)


def read_parquet(
  unit: Unit, keys: Sequence[str], report: Report
) -> Iterator[Record]:
  """Yields the texts of the columns `keys` of each row of some row groups.

  Raises:
    ValueError: a column is missing or is not of strings.
  """
  with reading(unit.file), _parquet(unit.file) as parquet:
    _check_columns(unit.file.path, parquet.schema_arrow, keys)
    batches = _group_batches(parquet, unit, keys)
    yield from _rows(batches, keys, report)


def arrow_units(file: InputFile, unit_bytes: int) -> list[Unit]:
  """Runs of record batches of about `unit_bytes`."""
  with reading(file), _arrow_batches(file, 0, None) as batches:
    sizes = [
      (batch.num_rows, batch.get_total_buffer_size()) for batch in batches
    ]
  return _grouped(file, sizes, unit_bytes)


def read_arrow(
  unit: Unit, keys: Sequence[str], report: Report
) -> Iterator[Record]:
  """Yields the texts of the columns `keys` of each row of some batches.

  Raises:
    ValueError: a column is missing or is not of strings.
  """
  with (
    reading(unit.file),
    _arrow_batches(unit.file, unit.start, unit.stop) as batches,
  ):
    yield from _rows(_checked(batches, unit.file.path, keys), keys, report)


def _checked(
  batches: Iterator[Any], name: str, keys: Sequence[str]
) -> Iterator[Any]:
  for number, batch in enumerate(batches):
    if number == 0:
      _check_columns(name, batch.schema, keys)
    yield batch


def _group_batches(
  parquet: Any, unit: Unit, keys: Sequence[str]
) -> Iterator[Any]:
  for number in range(unit.start, unit.stop):
    group = parquet.metadata.row_group(number)
    chunks = [group.column(i) for i in range(group.num_columns)]
    chunks = [chunk for chunk in chunks if chunk.path_in_schema in keys]
    row = sum(c.total_uncompressed_size for c in chunks) // (
      group.num_rows or 1
    )
    shared = [
      chunk.path_in_schema
      for chunk in chunks
      if chunk.has_dictionary_page and chunk.physical_type == "BYTE_ARRAY"
    ]
    if shared and group.num_rows > 1:
      # A text that many rows share is stored once.
      row = max(row, _longest_shared(parquet, unit.file, number, shared))
    yield from parquet.iter_batches(
      batch_size=max(min(_BYTES // max(row, 1), _ROWS), 1),
      row_groups=[number],
      columns=list(keys),
      use_threads=False,
    )


def _longest_shared(
  parquet: Any, file: InputFile, group: int, keys: Sequence[str]
) -> int:
  """Bytes of the longest texts in the dictionaries of a row group."""
  # With its dictionary, the first row of a column that is read as one.
  with _parquet(
    file,
    metadata=parquet.metadata,
    read_dictionary=keys,
    buffer_size=_PEEK_BYTES,
  ) as peeked:
    batch = next(
      peeked.iter_batches(
        batch_size=1, row_groups=[group], columns=keys, use_threads=False
      )
    )
  return sum(
    int(_lengths(getattr(column, "dictionary", column)).max(initial=0))
    for column in batch.columns
  )


def _rows(
  batches: Iterator[Any], keys: Sequence[str], report: Report
) -> Iterator[Record]:
  index = 0
  for batch in itertools.chain.from_iterable(
    _slices(batch, keys) for batch in batches
  ):
    columns = [_values(batch.column(key)) for key in keys]
    for texts in zip(*columns):
      problem = _problem(texts, keys)
      if problem is None:
        yield Record(texts, index, None)
      else:
        report(index, None, problem)
      index += 1


def _slices(batch: Any, keys: Sequence[str]) -> Iterator[Any]:
  """Cuts a batch, so that few texts are Python's at once."""
  sizes = sum(_lengths(batch.column(key)) for key in keys)
  ends = np.cumsum(sizes)
  start = 0
  while start < batch.num_rows:
    limit = _BYTES + (ends[start - 1] if start else 0)
    fitting = int(np.searchsorted(ends, limit, "right"))
    stop = max(min(fitting, start + _ROWS), start + 1)
    yield batch.slice(start, stop - start)
    start = stop


def _lengths(column: Any) -> np.ndarray:
  """int64[rows]: how many bytes each text of a column has."""
  import pyarrow as pa
  from pyarrow import compute

  kinds = pa.types
  if kinds.is_null(column.type) or not len(column):
    return np.zeros(len(column), np.int64)
  if kinds.is_dictionary(column.type):
    places = compute.fill_null(column.indices, 0).to_numpy(zero_copy_only=False)
    lengths = _lengths(column.dictionary)
    return lengths[places] if len(lengths) else np.zeros(len(column), np.int64)
  if kinds.is_string_view(column.type) or kinds.is_binary_view(column.type):
    # 16 bytes a row, the length first.
    views = np.frombuffer(column.buffers()[1], np.int32)[::4]
    views = views[column.offset : column.offset + len(column)]
    return np.maximum(views, 0).astype(np.int64)
  lengths = compute.fill_null(compute.binary_length(column), 0)
  return lengths.to_numpy(zero_copy_only=False).astype(np.int64)


def _values(column: Any) -> list[object]:
  """A column's strings; None for null, an error for what is not UTF-8."""
  import pyarrow as pa

  if pa.types.is_dictionary(column.type):
    column = column.dictionary_decode()
  large = pa.types.is_large_string(column.type)
  if not (large or pa.types.is_string(column.type)):
    large = pa.types.is_large_binary(column.type)
    column = column.cast(pa.large_binary() if large else pa.binary())
  else:
    try:
      return column.to_pylist()
    except UnicodeDecodeError:
      column = column.view(pa.large_binary() if large else pa.binary())
  return [_decoded(value) for value in column.to_pylist()]


def _decoded(value: bytes | None) -> object:
  try:
    return None if value is None else value.decode("utf-8")
  except UnicodeDecodeError as error:
    return not_utf8(error)


def _problem(texts: Sequence[object], keys: Sequence[str]) -> str | None:
  for key, text in zip(keys, texts):
    if text is None:
      return f"holds null under {key!r}, not a string."
    if not isinstance(text, str):
      return str(text)
  return None


def _check_columns(name: str, schema: Any, keys: Sequence[str]) -> None:
  import pyarrow as pa

  kinds = pa.types
  for key in keys:
    if schema.get_field_index(key) < 0:
      raise ValueError(
        f"{name} has no column {key!r} (or more than one); its columns are"
        f" {', '.join(map(repr, schema.names))}. Name those that hold the"
        " texts with --json-keys."
      )
    held = schema.field(key).type
    if kinds.is_dictionary(held):
      held = held.value_type
    texts = (
      kinds.is_string,
      kinds.is_large_string,
      kinds.is_string_view,
      kinds.is_binary,
      kinds.is_large_binary,
      kinds.is_binary_view,
      kinds.is_null,
    )
    if not any(is_kind(held) for is_kind in texts):
      raise ValueError(
        f"{name} holds {held} under {key!r}, not strings. Name a column of"
        " strings with --json-keys."
      )


def _grouped(
  file: InputFile, sizes: Sequence[tuple[int, int]], unit_bytes: int
) -> list[Unit]:
  """Joins neighbours of (rows, bytes) while they stay below `unit_bytes`."""
  bounds, held = [0], 0
  for number, (_, size) in enumerate(sizes):
    if held and held + size > unit_bytes:
      bounds.append(number)
      held = 0
    held += size
  if sizes:
    bounds.append(len(sizes))
  # The stored bytes, shared out by rows so that they add up.
  rows = [sum(count for count, _ in sizes[:bound]) for bound in bounds]
  shares = [
    file.size * row // rows[-1] if rows[-1] else file.size for row in rows
  ]
  return [
    Unit(
      file=file,
      kind=file.format,
      start=bounds[i],
      stop=bounds[i + 1],
      first_record=rows[i],
      num_bytes=shares[i + 1] - (shares[i] if i else 0),
    )
    for i in range(len(bounds) - 1)
  ]


@contextlib.contextmanager
def _parquet(file: InputFile, **options: Any) -> Iterator[Any]:
  pa = _pyarrow(file.path)
  from pyarrow import parquet

  with _arrow_errors(file.path, pa), open_stored(file.path) as stored:
    yield parquet.ParquetFile(stored, pre_buffer=False, **options)


@contextlib.contextmanager
def _arrow_batches(
  file: InputFile, start: int, stop: int | None
) -> Iterator[Iterator[Any]]:
  """The record batches of a file or stream (datasets writes streams)."""
  pa = _pyarrow(file.path)
  with _arrow_errors(file.path, pa), _arrow_source(file, pa) as source:
    is_file = source.read(6) == b"ARROW1"
    source.seek(0)
    if is_file:
      reader = pa.ipc.open_file(source)
      last = reader.num_record_batches if stop is None else stop
      yield (reader.get_batch(number) for number in range(start, last))
    else:
      yield _streamed(pa.ipc.open_stream(source), start, stop)


def _streamed(reader: Any, start: int, stop: int | None) -> Iterator[Any]:
  for number, batch in enumerate(reader):
    if stop is not None and number >= stop:
      return
    if number >= start:
      yield batch


def _arrow_source(file: InputFile, pa: ModuleType) -> Any:
  if is_remote(file.path):
    return pa.PythonFile(open_stored(file.path), mode="r")
  # Mapped, so that batches of other units cost no reading.
  return pa.memory_map(file.path)


@contextlib.contextmanager
def _arrow_errors(name: str, pa: ModuleType) -> Iterator[None]:
  try:
    yield
  except (pa.ArrowInvalid, OSError) as error:
    raise ValueError(
      f"{name} cannot be read ({type(error).__name__}). It is broken, was not"
      " written to its end, or is of another format than its name says."
    ) from error


def _pyarrow(name: str) -> ModuleType:
  try:
    import pyarrow as pa
    import pyarrow.ipc
  except ImportError:
    raise ValueError(
      f"{name} is read with the package pyarrow, which is not installed."
      " Install it (pip install pyarrow), or convert the file to JSON Lines."
    ) from None
  return pa
