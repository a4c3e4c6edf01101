"""A corpus in one format in, the same in the other format out."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from hpgrain.manifest import (
  Manifest,
  corpus_files,
  corpus_format,
  manifest_path,
  read_manifest,
  storage_fields,
  write_manifest,
)
from hpgrain.sources.array_record import (
  ArrayRecordDocuments,
  ArrayRecordWriter,
  array_record_path,
  is_array_record,
)
from hpgrain.sources.array_record_format import SUFFIX
from hpgrain.sources.document_blocks import DocumentBlock, pair_blocks
from hpgrain.sources.file_digest import (
  FileDigest,
  digest_of_path,
  same_algorithm,
)
from hpgrain.sources.indexed import IndexedReader, IndexedWriter
from hpgrain.tools.corpus_command import hashed, progress


@dataclasses.dataclass(frozen=True)
class Converted:
  """What was written.

  Attributes:
    name: of the corpus.
    documents: of it.
    sequences: of it.
    tokens: of it.
    manifest: that lies beside it; None where the source had none.
  """

  name: str
  documents: int
  sequences: int
  tokens: int
  manifest: Manifest | None


@dataclasses.dataclass(frozen=True)
class _Source:
  """A corpus being read: its documents, and what it must not lose.

  Attributes:
    dtype: of its tokens.
    multimodal: whether sequences have modes.
    blocks: of its documents, to be read once.
    check: raises ValueError if a digest was wrong; after the last block.
  """

  dtype: np.dtype
  multimodal: bool
  blocks: Iterator[DocumentBlock]
  check: Callable[[], None]


def convert(
  source: str | os.PathLike[str],
  target: str | os.PathLike[str] | None = None,
  *,
  overwrite: bool = False,
) -> Converted:
  """Writes a corpus in the other format, with its manifest.

  Args:
    source: a pair's prefix, or the path of an ArrayRecord.
    target: likewise, what to write; None takes the source's name.
    overwrite: replace a target that is there.

  Raises:
    FileExistsError: the target is there and `overwrite` is off.
    FileNotFoundError: the source is not there.
    ValueError: both have one format; or the source is damaged, or not what
      its manifest says; or the target's format cannot hold it.
    OSError: it could not be read or written.
  """
  name = os.fspath(source)
  goal = _target(name, target)
  if not overwrite:
    _refuse_existing(goal)
  manifest = read_manifest(name)
  read = _read_array_record if is_array_record(name) else _read_pair
  kind = IndexedWriter if is_array_record(name) else ArrayRecordWriter
  with contextlib.ExitStack() as stack:
    opened = read(name, manifest, stack)
    writer = stack.enter_context(
      kind(goal, dtype=opened.dtype, multimodal=opened.multimodal)
    )
    documents = sequences = tokens = 0
    for block in opened.blocks:
      writer.add_documents(
        block.tokens, block.lengths, block.counts, block.modes
      )
      documents += len(block.counts)
      sequences += len(block.lengths)
      tokens += int(block.lengths.sum(dtype=np.int64))
    opened.check()
    if manifest is not None:
      _check_counts(
        name,
        manifest,
        documents=documents,
        sequences=sequences,
        tokens=tokens,
        dtype=opened.dtype.name,
      )
    # An old manifest must not lie beside what is new, not even for a moment.
    Path(manifest_path(goal)).unlink(missing_ok=True)
    writer.finalize()
  if manifest is not None:
    manifest = dataclasses.replace(
      manifest, **storage_fields(goal, writer.digests())
    )
    write_manifest(goal, manifest)
  return Converted(goal, documents, sequences, tokens, manifest)


def _target(source: str, target: str | os.PathLike[str] | None) -> str:
  if target is None:
    if is_array_record(source):
      return source.removesuffix(SUFFIX)
    return array_record_path(source)
  goal = os.fspath(target)
  if is_array_record(goal) == is_array_record(source):
    raise ValueError(
      f"{source} and {goal} are both of the format {corpus_format(goal)}. A"
      f" name that ends with {SUFFIX} is an ArrayRecord, any other the prefix"
      " of a pair; give one of each."
    )
  return goal


def _refuse_existing(name: str) -> None:
  files = map(Path, [*corpus_files(name).values(), manifest_path(name)])
  present = [str(path) for path in files if path.exists()]
  if present:
    raise FileExistsError(
      f"The output exists: {', '.join(present)}. Give another --output, remove"
      " these files, or allow it with --overwrite (overwrite=True)."
    )


def _read_pair(
  name: str, manifest: Manifest | None, stack: contextlib.ExitStack
) -> _Source:
  reader = stack.enter_context(IndexedReader(name, mmap=False))
  if not reader.num_documents and manifest is None:
    raise ValueError(
      f"{name} has no document, and no manifest that could keep its dtype: an"
      " ArrayRecord without a record does not tell it. There is nothing to"
      " convert."
    )
  used = reader.num_tokens * reader.dtype.itemsize
  if reader.bin_bytes != used:
    raise ValueError(
      f"{name}.bin has {reader.bin_bytes} bytes, its .idx uses {used}: the"
      " rest would be lost. Cut it off, or write the pair again."
    )
  reader.verify()
  shown = stack.enter_context(progress("converting", used))
  digest = FileDigest()

  def blocks() -> Iterator[DocumentBlock]:
    for block in pair_blocks(reader):
      tokens = hashed(block.tokens, digest, lambda n: shown.update(0, 0, n))
      yield dataclasses.replace(block, tokens=tokens)
      shown.update(len(block.counts), int(block.lengths.sum()), 0)

  def check() -> None:
    _check_digest(manifest, "bin", f"{name}.bin", digest.text)
    _check_digest(
      manifest, "idx", f"{name}.idx", lambda: digest_of_path(f"{name}.idx")
    )

  return _Source(reader.dtype, reader.modes is not None, blocks(), check)


def _read_array_record(
  name: str, manifest: Manifest | None, stack: contextlib.ExitStack
) -> _Source:
  reader = stack.enter_context(ArrayRecordDocuments(name))
  dtype = reader.dtype
  if dtype is None:
    if manifest is None:
      raise ValueError(
        f"{name} has no record and no manifest, so that the dtype of its"
        " tokens is not known. There is nothing to convert."
      )
    dtype = np.dtype(manifest.dtype)
  size = Path(name).stat().st_size
  shown = stack.enter_context(progress("converting", 2 * size))

  def blocks() -> Iterator[DocumentBlock]:
    _check_digest(
      manifest,
      "array_record",
      name,
      lambda: digest_of_path(name, report=lambda n: shown.update(0, 0, n)),
    )
    for block in reader.blocks():
      yield block
      tokens = int(block.lengths.sum())
      shown.update(len(block.counts), tokens, tokens * dtype.itemsize)

  return _Source(dtype, reader.multimodal, blocks(), lambda: None)


def _check_digest(
  manifest: Manifest | None, kind: str, path: str, found: Callable[[], str]
) -> None:
  noted = manifest and getattr(manifest, f"{kind}_digest")
  if noted and same_algorithm(noted) and noted != (digest := found()):
    raise ValueError(
      f"{path} was changed after it was written: its digest is {digest}, its"
      f" manifest says {noted}. Copy it again or prepare the corpus again;"
      " read_indexed_dataset --verify looks for the place."
    )


def _check_counts(name: str, manifest: Manifest, **found: int | str) -> None:
  for field, value in found.items():
    if getattr(manifest, field) != value:
      raise ValueError(
        f"{name} has {field} {value}, its manifest says"
        f" {getattr(manifest, field)}: they do not belong together. Copy both"
        " again, or remove the manifest."
      )
