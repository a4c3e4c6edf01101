"""What commands on finished corpora share: names, progress, errors."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import numpy as np

from hpgrain.object_store import is_url
from hpgrain.sources.file_digest import FileDigest
from hpgrain.tools.preparation_flags import local_name
from hpgrain.tools.progress import Progress

# What a shell completes a corpus' name to, beside the name itself.
_ENDINGS = (".manifest.json", ".idx", ".bin")


def corpus_name(text: str) -> str:
  """The name of a corpus, from what a person gives.

  Returns:
    A pair's prefix, or the path of an ArrayRecord. An ending that belongs to
    one of its files is taken off, if that file is there.

  Raises:
    ValueError: it is a URL.
  """
  if is_url(text):
    raise ValueError(
      f"{text} is a URL, and this command works on local files. Copy the"
      " corpus here first."
    )
  name = local_name(text)
  for ending in _ENDINGS:
    if name.endswith(ending) and Path(name).is_file():
      return name.removesuffix(ending)
  return name


def progress(what: str, total_bytes: int) -> Progress:
  """A bar on a terminal; nothing where stderr is none."""
  return Progress(total_bytes, int(sys.stderr.isatty()), what=what)


def hashed(
  blocks: Iterator[np.ndarray],
  digest: FileDigest,
  report: Callable[[int], None],
) -> Iterator[np.ndarray]:
  """Hands blocks on, each of which goes into a digest and the progress."""
  for block in blocks:
    digest.update(block.data)
    yield block
    report(block.nbytes)


def run_command(name: str, work: Callable[[], int]) -> int:
  """Does a command's work; errors are one line on stderr.

  Returns:
    The exit code: that of the work, 1 for what a message says, 130 where it
    was interrupted.
  """
  before = signal.signal(signal.SIGTERM, _interrupt)
  try:
    return work()
  except BrokenPipeError:
    # Whoever reads has enough, as `head` has. Python flushes once more.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1
  except (OSError, ValueError) as error:
    print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
    return 1
  except KeyboardInterrupt:
    print(f"{name}: interrupted", file=sys.stderr)
    return 130
  finally:
    signal.signal(signal.SIGTERM, before)


def _interrupt(number: int, frame: FrameType | None) -> None:
  raise KeyboardInterrupt
