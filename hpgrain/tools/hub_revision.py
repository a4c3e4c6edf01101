"""A dataset's name and a revision in, the commit to take out.

  the hub answers    a branch, a tag or a commit is what the hub says
  it does not        a commit is itself; a branch or tag is what it was when
                     the hub last said; none is the default branch, or the
                     newest that the cache has, which is told

Without the hub, `datasets` itself would take the newest commit of its cache,
whatever was asked for; so commits of the cache are opened here by their names.
"""

import contextlib
import dataclasses
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from hpgrain.tools.durable import read_json
from hpgrain.tools.hub_dataset import (
  DatasetRequest,
  gated,
  is_network_error,
  no_such,
  one_line,
)

if TYPE_CHECKING:
  from datasets import DatasetBuilder

_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHORTEST_COMMIT = 7
# Seconds to wait before a hub that did not answer is asked again.
_PAUSES = (1.0, 3.0)
_TIMEOUT = 30.0
_TOO_MANY_REQUESTS, _SERVER_ERROR = 429, 500


@dataclasses.dataclass(frozen=True)
class Revision:
  """What a revision stands for.

  Attributes:
    commit: 40 hex digits.
    offline: why the hub could not be asked; None where it answered.
  """

  commit: str
  offline: str | None


@dataclasses.dataclass(frozen=True)
class _Cached:
  """A subset of a commit that `datasets` has whole in its cache."""

  subset: str
  version: str
  commit: str
  changed: float


class _UnreachableError(Exception):
  """Says why the hub does not answer."""


def resolve_revision(
  request: DatasetRequest, *, have: Callable[[str], bool]
) -> Revision:
  """Finds the commit that is asked for.

  Args:
    request: of a dataset on the hub.
    have: whether a commit's rows are at hand without the hub and its cache.

  Raises:
    ConnectionError: the hub does not answer, and the cache does not tell.
    PermissionError: the hub does not let this login read the dataset.
    ValueError: there is no such dataset or revision.
  """
  if request.revision and _COMMIT.fullmatch(request.revision):
    if have(request.revision):
      return Revision(request.revision, None)
  try:
    commit = _ask_hub(request)
  except _UnreachableError as error:
    why = str(error)
    return Revision(_from_cache(request, why, have), why)
  _remember(request, commit)
  return Revision(commit, None)


