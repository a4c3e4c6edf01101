"""A finished corpus in, every problem that can be found in it out.

manifest      sizes, counts, digests of whole files, words and numbers that
              can be, the tokenizer that it describes
.idx          every length, pointer and document index
ArrayRecord   every record
tokens        ids inside the vocabulary, EODs where they belong
"""

import contextlib
from pathlib import Path

import numpy as np

from hpgrain.manifest import (
  Manifest,
  corpus_files,
  corpus_format,
  manifest_path,
  parse_manifest,
)
from hpgrain.sources.array_record import ArrayRecordDocuments, is_array_record
from hpgrain.sources.document_blocks import DocumentBlock, pair_blocks
from hpgrain.sources.file_digest import (
  FileDigest,
  digest_of_path,
  same_algorithm,
)
from hpgrain.sources.indexed import IndexedReader
from hpgrain.tokenizer import TokenizerInfo
from hpgrain.tools.corpus_command import hashed, progress
from hpgrain.tools.corpus_scan import CorpusScan
from hpgrain.tools.progress import Progress
from hpgrain.tools.verification import Verification
from hpgrain.tools.verify_index import verify_index
from hpgrain.tools.verify_manifest import (
  check_against_manifest,
  check_tokenizer,
)
from hpgrain.tools.verify_values import check_inputs, check_values


def verify(
  name: str,
  *,
  tokenizer: TokenizerInfo | None = None,
  listed: int = 20,
) -> tuple[Verification, CorpusScan | None]:
  """Reads all of a corpus and looks for what is wrong.

  Args:
    name: a pair's prefix, or an ArrayRecord's path.
    tokenizer: the one it should be of; None takes the manifest's word.
    listed: how many problems are kept.

  Returns:
    What was found, and the counts of all documents, if they could be read.

  Raises:
    FileNotFoundError: the corpus is not there.
    OSError: it could not be read.
  """
  files = {kind: Path(path) for kind, path in corpus_files(name).items()}
  _refuse_missing(name, files)
  found = Verification(listed=listed)
  manifest = _manifest(name, files, found)
  if manifest is not None:
    check_values(name, manifest, found)
    check_inputs(manifest, found)
  check_tokenizer(manifest, tokenizer, found, where=manifest_path(name))
  info = manifest.tokenizer if manifest else tokenizer
  scan = CorpusScan(
    eod_id=info.eod_id if info else None,
    vocab_size=info.vocab_size if info else None,
    record_length=_record_length(manifest),
    listed=listed,
  )
  total = sum(path.stat().st_size for path in files.values())
  with progress("verifying", total * (1 + is_array_record(name))) as shown:
    if is_array_record(name):
      whole, dtype = _array_record(name, manifest, scan, found, shown)
    else:
      whole, dtype = _pair(name, manifest, scan, found, shown)
  if whole:
    check_against_manifest(
      name, manifest, info=info, scan=scan, dtype=dtype, found=found
    )
  else:
    found.skip("tokens and counts", "the documents cannot be told apart")
  return found, scan if whole else None


def _refuse_missing(name: str, files: dict[str, Path]) -> None:
  if is_array_record(name):
    if not files["array_record"].is_file():
      raise FileNotFoundError(f"{name} does not exist, so nothing is verified.")
    return
  # It says what a prefix is, and what else may be meant.
  with contextlib.suppress(ValueError):
    IndexedReader(name, mmap=False).close()


def _manifest(
  name: str, files: dict[str, Path], found: Verification
) -> Manifest | None:
  """The manifest, if it can be read; checks what it says of the files."""
  path = manifest_path(name)
  manifest = None
  try:
    manifest = parse_manifest(name)
  except ValueError as error:
    with found.check("manifest"):
      found.add_error(path, error)
    return None
  if manifest is None:
    found.skip("manifest", f"there is no {path}")
    return None
  with found.check("manifest"):
    if manifest.format != corpus_format(name):
      found.add(
        path,
        f"its format is {manifest.format!r}, expected {corpus_format(name)!r}",
      )
  with found.check("sizes of files"):
    for kind, file in files.items():
      noted = getattr(manifest, f"{kind}_bytes")
      size = file.stat().st_size
      if noted != size:
        found.add(file, f"it has {size} bytes, expected {noted} (manifest)")
  return manifest


