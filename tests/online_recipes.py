"""What the promise about data tokenized while training is checked with.

  Recipe  all that may decide the rows     records, blend, filter, packer, ...
  Leg     all that may not                 batches, processes, caches, ends
  Data    a recipe's records, kept where its sources say

and the fields that the slow reference gives.
"""

import atexit
import dataclasses
import itertools
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import online_data
import reference_online as reference
from reference_packers import Packing, Row

from hpgrain.fields import FieldOptions
from hpgrain.transforms.lazy_tokenizer import LazyTokenizer
from hpgrain.transforms.make import make_transform
from hpgrain.transforms.record_hooks import FilteredTransform


class Mismatch(AssertionError):
  """A row is not the one the rules give."""


class NoRows(Exception):
  """The recipe has no rows, or none near enough."""


@dataclasses.dataclass(frozen=True)
class Recipe:
  """What decides the rows, and nothing else.

  `mode` is "plans" or "streams". `buffer` is of streams, the records that are
  shuffled among each other; None leaves their order. `balance` is None or
  (shares, rows of a block), of plans.
  """

  mode: str
  transform: reference.Transform
  sources: tuple[online_data.SourceRecipe, ...]
  packing: Packing
  seed: int = 0
  shuffle: bool = True
  epochs: int | None = None
  plan_window: int = 16
  num_streams: int = 4
  buffer: int | None = None
  length_buckets: tuple[int, ...] = ()
  balance: tuple[int, int] | None = None
  reset_position_ids: bool = False
  reset_attention_mask: bool = True
  eod_mask_loss: bool = False

  @property
  def names(self) -> list[str]:
    return [f"quelle-ä{i}" for i in range(len(self.sources))]

  @property
  def weights(self) -> list[float] | None:
    weights = [source.weight for source in self.sources]
    return None if None in weights else weights

  @property
  def field_options(self) -> FieldOptions:
    return FieldOptions(
      labels_are_shifted=self.transform.labels_are_shifted,
      eod_mask_loss=self.eod_mask_loss,
      eod_id=reference.EOS,
      reset_position_ids=self.reset_position_ids,
      reset_attention_mask=self.reset_attention_mask,
    )


@dataclasses.dataclass(frozen=True)
class Leg:
  """A stretch of the run: `num_batches`, then it is interrupted.

  A batch is cut into `row_parts` equal runs of rows and at `cuts` of its
  positions; `owners` says which process holds each of these rectangles, run
  after run. The others are of how data are kept and read.
  """

  batch_size: int
  num_batches: int
  row_parts: int = 1
  cuts: tuple[float, ...] = ()
  owners: tuple[int, ...] = (0,)
  cached: bool = False
  keep_tokens: bool = False
  chunk_records: int = 8192
  moved: bool = False
  handover_bytes: int = 2**20

  def parts(self, width: int) -> list[tuple[int, tuple[int, int], tuple]]:
    """The (process, rows, window) of each rectangle of a batch."""
    inner = sorted(round(cut * width) for cut in self.cuts)
    bounds = [0, *inner, width]
    height = self.batch_size // self.row_parts
    found = []
    for run in range(self.row_parts):
      for window in itertools.pairwise(bounds):
        owner = self.owners[len(found) % len(self.owners)]
        found.append((owner, (run * height, (run + 1) * height), window))
    return found


# From a recipe: records, files, the reference's rows.


class Data:
  """The records of a recipe, kept where its sources say."""

  def __init__(self, recipe: Recipe, folder: Path):
    self.recipe, self.folder = recipe, folder
    self.records = [online_data.draw_records(s) for s in recipe.sources]
    self.moves = 0
    self.paths: list[list[str]] = []
    self.write()

  def write(self) -> None:
    """Writes the files, all of them in a folder that is new."""
    self.paths = [
      []
      if source.form in ("memory", "generator")
      else online_data.write(
        records, source, self.folder / f"data{self.moves}" / f"source{i}"
      )
      for i, (source, records) in enumerate(
        zip(self.recipe.sources, self.records, strict=True)
      )
    ]
    self.moves += 1

  def open(self, opener: Any) -> list[Any]:
    """The sources, as `online_data.open_by_number` or `open_in_turn`."""
    return [
      opener(paths, records, source, name=name)
      for paths, records, source, name in zip(
        self.paths,
        self.records,
        self.recipe.sources,
        self.recipe.names,
        strict=True,
      )
    ]

  def order(self) -> reference.Order:
    """The order of the reference."""
    recipe = self.recipe
    return reference.Order(
      names=recipe.names,
      examples=[
        [reference.examples_of(record, recipe.transform) for record in records]
        for records in self.records
      ],
      weights=recipe.weights,
      seed=recipe.seed,
      shuffle=recipe.shuffle,
      epochs=recipe.epochs,
      buffer=recipe.buffer if recipe.mode == "streams" else None,
    )