def open_cached(
  request: DatasetRequest, revision: Revision
) -> "DatasetBuilder":
  """Opens a commit in the cache of `datasets`, without the hub.

  Raises:
    ConnectionError: the cache does not have it.
    ValueError: it has the commit, but not the subset.
  """
  from datasets.packaged_modules.cache.cache import Cache

  there = _cached(request)
  found = [entry for entry in there if entry.commit == revision.commit]
  if request.data_dir is not None or request.data_files is not None:
    raise ConnectionError(
      f"{revision.offline}, and --data-dir and --data-files cannot be looked up"
      " in the cache without it. Run this where the hub can be reached."
    )
  if not found:
    raise ConnectionError(
      f"{revision.offline}, and the cache does not have the commit"
      f" {revision.commit} of {request.name}. {_listed(there)}"
    )
  subset = _subset(request, revision, found)
  entry = next((entry for entry in found if entry.subset == subset), None)
  if entry is None:
    names = sorted({entry.subset for entry in found})
    raise ConnectionError(
      f"{revision.offline}, and the cache has these subsets of the commit"
      f" {revision.commit} of {request.name}: {', '.join(names)}. Run this"
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


def _ask_hub(request: DatasetRequest) -> str:
  import datasets
  from huggingface_hub import HfApi, constants
  from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

  off = "The hub is not asked (HF_HUB_OFFLINE or HF_DATASETS_OFFLINE is set)"
  if datasets.config.HF_HUB_OFFLINE:
    raise _UnreachableError(off)
  why = ""
  for pause in (*_PAUSES, None):
    try:
      info = HfApi().dataset_info(
        request.name, revision=request.revision, timeout=_TIMEOUT
      )
      return str(info.sha)
    except OfflineModeIsEnabled:
      raise _UnreachableError(off) from None
    except HfHubHTTPError as error:
      status = error.response.status_code
      if status != _TOO_MANY_REQUESTS and status < _SERVER_ERROR:
        raise _refused(request, error) from None
      why = f"it answers {status}."
    except Exception as error:
      if not is_network_error(error):
        raise
      why = one_line(error)
    if pause is not None:
      time.sleep(pause)
  raise _UnreachableError(
    f"The hub at {constants.ENDPOINT} cannot be reached: {why.rstrip('.')}"
  )


def _refused(
  request: DatasetRequest, error: Exception
) -> PermissionError | ValueError:
  """What to raise where the hub answers that it does not give a dataset."""
  from huggingface_hub import constants
  from huggingface_hub.errors import (
    GatedRepoError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
  )

  name, hub = request.name, constants.ENDPOINT
  if isinstance(error, GatedRepoError):
    return gated(request)
  if isinstance(error, RepositoryNotFoundError):
    return ValueError(
      f"{hub} has no dataset {name!r} that this login may see. Check the name;"
      " a private one needs a token (`hf auth login`, or HF_TOKEN)."
    )
  if isinstance(error, RevisionNotFoundError):
    return ValueError(
      f"{name} has no revision {request.revision!r} on {hub}."
      f"{_branches_and_tags(name)} Or give a commit."
    )
  return ValueError(
    f"{hub} does not give the dataset {name}: {one_line(error)}"
  )


def _branches_and_tags(name: str) -> str:
  from huggingface_hub import HfApi

  with contextlib.suppress(Exception):
    # Only to be helpful: the error is another one.
    refs = HfApi().list_repo_refs(name, repo_type="dataset")
    names = [ref.name for ref in (*refs.branches, *refs.tags)]
    return f" It has: {', '.join(names[:20])}."
  return ""


def _remember(request: DatasetRequest, commit: str) -> None:
  """Has the hub's cache note what a branch or tag stands for now.

  Files are asked for by their commit, which leaves no such note, and without
  the hub a branch or tag could not be found again.
  """
  from huggingface_hub import hf_hub_download

  revision = request.revision or "main"
  if commit.startswith(revision) or _noted(request, revision) == commit:
    return
  # The note is made whether there is such a file or not.
  with contextlib.suppress(Exception):
    hf_hub_download(
      request.name, "README.md", repo_type="dataset", revision=revision
    )


def _from_cache(
  request: DatasetRequest, why: str, have: Callable[[str], bool]
) -> str:
  """The commit that is asked for, of those that are known without the hub."""
  revision = request.revision or "main"
  noted = _noted(request, revision)
  there = [entry.commit for entry in _cached(request)]
  if request.revision is None:
    # The default branch where that is at hand, else the newest.
    for commit in [noted, *there] if noted else there:
      if commit in there or have(commit):
        what = "its newest commit in the cache"
        if commit == noted:
          what = "the last commit seen of its branch main"
        _tell(f"{why}. Taking {what}: {request.name} at {commit}.")
        return commit
    what = request.name
    if request.subset is not None:
      what = f"the subset {request.subset!r} of {what}"
    raise ConnectionError(
      f"{why}, and {what} is not in the cache. Run this once where the hub can"
      " be reached."
    )
  if _COMMIT.fullmatch(revision):
    return revision
  if noted:
    _tell(
      f"{why}. Taking {request.name} at {noted}, which {revision!r} was when"
      " last seen."
    )
    return noted
  matches = {commit for commit in there if commit.startswith(revision)}
  if len(revision) >= _SHORTEST_COMMIT and len(matches) == 1:
    return matches.pop()
  raise ConnectionError(
    f"{why}, and the cache does not tell what commit the revision {revision!r}"
    f" of {request.name} is. {_listed(_cached(request))}"
  )


def _listed(there: list[_Cached]) -> str:
  commits = list(dict.fromkeys(entry.commit for entry in there))
  if not commits:
    return "None of it is there. Run this once where the hub can be reached."
  return (
    f"It has {', '.join(commits[:5])}: give one of those with --revision, or"
    " run this where the hub can be reached."
  )


def _cached(request: DatasetRequest) -> list[_Cached]:
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
      found.append(_Cached(subset, version, commit, changed))
  if request.subset is not None:
    found = [entry for entry in found if entry.subset == request.subset]
  return sorted(found, key=lambda entry: entry.changed, reverse=True)


def _subset(
  request: DatasetRequest, revision: Revision, found: list[_Cached]
) -> str:
  """The subset that is meant, as the hub would have it.

  Raises:
    ValueError: there are several and none is named.
  """
  if request.subset is not None:
    return request.subset
  names = sorted({entry.subset for entry in found})
  declared = _declared_subsets(request, revision.commit)
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


def _noted(request: DatasetRequest, revision: str) -> str | None:
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


def _tell(text: str) -> None:
  print(text, file=sys.stderr, flush=True)
