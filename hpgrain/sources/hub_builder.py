r"""A Hugging Face dataset's name in, the builder of its rows out.

name on the hub    revision -> the commit it is now -> that commit's builder
without the hub    what the cache has of that commit, and no other
local files        a cache by the files' times: a changed file is read anew
"""

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hpgrain.tools.hub_cache import open_cached
from hpgrain.tools.hub_dataset import local_files, open_builder
from hpgrain.tools.hub_request import DatasetRequest, check_dataset_request
from hpgrain.tools.hub_revision import resolve_revision

if TYPE_CHECKING:
  from datasets import DatasetBuilder


@dataclasses.dataclass(frozen=True)
class FoundDataset:
  """What a request is of, in a form that can be kept and asked again.

  Attributes:
    request: as it was asked, with the cache that is taken.
    commit: on the hub; None for local files.
    offline: why the hub is not asked; None where it answered.
  """

  request: DatasetRequest
  commit: str | None
  offline: str | None

  def builder(self) -> "DatasetBuilder":
    """Opens the builder; no data is downloaded.

    Raises:
      ConnectionError: the hub was lost, or it is not asked and the cache has
        not what it would be asked for.
      ValueError: there is no such subset, no file, or nothing to read it with.
    """
    if self.offline is not None:
      return open_cached(self.request, str(self.commit), why=self.offline)
    return open_builder(self.request, commit=self.commit)


def find_dataset(
  dataset_name: str,
  *,
  subset: str | None,
  split: str,
  revision: str | None,
  cache_dir: str | None,
  data_files: str | Sequence[str] | None,
) -> FoundDataset:
  """Finds out which commit or files a dataset's name stands for now.

  Args:
    dataset_name: its name on the hub, a local folder, or a reader of files.
    subset: which of its subsets; None where it has one, or a default.
    split: which split, as `load_dataset` takes it.
    revision: branch, tag or commit; None for the default branch.
    cache_dir: where `datasets` keeps what it made; None for its own place.
    data_files: files or patterns; None for those the dataset names.

  Raises:
    ConnectionError: the hub does not answer, and the cache does not tell.
    FileNotFoundError: a name that is a path, of nothing.
    PermissionError: the hub does not let this login read the dataset.
    ValueError: there is no such dataset or revision, what is asked for makes
      no sense, or the package `datasets` is missing.
  """
  try:
    import datasets
  except ImportError:
    raise ValueError(
      f"{dataset_name} is loaded with the package datasets, which is not"
      " installed. Install it (pip install datasets)."
    ) from None
  if isinstance(data_files, str):
    data_files = [data_files]
  request = DatasetRequest(
    name=dataset_name,
    keys=(),
    subset=subset,
    split=split,
    revision=revision,
    cache_dir=cache_dir,
    data_files=None if data_files is None else tuple(data_files),
    by_flags=False,
  )
  check_dataset_request(request)
  if not request.is_local:
    found = resolve_revision(request, have=lambda commit: False)
    return FoundDataset(request, found.commit, found.offline)
  # In a place by the files' times: datasets may not see that one changed.
  files = local_files(open_builder(request, commit=None))
  cache = Path(cache_dir or datasets.config.HF_DATASETS_CACHE).expanduser()
  data = json.dumps(files).encode()
  place = cache / "hpgrain" / hashlib.blake2b(data, digest_size=8).hexdigest()
  request = dataclasses.replace(request, cache_dir=str(place))
  return FoundDataset(request, None, None)


def default_name(request: DatasetRequest) -> str:
  """What a source is called: its dataset, and the subset where one is named.

  Of a folder its name alone: a copy elsewhere is the same source.
  """
  name = (
    Path(request.name).resolve().name if request.is_folder else request.name
  )
  return name if request.subset is None else f"{name}/{request.subset}"