def keep_even(record: Mapping[str, Any]) -> bool:
  return reference.size_of(record) % 2 == 0


def keep_none(record: Mapping[str, Any]) -> bool:
  del record
  return False


_KEEPS = {"even": keep_even, "none": keep_none}
_folders: list[Path] = []


def tokenizer_folder(folder: Path) -> Path:
  """Where the tokenizer of words lies, saved once a process."""
  if not _folders:
    from helpers_tokenizer import save_word_tokenizer

    # Whoever asks removes its own folder at the end of the case.
    kept = Path(tempfile.mkdtemp(prefix=folder.name))
    atexit.register(shutil.rmtree, kept, ignore_errors=True)
    _folders.append(save_word_tokenizer(kept, size=100, eos_token="<eos>"))
  return _folders[0]


def make_recipe_transform(recipe: Recipe, folder: Path) -> Any:
  """The transform under test; a new one, which has counted nothing."""
  wanted = recipe.transform
  options: dict[str, Any] = {}
  if wanted.kind == "plaintext":
    options["tokenizer"] = LazyTokenizer(tokenizer_folder(folder))
  made = make_transform(
    wanted.kind,
    max_seq_len=wanted.max_seq_len,
    labels_are_shifted=wanted.labels_are_shifted,
    **options,
  )
  if wanted.keep == "all":
    return made
  return FilteredTransform(made, _KEEPS[wanted.keep], name=wanted.keep)


def expected_fields(
  recipe: Recipe, rows: Sequence[Row | None], width: int
) -> dict[str, np.ndarray]:
  return reference.batch(
    rows,
    reference.Fields(
      width=width,
      segment_multiple=recipe.packing.segment_multiple,
      reset_position_ids=recipe.reset_position_ids,
      reset_attention_mask=recipe.reset_attention_mask,
      eod_mask_loss=recipe.eod_mask_loss,
    ),
  )


def expected_width(recipe: Recipe, rows: Sequence[Row]) -> int:
  """The positions of a batch of rows: of the smallest bucket, or a row's."""
  packing = recipe.packing
  used = [packing.used(row[:-1]) + len(row[-1]) for row in rows if row]
  buckets = list(recipe.length_buckets) or [packing.budget]
  if packing.packer not in ("pad", "fixed"):
    buckets = [packing.budget, *(b for b in buckets if b > packing.budget)]
  return min(b for b in buckets if b >= max(used, default=0))


# Comparing.


def compare(
  got: Mapping[str, np.ndarray], want: Mapping[str, np.ndarray], where: str
) -> None:
  """Raises Mismatch unless the fields, dtypes and values are the same."""
  if set(got) != set(want):
    raise Mismatch(f"{where}: fields {sorted(got)}, expected {sorted(want)}")
  for name in want:
    array = np.asarray(got[name])
    if array.dtype != want[name].dtype:
      raise Mismatch(f"{where}: {name} is {array.dtype}")
    if not np.array_equal(array, want[name]):
      raise Mismatch(f"{where}: {name} is\n{array}\nexpected\n{want[name]}")


def part_of(
  fields: Mapping[str, np.ndarray],
  rows: tuple[int, int],
  window: tuple[int, int],
) -> dict[str, np.ndarray]:
  return {
    name: array[rows[0] : rows[1], window[0] : window[1]]
    for name, array in fields.items()
  }


def refuses(make: Any, words: str) -> int:
  """Raises Mismatch unless it is refused, with words that are found."""
  try:
    make()
  except ValueError as error:
    if re.search(words, str(error)):
      return 0
    raise
  raise Mismatch(f"nothing was refused, with {words!r}")
