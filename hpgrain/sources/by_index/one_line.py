"""The bytes between two records' starts in, the one line of the first out."""

from hpgrain.tools.readers.bad_text import BadTextError


def one_line(piece: bytes) -> bytes:
  r"""Returns the first line without its b"\n"; blank ones may follow it.

  Raises:
    BadTextError: more than one line is there: the index is of another file.
  """
  line, _, rest = piece.partition(b"\n")
  if rest and not rest.isspace():
    raise BadTextError(
      "goes on over more than one line, so its file is not the one that was"
      " looked at before, though it has its size and times. Touch the file, so"
      " that its records are found anew."
    )
  return line
