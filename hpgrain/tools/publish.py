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
from hpgrain.sources.indexed import IndexedWriter
from hpgrain.tokenizer import TokenizerInfo
from hpgrain.tools import storage, upload
from hpgrain.tools.inputs import InputFile, Unit
from hpgrain.tools.manifests import Summaries, make_manifest
from hpgrain.tools.merge import merge
from hpgrain.tools.options import Options
from hpgrain.tools.partition_files import write_partition_files
from hpgrain.tools.progress import Progress
from hpgrain.tools.request import Layout, UnitRequest
from hpgrain.tools.work_folder import WorkFolder


def publish(
  options: Options,
  request: UnitRequest,
  layout: Layout,
  *,
  info: TokenizerInfo,
  files: Sequence[InputFile],
  units: Sequence[Unit],
  folder: WorkFolder,
) -> dict[str, Manifest]:
  """Makes the pair of each key, then its manifest.

  Args:
    options: what was asked for.
    request: what the units were made by.
    layout: what to make of them.
    info: the tokenizer.
    files: the input.
    units: all units of it.
    folder: where their files are.

  Returns:
    The manifests by key.

  Raises:
    ValueError: bad records that this run does not allow, or a damaged file.
    OSError: something could not be read or written.
  """
  paths = folder.fetch_units(len(units))
  summaries = Summaries(paths, units, num_keys=len(request.keys))
  summaries.check(skip=request.skip_bad_records, limit=request.max_bad_records)
  # Before the pairs: where those are, all is there.
  write_partition_files(
    options, units, summaries, layout, scratch=folder.scratch
  )
  manifests = {}
  for place, key in enumerate(request.keys):
    final = options.prefix(key)
    prefix = upload.local_prefix(final, scratch=folder.scratch)
    with IndexedWriter(prefix, dtype=request.encoder.dtype) as writer:
      with _progress(options, request, summaries, place) as report:
        counts = merge(
          paths, key=place, layout=layout, writer=writer, report=report
        )
      # An old manifest must not lie beside a new pair, not even for a moment.
      Path(manifest_path(prefix)).unlink(missing_ok=True)
      writer.finalize()
    manifests[key] = make_manifest(
      prefix,
      place=place,
      request=request,
      layout=layout,
      info=info,
      files=files,
      summaries=summaries,
      counts=counts,
      dataset=options.dataset,
    )
    write_manifest(prefix, manifests[key])
    if storage.is_url(final):
      upload.upload(prefix, final, overwrite=options.overwrite)
    _warn_if_empty(options, final, manifests[key])
  return manifests


def published(options: Options) -> dict[str, Manifest]:
  """The manifests of the pairs that an earlier run published.

  Raises:
    ValueError: a pair or its manifest is not there.
  """
  manifests = {}
  for key in options.json_keys:
    manifest = read_manifest(options.prefix(key))
    if manifest is None:
      raise ValueError(
        f"{options.work_folder()} says that the output is there, but"
        f" {options.prefix(key)} has no manifest. Remove that folder, and run"
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
