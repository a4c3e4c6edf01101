r"""Hugging Face datasets: a `datasets.Dataset`, or what `load_dataset` makes.

open_hugging_face("Salesforce/wikitext", subset="wikitext-2-raw-v1")
    the first time: downloaded, and kept in the cache
    after that:     mapped from the cache
"""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgrain.nearest import did_you_mean
from hpgrain.sources.by_index import digests
from hpgrain.sources.records import Record, record_numbers

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
    ValueError: there is no such split, or the package is missing.
    Exception: as `load_dataset` raises it, where it cannot be loaded.
  """
  try:
    import datasets
  except ImportError:
    raise ValueError(
      f"{dataset_name} is loaded with the package datasets, which is not"
      " installed. Install it (pip install datasets)."
    ) from None
  builder = datasets.load_dataset_builder(
    dataset_name,
    subset,
    revision=revision,
    cache_dir=cache_dir,
    data_files=data_files,
  )
  _check_split(builder, dataset_name, split)
  builder.download_and_prepare()
  _check_split(builder, dataset_name, split)
  if name is None:
    name = f"{dataset_name}/{subset}" if subset else dataset_name
  return HuggingFaceRecords(builder.as_dataset(split=split), name=name)


def _check_split(
  builder: "datasets.DatasetBuilder", dataset_name: str, split: str
) -> None:
  """Refuses a split that is not there, before anything large is loaded."""
  import datasets

  splits = builder.info.splits or builder.config.data_files or {}
  names = [str(known) for known in splits]
  try:
    parts = datasets.ReadInstruction.from_spec(split).to_spec()
  except (AssertionError, ValueError):
    raise ValueError(
      f"The split {split!r} of {dataset_name} cannot be read. Give a name such"
      " as 'train', a part as in 'train[:10%]' or 'train[100:200]', or a sum of"
      " such with '+'."
    ) from None
  for part in parts.split("+"):
    known = part.split("[")[0].split("(")[0]
    if names and known not in (*names, "all"):
      raise ValueError(
        f"{dataset_name} has no split {known!r}; it has"
        f" {', '.join(map(repr, names))}.{did_you_mean(known, names)}"
      )
