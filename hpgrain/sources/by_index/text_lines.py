r"""Plain text: the record of a line is {"text": line}.

one\r\n        -> {"text": "one"}
\n             -> no record, but a line of spaces is one
two            -> {"text": "two"}
"""

from hpgrain.sources.by_index.one_line import one_line
from hpgrain.sources.by_index.text_files import Header, TextFormat
from hpgrain.sources.records import Record
from hpgrain.tools.readers.json_texts import not_utf8


def decode_text(piece: bytes, header: Header) -> Record:
  """The line under "text", without its end.

  Raises:
    BadTextError: it is not UTF-8.
  """
  del header
  line = one_line(piece).removesuffix(b"\r")
  try:
    return {"text": line.decode("utf-8")}
  except UnicodeDecodeError as error:
    # From None: the cause holds the text.
    raise not_utf8(error) from None


TEXT_LINES = TextFormat(name="text", kind="text_lines", decode=decode_text)
