r"""One unit of the input in, one file of its tokens out: the whole work.

  read -> parse -> batch -> encode -> {name}.tmp -> flush -> {name}

A pure function of the unit and the request, so it does not matter who runs
it, where, how often or in what order: engines only map it over the units. The
rename at the end is the commit; a unit whose file is there is never redone.
"""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from hpgrain.tools import long_texts, storage
from hpgrain.tools.encoder_spec import Encoder, append_eod
from hpgrain.tools.inputs import (
  BadRecord,
  BadRecordError,
  Record,
  Unit,
  describe,
)
from hpgrain.tools.request import UnitRequest
from hpgrain.tools.sentences import Splitter, sentence_splitter
from hpgrain.tools.unit_batches import batches, bytes_done, good_records
from hpgrain.tools.unit_file import UnitWriter

# Bad records that are listed; the others are counted.
_LISTED = 100

_SPECIAL = (
  "spells out a special token of the tokenizer, which would become its id."
  " Take --special-tokens-in-text=plain to encode it like any text."
)

# Told of records, tokens and bytes of the input that are done since.
ReportProgress = Callable[[int, int, int], None]


def prepare_unit(
  unit: Unit,
  request: UnitRequest,
  *,
  encoder: Encoder,
  path: PurePath,
  temporary: Path,
  report: ReportProgress = lambda records, tokens, num_bytes: None,
) -> dict[str, Any]:
  """Tokenizes a unit into its file.

  Args:
    unit: what to read.
    request: how.
    encoder: `request.encoder`, opened.
    path: the file to write, on a disk or a store.
    temporary: the local name it has until it is whole; in the same folder, if
      that is on a disk.
    report: called as the work goes on.

  Returns:
    The summary that is kept in the file: "records" (good ones),
    "empty_records" (for each key, those without a token),
    "special_token_records" (for each key), "bad_records", and "bad", the first
    of them, each with "index", "offset" and "reason".

  Raises:
    ValueError: a record that cannot be used, or more than are allowed; or the
      file changed or is broken.
    OSError: it could not be read or written.
  """
  work = _Work(unit, request, encoder)
  if storage.is_url(path):
    # Perhaps this is another machine than the one that named it.
    temporary.parent.mkdir(parents=True, exist_ok=True)
  writer = UnitWriter(
    temporary,
    dtype=request.encoder.dtype,
    num_keys=len(request.keys),
    divided=request.sentences is not None,
  )
  try:
    done = 0
    for batch in batches(
      good_records(unit, request.keys, chat=request.chat, on_bad=work.on_bad)
    ):
      num_records, num_tokens = work.add(batch, writer)
      end = bytes_done(unit, batch[-1], done)
      report(num_records, num_tokens, end - done)
      done = end
    writer.finish(work.summary())
    storage.put_once(temporary, path)
  except BaseException:
    writer.close()
    temporary.unlink(missing_ok=True)
    raise
  report(0, 0, unit.num_bytes - done)
  return work.summary()


