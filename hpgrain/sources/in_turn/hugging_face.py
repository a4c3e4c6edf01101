r"""A dataset's name in, its rows as they stream from the hub or files out.

open_hugging_face_in_turn("Salesforce/wikitext", subset="wikitext-2-raw-v1")
    nothing is downloaded before the first read, and nothing is kept
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hpgrain.sources.by_index import digests
from hpgrain.sources.hub_builder import (
  FoundDataset,
  default_name,
  find_dataset,
)
from hpgrain.sources.in_turn.streamed import StreamedInTurn
from hpgrain.tools.hub_dataset import check_split, local_files
from hpgrain.tools.hub_errors import cannot_load
from hpgrain.tools.readers.records import InputFile

if TYPE_CHECKING:
  from datasets import DatasetBuilder, IterableDataset


def open_hugging_face_in_turn(
  dataset_name: str,
  *,
  subset: str | None = None,
  split: str = "train",
  revision: str | None = None,
  cache_dir: str | None = None,
  data_files: str | Sequence[str] | None = None,
  name: str | None = None,
) -> StreamedInTurn:
  """Finds one split of a dataset, to be streamed.

  Args:
    dataset_name: its name on the hub, a local folder, or a reader of files.
    subset: which of its subsets; None where it has one, or a default.
    split: which split, or several with "+" between; no parts of one.
    revision: branch, tag or commit; None for the default branch, as it is
      now: name a commit where that may move.
    cache_dir: where `datasets` keeps what it knows; None for its own place.
    data_files: files or patterns; None for those the dataset names.
    name: of the source; None takes the dataset's, and the subset's.

  Raises:
    ConnectionError: the hub does not answer.
    FileNotFoundError: a name that is a path, of nothing.
    PermissionError: the hub does not let this login read the dataset.
    ValueError: there is no such dataset, revision, subset or split, or the
      package `datasets` is missing.
  """
  found = find_dataset(
    dataset_name,
    subset=subset,
    split=split,
    revision=revision,
    cache_dir=cache_dir,
    data_files=data_files,
  )
  request = found.request
  if found.offline is not None:
    raise ConnectionError(
      f"{found.offline.rstrip('.')}, and {request.name} is to be streamed from"
      " it. Load it whole where the hub can be reached"
      ' (dataset_type="mapping");'
      " after that it is in the cache."
    )
  builder = found.builder()
  splits = list(
    map(str, builder.info.splits or builder.config.data_files or {})
  )
  check_split(request, splits)
  asked = splits if split == "all" else split.split("+")
  if any("[" in part or "(" in part for part in asked):
    raise ValueError(
      f"A stream has no part of a split, got {split!r}: how many rows a split"
      " has is not known until it is read. Take whole splits, or load the"
      ' dataset whole (dataset_type="mapping").'
    )
  asked = [part.strip() for part in asked]
  return StreamedInTurn(
    _Streams(found, tuple(asked)),
    name=name or default_name(request),
    by_shard=True,
    identity={
      "format": "hugging_face_stream",
      "splits": asked,
      **_identity(found, builder, asked),
    },
    explain=functools.partial(cannot_load, request),
  )


@dataclasses.dataclass(frozen=True)
class _Streams:
  """Loads some splits of a dataset; it can be pickled.

  Attributes:
    found: the dataset.
    splits: of it.
  """

  found: FoundDataset
  splits: tuple[str, ...]

  def __call__(self) -> "list[IterableDataset]":
    """Asks for the first rows of each, for the types of the columns."""
    builder = self.found.builder()
    return [builder.as_streaming_dataset(split=split) for split in self.splits]


def _identity(
  found: FoundDataset, builder: "DatasetBuilder", splits: Sequence[str]
) -> dict[str, Any]:
  """JSON of what the rows of some splits are: a commit, or files' contents."""
  if found.commit is not None:
    return {
      "dataset": found.request.name,
      "subset": builder.config.name,
      "commit": found.commit,
    }
  marks = {part["split"]: part["files"] for part in local_files(builder)}
  files = [mark for split in splits for mark in marks.get(split, [])]
  local = [
    InputFile(mark["path"], builder.name, "", mark["bytes"], mark["version"])
    for mark in files
    if "bytes" in mark
  ]
  return {
    "reader": builder.name,
    "digest": digests.files_digest(local),
    "elsewhere": [mark for mark in files if "bytes" not in mark],
  }
