r"""Hugging Face datasets: a `datasets.Dataset`, or what `load_dataset` makes.

open_hugging_face("Salesforce/wikitext", subset="wikitext-2-raw-v1")
    the first time: downloaded, and kept in the cache
    after that:     mapped from the cache
"""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgrain.sources.by_index import digests
from hpgrain.sources.hub_builder import default_name, find_dataset
from hpgrain.sources.records import Record, record_numbers
from hpgrain.tools.hub_dataset import check_split
from hpgrain.tools.hub_errors import cannot_load
from hpgrain.tools.hub_request import DatasetRequest

if TYPE_CHECKING:
  import datasets


class HuggingFaceRecords:
  """The rows of a `datasets.Dataset`; see `Records`.

  Attributes:
    name: of the source.
  """

  def __init__(self, dataset: "datasets.Dataset", *, name: str) -> None:
    """Takes a dataset as it is: its selection, its format, its transform.

    Args:
      dataset: one split.
      name: of the source.

    Raises:
      ValueError: it is of several splits, or is streamed.
    """
    import datasets

    if isinstance(
      dataset, (datasets.DatasetDict, datasets.IterableDatasetDict)
    ):
      raise ValueError(
        f"{name} has the splits {', '.join(map(repr, dataset))}. Give one of"
        f" them, such as dataset[{next(iter(dataset), 'train')!r}]."
      )
    if not isinstance(dataset, datasets.Dataset):
      raise ValueError(
        f"{name} is a {type(dataset).__name__}, whose rows have no numbers."
        " Load it with streaming=False, or read it in turn"
        ' (dataset_type="iterable").'
      )
    self.name = name
    self._dataset = dataset

  @cached_property
  def identity(self) -> dict[str, Any]:
    """JSON of what the rows are; reads a sample of them, once."""
    sample = self.read(digests.sampled_records(len(self)))
    return {
      "format": "hugging_face",
      "num_records": len(self),
      "digest": digests.records_digest(sample, len(self)),
    }

  @property
  def cache_identity(self) -> dict[str, Any]:
    """That, and the fingerprint that `datasets` gives the dataset."""
    return {**self.identity, "fingerprint": self._dataset._fingerprint}

  def __len__(self) -> int:
    """Number of records."""
    return len(self._dataset)

  def read(self, indices: np.ndarray) -> list[Record]:
    """As `Records.read`."""
    numbers = record_numbers(indices, num_records=len(self), name=self.name)
    if not len(numbers):
      return []
    columns = self._dataset[numbers.tolist()]
    keys = list(columns)
    return [
      dict(zip(keys, values)) for values in zip(*(columns[key] for key in keys))
    ]

  def place(self, index: int) -> str:
    """Name and number of a row."""
    number = record_numbers([index], num_records=len(self), name=self.name)[0]
    return f"{self.name}, record {number + 1}"


def open_hugging_face(
  dataset_name: str,
  *,
  subset: str | None = None,
  split: str = "train",
  revision: str | None = None,
  cache_dir: str | None = None,
  data_files: str | Sequence[str] | None = None,
  name: str | None = None,
) -> HuggingFaceRecords:
  """Loads one split of a dataset by `load_dataset`, and opens it.

  Args:
    dataset_name: its name on the hub, a local folder, or a reader of files.
    subset: which of its subsets; None where it has one, or a default.
    split: which split; parts and sums as `load_dataset` takes them.
    revision: branch, tag or commit; None for the default branch.
    cache_dir: where `datasets` keeps what it made; None for its own place.
    data_files: files or patterns; None for those the dataset names.
    name: of the source; None takes the dataset's, and the subset's.

  Raises:
    ConnectionError: the hub does not answer, and the cache has it not.
    FileNotFoundError: a name that is a path, of nothing.
    OSError: a download failed, or the disk is full.
    PermissionError: the hub does not let this login read the dataset.
    ValueError: there is no such dataset, revision, subset or split, its files
      cannot be read, or the package `datasets` is missing.
  """
  found = find_dataset(
    dataset_name,
    subset=subset,
    split=split,
    revision=revision,
    cache_dir=cache_dir,
    data_files=data_files,
  )
  request, builder = found.request, found.builder()
  if found.offline is None:
    # Before anything large is loaded.
    splits = builder.info.splits or builder.config.data_files or {}
    check_split(request, list(splits))
    try:
      builder.download_and_prepare()
    except Exception as error:
      raise cannot_load(request, error) from error
  check_split(request, list(builder.info.splits or {}))
  return HuggingFaceRecords(
    _split_rows(builder, request), name=name or default_name(request)
  )


def _split_rows(
  builder: "datasets.DatasetBuilder", request: DatasetRequest
) -> "datasets.Dataset":
  """The rows of a split, of which there may be none."""
  try:
    return builder.as_dataset(split=request.split)
  except Exception as error:
    if "corresponds to no data" not in str(error):
      raise cannot_load(request, error) from error
  # A part of a few rows may round to none of them.
  whole = request.split.split("[")[0].split("(")[0]
  return builder.as_dataset(split=whole).select([])
