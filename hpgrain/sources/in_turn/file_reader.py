"""What reads one file of a source in turn, and the check that it is the same.

A place in a file is (start, skip): where what is read in one piece begins (a
byte of text, a row group, a record batch), and records to leave out after it.
"""

from collections.abc import Callable
from typing import Protocol

from hpgrain.sources.by_index.byte_ranges import changed
from hpgrain.sources.in_turn.source import Block
from hpgrain.tools.readers.files import size_and_version
from hpgrain.tools.readers.records import InputFile


class FileReader(Protocol):
  """The records of one file from a place on."""

  def read(self, n: int) -> Block:
    """Returns the next records: n or fewer, and none only at the end.

    Raises:
      ValueError: the file is broken, or was written again.
    """
    ...

  def where(self) -> tuple[int, int]:
    """(start, skip) after the last record that was read.

    The same whatever sizes were read.
    """
    ...

  def close(self) -> None:
    """Closes the file."""
    ...


# (file, start, skip, records of the file before that place) -> its reader.
# Raises FileNotFoundError where the file is gone, and ValueError where it was
# written again, is broken, or has no such place.
OpenFile = Callable[[InputFile, int, int, int], FileReader]


def check_unchanged(file: InputFile) -> None:
  """Refuses a file that is not the one that was found.

  Raises:
    FileNotFoundError: it is gone.
    ValueError: it was written again.
  """
  try:
    found = size_and_version(file.path)
  except FileNotFoundError:
    raise FileNotFoundError(
      f"{file.path} is gone since it was found. Put it back."
    ) from None
  if found != (file.size, file.version):
    raise ValueError(changed(file))


def no_such_place(file: InputFile, start: int, skip: int) -> ValueError:
  """What to raise where a cursor is of another file than this one."""
  return ValueError(
    f"{file.path} has no record that begins at the cursor's place ({start},"
    f" {skip}), so it is not the file that the cursor was taken from. Give the"
    " data it had."
  )
