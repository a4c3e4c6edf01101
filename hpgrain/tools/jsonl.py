"""A JSON Lines file in, its documents out, one text per record.

What cannot be read is refused with the file, the record's number and its byte
offset; a document's text never appears in a message.
"""

import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path

_BOM = b"\xef\xbb\xbf"
_GZIP = b"\x1f\x8b"


@dataclasses.dataclass(frozen=True)
class TextRecord:
  """One record: its text, its number from 1, and the byte after its line."""

  text: str
  number: int
  end: int


def read_texts(
  path: str | os.PathLike[str], *, key: str
) -> Iterator[TextRecord]:
  """Yields the text under `key` of each record, in the file's order.

  A byte order mark at the beginning, CRLF line ends, blank lines and a last
  line without an end are all right; a blank line is no record.

  Raises:
    FileNotFoundError: there is no such file.
    ValueError: a record is no JSON object in UTF-8, lacks the key, or holds
      something else than text under it; or the file changed meanwhile.
  """
  name = os.fspath(path)
  if Path(name).is_dir():
    raise ValueError(
      f"{name} is a folder. Give one JSON Lines file; to join several, put"
      " them behind one another (cat a.jsonl b.jsonl > all.jsonl)."
    )
  with Path(name).open("rb") as file:
    size = os.fstat(file.fileno()).st_size
    number = offset = 0
    for line_number, line in enumerate(file, start=1):
      start, offset = offset, offset + len(line)
      if offset > size:
        raise ValueError(_changed(name, size, offset))
      if line_number == 1:
        if line.startswith(_GZIP):
          raise ValueError(
            f"{name} is compressed with gzip, which is not read here. Unpack"
            f" it first (gunzip -k {name})."
          )
        line = line.removeprefix(_BOM)  # noqa: PLW2901
      if not line.strip():
        continue
      number += 1
      try:
        text = _text(line, key)
      except _BadRecordError as error:
        # From None: the cause holds the line, and a traceback would show it.
        raise ValueError(
          f"{name}: record {number} (line {line_number}, at byte offset"
          f" {start}) {error}"
        ) from None
      yield TextRecord(text=text, number=number, end=offset)
    now = os.fstat(file.fileno()).st_size
    if not offset == size == now:
      raise ValueError(_changed(name, size, now))


def _changed(name: str, size: int, now: int) -> str:
  return (
    f"{name} changed while it was read: it had {size} bytes at first, then"
    f" {now}. Wait until it is written, then run again."
  )


class _BadRecordError(Exception):
  """Says what is wrong with a line, without quoting it."""


def _text(line: bytes, key: str) -> str:
  """The text under `key` in one line of the file."""
  try:
    decoded = line.rstrip(b"\r\n").decode("utf-8")
  except UnicodeDecodeError as error:
    raise _BadRecordError(
      f"is not UTF-8: byte 0x{line[error.start]:02x} at {error.start} bytes"
      f" into the record ({error.reason}). Convert the file to UTF-8."
    ) from None
  try:
    record = json.loads(decoded)
  except json.JSONDecodeError as error:
    what = error.msg.removesuffix(" at").removesuffix(" starting")
    raise _BadRecordError(
      f"is not JSON: {what} at character {error.pos} of the record. Each"
      " line must hold one whole JSON object."
    ) from None
  except (ValueError, RecursionError):
    raise _BadRecordError(
      "is not readable JSON: a number of too many digits, or nested too deep."
    ) from None
  if not isinstance(record, dict):
    raise _BadRecordError(
      f"is {_json_type(record)}, not an object. Each line must be an object"
      f' like {{"{key}": "..."}}.'
    )
  if key not in record:
    raise _BadRecordError(
      f"has no key {key!r}; it has {len(record)} other keys. Name the key that"
      " holds the text with --json-keys."
    )
  text = record[key]
  if not isinstance(text, str):
    raise _BadRecordError(
      f"holds {_json_type(text)} under {key!r}, not a string."
    )
  try:
    text.encode("utf-8")
  except UnicodeEncodeError as error:
    raise _BadRecordError(
      f"holds half of a surrogate pair under {key!r}, at character"
      f" {error.start} of the text, which is no character of Unicode."
    ) from None
  return text


def _json_type(value: object) -> str:
  names = {
    bool: "a boolean",
    dict: "an object",
    float: "a number",
    int: "a number",
    list: "an array",
    str: "a string",
  }
  return names.get(type(value), "null")
