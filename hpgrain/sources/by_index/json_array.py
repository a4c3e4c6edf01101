r"""A file that is one JSON array: an element a record.

[{"text": "one"},
 {"text": "two"}]
"""

from collections.abc import Sequence

from hpgrain.sources.by_index.json_objects import parse_object, parse_objects
from hpgrain.sources.by_index.text_files import Header, TextFormat
from hpgrain.sources.records import Record

_SPACE = b" \t\r\n"


def decode_element(piece: bytes, header: Header) -> Record:
  """The object before a comma or the array's end.

  Raises:
    BadTextError: it is missing, or no JSON object.
  """
  del header
  return parse_object(_element(piece))


def decode_elements(pieces: Sequence[bytes]) -> list[Record] | None:
  """The objects of many, or None if one is for `decode_element` to judge."""
  return parse_objects([_element(piece) for piece in pieces])


def _element(piece: bytes) -> bytes:
  """What stands before the comma or bracket, and the space around that."""
  return piece.rstrip(_SPACE)[:-1].rstrip(_SPACE)


JSON_ARRAY = TextFormat(
  name="json_array",
  kind="json_array",
  decode=decode_element,
  decode_all=decode_elements,
)
