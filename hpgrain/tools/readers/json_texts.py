"""The bytes of one JSON object in, the texts under some of its keys out.

The standard library is the reference. orjson, where it is installed, only
ever says "these are the texts"; whatever it refuses, and whatever is not the
text that was asked for, is read again by the reference, so that what is
accepted and what is said do not depend on what is installed.
"""

import functools
import json
from collections.abc import Callable, Sequence

from hpgrain.tools.readers.bad_text import BadTextError
from hpgrain.tools.readers.records import ConversationKey

# A rule of ours: Python's own limit depends on its version and on how deep
# the caller stands, orjson's is 1024.
MAX_DEPTH = 500

Line = bytes | bytearray
Texts = tuple[str, ...]


def text_parser(keys: Sequence[str]) -> Callable[[Line], Texts]:
  """A function from the bytes of a JSON object to its texts under `keys`.

  The function raises `BadTextError` if there is no such object or text.
  """
  fast = batch_parser(keys)

  def parse(data: Line) -> Texts:
    found = fast([data])
    return found[0] if found else reference_texts(data, keys=keys)

  return parse


def batch_parser(
  keys: Sequence[str],
) -> Callable[[Sequence[Line]], list[Texts] | None]:
  """A function from many objects' bytes to their texts, or None.

  None says nothing but that one of them is for the reference to judge; it is
  all there is without orjson. One check over many is what makes it fast.
  """
  loads = _orjson_loads()
  if loads is None or any(isinstance(key, ConversationKey) for key in keys):
    return lambda lines: None

  def parse(lines: Sequence[Line]) -> list[Texts] | None:
    try:
      records = [loads(line) for line in lines]
      columns = [[record[key] for record in records] for key in keys]
    except (ValueError, KeyError, TypeError):
      return None
    for column in columns:
      if set(map(type, column)) - {str}:
        return None
    return None if too_deep(records) else list(zip(*columns))

  return parse


def reference_texts(
  data: bytes | bytearray, *, keys: Sequence[str]
) -> tuple[str, ...]:
  """The texts under `keys`, by the standard library.

  Raises:
    BadTextError: the data is no JSON object in UTF-8, lacks a key, or holds
      something else than text of Unicode under it.
  """
  try:
    # From None, here and below: the cause holds the data, and a traceback
    # would show it.
    record = json.loads(_decoded(data))
  except json.JSONDecodeError as error:
    what = error.msg.removesuffix(" at").removesuffix(" starting")
    raise BadTextError(
      f"is not JSON: {what} at character {error.pos} of the record. Each"
      " record must be one whole JSON object."
    ) from None
  except (ValueError, RecursionError):
    raise BadTextError(
      "is not readable JSON: a number of too many digits, or nested too deep."
    ) from None
  if not isinstance(record, dict):
    raise BadTextError(
      f"is {_json_type(record)}, not an object. Each record must be an object"
      f' like {{"{keys[0]}": "..."}}.'
    )
  if too_deep([record]):
    raise BadTextError(
      f"is not readable JSON: nested deeper than {MAX_DEPTH} levels."
    )
  return tuple([text_of(record, key) for key in keys])


def _decoded(data: bytes | bytearray) -> str:
  try:
    return data.decode("utf-8")
  except UnicodeDecodeError as error:
    raise not_utf8(error) from None


def not_utf8(error: UnicodeDecodeError) -> BadTextError:
  """What to raise, from None, where a record is not UTF-8."""
  return BadTextError(
    f"is not UTF-8: byte 0x{error.object[error.start]:02x} at {error.start}"
    f" bytes into the record ({error.reason}). Convert the file to UTF-8."
  )


def text_of(record: dict[str, object], key: str) -> str:
  """The text under a key of an object.

  Raises:
    BadTextError: there is none.
  """
  if key not in record:
    raise BadTextError(
      f"has no key {key!r}; it has {len(record)} other keys. Name the key that"
      " holds the text with --json-keys."
    )
  text = record[key]
  if isinstance(key, ConversationKey):
    if not isinstance(text, list):
      raise BadTextError(
        f"holds {_json_type(text)} under {key!r}, not an array of messages."
      )
    text = json.dumps(text, ensure_ascii=False)
  if not isinstance(text, str):
    raise BadTextError(f"holds {_json_type(text)} under {key!r}, not a string.")
  try:
    text.encode("utf-8")
  except UnicodeEncodeError as error:
    raise half_pair(key, error.start) from None
  return text


def half_pair(key: str, place: int) -> BadTextError:
  """What to raise, from None, for half of a surrogate pair at a character."""
  return BadTextError(
    f"holds half of a surrogate pair under {key!r}, at character {place} of"
    " the text, which is no character of Unicode."
  )


def too_deep(records: Sequence[dict[str, object]]) -> bool:
  """Whether one has more than `MAX_DEPTH` levels, itself the first."""
  level: Sequence[dict | list] = records
  for _ in range(MAX_DEPTH):
    level = [
      value
      for container in level
      for value in (
        container.values() if type(container) is dict else container
      )
      if type(value) is dict or type(value) is list
    ]
    if not level:
      return False
  return True


@functools.cache
def _orjson_loads() -> Callable[[bytes | bytearray], object] | None:
  try:
    import orjson
  except ImportError:
    return None
  return orjson.loads


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
