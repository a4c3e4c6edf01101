"""The records of each partition as JSON Lines, for those who ask for them.

Nothing here needs such files: units are ranges of the input. They are made of
it by a second reading, to be looked at or used elsewhere.
"""

import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from hpgrain.tools import storage
from hpgrain.tools.inputs import Unit, read_unit
from hpgrain.tools.manifests import Summaries
from hpgrain.tools.merge import partitions
from hpgrain.tools.options import Options
from hpgrain.tools.request import Layout


def write_partition_files(
  options: Options,
  units: Sequence[Unit],
  summaries: Summaries,
  layout: Layout,
  scratch: Path | None = None,
) -> None:
  """Writes `options.partition_files()`, each whole or not at all.

  Every line is an object of the keys that were asked for and their texts.

  Args:
    options: what was asked for.
    units: all units of the input.
    summaries: of their files.
    layout: which record goes where.
    scratch: a local folder for what goes to an object store.

  Raises:
    ValueError: the input changed.
    OSError: a file could not be written.
  """
  paths = options.partition_files()
  if not paths:
    return
  places = list(partitions(summaries.num_records, layout))
  # One run at a time works here, so what a killed one left is written over.
  folder = scratch if storage.is_url(paths[0]) else Path(paths[0]).parent
  assert folder is not None, "a store needs a scratch folder"
  temporary = [folder / f"{path.name}.tmp" for path in paths]
  try:
    with contextlib.ExitStack() as stack:
      files = [
        stack.enter_context(path.open("w", encoding="utf-8"))
        for path in temporary
      ]
      number = 0
      for unit, refused in zip(units, summaries.refused):
        for record in read_unit(unit, options.json_keys, lambda bad: None):
          if record.index in refused:
            continue
          # One of them has it.
          owner = next(p for p, some in enumerate(places) if number in some)
          content = dict(zip(options.json_keys, record.texts))
          json.dump(content, files[owner], ensure_ascii=False)
          files[owner].write("\n")
          number += 1
      for file in files:
        file.flush()
        os.fsync(file.fileno())
    for written, path in zip(temporary, paths):
      storage.publish(written, path)
  finally:
    for path in temporary:
      path.unlink(missing_ok=True)