def _record_length(manifest: Manifest | None) -> int | None:
  if manifest is None or manifest.pack_to_seq_len is None:
    return None
  return manifest.pack_to_seq_len + 1


def _pair(
  name: str,
  manifest: Manifest | None,
  scan: CorpusScan,
  found: Verification,
  shown: Progress,
) -> tuple[bool, np.dtype | None]:
  """Checks a pair.

  Returns:
    Whether all its documents were read, and the tokens' dtype.
  """

  def report(num_bytes: int) -> None:
    shown.update(0, 0, num_bytes)

  layout = verify_index(name, found, report=report)
  _digest(manifest, "idx", f"{name}.idx", found)
  if layout is None:
    _digest(manifest, "bin", f"{name}.bin", found, shown=shown)
    return False, None
  digest = FileDigest()
  with IndexedReader(name, mmap=False) as reader:
    for block in pair_blocks(reader):
      scan.add(_hashed(block, digest, shown))
  _digest(manifest, "bin", f"{name}.bin", found, text=digest.text())
  return True, layout.dtype


def _hashed(
  block: DocumentBlock, digest: FileDigest, shown: Progress
) -> DocumentBlock:
  tokens = hashed(block.tokens, digest, lambda n: shown.update(0, 0, n))
  shown.update(len(block.counts), int(block.lengths.sum()), 0)
  return DocumentBlock(
    block.first, block.counts, block.lengths, block.modes, tokens
  )


def _array_record(
  name: str,
  manifest: Manifest | None,
  scan: CorpusScan,
  found: Verification,
  shown: Progress,
) -> tuple[bool, np.dtype | None]:
  """Checks an ArrayRecord, as `_pair` does a pair."""
  _digest(manifest, "array_record", name, found, shown=shown)
  documents = None
  with found.check("ArrayRecord header and footer"):
    try:
      documents = ArrayRecordDocuments(name)
    except ValueError as error:
      found.add_error(name, error)
  if documents is None:
    found.skip("records", "the file cannot be opened")
    return False, None
  with documents:
    before = found.num_problems
    itemsize = documents.dtype.itemsize if documents.dtype else 1
    with found.check("records"):
      try:
        for block in documents.blocks():
          scan.add(block)
          size = int(block.lengths.sum())
          shown.update(len(block.counts), size, size * itemsize)
      except ValueError as error:
        _bad_records(documents, found)
        if found.num_problems == before:
          found.add_error(name, error)
    return found.num_problems == before, documents.dtype


def _bad_records(documents: ArrayRecordDocuments, found: Verification) -> None:
  """Tells of each record that cannot be read."""
  for number in range(len(documents)):
    try:
      documents[number]
    except ValueError as error:
      found.add_error(documents.path, error)


def _digest(
  manifest: Manifest | None,
  kind: str,
  path: str,
  found: Verification,
  *,
  text: str | None = None,
  shown: Progress | None = None,
) -> None:
  """Compares a whole file with the manifest's digest of it.

  Args:
    manifest: of the corpus.
    kind: of the file, as `corpus_files` calls it.
    path: of the file.
    found: where to note what is wrong.
    text: the file's digest, if it is known already.
    shown: told of what is read for it.
  """
  name = f"digest of .{kind}"
  noted = manifest and getattr(manifest, f"{kind}_digest")
  if not noted:
    why = "has no digest of it" if manifest else "is not there"
    found.skip(name, f"the manifest {why}")
    return
  if not same_algorithm(noted):
    found.skip(name, f"it is of another algorithm, {noted.split(':')[0]}")
    return
  with found.check(name):
    if text is None:
      text = digest_of_path(
        path, report=lambda n: shown.update(0, 0, n) if shown else None
      )
    if text != noted:
      found.add(
        path,
        f"its digest is {text}, expected {noted}: bytes of it were changed"
        " after it was written",
      )
