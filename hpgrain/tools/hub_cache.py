"""What this machine has of the hub's datasets, opened without the hub.

  HF_HOME/datasets/org___name/SUBSET/VERSION/COMMIT/   rows, by `datasets`
  HF_HOME/hub/datasets--org--name/refs/BRANCH          the commit it was
  HF_HOME/hub/datasets--org--name/snapshots/COMMIT/    its card, README.md

Both folders are laid out, written and locked by Hugging Face's libraries, and
are only read here.
"""

import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING

from hpgrain.tools.durable import read_json
from hpgrain.tools.hub_errors import no_such
from hpgrain.tools.hub_request import DatasetRequest

if TYPE_CHECKING:
  from datasets import DatasetBuilder

_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclasses.dataclass(frozen=True)
class CachedSubset:
  """A subset of a commit that `datasets` has whole in its cache."""

  subset: str
  version: str
  commit: str
  changed: float


def open_cached(
  request: DatasetRequest, commit: str, *, why: str
) -> "DatasetBuilder":
  """Opens a commit in the cache of `datasets`, without the hub.

  Args:
    request: what is asked for.
    commit: the one that is meant.
    why: the hub is not asked; begins the messages.

  Raises:
    ConnectionError: the cache does not have it.
    ValueError: it has the commit, but not the subset.
  """
  from datasets.packaged_modules.cache.cache import Cache

  there = cached_subsets(request)
  found = [entry for entry in there if entry.commit == commit]
  if request.data_dir is not None or request.data_files is not None:
    raise ConnectionError(
      f"{why}, and {request.word('data_dir')} and"
      f" {request.word('data_files')} cannot be looked up"
      " in the cache without it. Run this where the hub can be reached."
    )
  if not found:
    raise ConnectionError(
      f"{why}, and the cache does not have the commit"
      f" {commit} of {request.name}. {list_commits(request, there)}"
    )
  subset = _subset(request, commit, found)
  entry = next((entry for entry in found if entry.subset == subset), None)
  if entry is None:
    names = sorted({entry.subset for entry in found})
    raise ConnectionError(
      f"{why}, and the cache has these subsets of the commit"
      f" {commit} of {request.name}: {', '.join(names)}. Run this"
      f" where the hub can be reached to get {subset!r}."
    )
  return Cache(
    cache_dir=request.cache_dir,
    dataset_name=request.name.rsplit("/", 1)[-1],
    config_name=entry.subset,
    version=entry.version,
    hash=entry.commit,
    repo_id=request.name,
  )


def cached_subsets(request: DatasetRequest) -> list[CachedSubset]:
  """What the cache of `datasets` has of a dataset, newest first."""
  import datasets
  from datasets.naming import camelcase_to_snakecase

  root = Path(request.cache_dir or datasets.config.HF_DATASETS_CACHE)
  *owner, name = request.name.split("/")
  folder = root.expanduser() / "___".join(
    [*owner, camelcase_to_snakecase(name)]
  )
  found = []
  for info in folder.glob("*/*/*/dataset_info.json"):
    subset, version, commit = info.parent.parts[-3:]
    content = read_json(info) or {}
    # Other names are of subsets made with --data-dir or --data-files.
    if _COMMIT.fullmatch(commit) and content.get("config_name") == subset:
      changed = info.parent.stat().st_mtime
      found.append(CachedSubset(subset, version, commit, changed))
  if request.subset is not None:
    found = [entry for entry in found if entry.subset == request.subset]
  return sorted(found, key=lambda entry: entry.changed, reverse=True)


def noted_commit(request: DatasetRequest, revision: str) -> str | None:
  """The commit that the hub's cache notes for a branch or tag."""
  from huggingface_hub import constants
  from huggingface_hub.file_download import repo_folder_name

  folder = Path(constants.HF_HUB_CACHE) / repo_folder_name(
    repo_id=request.name, repo_type="dataset"
  )
  path = folder / "refs" / revision
  if ".." in path.parts or not path.is_file():
    return None
  commit = path.read_text(encoding="utf-8").strip()
  return commit if _COMMIT.fullmatch(commit) else None


def list_commits(request: DatasetRequest, there: list[CachedSubset]) -> str:
  """Says which commits the cache has, for the end of a message."""
  commits = list(dict.fromkeys(entry.commit for entry in there))
  if not commits:
    return "None of it is there. Run this once where the hub can be reached."
  return (
    f"It has {', '.join(commits[:5])}: give one of those with"
    f" {request.word('revision')}, or run this where the hub can be reached."
  )


def _subset(
  request: DatasetRequest, commit: str, found: list[CachedSubset]
) -> str:
  """The subset that is meant, as the hub would have it.

  Raises:
    ValueError: there are several and none is named.
  """
  if request.subset is not None:
    return request.subset
  names = sorted({entry.subset for entry in found})
  declared = _declared_subsets(request, commit)
  if declared:
    default = [name for name, is_default in declared if is_default]
    all_names = [name for name, _ in declared]
    if len(all_names) == 1 or default:
      return (default or all_names)[0]
    if "default" not in all_names:
      raise ValueError(no_such("subset", request, all_names))
    return "default"
  if len(names) > 1 and "default" not in names:
    raise ValueError(no_such("subset", request, names))
  return "default" if "default" in names else names[0]


def _declared_subsets(
  request: DatasetRequest, commit: str
) -> list[tuple[str, bool]]:
  """Names of subsets in the dataset's card, and whether each is the default."""
  from huggingface_hub import DatasetCard, try_to_load_from_cache

  path = try_to_load_from_cache(
    request.name, "README.md", revision=commit, repo_type="dataset"
  )
  if not isinstance(path, str):
    return []
  configs = DatasetCard.load(path).data.to_dict().get("configs") or []
  return [
    (str(config["config_name"]), bool(config.get("default")))
    for config in configs
  ]
