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

from hpgrain.tools.hub_cache import (
  cached_subsets,
  list_commits,
  noted_commit,
)
from hpgrain.tools.hub_errors import is_network_error, one_line, refused
from hpgrain.tools.hub_request import DatasetRequest

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
        raise refused(request, error) from None
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


def _remember(request: DatasetRequest, commit: str) -> None:
  """Has the hub's cache note what a branch or tag stands for now.

  Files are asked for by their commit, which leaves no such note, and without
  the hub a branch or tag could not be found again.
  """
  from huggingface_hub import hf_hub_download

  revision = request.revision or "main"
  if commit.startswith(revision) or noted_commit(request, revision) == commit:
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
  noted = noted_commit(request, revision)
  there = [entry.commit for entry in cached_subsets(request)]
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
    f" of {request.name} is. {list_commits(request, cached_subsets(request))}"
  )


def _tell(text: str) -> None:
  print(text, file=sys.stderr, flush=True)
