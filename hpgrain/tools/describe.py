"""A finished corpus in, JSON of what it holds out.

{"name", "format", "files", "documents", "sequences", "tokens", "dtype",
 "modes", "empty_documents", "document_tokens": lengths in powers of two,
 "eod": where EODs are, "samples": a few documents, "notes", "manifest"}
"""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hpgrain.manifest import (
  Manifest,
  corpus_files,
  corpus_format,
  read_manifest,
)
from hpgrain.sources.array_record import ArrayRecordDocuments, is_array_record
from hpgrain.sources.document_blocks import DocumentBlock, pair_blocks
from hpgrain.sources.indexed import IndexedReader
from hpgrain.tokenizer import load_tokenizer, tokenizer_info
from hpgrain.tools.corpus_command import progress
from hpgrain.tools.corpus_scan import CorpusScan

# Of a sample: tokens that are decoded, characters, ids and EODs that are shown.
_DECODED = 200
_CHARACTERS = 300
_IDS = 16
_EODS = 10

# A document's text, of its first ids.
Decoder = Callable[[list[int]], str]


def describe(
  name: str,
  *,
  samples: int = 3,
  documents: Sequence[int] = (),
  tokenizer: str | None = None,
  eod_id: int | None = None,
  scan: bool = True,
) -> dict[str, Any]:
  """Tells what a corpus holds.

  Args:
    name: a pair's prefix, or an ArrayRecord's path.
    samples: how many documents to show, from the first on.
    documents: numbers of those to show instead.
    tokenizer: name of the one to decode with; None takes the manifest's, if it
      is here.
    eod_id: the EOD; None takes the tokenizer's or the manifest's.
    scan: read all tokens. Else EODs are left out, and of an ArrayRecord all
      counts but that of documents.

  Raises:
    FileNotFoundError: the corpus is not there.
    ValueError: it is damaged, or not what its manifest says, or has no such
      document, or the tokenizer cannot be loaded.
  """
  manifest = read_manifest(name)
  with contextlib.ExitStack() as stack:
    if is_array_record(name):
      opened = _Opened.array_record(name, stack)
    else:
      opened = _Opened.pair(name, stack)
    if not documents:
      documents = range(min(samples, opened.num_documents))
    for number in documents:
      if not 0 <= number < opened.num_documents:
        raise ValueError(
          f"{name} has no document {number}. It has {opened.num_documents},"
          " counted from 0."
        )
    notes: list[str] = []
    decode, known = None, manifest and manifest.tokenizer.eod_id
    if documents or tokenizer:
      decode, given = _decoder(tokenizer, manifest, notes)
      known = given if given is not None else known
    eod = eod_id if eod_id is not None else known
    if eod is None:
      notes.append(
        "The EOD is not known: there is no manifest that tells it, so give"
        " --eod-id or --tokenizer."
      )
    counts = CorpusScan(eod_id=eod, vocab_size=None)
    counted = scan or opened.lengths_are_cheap
    if counted:
      _scan(opened, counts, read_tokens=scan and eod is not None)
    shown = [
      _sample(number, *opened.document(number), eod=eod, decode=decode)
      for number in documents
    ]
  files = {
    kind: {"path": str(path), "bytes": Path(path).stat().st_size}
    for kind, path in corpus_files(name).items()
  }
  return {
    "name": name,
    "format": corpus_format(name),
    "files": files,
    "documents": opened.num_documents,
    "sequences": counts.sequences if counted else None,
    "tokens": counts.tokens if counted else None,
    "dtype": opened.dtype and opened.dtype.name,
    "modes": opened.modes,
    "empty_documents": counts.empty if counted else None,
    "document_tokens": lengths_of(counts) if counted else None,
    "eod": eods_of(counts, eod) if scan and eod is not None else None,
    "samples": shown,
    "notes": notes,
    "manifest": manifest and dataclasses.asdict(manifest),
  }


def lengths_of(scan: CorpusScan) -> dict[str, Any]:
  """JSON of documents' lengths; the histogram is in powers of two."""
  used = np.flatnonzero(scan.histogram)
  return {
    "least": scan.least,
    "most": scan.most,
    "mean": scan.tokens / scan.documents if scan.documents else None,
    "histogram": [
      {
        "from": 1 << (k - 1) if k else 0,
        "to": (1 << k) - 1 if k else 0,
        "documents": int(scan.histogram[k]),
      }
      for k in (range(used[0], used[-1] + 1) if len(used) else ())
    ],
  }


def eods_of(scan: CorpusScan, eod: int) -> dict[str, Any]:
  """JSON of where EODs are."""
  return {
    "id": eod,
    "tokens": scan.eods,
    "documents_ending_with_it": scan.ended,
    "documents_ending_otherwise": scan.unended.count,
    "first_ending_otherwise": [place.document for place in scan.unended.first],
    "inside_documents": scan.inner.count,
    "first_inside": [
      {"document": place.document, "token": place.token}
      for place in scan.inner.first
    ],
  }


