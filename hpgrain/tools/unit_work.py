"""Records in, their tokens into a unit's file, and counts of them.

a batch          encoded at once
a long record    encoded in pieces, and taken back if it cannot be
with sentences   each a sequence of its own
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from hpgrain.tools import long_texts
from hpgrain.tools.encoder_spec import Encoder, append_eod
from hpgrain.tools.inputs import (
  BadRecord,
  BadRecordError,
  Batch,
  LongText,
  Record,
  Unit,
  describe,
)
from hpgrain.tools.request import UnitRequest
from hpgrain.tools.sentences import Splitter, sentence_splitter
from hpgrain.tools.texts import Texts
from hpgrain.tools.unit_file import UnitWriter

# Bad records that are listed; the others are counted.
_LISTED = 100

_SPECIAL = (
  "spells out a special token of the tokenizer, which would become its id."
  " Take --special-tokens-in-text=plain to encode it like any text."
)
_LONG_SENTENCES = (
  "has a text of more bytes than --split-sentences holds in memory. Divide the"
  " record."
)


@dataclasses.dataclass
class UnitWork:
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
    # Those that could be read, all of them: whoever reads the unit again has
    # to leave them out, too.
    self._refused: list[int] = []
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

  def add(self, item: Batch | Record, writer: UnitWriter) -> tuple[int, int]:
    """Encodes and writes records; returns the good ones and their tokens."""
    if isinstance(item, Record):
      if self._split is None:
        return self._add_long(item, writer)
      self._refuse(item.index, item.offset, _LONG_SENTENCES)
      return 0, 0
    longest = max(len(column.data) for column in item.columns)
    alone = len(item.indices) == 1 and self._split is None
    if alone and longest > long_texts.LONG:
      texts = tuple([column.strings()[0] for column in item.columns])
      offset = None if item.offsets is None else int(item.offsets[0])
      return self._add_long(Record(texts, int(item.indices[0]), offset), writer)
    columns = [self._encode(texts) for texts in item.columns]
    if self.request.refuse_special_tokens:
      bad = np.logical_or.reduce([column.special for column in columns])
      if bad.any():
        for place in np.flatnonzero(bad):
          offset = None if item.offsets is None else item.offsets[place]
          self._refuse(item.indices[place], offset, _SPECIAL)
        good = np.flatnonzero(~bad)
        return self.add(_chosen(item, good), writer) if len(good) else (0, 0)
    num_tokens = 0
    for key, column in enumerate(columns):
      writer.add_tokens(key, column.ids)
      writer.end_records(key, column.lengths, column.counts)
      self._empty[key] += int(np.count_nonzero(column.tokens == 0))
      self._special[key] += int(np.count_nonzero(column.special))
      num_tokens += len(column.ids)
    self.num_records += len(item.indices)
    return len(item.indices), num_tokens

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
      "refused": sorted(self._refused),
    }

  def _encode(self, texts: Texts) -> "_Column":
    if self._split is None:
      encoded = self.encoder.encode(texts)
      return _Column(
        encoded.ids, encoded.lengths, None, encoded.lengths, encoded.special
      )
    return _encode_sentences(texts.strings(), self._split, self.encoder)

  def _refuse(self, index: int, offset: int | None, reason: str) -> None:
    self._refused.append(int(index))
    self.on_bad(
      BadRecord(
        self.unit.file.path,
        int(index),
        None if offset is None else int(offset),
        reason,
      )
    )

  def _add_long(self, record: Record, writer: UnitWriter) -> tuple[int, int]:
    """Writes a record of which a text is too long to be encoded at once."""
    num_tokens = [0] * len(record.texts)
    special = [False] * len(record.texts)
    reason = ""
    try:
      for key, text in enumerate(record.texts):
        for ids in self._long_ids(text, key, special):
          writer.add_tokens(key, ids)
          num_tokens[key] += len(ids)
    except long_texts.NoCutError as error:
      reason = str(error)
    if self.request.refuse_special_tokens and any(special):
      reason = _SPECIAL
    if reason:
      writer.drop_tokens()
      self._refuse(record.index, record.offset, reason)
      return 0, 0
    for key, count in enumerate(num_tokens):
      writer.end_records(key, np.array([count]))
      self._empty[key] += not count
      self._special[key] += special[key]
    self.num_records += 1
    return 1, sum(num_tokens)

  def _long_ids(
    self, text: str | LongText, key: int, special: list[bool]
  ) -> Iterator[np.ndarray]:
    """Yields a text's ids in pieces, then its EOD; says if it is special."""

    def encode(piece: str) -> np.ndarray:
      encoded = self.encoder.encode([piece], add_eod=False)
      special[key] |= bool(encoded.special[0])
      return encoded.ids

    filled = False
    spec = self.encoder.spec
    for ids in long_texts.encoded_pieces(
      text.pieces() if isinstance(text, LongText) else [text],
      encode,
      at_words=not spec.divides_texts,
    ):
      filled |= len(ids) > 0
      yield ids
    if filled and spec.add_eod is not None:
      yield np.array([spec.add_eod], spec.dtype)


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


def _chosen(batch: Batch, places: np.ndarray) -> Batch:
  return Batch(
    tuple([column.take(places) for column in batch.columns]),
    batch.indices[places],
    None if batch.offsets is None else batch.offsets[places],
  )
