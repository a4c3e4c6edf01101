"""Writes small token corpora for the tests, with a writer of their own."""

import itertools
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np

DTYPE_CODES = {
  "uint8": 1,
  "int8": 2,
  "int16": 3,
  "int32": 4,
  "int64": 5,
  "uint16": 8,
}

# A document is a list of sequences, a sequence a list of tokens.
Document = Sequence[Sequence[int]]


def write_pair(
  prefix: Path, documents: Sequence[Document], *, dtype: str = "uint16"
) -> str:
  """Writes `prefix.idx` and `prefix.bin`; returns the prefix as a string."""
  sequences = [sequence for document in documents for sequence in document]
  lengths = [len(sequence) for sequence in sequences]
  itemsize = np.dtype(dtype).itemsize
  pointers = [0, *itertools.accumulate(n * itemsize for n in lengths)]
  bounds = [0, *itertools.accumulate(len(document) for document in documents)]
  tokens = [token for sequence in sequences for token in sequence]
  Path(f"{prefix}.bin").write_bytes(np.array(tokens, dtype).tobytes())
  Path(f"{prefix}.idx").write_bytes(
    b"MMIDIDX\0\0"
    + np.array(1, "<u8").tobytes()
    + np.array(DTYPE_CODES[dtype], "u1").tobytes()
    + np.array([len(sequences), len(bounds)], "<u8").tobytes()
    + np.array(lengths, "<i4").tobytes()
    + np.array(pointers[: len(sequences)], "<i8").tobytes()
    + np.array(bounds, "<i8").tobytes()
  )
  return str(prefix)


def random_documents(
  rng: random.Random,
  *,
  num_documents: int,
  max_length: int = 20,
  vocab_size: int = 100,
  eod: int = 0,
) -> list[list[list[int]]]:
  """Documents of any kind: empty, with several or with empty sequences."""
  documents = []
  for _ in range(num_documents):
    kind = rng.random()
    count = 0 if kind < 0.1 else rng.randint(2, 3) if kind < 0.3 else 1
    lengths = [
      0 if rng.random() < 0.1 else rng.randint(1, max_length)
      for _ in range(count)
    ]
    document = [
      [rng.randrange(vocab_size) for _ in range(length)] for length in lengths
    ]
    if document and document[-1] and rng.random() < 0.9:
      document[-1][-1] = eod
    documents.append(document)
  return documents


def documents_of(
  rng: random.Random, *, num_tokens: int, **options: int
) -> list[list[list[int]]]:
  """Random documents of exactly that many tokens in all."""
  documents: list[list[list[int]]] = []
  left = num_tokens
  while left:
    (document,) = random_documents(rng, num_documents=1, **options)
    for i, sequence in enumerate(document):
      document[i] = sequence[:left]
      left -= len(document[i])
    documents.append(document)
  return documents


def random_records(
  rng: random.Random,
  *,
  num_records: int,
  length: int,
  vocab_size: int = 100,
  eod: int = 0,
) -> list[list[list[int]]]:
  """Records cut to one length, EODs anywhere in them, also side by side."""
  return [
    [
      [
        eod if rng.random() < 0.2 else rng.randrange(vocab_size)
        for _ in range(length)
      ]
    ]
    for _ in range(num_records)
  ]
