r"""One unit of the input in, one file of its tokens out: the whole work.

  read -> parse -> batch -> encode -> {name}.tmp -> flush -> {name}

A pure function of the unit and the request, so it does not matter who runs
it, where, how often or in what order: engines only map it over the units. The
rename at the end is the commit; a unit whose file is there is never redone.
"""

from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any

from hpgrain.tools import storage
from hpgrain.tools.encoder_spec import Encoder
from hpgrain.tools.inputs import (
  Unit,
)
from hpgrain.tools.request import UnitRequest
from hpgrain.tools.unit_batches import batches, bytes_done
from hpgrain.tools.unit_file import UnitWriter
from hpgrain.tools.unit_work import UnitWork

# Told of records, tokens and bytes of the input that are done since.
ReportProgress = Callable[[int, int, int], None]


def prepare_unit(
  unit: Unit,
  request: UnitRequest,
  *,
  encoder: Encoder,
  path: PurePath,
  temporary: Path,
  report: ReportProgress = lambda records, tokens, num_bytes: None,
) -> dict[str, Any]:
  """Tokenizes a unit into its file.

  Args:
    unit: what to read.
    request: how.
    encoder: `request.encoder`, opened.
    path: the file to write, on a disk or a store.
    temporary: the local name it has until it is whole; in the same folder, if
      that is on a disk.
    report: called as the work goes on.

  Returns:
    The summary that is kept in the file: "records" (good ones),
    "empty_records" (for each key, those without a token),
    "special_token_records" (for each key), "bad_records", and "bad", the first
    of them, each with "index", "offset" and "reason".

  Raises:
    ValueError: a record that cannot be used, or more than are allowed; or the
      file changed or is broken.
    OSError: it could not be read or written.
  """
  work = UnitWork(unit, request, encoder)
  if storage.is_url(path):
    # Perhaps this is another machine than the one that named it.
    temporary.parent.mkdir(parents=True, exist_ok=True)
  writer = UnitWriter(
    temporary,
    dtype=request.encoder.dtype,
    num_keys=len(request.keys),
    divided=request.sentences is not None,
  )
  try:
    done = 0
    for item in batches(
      unit,
      request.keys,
      chat=request.chat,
      on_bad=work.on_bad,
      scratch=temporary.parent,
    ):
      num_records, num_tokens = work.add(item, writer)
      end = bytes_done(unit, item, done)
      report(num_records, num_tokens, end - done)
      done = end
    writer.finish(work.summary())
    storage.put_once(temporary, path)
  except BaseException:
    writer.close()
    temporary.unlink(missing_ok=True)
    raise
  report(0, 0, unit.num_bytes - done)
  return work.summary()
