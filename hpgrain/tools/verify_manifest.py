"""What a corpus holds and what its manifest says in, contradictions out."""

import dataclasses
import os
from collections.abc import Callable

import numpy as np

from hpgrain.manifest import Manifest, corpus_files, manifest_path
from hpgrain.tokenizer import TokenizerInfo
from hpgrain.tools.corpus_scan import CorpusScan, Found, Place
from hpgrain.tools.verification import Verification

_NO_MANIFEST = "there is no manifest"


def check_tokenizer(
  manifest: Manifest | None,
  tokenizer: TokenizerInfo | None,
  found: Verification,
  *,
  where: object,
) -> None:
  """Compares a tokenizer with the one that the manifest names.

  Args:
    manifest: of the corpus.
    tokenizer: the one that was given, or that the manifest names.
    found: where to note what is wrong.
    where: the manifest's path.
  """
  name = "tokenizer"
  if manifest is None:
    found.skip(name, _NO_MANIFEST)
    return
  if tokenizer is None:
    found.skip(name, "it is not here, and no --tokenizer is given")
    return
  with found.check(name):
    if tokenizer.digest != manifest.tokenizer.digest:
      found.add(
        where,
        f"its tokenizer is {manifest.tokenizer.name}, digest"
        f" {manifest.tokenizer.digest}; expected that of {tokenizer.name},"
        f" {tokenizer.digest}",
      )
    for field in dataclasses.fields(TokenizerInfo):
      said = getattr(manifest.tokenizer, field.name)
      expected = getattr(tokenizer, field.name)
      # The same tokenizer may lie elsewhere by now.
      if field.name not in ("name", "digest") and said != expected:
        found.add(
          where, f"it says tokenizer.{field.name} {said}, expected {expected}"
        )


def check_against_manifest(
  name: str,
  manifest: Manifest | None,
  *,
  info: TokenizerInfo | None,
  scan: CorpusScan,
  dtype: np.dtype | None,
  found: Verification,
) -> None:
  """Compares what was read with what is said of it.

  Args:
    name: of the corpus.
    manifest: of it, or None.
    info: the tokenizer whose ids it has, or None.
    scan: what was read.
    dtype: of its tokens, if it is known.
    found: where to note what is wrong.
  """
  tokens = next(iter(corpus_files(name).values()))
  _vocabulary(tokens, info, scan, dtype, found)
  if manifest is None:
    for check in ("counts", "EODs", "packed records", "dropped tokens"):
      found.skip(check, _NO_MANIFEST)
    return
  where = manifest_path(name)
  _counts(where, manifest, scan, dtype, found)
  _eods(tokens, where, manifest, scan, found)
  _packing(tokens, where, manifest, scan, found)


def _vocabulary(
  tokens: os.PathLike[str],
  info: TokenizerInfo | None,
  scan: CorpusScan,
  dtype: np.dtype | None,
  found: Verification,
) -> None:
  check = "ids in the vocabulary"
  if info is None:
    found.skip(check, f"{_NO_MANIFEST}, and no --tokenizer is given")
    return
  if dtype is not None and dtype.kind == "f":
    found.skip(check, f"tokens of {dtype.name} are no ids")
    return
  with found.check(check):
    _note(
      found,
      tokens,
      scan.outside,
      lambda place: (
        f"the id is {place.id}, expected 0 to {info.vocab_size - 1}"
      ),
    )


def _counts(
  where: os.PathLike[str],
  manifest: Manifest,
  scan: CorpusScan,
  dtype: np.dtype | None,
  found: Verification,
) -> None:
  with found.check("counts"):
    counted: dict[str, int | str] = {
      "documents": scan.documents,
      "sequences": scan.sequences,
      "tokens": scan.tokens,
    }
    if dtype is not None:
      counted["dtype"] = dtype.name
    whole = manifest.pack_to_seq_len is None
    if whole:
      counted["empty_documents"] = scan.empty
    if whole and manifest.records is not None:
      counted["records"] = scan.documents
    for field, value in counted.items():
      said = getattr(manifest, field)
      if said != value:
        found.add(where, f"it says {field} {said}, expected {value}")