@dataclasses.dataclass(frozen=True)
class _Opened:
  """A corpus, open, of either format.

  Attributes:
    num_documents: of it.
    dtype: of its tokens; None where no document tells it.
    modes: whether sequences have modes.
    num_bytes: that a scan reads.
    lengths_are_cheap: whether lengths are known without the tokens.
    blocks: gives all documents.
    document: gives the tokens of one in pieces, and its sequences' lengths.
  """

  num_documents: int
  dtype: np.dtype | None
  modes: bool
  num_bytes: int
  lengths_are_cheap: bool
  blocks: Callable[[], Iterator[DocumentBlock]]
  document: Callable[[int], tuple[Iterator[np.ndarray], np.ndarray]]

  @classmethod
  def pair(cls, name: str, stack: contextlib.ExitStack) -> "_Opened":
    reader = stack.enter_context(IndexedReader(name, mmap=False))
    reader.verify()

    def document(number: int) -> tuple[Iterator[np.ndarray], np.ndarray]:
      first, last = reader.document_indices[number : number + 2].tolist()
      lengths = reader.lengths[first:last]
      start = 0
      if first < len(reader):
        start = int(reader.pointers[first]) // reader.dtype.itemsize
      end = start + int(lengths.sum(dtype=np.int64))
      return reader.token_blocks(start, end), lengths

    return cls(
      reader.num_documents,
      reader.dtype,
      reader.modes is not None,
      reader.bin_bytes,
      True,
      lambda: pair_blocks(reader),
      document,
    )

  @classmethod
  def array_record(cls, name: str, stack: contextlib.ExitStack) -> "_Opened":
    reader = stack.enter_context(ArrayRecordDocuments(name))

    def document(number: int) -> tuple[Iterator[np.ndarray], np.ndarray]:
      found = reader[number]
      return iter([found.tokens]), found.lengths

    return cls(
      len(reader),
      reader.dtype,
      reader.multimodal,
      Path(name).stat().st_size,
      False,
      reader.blocks,
      document,
    )


def _scan(opened: _Opened, counts: CorpusScan, *, read_tokens: bool) -> None:
  itemsize = opened.dtype.itemsize if opened.dtype else 1
  with progress("reading", opened.num_bytes) as shown:
    for block in opened.blocks():
      counts.add(block, read_tokens=read_tokens)
      tokens = int(block.lengths.sum())
      shown.update(len(block.counts), tokens, tokens * itemsize)


def _decoder(
  name: str | None, manifest: Manifest | None, notes: list[str]
) -> tuple[Decoder | None, int | None]:
  """What turns ids into text, and its EOD; None where nothing can be had."""
  if name is None and manifest is None:
    notes.append("There is no manifest, so ids are shown; --tokenizer decodes.")
    return None, None
  try:
    tokenizer = load_tokenizer(
      name or manifest.tokenizer.name, local_files_only=name is None
    )
  except ValueError:
    if name is not None:
      raise
    notes.append(
      f"The manifest's tokenizer {manifest.tokenizer.name!r} is not here, so"
      " ids are shown; --tokenizer decodes."
    )
    return None, None
  info = tokenizer_info(tokenizer)
  if manifest is not None and info.digest != manifest.tokenizer.digest:
    what = "not what the corpus was made with (another digest)"
    if name is None:
      notes.append(
        f"{info.name!r} is {what}, so ids are shown; --tokenizer decodes."
      )
      return None, None
    notes.append(f"{info.name!r} is {what}: texts may be nonsense.")

  def decode(ids: list[int]) -> str:
    return tokenizer.decode(
      [i for i in ids if 0 <= i < info.vocab_size],
      skip_special_tokens=False,
      clean_up_tokenization_spaces=False,
    )

  return decode, info.eod_id


def _sample(
  number: int,
  pieces: Iterator[np.ndarray],
  lengths: np.ndarray,
  *,
  eod: int | None,
  decode: Decoder | None,
) -> dict[str, Any]:
  """JSON of one document; its tokens are read a piece at a time."""
  head: list[int] = []
  eods: list[int] = []
  num_tokens = num_eods = 0
  for piece in pieces:
    head += piece[: _DECODED - len(head)].tolist()
    if eod is not None:
      hits = np.flatnonzero(piece == eod)
      num_eods += len(hits)
      eods += (hits[: _EODS - len(eods)] + num_tokens).tolist()
    num_tokens += len(piece)
  text, cut = None, num_tokens > len(head)
  if decode is not None:
    text = decode(head)
    cut = cut or len(text) > _CHARACTERS
    text = text[:_CHARACTERS]
  return {
    "document": number,
    "tokens": num_tokens,
    "sequences": len(lengths),
    # JSON has no NaN, which pairs of floats may.
    "ids": [i if math.isfinite(i) else str(i) for i in head[:_IDS]],
    "text": text,
    "text_is_cut": cut if text is not None else None,
    "eods": num_eods if eod is not None else None,
    "first_eods": eods,
  }
