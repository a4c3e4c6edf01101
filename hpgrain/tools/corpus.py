r"""A JSON Lines file and a tokenizer in, a `.bin/.idx` pair and manifest out.

  {"text": "One."}           tokenize      [5 7 | eod]
  {"text": "Two, three."}  ------------>   [6 9 8 | eod]   .bin and .idx
  {"text": ""}              append EOD     []

Packed, the documents are laid end to end and cut into records of one token
more than a row, so that a row has its shifted labels; the tail that fills no
record is dropped and counted.
"""

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hpgrain.manifest import (
  InputFile,
  Manifest,
  manifest_path,
  pair_bytes,
  tool_name,
  write_manifest,
)
from hpgrain.sources.indexed import IndexedWriter, dtype_for_vocabulary
from hpgrain.tokenizer import document_encoder, tokenizer_info
from hpgrain.tools.jsonl import TextRecord, read_texts
from hpgrain.tools.progress import Progress

if TYPE_CHECKING:
  from transformers import PreTrainedTokenizerBase

# A batch is large enough to keep every core's tokenizer busy and small enough
# that its Python lists of ids stay below a hundred megabytes.
_BATCH_CHARACTERS = 1 << 20
_BATCH_DOCUMENTS = 1024


def prepare_corpus(
  path: str | os.PathLike[str],
  *,
  output_prefix: str | os.PathLike[str],
  tokenizer: "PreTrainedTokenizerBase",
  json_key: str = "text",
  append_eod: bool = True,
  pack_to_seq_len: int | None = None,
  overwrite: bool = False,
  log_interval: int = 1000,
) -> Manifest:
  """Tokenizes a JSON Lines file into `{output_prefix}_{json_key}_document`.

  The pair appears under its final name when it is whole, and its manifest
  after it; a run that fails or is killed leaves neither. The same input gives
  the same bytes however many threads tokenize.

  Args:
    path: the JSON Lines file; it is only read.
    output_prefix: path and beginning of the name of what is written; missing
      folders are made.
    tokenizer: what `load_tokenizer` returned. Its own special tokens are not
      added around documents (`add_special_tokens=False`).
    json_key: the key that holds the text.
    append_eod: end each non-empty document with EOS (SEP if it has none).
    pack_to_seq_len: cut the documents, laid end to end, into records of one
      token more than this; None keeps documents whole.
    overwrite: replace an output that is there. The old one stays until the
      new one is whole.
    log_interval: documents between progress lines on stderr (0: none); on a
      terminal a bar is shown instead.

  Returns:
    The manifest that was written, with all counts.

  Raises:
    FileExistsError: the output is there and `overwrite` is off.
    FileNotFoundError: the input is not there.
    ValueError: a bad argument, a record that cannot be read, or a tokenizer
      without EOS and SEP while `append_eod` is on.
  """
  prefix = check_request(
    path,
    output_prefix=output_prefix,
    json_key=json_key,
    pack_to_seq_len=pack_to_seq_len,
    overwrite=overwrite,
    log_interval=log_interval,
  )
  if pack_to_seq_len is not None and not append_eod:
    warnings.warn(
      "Packing without an EOD: nothing will mark where one document ends and"
      " the next begins, so attention and labels run across them. Turn"
      " append_eod on unless that is meant.",
      UserWarning,
      stacklevel=2,
    )
  info = tokenizer_info(tokenizer, require_eod=append_eod)
  dtype = dtype_for_vocabulary(info.vocab_size)
  encode = document_encoder(tokenizer)
  prefix.parent.mkdir(parents=True, exist_ok=True)
  with (
    Progress(Path(path).stat().st_size, log_interval) as progress,
    IndexedWriter(os.fspath(prefix), dtype=dtype) as writer,
  ):
    output = _Output(writer, pack_to_seq_len)
    for batch in _batches(read_texts(path, key=json_key)):
      for ids in encode([record.text for record in batch]):
        if ids and append_eod:
          ids.append(info.eod_id)
        output.add(np.asarray(ids, dtype))
      progress.update(len(batch), output.tokens, batch[-1].end)
    # An old manifest must not lie beside a new pair, not even for a moment.
    manifest_path(prefix).unlink(missing_ok=True)
    writer.finalize()
  bin_bytes, idx_bytes = pair_bytes(prefix)
  manifest = Manifest(
    tool=tool_name(),
    tokenizer=info,
    append_eod=append_eod,
    pack_to_seq_len=pack_to_seq_len,
    dtype=dtype.name,
    documents=output.documents,
    sequences=output.sequences,
    tokens=output.tokens,
    dropped_tokens=output.dropped_tokens,
    empty_documents=output.empty_documents,
    inputs=(InputFile(path=os.fspath(path), bytes=Path(path).stat().st_size),),
    bin_bytes=bin_bytes,
    idx_bytes=idx_bytes,
  )
  write_manifest(prefix, manifest)
  if not manifest.tokens:
    warnings.warn(
      f"{os.fspath(path)} gave no token to write: {prefix} holds"
      f" {manifest.documents} documents, all empty, and"
      f" {manifest.dropped_tokens} tokens were dropped. No training run can"
      " read it.",
      UserWarning,
      stacklevel=2,
    )
  return manifest


