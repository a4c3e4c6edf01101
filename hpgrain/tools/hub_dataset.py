"""A dataset that Hugging Face `datasets` can load in, its table of rows out.

  name        a dataset of the hub, a local folder, or a reader of files
  builder     what `datasets` makes of it: its subset, its splits, its files
  rows        one split of it, on disk in the cache, its columns checked

What `load_dataset` does is done here in its steps, so that a wrong subset or
split is found before anything large is downloaded, and so that nothing is
taken from a cache that is not what was asked for.
"""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpgrain.tools.hub_errors import cannot_load, no_such
from hpgrain.tools.hub_request import DatasetRequest

if TYPE_CHECKING:
  from datasets import Dataset, DatasetBuilder

_COMMIT = re.compile(r"[0-9a-f]{40}")


def open_builder(
  request: DatasetRequest, *, commit: str | None
) -> "DatasetBuilder":
  """Has `datasets` find the subset, its splits and files; downloads no data.

  Args:
    request: what is asked for.
    commit: of a dataset on the hub; None for one that is not.

  Raises:
    ValueError: there is no such subset, no file, or nothing to read it with;
      or the hub was lost and another commit would be taken.
  """
  import datasets

  try:
    builder = datasets.load_dataset_builder(
      request.name,
      request.subset,
      revision=commit,
      cache_dir=request.cache_dir,
      data_dir=request.data_dir,
      data_files=request.data_files and list(request.data_files),
    )
  except Exception as error:
    # Many kinds are raised, which say in many ways what is wrong.
    subsets = _subsets(error)
    if subsets:
      raise ValueError(no_such("subset", request, subsets)) from None
    raise cannot_load(request, error) from error
  if commit is not None and builder.hash != commit:
    # datasets takes the newest commit of its cache when the hub is lost.
    raise ConnectionError(
      f"The hub was lost while {request.name} was looked up, and datasets would"
      f" take the commit {builder.hash} of its cache instead of {commit}."
      f" {request.again.capitalize()}."
    )
  return builder


def load_rows(builder: "DatasetBuilder", request: DatasetRequest) -> "Dataset":
  """Downloads what is not in the cache, and opens the split.

  Raises:
    ValueError: the split or a column is not there, or holds no text; or the
      files cannot be read.
    OSError: a download failed, or the disk is full.
  """
  splits = builder.info.splits or builder.config.data_files or {}
  check_split(request, list(splits))
  if builder.info.features:
    check_columns(request, builder.info.features)
  try:
    builder.download_and_prepare(num_proc=request.num_proc)
  except Exception as error:
    raise cannot_load(request, error) from error
  return open_rows(builder, request)


def open_rows(builder: "DatasetBuilder", request: DatasetRequest) -> "Dataset":
  """Opens the split of a builder whose rows are in the cache.

  Raises:
    ValueError: the split or a column is not there, or holds no text.
  """
  check_split(request, list(builder.info.splits or {}))
  no_row = f"The split {request.split!r} of {request.name} has no row."
  try:
    rows = builder.as_dataset(split=request.split)
  except Exception as error:
    if "corresponds to no data" in str(error):
      raise ValueError(no_row) from None
    raise cannot_load(request, error) from error
  check_columns(request, rows.features)
  if not rows.num_rows:
    raise ValueError(no_row)
  return rows.select_columns(list(request.keys))


def check_split(request: DatasetRequest, splits: Sequence[str]) -> None:
  """Checks that a split is there, and that parts of it are written right.

  Raises:
    ValueError: it is not.
  """
  import datasets

  names = [str(name) for name in splits]
  try:
    parts = datasets.ReadInstruction.from_spec(request.split).to_spec()
  except (AssertionError, ValueError):
    raise ValueError(
      f"The split {request.split!r} of {request.name} cannot be read. Give a"
      f" name ({', '.join(names)}), a part as in '{names[0]}[:10%]' or"
      f" '{names[0]}[100:200]', or a sum of such with '+'."
      if names
      else f"The split {request.split!r} cannot be read."
    ) from None
  for part in parts.split("+"):
    if names and part.split("[")[0].split("(")[0] not in (*names, "all"):
      raise ValueError(no_such("split", request, names))


def check_columns(request: DatasetRequest, features: Any) -> None:
  """Checks that the columns asked for are there and hold strings.

  Raises:
    ValueError: one is not, or holds something else.
  """
  for key in request.keys:
    if key not in features:
      raise ValueError(
        f"{request.name} has no column {key!r}. Its columns are"
        f" {', '.join(sorted(features))}; name those that hold texts with"
        " --json-keys."
      )
    kind = getattr(features[key], "dtype", None)
    if kind not in ("string", "large_string", "string_view"):
      raise ValueError(
        f"The column {key!r} of {request.name} holds {_kind(features[key])},"
        " not strings. Name another with --json-keys."
      )


def local_files(builder: "DatasetBuilder") -> list[dict[str, Any]]:
  """JSON of the files that a dataset beside the hub is made of.

  A file's size and time of change stand for its content, or the entity tag
  of one elsewhere.

  Raises:
    ValueError: there are none, or whether one changed cannot be told.
  """
  found = []
  for split, files in (builder.config.data_files or {}).items():
    marks = list(_marks(files))
    if not marks:
      raise ValueError(
        "No file matches what is asked for, or what the dataset names, for its"
        f" split {str(split)!r}."
      )
    found.append({"split": str(split), "files": marks})
  return found


def _subsets(error: BaseException) -> list[str]:
  """The subsets that `datasets` lists where one is missing; else none."""
  said = str(error)
  found = None
  if isinstance(error, ValueError):
    found = re.search(
      r"(?:not found\. Available:|available configs:)\s*\[(.*?)\]", said
    )
  return re.findall(r"'([^']*)'", found[1]) if found else []


def _kind(feature: Any) -> str:
  """A column's type in a few words."""
  kind = getattr(feature, "dtype", None)
  name = type(feature).__name__
  if name == "Value":
    return f"values of type {kind}"
  return f"{name} of numbers" if name == "ClassLabel" else f"values of {name}"


def _marks(files: Any) -> Iterator[dict[str, Any]]:
  origins = dict(zip(files, files.origin_metadata))
  for file in files:
    if "://" not in file:
      status = Path(file).stat()
      yield {
        "path": os.path.realpath(file),
        "bytes": status.st_size,
        "version": str(status.st_mtime_ns),
      }
      continue
    origin = [str(mark) for mark in origins.get(file, ())]
    if not origin or (
      file.startswith("hf://") and not _COMMIT.fullmatch(origin[-1])
    ):
      raise ValueError(
        f"Whether {file} changes cannot be told. Download it and give the local"
        " file; of a dataset on the hub, give its name as the dataset, and the"
        " file's path in it as a data file."
      )
    yield {"path": file, "version": origin}
