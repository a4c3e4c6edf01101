"""What the libraries of the hub raise in, one line that says what to do out."""

import contextlib
from collections.abc import Iterator, Sequence

from hpgrain.nearest import did_you_mean
from hpgrain.tools.hub_request import DatasetRequest


def no_such(what: str, request: DatasetRequest, there: Sequence[str]) -> str:
  """Says that a subset or split is not there, and which are."""
  asked = request.subset if what == "subset" else request.split
  flag = request.word(what)
  listed = ", ".join(there)
  if asked is None:
    return (
      f"{request.name} has several {what}s: name one with {flag}. They are:"
      f" {listed}."
    )
  named = f" ({flag})" if request.by_flags else ""
  return (
    f"{request.name} has no {what} {asked!r}{named}. There"
    f" {'is' if len(there) == 1 else 'are'}: {listed}."
    f"{did_you_mean(str(asked), there)}"
  )


def cannot_load(
  request: DatasetRequest, error: BaseException
) -> OSError | ValueError:
  """What to raise, in one line, where `datasets` could not load something."""
  from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
  )

  what = f"Hugging Face datasets cannot load {request.name}"
  kept = f"What was downloaded is kept; {request.again}."
  chain = list(_chain(error))
  for one in chain:
    if isinstance(one, GatedRepoError) or "is a gated dataset" in str(one):
      return gated(request)
    if isinstance(one, EntryNotFoundError):
      # How datasets finds out what a repository does not have.
      continue
    if isinstance(one, HfHubHTTPError) or is_network_error(one):
      return ConnectionError(f"{what}: {one_line(one)} {kept}")
    if isinstance(one, OSError) and one.errno is not None:
      return OSError(one.errno, f"{what}: {one.strerror}", one.filename)
  if isinstance(error, ConnectionError):
    return ConnectionError(f"{what}: {one_line(error)} {kept}")
  if isinstance(error, FileNotFoundError):
    # Without the list of all suffixes that it knows.
    said = one_line(error).split(" with any supported extension")[0]
    return FileNotFoundError(f"{what}: {said.rstrip('.')}.")
  if "Couldn't find cache for" in str(error):
    # What went wrong before it looked in its cache, it does not say.
    asked = "".join(
      f" {flag} {value!r}"
      for flag, value in (
        (request.word("subset"), request.subset),
        (request.word("data_dir"), request.data_dir),
        (
          request.word("data_files"),
          request.data_files and list(request.data_files),
        ),
      )
      if value
    )
    return FileNotFoundError(
      f"{what}: there is no file in it for{asked or ' the split'}, or the hub"
      f" was lost. Check these, or {request.again}."
    )
  if isinstance(error, StopIteration):
    return ValueError(f"{what}: there is no row in its files.")
  if any("BatchSize must be greater than 0" in str(one) for one in chain):
    return ValueError(
      f"{what}: it has a Parquet file without rows, which datasets cannot read."
      f" Name the others with {request.word('data_files')}."
    )
  if len(chain) > 1:
    return ValueError(
      f"{what}: {type(error).__name__}, from {type(chain[1]).__name__}. What"
      " that says is not shown, since it may quote the data; load_dataset in"
      " Python shows it."
    )
  return ValueError(f"{what}: {one_line(error)}")


def refused(
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


def gated(request: DatasetRequest) -> PermissionError:
  """What to raise for a dataset that has to be asked for on the hub."""
  from huggingface_hub import constants

  return PermissionError(
    f"The dataset {request.name} is gated: ask for access at"
    f" {constants.ENDPOINT}/datasets/{request.name}, then give a token"
    " (`hf auth login`, or HF_TOKEN)."
  )


def is_network_error(error: BaseException) -> bool:
  """Whether a request got no answer.

  By name: which package huggingface_hub asks with depends on its version
  (httpx, httpx2), and all have this class.
  """
  return any(kind.__name__ == "TransportError" for kind in type(error).__mro__)


def one_line(error: BaseException) -> str:
  """What an error says, on one line, with a period."""
  said = " ".join(str(error).split()) or type(error).__name__
  return said if said.endswith((".", "!", "?")) else f"{said}."


def _branches_and_tags(name: str) -> str:
  from huggingface_hub import HfApi

  with contextlib.suppress(Exception):
    # Only to be helpful: the error is another one.
    refs = HfApi().list_repo_refs(name, repo_type="dataset")
    names = [ref.name for ref in (*refs.branches, *refs.tags)]
    return f" It has: {', '.join(names[:20])}."
  return ""


def _chain(error: BaseException) -> Iterator[BaseException]:
  """An error and what it came of."""
  one: BaseException | None = error
  while one is not None:
    yield one
    one = one.__cause__ or (
      None if one.__suppress_context__ else one.__context__
    )