def check_request(
  path: str | os.PathLike[str],
  *,
  output_prefix: str | os.PathLike[str],
  json_key: str = "text",
  pack_to_seq_len: int | None = None,
  overwrite: bool = False,
  log_interval: int = 1000,
) -> Path:
  """Checks what can be checked before a tokenizer is loaded.

  Returns:
    The pair's prefix, `{output_prefix}_{json_key}_document`.

  Raises:
    As `prepare_corpus`.
  """
  if pack_to_seq_len is not None and not 0 < pack_to_seq_len < 2**31 - 1:
    raise ValueError(
      f"pack_to_seq_len must be positive (and below {2**31 - 1}), got"
      f" {pack_to_seq_len}. Give the seq_length that training will use, or"
      " leave it out to keep documents whole."
    )
  if log_interval < 0:
    raise ValueError(
      f"log_interval must be 0 (no lines) or positive, got {log_interval}."
    )
  if not json_key or "/" in json_key or "\0" in json_key:
    raise ValueError(
      f"The JSON key {json_key!r} cannot be part of the output's name. Give a"
      " key that is not empty and has no '/'."
    )
  name = os.fspath(output_prefix)
  if not name or name.endswith("/"):
    raise ValueError(
      f"output_prefix must end with the beginning of a file name, got"
      f" {name!r}. 'data/train' writes data/train_{json_key}_document.bin."
    )
  if not Path(path).exists():
    raise FileNotFoundError(
      f"The input {os.fspath(path)} does not exist. Give one JSON Lines file."
    )
  prefix = Path(f"{name}_{json_key}_document")
  outputs = [
    Path(f"{prefix}.bin"),
    Path(f"{prefix}.idx"),
    manifest_path(prefix),
  ]
  present = [output for output in outputs if output.exists()]
  if any(output.samefile(path) for output in present):
    raise ValueError(
      f"The output {prefix} would overwrite the input {os.fspath(path)}. Give"
      " another output prefix."
    )
  if present and not overwrite:
    raise FileExistsError(
      f"The output exists: {', '.join(map(str, present))}. Give another output"
      " prefix, remove these files, or allow it with --overwrite"
      " (overwrite=True)."
    )
  return prefix


class _Output:
  """Writes documents whole, or laid end to end and cut into records."""

  def __init__(
    self, writer: IndexedWriter, pack_to_seq_len: int | None
  ) -> None:
    self._writer = writer
    self._record_length = pack_to_seq_len and pack_to_seq_len + 1
    self._waiting: list[np.ndarray] = []
    self.documents = 0
    self.sequences = 0
    self.tokens = 0
    # Only those that wait for a record to be filled; after the last document
    # nothing will fill it.
    self.dropped_tokens = 0
    self.empty_documents = 0

  def add(self, tokens: np.ndarray) -> None:
    """Takes one document's tokens, EOD included."""
    self.empty_documents += not len(tokens)
    if self._record_length is None:
      self._write(tokens)
      return
    self._waiting.append(tokens)
    self.dropped_tokens += len(tokens)
    if self.dropped_tokens < self._record_length:
      return
    joined = np.concatenate(self._waiting)
    whole = len(joined) - len(joined) % self._record_length
    for record in joined[:whole].reshape(-1, self._record_length):
      self._write(record)
    self._waiting = [joined[whole:]]
    self.dropped_tokens = len(joined) - whole

  def _write(self, tokens: np.ndarray) -> None:
    # One sequence, or none where there is no token.
    self._writer.add_document(tokens)
    self.documents += 1
    self.sequences += bool(len(tokens))
    self.tokens += len(tokens)


def _batches(records: Iterator[TextRecord]) -> Iterator[list[TextRecord]]:
  """Groups records in order, by number and by characters."""
  batch: list[TextRecord] = []
  characters = 0
  for record in records:
    batch.append(record)
    characters += len(record.text)
    if characters >= _BATCH_CHARACTERS or len(batch) == _BATCH_DOCUMENTS:
      yield batch
      batch, characters = [], 0
  if batch:
    yield batch
