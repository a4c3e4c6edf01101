"""A manifest in, what it says that cannot be, whatever the corpus holds, out.

Words that nobody writes, fields of the other format, and numbers that
contradict each other.
"""

import re
from collections.abc import Callable
from pathlib import Path, PurePath

from hpgrain.manifest import (
  Manifest,
  corpus_files,
  corpus_format,
  manifest_path,
)
from hpgrain.sources.array_record_format import SUFFIX
from hpgrain.tools.encoders import BACKENDS, SPECIAL_TOKENS_IN_TEXT
from hpgrain.tools.options import PACK_TAIL
from hpgrain.tools.verification import Verification

# Bad records that a manifest lists, as `manifests.py` has it.
_LISTED = 100

# Notes a field, and what was found or is expected.
_Tell = Callable[[str, str], None]


def check_values(name: str, manifest: Manifest, found: Verification) -> None:
  """Checks what a manifest says without a look at the corpus.

  Args:
    name: of the corpus.
    manifest: of it.
    found: where to note what is wrong.
  """
  where = manifest_path(name)

  def tell(field: str, what: str) -> None:
    said = getattr(manifest, field)
    found.add(where, f"it says {field} {said}, {what}")

  with found.check("values"):
    _storage(name, manifest, tell)
    _words(manifest, tell)
    _key(name, manifest, tell)
    _records(manifest, tell)
    _bad(manifest, where, found)


def check_inputs(manifest: Manifest, found: Verification) -> None:
  """Notes inputs that are here with another size, which is no problem.

  They may lie elsewhere by now, and others under their names.
  """
  here, other = 0, []
  for file in manifest.inputs:
    try:
      size = Path(file.path).stat().st_size
    except (OSError, ValueError):
      continue
    here += 1
    if size != file.bytes:
      other.append(f"{file.path} has {size} bytes, not {file.bytes}")
  if not here:
    found.skip("inputs", "they are not here")
    return
  more = f"; so have {len(other) - 1} others" if len(other) > 1 else ""
  with found.check("inputs", other[0] + more if other else ""):
    pass


def _storage(name: str, manifest: Manifest, tell: _Tell) -> None:
  for kind in {"bin", "idx", "array_record"} - corpus_files(name).keys():
    for field in (f"{kind}_bytes", f"{kind}_digest"):
      if getattr(manifest, field) is not None:
        tell(
          field, f"expected None: the corpus is of format {corpus_format(name)}"
        )


def _words(manifest: Manifest, tell: _Tell) -> None:
  # None: the manifest is from before it was told.
  for field, words in (
    ("special_tokens_in_text", SPECIAL_TOKENS_IN_TEXT),
    ("tokenizer_backend", tuple(b for b in BACKENDS if b != "auto")),
    ("pack_tail", PACK_TAIL),
  ):
    said = getattr(manifest, field)
    if said is not None and said not in words:
      tell(field, f"expected one of {', '.join(words)}")
    elif field == "pack_tail" and said and manifest.pack_to_seq_len is None:
      tell(field, "expected None, as pack_to_seq_len is")


def _key(name: str, manifest: Manifest, tell: _Tell) -> None:
  """The key is part of the name, unless the corpus was renamed."""
  key = manifest.json_key
  own = PurePath(name).name.removesuffix(SUFFIX)
  named = re.fullmatch(r".*_(.+)_document", own, re.DOTALL)
  if key is None or not named or own.endswith(f"_{key}_document"):
    return
  tell("json_key", f"expected {named[1]}: the corpus is named {own}")


def _records(manifest: Manifest, tell: _Tell) -> None:
  if manifest.partitions < 1:
    tell("partitions", "expected 1 or more")
  if manifest.pack_to_seq_len == 0:
    tell("pack_to_seq_len", "expected 1 or more")
  special = manifest.special_token_documents or 0
  if special and manifest.special_tokens_in_text == "error":
    tell(
      "special_token_documents",
      "expected 0: special_tokens_in_text is error",
    )
  records = manifest.records
  if records is None:
    return
  if special > records:
    tell("special_token_documents", f"expected {records} (records) at most")
  # Of whole documents both are counted.
  if manifest.pack_to_seq_len is None:
    return
  if manifest.empty_documents > records:
    tell("empty_documents", f"expected {records} (records) at most")
  tokens = manifest.tokens + manifest.dropped_tokens
  filled = records - manifest.empty_documents
  if filled > tokens or (tokens and not filled):
    tell(
      "records",
      f"found {tokens} tokens and dropped_tokens, expected one or more of each"
      f" of {filled} that are not in empty_documents, and no others",
    )


def _bad(manifest: Manifest, where: PurePath, found: Verification) -> None:
  listed = min(manifest.bad_records, _LISTED)
  if len(manifest.bad) != listed:
    found.add(
      where,
      f"it says bad_records {manifest.bad_records}, and bad has"
      f" {len(manifest.bad)} entries, expected {listed}",
    )
  paths = {file.path for file in manifest.inputs}
  for i, bad in enumerate(manifest.bad):
    if bad.path not in paths:
      found.add(
        where, f"it says bad[{i}].path {bad.path}, expected one of inputs"
      )
    if not bad.record:
      found.add(where, f"it says bad[{i}].record 0, expected 1 or more")
