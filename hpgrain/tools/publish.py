"""Finished units in, pairs and manifests under their final names out."""

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePath

from hpgrain.manifest import (
  Manifest,
  manifest_path,
  read_manifest,
  write_manifest,
)
from hpgrain.sources.array_record import ArrayRecordWriter
from hpgrain.sources.indexed import IndexedWriter
from hpgrain.tokenizer import TokenizerInfo
from hpgrain.tools import storage, upload
from hpgrain.tools.inputs import InputFile, Unit
from hpgrain.tools.manifests import Summaries, make_manifest
from hpgrain.tools.merge import merge
from hpgrain.tools.options import Options, refuse_existing
from hpgrain.tools.partition_files import write_partition_files
from hpgrain.tools.progress import Progress
from hpgrain.tools.request import Layout, UnitRequest

_WRITERS = {"indexed": IndexedWriter, "arrayrecord": ArrayRecordWriter}


def publish(
  options: Options,
  request: UnitRequest,
  layout: Layout,
  *,
  info: TokenizerInfo,
  files: Sequence[InputFile],
  units: Sequence[Unit],
  paths: Sequence[Path],
  scratch: Path | None,
  may_replace: bool = True,
) -> dict[str, Manifest]:
  """Makes the pair of each key, then its manifest.

  Args:
    options: what was asked for.
    request: what the units were made by.
    layout: what to make of them.
    info: the tokenizer.
    files: the input.
    units: all units of it.
    paths: their files, in that order.
    scratch: a local folder for what goes to an object store.
    may_replace: whether what lies under the outputs' names may be replaced.

  Returns:
    The manifests by key.

  Raises:
    FileExistsError: another run made the output meanwhile.
    ValueError: bad records that this run does not allow, or a damaged file.
    OSError: something could not be read or written.
  """
  summaries = Summaries(paths, units, num_keys=len(request.keys))
  summaries.check(skip=request.skip_bad_records, limit=request.max_bad_records)
  # Before the pairs: where those are, all is there.
  write_partition_files(options, units, summaries, layout, scratch=scratch)
  manifests = {}
  for place, key in enumerate(request.keys):
    final = options.corpus(key)
    name = upload.local_name(final, scratch=scratch)
    with _WRITERS[options.format](name, dtype=request.encoder.dtype) as writer:
      if not may_replace and not storage.is_url(final):
        # Of two runs only one holds the writer; the other may have been first.
        # What is on a store is compared as it is put.
        refuse_existing(options, key)
      with _progress(options, request, summaries, place) as report:
        counts = merge(
          paths, key=place, layout=layout, writer=writer, report=report
        )
      # An old manifest must not lie beside what is new, not even for a moment.
      Path(manifest_path(name)).unlink(missing_ok=True)
      writer.finalize()
    manifests[key] = make_manifest(
      name,
      digests=writer.digests(),
      place=place,
      request=request,
      layout=layout,
      info=info,
      files=files,
      summaries=summaries,
      counts=counts,
      dataset=options.dataset,
    )
    write_manifest(name, manifests[key])
    if storage.is_url(final):
      upload.upload(name, final, overwrite=options.overwrite)
    _warn_if_empty(options, final, manifests[key])
  return manifests


def published(options: Options) -> dict[str, Manifest]:
  """The manifests of the pairs that an earlier run published.

  Raises:
    ValueError: a pair or its manifest is not there.
  """
  manifests = {}
  for key in options.json_keys:
    manifest = read_manifest(options.corpus(key))
    if manifest is None:
      raise ValueError(
        f"{options.work_folder()} says that the output is there, but"
        f" {options.corpus(key)} has no manifest. Remove that folder, and run"
        " the same command again."
      )
    manifests[key] = manifest
  return manifests


@contextlib.contextmanager
def _progress(
  options: Options, request: UnitRequest, summaries: Summaries, place: int
) -> Iterator[Callable[[int, int], None]]:
  """Shows how far a key's merge has come; yields what to tell of it."""
  itemsize = request.encoder.dtype.itemsize
  with Progress(
    summaries.tokens[place] * itemsize,
    options.log_interval,
    what=f"merging {request.keys[place]}",
  ) as progress:
    yield lambda documents, tokens: progress.update(
      documents, tokens, tokens * itemsize
    )


def _warn_if_empty(
  options: Options, prefix: PurePath, manifest: Manifest
) -> None:
  if not manifest.tokens:
    warnings.warn(
      f"{os.fspath(options.path)} gave no token to write: {prefix} holds"
      f" {manifest.documents} documents, all empty, and"
      f" {manifest.dropped_tokens} tokens were dropped. No training run can"
      " read it.",
      UserWarning,
      stacklevel=2,
    )