def _eods(
  tokens: os.PathLike[str],
  where: os.PathLike[str],
  manifest: Manifest,
  scan: CorpusScan,
  found: Verification,
) -> None:
  """Checks that EODs are where they were appended, and nowhere else."""
  eod = manifest.tokenizer.eod_id
  ends, inside = "EOD at each document's end", "no other EODs"
  if not manifest.append_eod or eod is None:
    with found.check("append_eod"):
      if manifest.append_eod:
        found.add(
          where, "it says append_eod True, found tokenizer.eod_id to be None"
        )
      else:
        _unasked(where, manifest, scan, found)
    why = "documents were not ended with one"
    found.skip(ends, why)
    found.skip(inside, why)
    return
  # A text may spell out the EOD; how often is not known.
  plain = manifest.special_token_documents == 0
  spelt = "texts may spell out the EOD"
  if manifest.pack_to_seq_len is not None:
    found.skip(ends, "documents are cut into records")
    if not plain or manifest.records is None:
      found.skip(inside, spelt)
      return
    with found.check("number of EODs"):
      most = manifest.records - manifest.empty_documents
      least = max(most - manifest.dropped_tokens, 0)
      if not least <= scan.eods <= most:
        expected = str(most) if least == most else f"{least} to {most}"
        found.add(
          tokens,
          f"it has {scan.eods} EODs (id {eod}), expected {expected}: one for"
          " each record that has tokens, less those dropped",
        )
    return
  with found.check(ends):
    _note(
      found,
      tokens,
      scan.unended,
      lambda place: (
        f"the document's last id is {place.id}, expected the EOD {eod}"
      ),
    )
  if not plain:
    found.skip(inside, spelt)
    return
  with found.check(inside):
    _note(
      found,
      tokens,
      scan.inner,
      lambda place: (
        f"the id is the EOD {eod}, expected another: {where} says that no text"
        " spells it out"
      ),
    )


def _unasked(
  where: os.PathLike[str],
  manifest: Manifest,
  scan: CorpusScan,
  found: Verification,
) -> None:
  """Tells of EODs that no text spelt out and nobody is said to have added."""
  spelt = manifest.special_token_documents
  if spelt is None or not scan.eods:
    return
  filled = scan.documents - scan.empty
  whole = manifest.pack_to_seq_len is None
  if whole and scan.ended == filled > spelt:
    what = f"each of {filled} documents with tokens to end with"
  elif not spelt or (whole and scan.ended > spelt):
    what = f"{scan.eods} of"
  else:
    return
  found.add(
    where,
    f"it says append_eod False, found {what} the EOD"
    f" {manifest.tokenizer.eod_id}, and special_token_documents to be {spelt}",
  )


def _packing(
  tokens: os.PathLike[str],
  where: os.PathLike[str],
  manifest: Manifest,
  scan: CorpusScan,
  found: Verification,
) -> None:
  size = manifest.pack_to_seq_len
  dropped = manifest.dropped_tokens
  if size is None:
    found.skip("packed records", "documents are whole")
    with found.check("dropped tokens"):
      for field in ("dropped_tokens", "dropped_documents"):
        if said := getattr(manifest, field):
          found.add(where, f"it says {field} {said}, expected 0")
    return
  with found.check("packed records"):
    for place in scan.uncut.first:
      found.add(
        f"{tokens}, document {place.document}",
        f"it has {place.id} tokens in {place.token} sequences, expected"
        f" {size + 1} in 1",
      )
    _uncounted(found, scan.uncut)
  if manifest.pack_tail is None:
    found.skip("dropped tokens", "the manifest does not tell the tails")
    return
  with found.check("dropped tokens"):
    tails = manifest.partitions if manifest.pack_tail == "drop" else 1
    if dropped > tails * size:
      found.add(
        where,
        f"it says dropped_tokens {dropped}, expected {tails * size} at most:"
        f" {tails} tails of {size} tokens",
      )
      return
    # A tail has from 1 to `size` tokens.
    least, most = -(-dropped // max(size, 1)), min(tails, dropped)
    if not least <= manifest.dropped_documents <= most:
      expected = str(most) if least == most else f"{least} to {most}"
      found.add(
        where,
        f"it says dropped_documents {manifest.dropped_documents}, expected"
        f" {expected}: dropped_tokens is {dropped}",
      )


def _note(
  found: Verification,
  tokens: os.PathLike[str],
  kind: Found,
  tell: Callable[[Place], str],
) -> None:
  for place in kind.first:
    found.add(
      f"{tokens}, document {place.document}, token {place.token}", tell(place)
    )
  _uncounted(found, kind)


def _uncounted(found: Verification, kind: Found) -> None:
  """Counts those whose place was not kept."""
  found.more(kind.count - len(kind.first))
