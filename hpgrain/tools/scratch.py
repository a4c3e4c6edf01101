"""Local folders for what is on its way from or to an object store.

  {folder}/hpgrain-scratch-k3v9x2/scratch.lock   held while its run lives

A run removes its own when it ends; what a killed one left, which may be as
large as a corpus, is removed by the next that works in the same folder.
"""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hpgrain.tools.durable import locked

_NAME = "hpgrain-scratch-"
# No work folder has a lock of this name, whatever it is called itself.
_LOCK = "scratch.lock"


@contextlib.contextmanager
def scratch_folder(
  folder: str | os.PathLike[str] | None,
) -> Iterator[Path]:
  """Makes a folder of this run's own, and removes it in the end.

  Args:
    folder: where to make it; None takes the system's folder for such.

  Raises:
    OSError: it cannot be made.
  """
  base = Path(tempfile.gettempdir() if folder is None else folder)
  base.mkdir(parents=True, exist_ok=True)
  _remove_left(base)
  with contextlib.ExitStack() as stack:
    made = None
    while made is None:
      made = Path(tempfile.mkdtemp(prefix=_NAME, dir=base))
      try:
        stack.enter_context(locked(made / _LOCK))
      except BlockingIOError:
        # Another took it for left over before it was locked.
        made = None
    try:
      yield made
    finally:
      shutil.rmtree(made, ignore_errors=True)


def check_space(folder: Path, num_bytes: int) -> None:
  """Refuses to begin what a disk has no space for.

  Raises:
    OSError: there is too little.
  """
  free = shutil.disk_usage(folder).free
  if free < num_bytes:
    raise OSError(
      f"About {num_bytes:,} bytes are needed in {folder} for a while, and"
      f" {free:,} are free. Name a folder on a larger disk with --scratch-dir"
      " (scratch_dir)."
    )


def _remove_left(folder: Path) -> None:
  for path in folder.glob(f"{_NAME}*/{_LOCK}"):
    # Another user's, or one that is in use.
    with contextlib.suppress(OSError), locked(path):
      shutil.rmtree(path.parent, ignore_errors=True)
