r"""JSON Lines: an object a line; lines of white space are no records.

{"text": "one"}\n
\n
{"text": "two"}            the last line needs no end
"""

from hpgrain.sources.by_index.json_objects import parse_object, parse_objects
from hpgrain.sources.by_index.one_line import one_line
from hpgrain.sources.by_index.text_files import Header, TextFormat
from hpgrain.sources.records import Record
from hpgrain.tools.readers.bad_text import BadTextError


def decode_line(piece: bytes, header: Header) -> Record:
  """The object of a line.

  Raises:
    BadTextError: it is no JSON object.
  """
  del header
  try:
    return parse_object(one_line(piece))
  except BadTextError as error:
    if piece.endswith(b"\n"):
      raise
    raise BadTextError(
      f"{error} Its line has no end, so the file may have been cut off."
    ) from None


JSON_LINES = TextFormat(
  name="json_lines",
  kind="json_lines",
  decode=decode_line,
  decode_all=parse_objects,
)
