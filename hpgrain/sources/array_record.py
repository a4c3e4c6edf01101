"""ArrayRecord files of token documents: documents in, a file out, and back.

  documents -> {prefix}.array_record.partial -> {prefix}.array_record

What a record holds is told in `array_record_format`. Each record is a chunk of
its own (`group_size:1`), as Grain's random access wants, and is not
compressed: the same documents give the same bytes whatever library is
installed, and are written thrice as fast. The file can be read with
`grain.sources.ArrayRecordDataSource` too.

Memory: one record, some 60 bytes for each record that was written and 30 for
each one of a file that is read, since the library keeps the index in memory.
"""

from hpgrain.sources.array_record_format import (
  TokenDocument,
  array_record_path,
  is_array_record,
)
from hpgrain.sources.array_record_reader import ArrayRecordDocuments
from hpgrain.sources.array_record_writer import ArrayRecordWriter

__all__ = [
  "ArrayRecordDocuments",
  "ArrayRecordWriter",
  "TokenDocument",
  "array_record_path",
  "is_array_record",
]
