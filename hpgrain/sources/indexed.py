"""Tokenized corpora on disk: reads and writes `.idx`/`.bin` pairs.

documents -> IndexedWriter -> {prefix}.idx, {prefix}.bin
{prefix}.idx, {prefix}.bin -> IndexedReader -> sequences of token ids
"""

from hpgrain.sources.index_file import dtype_for_vocabulary
from hpgrain.sources.indexed_reader import IndexedReader
from hpgrain.sources.indexed_writer import IndexedWriter
from hpgrain.sources.open_pairs import set_max_open_files

__all__ = [
  "IndexedReader",
  "IndexedWriter",
  "dtype_for_vocabulary",
  "set_max_open_files",
]
