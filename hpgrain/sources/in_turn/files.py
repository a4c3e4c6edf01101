r"""The files of a source one after the other, from any record on.

  a.jsonl  r0 r1       cursor after r1   [0, 18, 0, 2]
  b.jsonl  (none)
  c.jsonl  r2 r3       cursor after r2   [2,  9, 0, 1]
                                          |   |  |  records of the file so far
                                     file     a place in it: see `file_reader`

A cursor is the place after a record, so it does not tell whether anybody has
looked for another one.
"""

from collections.abc import Sequence
from typing import Any

from hpgrain.sources.by_index import digests
from hpgrain.sources.in_turn.file_reader import FileReader, OpenFile
from hpgrain.sources.in_turn.source import Block, joined, read_cursor
from hpgrain.tools.readers.records import InputFile


class FilesInTurn:
  """The records of files; see `InTurn`.

  Attributes:
    name: of the source.
    seekable: whether no file is compressed.
    identity: JSON of what the files hold.
  """

  def __init__(
    self,
    files: Sequence[InputFile],
    *,
    form: str,
    open_file: OpenFile,
    name: str,
  ) -> None:
    """Looks at samples of the files, and finds no record yet.

    Args:
      files: as they were found.
      form: the format's name.
      open_file: what reads one of them; it can be pickled.
      name: of the source.

    Raises:
      FileNotFoundError: a file is gone.
      ValueError: one was written again.
    """
    self.name = name
    self.seekable = not any(file.compression for file in files)
    self._files = tuple(files)
    self._open_file = open_file
    self.identity: dict[str, Any] = {
      "format": form,
      "num_bytes": sum(file.size for file in files),
      "digest": digests.files_digest(files),
    }

  def open(self, cursor: list[Any] | None = None) -> "_FilesReader":
    """As `InTurn.open`; the first read opens a file."""
    place = read_cursor(cursor or [0, 0, 0, 0], length=4, name=self.name)
    if place[0] >= len(self._files):
      raise ValueError(
        f"{self.name} has {len(self._files)} files; the cursor {cursor} is of"
        " more. Give it the data it had."
      )
    return _FilesReader(self._files, self._open_file, place)


class _FilesReader:
  def __init__(
    self, files: Sequence[InputFile], open_file: OpenFile, place: list[int]
  ) -> None:
    self._files = files
    self._open_file = open_file
    # After the last record that was read.
    self._cursor = place
    # What is read, and its number in the list.
    self._number = place[0]
    self._file: FileReader | None = None

  def read(self, n: int) -> Block:
    """As `InTurnReader.read`."""
    blocks: list[Block] = []
    while n and self._number < len(self._files):
      if self._file is None:
        self._file = self._open_file(
          self._files[self._number], *self._in_file()
        )
      block = self._file.read(n)
      if not len(block):
        self.close()
        self._number += 1
        continue
      blocks.append(block)
      n -= len(block)
      record = self._in_file()[-1] + len(block)
      self._cursor = [self._number, *self._file.where(), record]
    return joined(blocks)

  def cursor(self) -> list[int]:
    """[file, start, skip, records of the file so far]."""
    return list(self._cursor)

  def close(self) -> None:
    """Closes the file that is open."""
    if self._file is not None:
      self._file.close()
      self._file = None

  def _in_file(self) -> list[int]:
    """[start, skip, records before] of the file that is read."""
    if self._cursor[0] == self._number:
      return self._cursor[1:]
    return [0, 0, 0]
