"""What is asked for of a dataset, and the checks that ask nobody."""

import dataclasses
import re
from pathlib import Path

# Readers of `datasets` whose rows can hold texts, by the names it gives them.
READERS = ("arrow", "csv", "json", "parquet", "text")

# How the command line calls what is asked for.
_FLAGS = {
  "name": "--dataset",
  "keys": "--json-keys",
  "subset": "--dataset-subset",
  "split": "--dataset-split",
  "revision": "--revision",
  "data_dir": "--data-dir",
  "data_files": "--data-files",
}

# What a folder has that `Dataset.save_to_disk` wrote.
_SAVED = ("state.json", "dataset_dict.json")


@dataclasses.dataclass(frozen=True)
class DatasetRequest:
  """A split of a dataset, as the command line or a program asks for it.

  Attributes:
    name: its name on the hub, a local folder, or one of `READERS`.
    keys: the columns that hold texts; none to take all, whatever they hold.
    subset: which of its subsets; None where it has one, or a default.
    split: which split; parts of it and sums, as `load_dataset` takes them.
    revision: branch, tag or commit on the hub; None for its default branch.
    cache_dir: where `datasets` keeps what it made; None for its own place.
    data_dir: a folder in the dataset; None for all of it.
    data_files: files or patterns; None for those the dataset names.
    num_proc: processes that make the rows; None for this one.
    by_flags: whether messages name the command's flags, or what a program
      calls the same.
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
  by_flags: bool = True

  def word(self, field: str) -> str:
    """How whoever asks calls one of the attributes."""
    return _FLAGS[field] if self.by_flags else field

  @property
  def again(self) -> str:
    """What to do where asking another time may help."""
    return "run the same command again" if self.by_flags else "start it again"

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
  for field in ("subset", "split", "revision", "data_dir"):
    if getattr(request, field) == "":
      raise ValueError(f"The {field} is empty: name one, or leave it out.")
  if request.is_reader:
    if request.data_files is None and request.data_dir is None:
      raise ValueError(
        f"{name!r} is a reader of files, so it needs some: give them with"
        f" {request.word('data_files')}"
        + ("." if request.by_flags else ", or as data_path.")
      )
    if request.subset is not None:
      raise ValueError(
        f"{name!r} is a reader of files, which have no subsets. Leave out"
        f" {request.word('subset')}, got {request.subset!r}."
      )
  if request.is_local:
    if request.revision is not None:
      raise ValueError(
        f"{name!r} is not on the hub and has no revisions. Leave out"
        f" {request.word('revision')}, got {request.revision!r}."
      )
    if any((path / saved).is_file() for saved in _SAVED):
      files = "offline_preparation" if request.by_flags else "data_path"
      raise ValueError(
        f"{name} was written by save_to_disk. Its .arrow files are read by"
        f" {files}, one split at a time."
      )
    return
  if path.is_file():
    files = "to offline_preparation" if request.by_flags else "as data_path"
    raise ValueError(
      f"{name} is a file. Give it {files}"
      + (
        f", or name its reader ({', '.join(READERS)}) here and the file with"
        f" {request.word('data_files')}."
        if request.by_flags
        else "."
      )
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
