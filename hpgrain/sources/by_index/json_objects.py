"""The bytes of JSON objects in, mappings out, whatever is installed.

The standard library is the reference. orjson, where it is installed, only
ever says "these are the objects"; what it refuses is read again by the
reference, so that what is accepted and what is said do not depend on it.
(Whole numbers beyond 64 bits are floats where it is installed.)
"""

import functools
import json
from collections.abc import Callable, Sequence
from typing import Any

from hpgrain.tools.readers.bad_text import BadTextError
from hpgrain.tools.readers.json_texts import MAX_DEPTH, not_utf8

Object = dict[str, Any]

_CONTAINERS = frozenset((dict, list))


def parse_objects(pieces: Sequence[bytes]) -> list[Object] | None:
  """Returns many objects, or None if one of them is for `parse_object`."""
  loads = _fast_loads()
  if loads is None:
    return None
  try:
    objects = [loads(piece) for piece in pieces]
  except ValueError:
    return None
  if set(map(type, objects)) - {dict}:
    return None
  # Counting brackets takes half as long as parsing, so flat ones go without.
  for piece, found in zip(pieces, objects):
    if not _CONTAINERS.isdisjoint(map(type, found.values())):
      if _may_be_deep(piece):
        return None
  return objects


def parse_object(data: bytes) -> Object:
  """Returns one object.

  Raises:
    BadTextError: the data is no JSON object in UTF-8, holds half of a
      surrogate pair, or is nested too deep.
  """
  if not data:
    raise BadTextError("is missing: nothing stands in its place.")
  try:
    # From None, here and below: the cause holds the data, and a traceback
    # would show it.
    found = json.loads(data.decode("utf-8"))
  except UnicodeDecodeError as error:
    raise not_utf8(error) from None
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
  if type(found) is not dict:
    raise BadTextError(
      f"is {_json_type(found)}, not an object. Each record must be an object"
      ' like {"text": "..."}.'
    )
  if _may_be_deep(data) and _too_deep(found):
    raise BadTextError(
      f"is not readable JSON: nested deeper than {MAX_DEPTH} levels."
    )
  # Only escapes make one, and looking for it takes as long as reading.
  if b"\\u" in data:
    _check_unicode(found)
  return found


def _may_be_deep(data: bytes) -> bool:
  return data.count(b"[") + data.count(b"{") > MAX_DEPTH


def _too_deep(found: Object) -> bool:
  """Whether an object has more than `MAX_DEPTH` levels, itself the first."""
  level: list[Any] = [found]
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


def _check_unicode(found: Object) -> None:
  waiting: list[Any] = [found]
  while waiting:
    value = waiting.pop()
    if isinstance(value, str):
      try:
        value.encode("utf-8")
      except UnicodeEncodeError as error:
        raise BadTextError(
          "holds half of a surrogate pair, at character"
          f" {error.start} of a string, which is no character of Unicode."
        ) from None
    elif isinstance(value, dict):
      waiting.extend(value.keys())
      waiting.extend(value.values())
    elif isinstance(value, list):
      waiting.extend(value)


@functools.cache
def _fast_loads() -> Callable[[bytes], Any] | None:
  try:
    import orjson
  except ImportError:
    return None
  return orjson.loads


def _json_type(value: object) -> str:
  names = {
    bool: "a boolean",
    float: "a number",
    int: "a number",
    list: "an array",
    str: "a string",
  }
  return names.get(type(value), "null")