@dataclasses.dataclass
class _Work:
  """Encodes batches of a unit's records and counts."""

  unit: Unit
  request: UnitRequest
  encoder: Encoder
  num_records: int = 0
  num_bad: int = 0

  def __post_init__(self) -> None:
    count = len(self.request.keys)
    self._empty = [0] * count
    self._special = [0] * count
    self._bad: list[BadRecord] = []
    self._split: Splitter | None = None
    if self.request.sentences is not None:
      self._split = sentence_splitter(self.request.sentences)

  def on_bad(self, bad: BadRecord) -> None:
    """Counts a bad record, or refuses it."""
    if not self.request.skip_bad_records:
      raise BadRecordError(describe(self.unit, bad)) from None
    self.num_bad += 1
    if len(self._bad) < _LISTED:
      self._bad.append(bad)
    if self.num_bad > self.request.max_bad_records:
      raise BadRecordError(
        f"{describe(self.unit, bad)}\nThis is one more bad record than"
        f" --max-bad-records={self.request.max_bad_records} allows."
      ) from None

  def add(self, batch: list[Record], writer: UnitWriter) -> tuple[int, int]:
    """Encodes and writes a batch; returns its good records and its tokens."""
    if len(batch) == 1 and max(map(len, batch[0].texts)) > long_texts.LONG:
      if self._split is None and not self.request.refuse_special_tokens:
        return self._add_long(batch[0], writer)
    columns = [
      self._encode([record.texts[key] for record in batch])
      for key in range(len(self.request.keys))
    ]
    if self.request.refuse_special_tokens:
      bad = np.logical_or.reduce([column.special for column in columns])
      if bad.any():
        for place in np.flatnonzero(bad):
          record = batch[place]
          self.on_bad(
            BadRecord(
              self.unit.file.path, record.index, record.offset, _SPECIAL
            )
          )
        good = [record for record, no in zip(batch, bad) if not no]
        return self.add(good, writer) if good else (0, 0)
    num_tokens = 0
    for key, column in enumerate(columns):
      writer.add_tokens(key, column.ids)
      writer.end_records(key, column.lengths, column.counts)
      self._empty[key] += int(np.count_nonzero(column.tokens == 0))
      self._special[key] += int(np.count_nonzero(column.special))
      num_tokens += len(column.ids)
    self.num_records += len(batch)
    return len(batch), num_tokens

  def summary(self) -> dict[str, Any]:
    """What is kept in the unit's file."""
    return {
      "records": self.num_records,
      "empty_records": self._empty,
      "special_token_records": self._special,
      "bad_records": self.num_bad,
      "bad": [
        {"index": bad.index, "offset": bad.offset, "reason": bad.reason}
        for bad in sorted(self._bad, key=lambda bad: bad.index)
      ],
    }

  def _encode(self, texts: list[str]) -> "_Column":
    if self._split is None:
      encoded = self.encoder.encode(texts)
      return _Column(
        encoded.ids, encoded.lengths, None, encoded.lengths, encoded.special
      )
    return _encode_sentences(texts, self._split, self.encoder)

  def _add_long(self, record: Record, writer: UnitWriter) -> tuple[int, int]:
    """Writes a record of which a text is too long to be encoded at once."""
    total = 0
    for key, text in enumerate(record.texts):
      num_tokens, special = 0, False
      for piece in _pieces(text, self.encoder):
        encoded = self.encoder.encode([piece], add_eod=False)
        special |= bool(encoded.special[0])
        num_tokens += len(encoded.ids)
        writer.add_tokens(key, encoded.ids)
      eod_id = self.encoder.spec.add_eod
      if num_tokens and eod_id is not None:
        writer.add_tokens(key, np.array([eod_id], self.encoder.spec.dtype))
        num_tokens += 1
      writer.end_records(key, np.array([num_tokens]))
      self._empty[key] += not num_tokens
      self._special[key] += special
      total += num_tokens
    self.num_records += 1
    return 1, total


@dataclasses.dataclass(frozen=True)
class _Column:
  """The tokens of a batch's texts under one key.

  Attributes:
    ids: [tokens].
    lengths: int64[sequences].
    counts: int64[records], sequences of each; None where each is one.
    tokens: int64[records], tokens of each.
    special: bool[records].
  """

  ids: np.ndarray
  lengths: np.ndarray
  counts: np.ndarray | None
  tokens: np.ndarray
  special: np.ndarray


def _encode_sentences(
  texts: list[str], split: Splitter, encoder: Encoder
) -> _Column:
  """Encodes each sentence by itself; the EOD goes to a text's last one."""
  sentences = [split(text) for text in texts]
  flat = [sentence for group in sentences for sentence in group]
  encoded = encoder.encode(flat, add_eod=False)
  text_of = np.repeat(np.arange(len(texts)), list(map(len, sentences)))
  special = np.bincount(text_of[encoded.special], minlength=len(texts)) > 0
  filled = encoded.lengths > 0
  text_of, lengths = text_of[filled], encoded.lengths[filled]
  counts = np.bincount(text_of, minlength=len(texts))
  tokens = np.zeros(len(texts), np.int64)
  np.add.at(tokens, text_of, lengths)
  ids = encoded.ids
  if encoder.spec.add_eod is not None:
    ids, tokens = append_eod(
      ids, tokens, encoder.spec.add_eod, dtype=encoder.spec.dtype
    )
    lengths = lengths.copy()
    lengths[np.cumsum(counts)[counts > 0] - 1] += 1
  return _Column(ids, lengths, counts.astype(np.int64), tokens, special)


def _pieces(text: str, encoder: Encoder) -> Iterator[str]:
  def encode(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    encoded = encoder.encode(texts, add_eod=False)
    return encoded.ids, encoded.lengths

  return (
    long_texts.pieces(text, encode)
    if len(text) > long_texts.LONG
    else iter([text])
  )
