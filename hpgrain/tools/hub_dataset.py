"""A dataset that Hugging Face `datasets` can load in, its table of rows out.

  name        a dataset of the hub, a local folder, or a reader of files
  builder     what `datasets` makes of it: its subset, its splits, its files
  rows        one split of it, on disk in the cache, its columns checked

What `load_dataset` does is done here in its steps, so that a wrong subset or
split is found before anything large is downloaded, and so that nothing is
taken from a cache that is not what was asked for.
"""

import dataclasses
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  from datasets import Dataset, DatasetBuilder

# Readers of `datasets` whose rows can hold texts, by the names it gives them.
READERS = ("arrow", "csv", "json", "parquet", "text")

_COMMIT = re.compile(r"[0-9a-f]{40}")
# What a folder has that `Dataset.save_to_disk` wrote.
_SAVED = ("state.json", "dataset_dict.json")


@dataclasses.dataclass(frozen=True)
class DatasetRequest:
  """A split of a dataset, as the command line asks for it.

  Attributes:
    name: its name on the hub, a local folder, or one of `READERS`.
    keys: the columns that hold texts.
    subset: which of its subsets; None where it has one, or a default.
    split: which split; parts of it and sums, as `load_dataset` takes them.
    revision: branch, tag or commit on the hub; None for its default branch.
    cache_dir: where `datasets` keeps what it made; None for its own place.
    data_dir: a folder in the dataset; None for all of it.
    data_files: files or patterns; None for those the dataset names.
    num_proc: processes that make the rows; None for this one.
  """

  name: str
  keys: tuple[str, ...]
  subset: str | None = None
  split: str = "train"
  revision: str | None = None
  cache_dir: str | None = None
  data_dir: str | None = None
  data_files: tuple[str, ...] | None = None
  num_proc: int | None = None

  @property
  def is_reader(self) -> bool:
    """Whether the name is that of a reader of files."""
    return self.name in READERS

  @property
  def is_folder(self) -> bool:
    """Whether the name is a local folder's; a reader's comes before it."""
    return not self.is_reader and Path(self.name).is_dir()

  @property
  def is_local(self) -> bool:
    """Whether the dataset is not on the hub."""
    return self.is_reader or self.is_folder


def check_dataset_request(request: DatasetRequest) -> None:
  """Checks what can be checked before anything is asked of the hub.

  Raises:
    FileNotFoundError: a name that is a path, of nothing.
    ValueError: all else that cannot be right.
  """
  name, path = request.name, Path(request.name)
  if request.num_proc is not None and request.num_proc < 1:
    raise ValueError(f"num_proc must be positive, got {request.num_proc}.")
  if request.is_reader:
    if request.data_files is None and request.data_dir is None:
      raise ValueError(
        f"{name!r} is a reader of files, so it needs some: give them with"
        " --data-files."
      )
    if request.subset is not None:
      raise ValueError(
        f"{name!r} is a reader of files, which have no subsets. Leave out"
        f" --dataset-subset, got {request.subset!r}."
      )
  if request.is_local:
    if request.revision is not None:
      raise ValueError(
        f"{name!r} is not on the hub and has no revisions. Leave out"
        f" --revision, got {request.revision!r}."
      )
    if any((path / saved).is_file() for saved in _SAVED):
      raise ValueError(
        f"{name} was written by save_to_disk. Its .arrow files are read by"
        " offline_preparation, one split at a time."
      )
    return
  if path.is_file():
    raise ValueError(
      f"{name} is a file. Give it to offline_preparation, or name its reader"
      f" ({', '.join(READERS)}) here and the file with --data-files."
    )
  if name.startswith(("/", ".", "~")):
    raise FileNotFoundError(
      f"The dataset folder {name} does not exist. Give a folder, or the name"
      " of a dataset on the hub, such as 'Salesforce/wikitext'."
    )
  if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name):
    raise ValueError(
      f"{name!r} is no name of a dataset on the hub, nor a local folder. Names"
      " look like 'Salesforce/wikitext'."
    )


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
      f" take the commit {builder.hash} of its cache instead of {commit}. Run"
      " the same command again."
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
        f"No file matches what --data-files or the dataset names for its split"
        f" {str(split)!r}."
      )
    found.append({"split": str(split), "files": marks})
  return found


def no_such(what: str, request: DatasetRequest, there: Sequence[str]) -> str:
  """Says that a subset or split is not there, and which are."""
  asked = request.subset if what == "subset" else request.split
  flag = f"--dataset-{what}"
  listed = ", ".join(there)
  if asked is None:
    return (
      f"{request.name} has several {what}s: name one with {flag}. They are:"
      f" {listed}."
    )
  return (
    f"{request.name} has no {what} {asked!r} ({flag}). There"
    f" {'is' if len(there) == 1 else 'are'}: {listed}."
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
  kept = "What was downloaded is kept; run the same command again."
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
        ("--dataset-subset", request.subset),
        ("--data-dir", request.data_dir),
        ("--data-files", request.data_files and list(request.data_files)),
      )
      if value
    )
    return FileNotFoundError(
      f"{what}: there is no file in it for{asked or ' the split'}, or the hub"
      " was lost. Check these, or run the same command again."
    )
  if isinstance(error, StopIteration):
    return ValueError(f"{what}: there is no row in its files.")
  if any("BatchSize must be greater than 0" in str(one) for one in chain):
    return ValueError(
      f"{what}: it has a Parquet file without rows, which datasets cannot read."
      " Name the others with --data-files."
    )
  if len(chain) > 1:
    return ValueError(
      f"{what}: {type(error).__name__}, from {type(chain[1]).__name__}. What"
      " that says is not shown, since it may quote the data; load_dataset in"
      " Python shows it."
    )
  return ValueError(f"{what}: {one_line(error)}")


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


def _chain(error: BaseException) -> Iterator[BaseException]:
  """An error and what it came of."""
  one: BaseException | None = error
  while one is not None:
    yield one
    one = one.__cause__ or (
      None if one.__suppress_context__ else one.__context__
    )


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
        " file; of a dataset on the hub, give its name with --dataset and the"
        " file's path in it with --data-files."
      )
    yield {"path": file, "version": origin}
